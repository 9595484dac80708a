//! What an agent and its node's PMIx server say to each other. The server is a process of its own, since
//! libpmix has threads, and may wait, or fail, in ways that an agent must not.
//!
//! Each message is a frame as on links (length, then what postcard makes of the type here), and both ends
//! are the same program. The agent speaks first.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::codec::{self, CodecError};

/// What a node's PMIx server has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmixJob {
    /// The job's name.
    pub namespace: String,
    /// Its node.
    pub node: u32,
    /// Name of each node, and its PEs, which have consecutive ranks.
    pub nodes: Vec<(String, u32)>,
    /// PEs of each program, in the order of ranks.
    pub programs: Vec<u32>,
    /// Directory for its files, and for those of its processes.
    pub dir: String,
    /// The libpmix to load, if one was named.
    pub library: Option<String>,
}

impl PmixJob {
    /// Ranks of the PEs of a node.
    pub fn ranks(&self, node: u32) -> Range<u32> {
        let count = |n: &(String, u32)| n.1;
        let first = self.nodes[..node as usize].iter().map(count).sum();
        first..first + self.nodes[node as usize].1
    }

    /// PEs of the job.
    pub fn n_pes(&self) -> u32 {
        self.nodes.iter().map(|n| n.1).sum()
    }
}

/// From the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServer<'a> {
    /// Begin; always the first.
    Serve(PmixJob),
    /// A fence is complete.
    Fenced {
        /// The server's number for it.
        id: u64,
        /// PMIx's status.
        status: i32,
        /// What all have given.
        #[serde(serialize_with = "codec::bytes")]
        data: &'a [u8],
    },
    /// What a process of another node has put.
    Fetched {
        /// The server's number for its question.
        id: u64,
        /// PMIx's status.
        status: i32,
        /// It.
        #[serde(serialize_with = "codec::bytes")]
        data: &'a [u8],
    },
    /// What has a process of this node put?
    Lookup {
        /// The agent's number for its question.
        id: u64,
        /// Rank of the process.
        rank: u32,
    },
    /// Does the server still work?
    Ping(u64),
}

/// From the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromServer<'a> {
    /// It serves: variables, as `NAME=value`, by which processes find it.
    Ready {
        /// Of all processes of the node.
        common: Vec<Vec<u8>>,
        /// Of each of them.
        own: Vec<Vec<Vec<u8>>>,
    },
    /// It cannot serve; for the user.
    Failed(String),
    /// A process has initialised.
    Connected(u32),
    /// A process has finalized.
    Finalized(u32),
    /// A process ends the job.
    Abort {
        /// Its rank.
        rank: u32,
        /// The status that it gives.
        status: i32,
        /// Its words; may be empty.
        #[serde(serialize_with = "codec::clipped")]
        message: String,
    },
    /// A process has words for the user.
    Log {
        /// Its rank.
        rank: u32,
        /// They.
        #[serde(serialize_with = "codec::clipped")]
        text: String,
    },
    /// All of the node who belong to a fence have joined it.
    Fence {
        /// The server's number for it.
        id: u64,
        /// Whom it is of; nobody stands for all.
        ranks: Vec<u32>,
        /// What they give.
        #[serde(serialize_with = "codec::bytes")]
        data: &'a [u8],
    },
    /// What has a process of another node put?
    Fetch {
        /// The server's number for its question.
        id: u64,
        /// Rank of the process.
        rank: u32,
    },
    /// What a process of this node has put.
    PutBy {
        /// As in the question.
        id: u64,
        /// PMIx's status.
        status: i32,
        /// It.
        #[serde(serialize_with = "codec::bytes")]
        data: &'a [u8],
    },
    /// The answer to a `Ping`, with its number.
    Pong(u64),
}

impl<'a> ToServer<'a> {
    /// Appends it as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        super::encode(out, |out| codec::encode(self, out));
    }

    /// Reads the content of a frame.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn decode(content: &'a [u8]) -> Result<Self, CodecError> {
        match codec::decode(content)? {
            Self::Serve(job) if job.node as usize >= job.nodes.len() => Err(CodecError::Value {
                what: "node",
                value: job.node.into(),
            }),
            message => Ok(message),
        }
    }
}

impl<'a> FromServer<'a> {
    /// Appends it as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        super::encode(out, |out| codec::encode(self, out));
    }

    /// Reads the content of a frame.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn decode(content: &'a [u8]) -> Result<Self, CodecError> {
        codec::decode(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameReader;
    use proptest::prelude::*;

    /// A few values of fewer than a hundred bytes: proptest takes long to make more.
    fn values() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(any::<Vec<u8>>(), 0..4)
    }

    fn job() -> PmixJob {
        PmixJob {
            namespace: "shmrun.1".into(),
            node: 1,
            nodes: vec![("a".into(), 2), ("b".into(), 3)],
            programs: vec![5],
            dir: "/tmp/x".into(),
            library: None,
        }
    }

    #[test]
    fn ranks_are_consecutive() {
        let job = job();
        assert_eq!((job.ranks(0), job.ranks(1), job.n_pes()), (0..2, 2..5, 5));
        let wrong = PmixJob { node: 2, ..job };
        let mut out = Vec::new();
        ToServer::Serve(wrong).encode(&mut out);
        assert!(ToServer::decode(&out[4..]).is_err());
    }

    proptest! {
        #[test]
        fn messages_round_trip(
            id: u64, status: i32, rank: u32, data: Vec<u8>, ranks: Vec<u32>, message in ".{0,20}",
            common in values(), own in prop::collection::vec(values(), 0..4),
        ) {
            let data = &data[..];
            for message in [
                ToServer::Serve(job()),
                ToServer::Fenced { id, status, data },
                ToServer::Fetched { id, status, data },
                ToServer::Lookup { id, rank },
                ToServer::Ping(id),
            ] {
                let mut out = Vec::new();
                message.encode(&mut out);
                let mut reader = FrameReader::default();
                let mut bytes = &out[..];
                let content = reader.next_frame(&mut bytes).unwrap().unwrap();
                prop_assert_eq!(ToServer::decode(content).unwrap(), message);
                prop_assert!(ToServer::decode(&content[..content.len() - 1]).is_err());
            }
            for message in [
                FromServer::Ready { common, own },
                FromServer::Failed(message.clone()),
                FromServer::Connected(rank),
                FromServer::Finalized(rank),
                FromServer::Abort { rank, status, message: message.clone() },
                FromServer::Log { rank, text: message },
                FromServer::Fence { id, ranks, data },
                FromServer::Fetch { id, rank },
                FromServer::PutBy { id, status, data },
                FromServer::Pong(id),
            ] {
                let mut out = Vec::new();
                message.encode(&mut out);
                prop_assert_eq!(FromServer::decode(&out[4..]).unwrap(), message);
                prop_assert!(FromServer::decode(&out[4..out.len() - 1]).is_err());
            }
        }

        #[test]
        fn garbage_is_refused_without_panic(bytes: Vec<u8>) {
            let _ = (ToServer::decode(&bytes), FromServer::decode(&bytes));
        }
    }
}

//! What the agents of a job tell each other for their nodes' PMIx servers.
//!
//! A link that keeps messages apart carries them; the bytes of each are what postcard makes of the type
//! here, so the order of its variants counts: add new ones at the end, and raise the version of the link.
//! Data is what one libpmix gives to another, and means nothing to agents.

use std::ops::Range;

use serde::{Deserialize, Serialize, Serializer};

use crate::ranks::RankSet;

/// A message between agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message<'a> {
    /// To the parent: all of a subtree who belong to a fence have joined it, and this is what they give.
    Joined {
        /// The ranks that the fence is of, as runs.
        #[serde(borrow)]
        fence: Part<'a>,
    },
    /// To a child: the fence is complete, and this is what all have given.
    Complete {
        /// The same ranks.
        #[serde(borrow)]
        fence: Part<'a>,
    },
    /// To the agent of a PE: what has it put?
    Ask {
        /// A PE of the node that asks: the answer goes there.
        asker: u32,
        /// That node's number for the question.
        ticket: u64,
        /// The PE that is asked for.
        rank: u32,
    },
    /// To the node that has asked.
    Answer {
        /// As in the question.
        asker: u32,
        /// As in the question.
        ticket: u64,
        /// PMIx's status.
        status: i32,
        /// What it has put.
        #[serde(serialize_with = "bytes")]
        data: &'a [u8],
    },
}

/// A fence, and what comes with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part<'a> {
    /// Ranks of those whom it is of, as runs.
    runs: Vec<Range<u32>>,
    /// PMIx's status: that of the first who could not join as he should, or success.
    pub status: i32,
    /// What was given, node after node.
    #[serde(serialize_with = "bytes")]
    pub data: &'a [u8],
}

/// As one run, which is quicker than byte by byte and the same.
fn bytes<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message of {0} bytes between agents for PMIx")]
pub struct Malformed(usize);

impl<'a> Part<'a> {
    /// Of a fence of `ranks`.
    pub fn new(ranks: &RankSet, status: i32, data: &'a [u8]) -> Self {
        Self {
            runs: ranks.runs().to_vec(),
            status,
            data,
        }
    }

    /// Whom the fence is of.
    ///
    /// # Errors
    ///
    /// When that is no set of ranks.
    pub fn ranks(&self) -> Result<RankSet, Malformed> {
        RankSet::from_runs(&self.runs).ok_or(Malformed(self.data.len()))
    }
}

impl<'a> Message<'a> {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Cannot fail: the types have no map, and no sequence of unknown length.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Reads one whole message.
    ///
    /// # Errors
    ///
    /// When the bytes are none, or go on behind it.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match postcard::take_from_bytes(bytes) {
            Ok((message, [])) => Ok(message),
            _ => Err(Malformed(bytes.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_round_trip(
            ranks in prop::collection::vec(0u32..100, 1..20), status: i32, data: Vec<u8>, asker: u32, ticket: u64,
            rank: u32, cut: usize,
        ) {
            let ranks: RankSet = ranks.into_iter().collect();
            let fence = Part::new(&ranks, status, &data);
            prop_assert_eq!(fence.ranks(), Ok(ranks));
            for message in [
                Message::Joined { fence: fence.clone() },
                Message::Complete { fence: fence.clone() },
                Message::Ask { asker, ticket, rank },
                Message::Answer { asker, ticket, status, data: &data },
            ] {
                let mut bytes = message.encode();
                prop_assert_eq!(Message::decode(&bytes), Ok(message));
                prop_assert!(Message::decode(&bytes[..cut % bytes.len()]).is_err());
                bytes.push(0);
                prop_assert!(Message::decode(&bytes).is_err());
            }
        }

        #[test]
        fn garbage_is_refused_without_panic(bytes: Vec<u8>) {
            if let Ok(Message::Joined { fence } | Message::Complete { fence }) = Message::decode(&bytes) {
                let _ = fence.ranks();
            }
        }
    }
}

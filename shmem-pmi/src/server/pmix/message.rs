//! What the agents of a job tell each other for their nodes' PMIx servers.
//!
//! A link that keeps messages apart carries them; the bytes of each are what postcard makes of the type
//! here, so the order of its variants counts: add new ones at the end, and raise the version of the link.
//! Data is what one libpmix gives to another, and means nothing to agents.

use serde::{Deserialize, Serialize};

use crate::server::groups::{Part, bytes};

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
        /// The ranks that the fence is of, as runs.
        #[serde(borrow)]
        fence: Part<'a>,
    },
    /// To the agent of a PE: what has it put?
    Ask {
        /// A PE of the node that asks: the answer goes there.
        asker: u32,
        /// Number that the asking node has for the question.
        ticket: u64,
        /// The PE that is asked for.
        rank: u32,
    },
    /// To the node that has asked.
    Answer {
        /// The PE that has asked.
        asker: u32,
        /// Number of the question.
        ticket: u64,
        /// PMIx's status.
        status: i32,
        /// What the PE has put.
        #[serde(serialize_with = "bytes")]
        data: &'a [u8],
    },
}

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message of {0} bytes between agents for PMIx")]
pub struct Malformed(pub(super) usize);

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
    use crate::ranks::RankSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_round_trip(
            ranks in prop::collection::vec(0u32..100, 1..20), status: i32, data: Vec<u8>, asker: u32, ticket: u64,
            rank: u32, cut: usize,
        ) {
            let ranks: RankSet = ranks.into_iter().collect();
            let fence = Part::new(&ranks, rank, status, &data);
            prop_assert_eq!(fence.ranks(), Some(ranks));
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

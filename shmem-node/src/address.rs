//! How the PEs of a node hand their UD addresses to the launch agent: each leaves its own in its block, and
//! whichever is the last of its group hands over those of the group, in one message. A message of each would
//! cost the agent thousands of system calls, and nobody needs the answers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of an address.
pub const ADDRESS_LEN: usize = 40;

/// PEs of a group at most: their addresses fit into one message.
pub(crate) const GROUP: usize = 512;

const WORDS: usize = ADDRESS_LEN / size_of::<u64>();

/// An address in a PE's block. Zeroed memory has none.
#[derive(Debug, Default)]
pub struct Address {
    words: [AtomicU64; WORDS],
    /// In the block of the first PE of a group: how many of them have left theirs, in all lives together.
    left: AtomicU32,
}

/// The addresses of the PEs of a group.
#[derive(Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Position of the first on its node.
    pub first: usize,
    /// How many they are.
    pub count: usize,
    /// Their addresses, one behind the other.
    pub bytes: Vec<u8>,
}

impl Address {
    pub(crate) fn set(&self, address: &[u8; ADDRESS_LEN]) {
        let (bytes, _) = address.as_chunks::<{ size_of::<u64>() }>();
        for (word, &bytes) in self.words.iter().zip(bytes) {
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> {
        let words = self.words.iter();
        words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
    }

    /// Counts one more PE of the group that has left its address, in the block of the group's first. Gives how many
    /// there are in all lives.
    pub(crate) fn count(&self) -> u32 {
        // ORDERING(address): what a PE left comes before what the last one reads; the chain of
        // read-modify-writes carries everybody's.
        self.left.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }
}

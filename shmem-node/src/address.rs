//! How the PEs of a node hand their UD addresses to the launch agent: each leaves its own in its block, and
//! whichever is the last of its group hands over those of the group, in one message. A message of each would
//! cost the agent thousands of system calls, and nobody needs the answers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::segment::NodeView;

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

impl NodeView {
    /// Leaves the address of the PE at position `local` for its `life`th life, counted from 1. Gives those of
    /// its group, if it is the last one.
    ///
    /// Nobody leaves an address of the next life before all have left theirs of this one and the agent has read
    /// them: the end of a life of a job of several nodes takes the addresses of all.
    pub fn leave_address(
        &self,
        local: usize,
        life: u32,
        address: &[u8; ADDRESS_LEN],
    ) -> Option<Addresses> {
        let own = &self.pe_block(local).address.words;
        let (bytes, _) = address.as_chunks::<{ size_of::<u64>() }>();
        for (word, &bytes) in own.iter().zip(bytes) {
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        let first = local / GROUP * GROUP;
        let count = GROUP.min(self.n_local() - first);
        // ORDERING(address): what a PE left comes before what the last one reads; the chain of
        // read-modify-writes carries everybody's.
        let before = self
            .pe_block(first)
            .address
            .left
            .fetch_add(1, Ordering::AcqRel);
        if before.wrapping_add(1) != life.wrapping_mul(count as u32) {
            return None;
        }
        let words = (first..first + count).flat_map(|pe| &self.pe_block(pe).address.words);
        let bytes = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        Some(Addresses {
            first,
            count,
            bytes: bytes.collect(),
        })
    }
}

//! The node's key-value store: what PMI's put and fence have made visible, once per node, in memory
//! that all PEs of the node read.
//!
//! The launch agent writes ([`Writer`]), before it answers the fence; PEs read ([`Reader`]) without
//! asking it, which takes a few cache misses where a message takes two context switches
//! ("A Scalable PMIx Database", EuroMPI 2018, sections 2 and 3). A key that a reader does not find
//! may still be known to the agent, so a miss is followed by a get over PMI.
//!
//! # Layout
//! In the tables memory, which PEs can map only for reading (see [`KvsLayout`]):
//!
//! * a **log** of records, each a key and a value, in the order of insertion;
//! * **indexes**, each twice as large as the one before: hash tables with open addressing, whose
//!   slots of 8 bytes hold half of a key's hash and the place of its record. One of them is in use.
//!   When it is half full the writer fills the next one, and shows it by one store;
//! * a **head** that says which, and whether readers may still rely on the store.
//!
//! All of it has its full size in addresses from the start, and takes memory as it is used.
//!
//! # Coordination
//! The paper's subject is how readers and the writer stay out of each other's way. Of
//! [`StoreKind`]'s:
//!
//! * `shared` needs no lock. A record never changes once a slot leads to it; a key that is put again
//!   gets another record, and one store to its slot makes the change. A reader makes no store, no
//!   system call and no retry: it loads which index is in use, walks its slots up to the first free
//!   one and compares keys, so the number of its steps is bounded by the size of that index
//!   whatever the writer does (wait-free), and what it found stays readable for ever. The price is
//!   memory: a record that was replaced is not used again.
//! * `rwlock` and `2n` are the two locks that the paper compares (`locks`), around the same structure;
//!   with them a value that fits is overwritten in place. Nobody waits for a lock longer than [`PATIENCE`]: a PE that was killed or stopped while
//!   it held one makes the agent *close* the store, and from there on gets go to the agent.
//! * `message` has no store; all gets go to the agent.
//!
//! # Safety
//! The bytes of a record are written before the slot that leads to it (`shared`), or under the lock
//! for writing; only the agent's mapping is writable. A reader checks every place and length that it
//! reads against the log, so that a store that was damaged gives wrong answers at worst.

mod index;
mod layout;
mod locks;
mod log;
mod reader;
mod region;
#[cfg(test)]
mod tests;
mod writer;

pub use layout::KvsLayout;
pub use reader::Reader;
pub use writer::Writer;

pub(crate) use locks::Locks;

use crate::settings::{STORE_MAX, Settings, StoreKind};
use crate::sync::AtomicU32;

/// Longest key in bytes.
pub const MAX_KEY: usize = 64;

/// Longest value in bytes.
pub const MAX_VALUE: usize = 1024;

/// How long a reader or the writer waits for a lock before it gives the store up: longer than others
/// hold it on a machine where processes wait for cores.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// The reading side of a key-value store, however it is made.
pub trait Store {
    /// Copies the value of `key` into `value` and gives its length in bytes; `None` if the store does
    /// not have the key, or cannot be read any more.
    fn get(&self, key: &[u8], value: &mut [u8; MAX_VALUE]) -> Option<usize>;
}

/// Why a pair is not in the store. The store has no other value of that key either: a reader that
/// looks for it asks the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The log or the last index is full.
    #[error(
        "the node's key-value store of {size} bytes is full after {keys} keys and {used} bytes; \
         further keys are served by messages; raise SHMEM_PMI_STORE_SIZE"
    )]
    Full {
        /// Bytes of the log.
        size: usize,
        /// Bytes of it that are used.
        used: usize,
        /// Keys in the store.
        keys: usize,
    },
    /// A reader holds its lock and does not give it back.
    #[error(
        "a PE of the node was killed or stopped while it read the key-value store; keys are served \
         by messages from now on; SHMEM_PMI_STORE=shared does not have this weakness"
    )]
    Closed,
    /// The job runs without a store.
    #[error("the job has no key-value store in memory (SHMEM_PMI_STORE=message)")]
    None,
    /// Key or value is longer than PMI allows, or the key is empty.
    #[error(
        "key of {key} bytes with a value of {value}; at most {MAX_KEY} and {MAX_VALUE} are possible"
    )]
    Length {
        /// Bytes of the key.
        key: usize,
        /// Bytes of the value.
        value: usize,
    },
}

/// First words of the region.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// The index in use.
    level: AtomicU32,
    /// Nonzero when readers must not rely on the store any more.
    closed: AtomicU32,
}

/// What store a node gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorePlan {
    /// How PEs read it.
    pub kind: StoreKind,
    /// Bytes of the log.
    pub log_len: u64,
}

impl StorePlan {
    /// For jobs that do not use one.
    pub const NONE: Self = Self {
        kind: StoreKind::Message,
        log_len: 0,
    };

    /// What the settings ask for, in a job of `n_pes`. Where they leave the size open there is room for
    /// each PE to put some 60 values of 1 KiB, or 600 of 64 bytes, and for small jobs to put more.
    pub fn new(settings: &Settings, n_pes: usize) -> Self {
        const BASE: u64 = 16 << 20;
        const PER_PE: u64 = 64 << 10;
        if settings.pmi_store == StoreKind::Message {
            return Self::NONE;
        }
        let auto = || (BASE + n_pes as u64 * PER_PE).min(STORE_MAX as u64);
        Self {
            kind: settings.pmi_store,
            log_len: settings.pmi_store_size.unwrap_or_else(auto),
        }
    }
}

/// A 64-bit hash of a key: products of 64-bit words with an odd constant, folded. Part of the layout,
/// since the agent and the PEs must agree on it.
pub(crate) fn hash(key: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |a: u64, b: u64| {
        let wide = u128::from(a ^ FACTOR) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
        wide as u64 ^ (wide >> 64) as u64
    };
    let mut words = key.chunks_exact(8);
    let mut state = key.len() as u64;
    for word in &mut words {
        let word = word.try_into().map_or(0, u64::from_le_bytes);
        state = mix(state, word);
    }
    let mut last = [0; 8];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(state, u64::from_le_bytes(last)), FACTOR)
}

//! The PEs whose memory the others use most. It is complete whatever room there is for calls, so that it tells
//! of jobs too large to record each call (`--trace-calls 1`), too.

use std::cmp::Reverse;
use std::collections::HashMap;

use shmem_node::recording::Recording;

use super::told;

/// PEs that are told.
const TOLD: usize = 10;

told! {
    /// A PE, and what others do with its memory.
    struct Hot {
        pe: u32,
        /// PEs that use it.
        by: u32,
        /// Their one-sided operations.
        operations: u64,
        /// The bytes of these.
        bytes: u64,
        /// Which of them has most operations, and how many.
        most: u32,
        most_operations: u64,
    }
}

told! {
    /// What PEs do with the memory of others.
    struct Others {
        /// PEs whose memory another uses.
        pes: u32,
        /// One-sided operations on memory of others.
        operations: u64,
        /// The bytes of these.
        bytes: u64,
        /// Those that have the largest part of either, the largest first.
        hottest: Vec<Hot>,
    }
}

/// Adds up by whose memory it is.
pub(super) fn others(recordings: &[Recording]) -> Others {
    let mut hot: HashMap<u32, Hot> = HashMap::new();
    for of in recordings {
        let others = of.traffic.iter().filter(|traffic| traffic.pe != of.rank);
        for traffic in others.filter(|traffic| traffic.operations > 0) {
            let hot = hot.entry(traffic.pe).or_insert_with(|| Hot {
                pe: traffic.pe,
                by: 0,
                operations: 0,
                bytes: 0,
                most: of.rank,
                most_operations: 0,
            });
            hot.by += 1;
            hot.operations = hot.operations.saturating_add(traffic.operations);
            hot.bytes = hot.bytes.saturating_add(traffic.bytes);
            if traffic.operations > hot.most_operations {
                (hot.most, hot.most_operations) = (of.rank, traffic.operations);
            }
        }
    }
    let sum = |part: fn(&Hot) -> u64| hot.values().map(part).fold(0, u64::saturating_add);
    let (operations, bytes) = (sum(|hot| hot.operations), sum(|hot| hot.bytes));
    let pes = hot.len() as u32;
    let part = |of: u64, all: u64| of as f64 / all.max(1) as f64;
    let heat = |hot: &Hot| part(hot.operations, operations).max(part(hot.bytes, bytes));
    let mut hottest: Vec<Hot> = hot.into_values().collect();
    hottest.sort_unstable_by_key(|hot| (Reverse(heat(hot).to_bits()), hot.pe));
    hottest.truncate(TOLD);
    Others {
        pes,
        operations,
        bytes,
        hottest,
    }
}

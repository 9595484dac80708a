//! PEs by node, with how long each waited and how it ended; nodes instead, where PEs are too many to be seen.

use std::collections::HashMap;

use super::fold::cells;
use super::{Facts, told, waited};
use shmem_node::stats::Stat;

/// Squares that a page has room for.
const MOST: usize = 2048;

/// How far a PE came.
const FINALIZED: u8 = 0;
const RUNNING: u8 = 1;
const FRESH: u8 = 2;

told! {
    /// A square.
    struct Place {
        name: String,
        node: Option<u32>,
        /// Time in waits and collectives, the mean over its PEs.
        waited: u64,
        /// How long they lived, the mean.
        lived: u64,
        /// The PE that waited most, and how long.
        most: u32,
        most_waited: u64,
        /// 0: all finalized; 1: one did not; 2: one did not come through init.
        state: u8,
    }
}

told! {
    /// All squares, by node.
    struct Places {
        /// Whether a square is more than a PE.
        folded: bool,
        places: Vec<Place>,
    }
}

pub(super) fn places(facts: &Facts<'_>) -> Places {
    let recordings = facts.job.recordings;
    let pes = || recordings.iter().map(|of| (Some(of.node), of.rank));
    let mut cells = cells(pes().collect(), usize::MAX);
    let folded = cells.len() > MOST;
    if folded {
        let nodes = cells.chunk_by(|a, b| a.node == b.node).count();
        cells = super::fold::cells(pes().collect(), nodes.min(MOST));
    }
    let by_rank: HashMap<u32, usize> = recordings.iter().map(|of| of.rank).zip(0..).collect();
    let places = cells.into_iter().map(|cell| {
        let of: Vec<usize> = cell.pes.iter().map(|pe| by_rank[pe]).collect();
        let mean = |value: &dyn Fn(usize) -> u64| {
            let sum: u128 = of.iter().map(|&at| u128::from(value(at))).sum();
            (sum / of.len() as u128) as u64
        };
        let most = of
            .iter()
            .map(|&at| (waited(&recordings[at]), recordings[at].rank));
        let (most_waited, most) = most
            .max_by_key(|&(ns, pe)| (ns, u32::MAX - pe))
            .unwrap_or_default();
        let state = of.iter().map(|&at| {
            let at = |stat| recordings[at].stats.get(stat);
            match (at(Stat::InitDoneAt), at(Stat::FinalizeDoneAt)) {
                (0, _) => FRESH,
                (_, 0) => RUNNING,
                _ => FINALIZED,
            }
        });
        Place {
            name: cell.name(),
            node: cell.node,
            waited: mean(&|at| waited(&recordings[at])),
            lived: mean(&|at| facts.lives[at]),
            most,
            most_waited,
            state: state.max().unwrap_or(FRESH),
        }
    });
    Places {
        folded,
        places: places.collect(),
    }
}

//! What the network and its queue pairs had to do again.

use shmem_node::recording::Recording;
use shmem_node::stats::{STATS, Stat};

use super::told;

told! {
    /// A figure that is not zero for some PE.
    struct Figure {
        name: &'static str,
        sum: u64,
        /// The most, and whose that is.
        max: u64,
        max_pe: u32,
        /// PEs for which it is not zero.
        pes: u32,
    }
}

const TOLD: [Stat; 7] = [
    Stat::Retransmissions,
    Stat::Duplicates,
    Stat::OutOfSequence,
    Stat::SendRefusals,
    Stat::ConnectRetransmissions,
    Stat::Evictions,
    Stat::Reconnects,
];

/// A figure, unless all have none of it.
pub(super) fn figure(recordings: &[Recording], stat: Stat) -> Option<Figure> {
    let values = recordings.iter().map(|of| (of.stats.get(stat), of.rank));
    let some = values.filter(|&(value, _)| value > 0);
    let (max, max_pe) = some
        .clone()
        .max_by_key(|&(value, pe)| (value, u32::MAX - pe))?;
    Some(Figure {
        name: STATS[stat as usize].0,
        sum: some
            .clone()
            .fold(0, |all, (value, _)| all.saturating_add(value)),
        max,
        max_pe,
        pes: some.count() as u32,
    })
}

pub(super) fn figures(recordings: &[Recording]) -> Vec<Figure> {
    TOLD.iter()
        .filter_map(|&stat| figure(recordings, stat))
        .collect()
}

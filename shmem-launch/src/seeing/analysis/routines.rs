//! The time that PEs spent in each routine. It is complete: a PE counts calls for which it has no room, too.

use std::collections::BTreeMap;

use shmem_node::recording::{Group, Routine};

use super::{Facts, told};

told! {
    /// A routine, over all PEs.
    struct Row {
        name: &'static str,
        group: &'static str,
        /// PEs that called it.
        pes: u32,
        calls: u64,
        /// All calls together.
        ns: u64,
        bytes: u64,
        /// The longest call, and whose it was.
        longest: u64,
        longest_pe: u32,
        /// What a PE spent in it: the least, over those that did not call it, too, the mean and the most.
        min: u64,
        mean: u64,
        max: u64,
        /// The PE that spent most.
        max_pe: u32,
        /// Whether it is part of the PE's time: connections are made beside it.
        counts: bool,
    }
}

/// What a routine is called, for who looks for a row.
pub(super) fn find(rows: &[Row], routine: Routine) -> Option<&Row> {
    rows.iter().find(|row| row.name == routine.text())
}

/// Those that were called, the costliest first.
pub(super) fn routines(facts: &Facts<'_>) -> Vec<Row> {
    let recordings = facts.job.recordings;
    let mut rows: BTreeMap<Routine, Row> = BTreeMap::new();
    for recording in recordings {
        for total in &recording.totals {
            let row = rows.entry(total.routine).or_insert_with(|| Row {
                name: total.routine.text(),
                group: total.routine.group().text(),
                pes: 0,
                calls: 0,
                ns: 0,
                bytes: 0,
                longest: 0,
                longest_pe: recording.rank,
                min: u64::MAX,
                mean: 0,
                max: 0,
                max_pe: recording.rank,
                counts: total.routine.group() != Group::Network,
            });
            row.pes += 1;
            row.calls = row.calls.saturating_add(total.calls);
            row.ns = row.ns.saturating_add(total.ns);
            row.bytes = row.bytes.saturating_add(total.bytes);
            row.min = row.min.min(total.ns);
            if total.longest > row.longest {
                (row.longest, row.longest_pe) = (total.longest, recording.rank);
            }
            if total.ns > row.max {
                (row.max, row.max_pe) = (total.ns, recording.rank);
            }
        }
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    for row in &mut rows {
        if (row.pes as usize) < recordings.len() {
            row.min = 0;
        }
        row.mean = row.ns / recordings.len() as u64;
    }
    rows.sort_by_key(|row| (!row.counts, std::cmp::Reverse(row.ns)));
    rows
}

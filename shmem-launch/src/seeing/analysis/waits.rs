//! The longest waits, and who ended them.

use super::super::matching::{CallId, calls};
use super::{Facts, told};

/// Waits that are told.
const TOLD: usize = 20;

told! {
    /// A wait.
    struct LongWait {
        pe: u32,
        routine: &'static str,
        began: u64,
        took: u64,
        /// The PE that ended it, by what, and when that began, if that is known.
        by: Option<u32>,
        by_routine: Option<&'static str>,
        by_began: Option<u64>,
    }
}

/// The longest first.
pub(super) fn longest(facts: &Facts<'_>) -> Vec<LongWait> {
    let recordings = facts.job.recordings;
    let since = |moment: u64| moment.saturating_sub(facts.job.base());
    let mut waits: Vec<(u64, CallId)> = calls(recordings)
        .filter(|(_, call)| call.routine.waits())
        .map(|(id, call)| (call.end.saturating_sub(call.begin), id))
        .collect();
    let order = |&(took, id): &(u64, CallId)| (std::cmp::Reverse(took), id);
    if waits.len() > TOLD {
        waits.select_nth_unstable_by_key(TOLD, order);
        waits.truncate(TOLD);
    }
    waits.sort_unstable_by_key(order);
    let told = waits.into_iter().map(|(took, id)| {
        let call = id.of(recordings);
        let ended = facts.ended.binary_search_by_key(&id, |ended| ended.wait);
        let by = ended.ok().map(|at| facts.ended[at].by);
        LongWait {
            pe: id.pe(recordings),
            routine: call.routine.text(),
            began: since(call.begin),
            took,
            by: by.map(|by| by.pe(recordings)),
            by_routine: by.map(|by| by.of(recordings).routine.text()),
            by_began: by.map(|by| since(by.of(recordings).begin)),
        }
    });
    told.collect()
}

/// The PE whose operations ended the most waiting, how long that was, and how long all was of which it is known.
/// Locks are not among them.
pub(super) fn waker(facts: &Facts<'_>) -> Option<(u32, u64, u64)> {
    let recordings = facts.job.recordings;
    let mut all = 0u64;
    let mut by = vec![0u64; recordings.len()];
    for ended in &facts.ended {
        let call = ended.wait.of(recordings);
        let took = call.end.saturating_sub(call.begin);
        all = all.saturating_add(took);
        let by = &mut by[ended.by.recording as usize];
        *by = by.saturating_add(took);
    }
    let (at, &most) = by.iter().enumerate().max_by_key(|&(_, &ns)| ns)?;
    (all > 0).then(|| (recordings[at].rank, most, all))
}

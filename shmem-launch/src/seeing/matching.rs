//! What of one PE had to do with what of another: who ended a wait, and who came last to a collective.
//!
//! PEs record their own calls only; this brings them together by what both sides tell of a call: the word that is
//! written and waited for, or the number of the collective.

use std::collections::HashMap;

use shmem_node::recording::{Event, Group, Recording, Routine};

/// How far clocks of two machines may be apart after they have been brought together, in nanoseconds.
const SLACK: u64 = 100_000;
/// A wait that is shorter has returned at once: nobody ended it.
const AT_ONCE: u64 = 1000;

/// A call: whose recording it is in, and which there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CallId {
    /// Which recording of the job's.
    pub(super) recording: u32,
    /// Which of its events.
    pub(super) event: u32,
}

impl CallId {
    /// The call itself.
    pub(super) fn of(self, recordings: &[Recording]) -> &Event {
        &recordings[self.recording as usize].events[self.event as usize]
    }

    /// The PE that made it.
    pub(super) fn pe(self, recordings: &[Recording]) -> u32 {
        recordings[self.recording as usize].rank
    }
}

/// All calls of a job.
pub(super) fn calls(recordings: &[Recording]) -> impl Iterator<Item = (CallId, &Event)> {
    (0..).zip(recordings).flat_map(|(recording, of)| {
        let id = move |event| CallId { recording, event };
        (0..)
            .zip(&of.events)
            .map(move |(event, call)| (id(event), call))
    })
}

/// A wait, and the operation that ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// The wait.
    pub(super) wait: CallId,
    /// The operation of the same or another PE.
    pub(super) by: CallId,
}

/// A word that is waited for.
#[derive(Default)]
struct Word {
    waits: Vec<(u64, CallId)>,
    writes: Vec<(u64, CallId)>,
}

/// Whether it waits for a word that others write by operations of the program. The words of locks are
/// written by the library.
fn waits(routine: Routine) -> bool {
    routine.waits() && routine != Routine::SetLock
}

/// The waits of which it is known what ended them.
///
/// A wait of PE b for a word that ended at time t was ended by the last operation on that word of b that
/// began before t. An operation ends the first wait that it can end, and others only if they had begun
/// when that one ended (other threads wait for the same word): who waits again afterwards has waited for something
/// else. Where that leaves nothing, and the wait did not return at once, it is the next operation that has
/// ended none, if it is one of another node, whose clock may be ahead by what lies between.
///
/// Many operations may have been needed to end a wait, on a counter for example: this is the last of them. An
/// operation is known by one word, its signal or the first that it writes: a wait for another one of
/// its words is not matched, nor is what a program stores without the library, or what was not recorded.
pub(super) fn ended_waits(recordings: &[Recording]) -> Vec<Ended> {
    let mut words: HashMap<(u32, u64), Word> = HashMap::new();
    for (id, call) in calls(recordings).filter(|(_, call)| waits(call.routine)) {
        let word = words.entry((id.pe(recordings), call.at)).or_default();
        word.waits.push((call.end, id));
    }
    for (id, call) in calls(recordings).filter(|(_, call)| call.routine.writes()) {
        if let Some(word) = words.get_mut(&(call.pe, call.at)) {
            word.writes.push((call.begin, id));
        }
    }
    let node = |id: CallId| recordings[id.recording as usize].node;
    let mut ended = Vec::new();
    for mut word in words.into_values() {
        word.waits.sort_unstable();
        word.writes.sort_unstable();
        // When the first wait ended that each operation has ended.
        let mut until: Vec<Option<u64>> = vec![None; word.writes.len()];
        for (end, wait) in word.waits {
            let begin = wait.of(recordings).begin;
            let next = word.writes.partition_point(|&(began, _)| began <= end);
            let last = next.checked_sub(1);
            let last = last.filter(|&at| until[at].is_none_or(|until| begin < until));
            let found = last.or_else(|| {
                let at = next + until[next..].iter().position(Option::is_none)?;
                let (began, by) = word.writes[at];
                let ahead = node(by) != node(wait) && began <= end.saturating_add(SLACK);
                (ahead && end.saturating_sub(begin) >= AT_ONCE).then_some(at)
            });
            let Some(at) = found else { continue };
            until[at].get_or_insert(end);
            let by = word.writes[at].1;
            ended.push(Ended { wait, by });
        }
    }
    ended.sort_unstable_by_key(|ended| ended.wait);
    ended
}

/// A collective of which at least two members were recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Met {
    /// The members' calls in the order of their arrival.
    pub(super) members: Vec<CallId>,
}

impl Met {
    /// The call of the member that came last.
    pub(super) fn last(&self) -> CallId {
        self.members[self.members.len() - 1]
    }

    /// Between the arrival of the first and of the last, in nanoseconds.
    pub(super) fn spread(&self, recordings: &[Recording]) -> u64 {
        let begin = |id: CallId| id.of(recordings).begin;
        begin(self.last()).saturating_sub(begin(self.members[0]))
    }

    /// How long the call lasted before the last member came, in nanoseconds: 0 if it ended before that, as
    /// that of a broadcast's root may.
    pub(super) fn waited(&self, member: CallId, recordings: &[Recording]) -> u64 {
        let (call, last) = (member.of(recordings), self.last().of(recordings).begin);
        if call.end < last {
            return 0;
        }
        last.saturating_sub(call.begin)
    }
}

/// Whether all members of a team make this call.
pub(super) fn is_collective(routine: Routine) -> bool {
    let group = routine.group();
    matches!(group, Group::Collective | Group::Memory) || routine == Routine::Finalize
}

/// The collectives of a job, in no certain order.
///
/// Calls with the same number are one collective, up to the second of a PE: another team may have the number
/// of one that has gone. What ended after some PE had no more room to record is left out, since that
/// PE may be the one that came last.
pub(super) fn collectives(recordings: &[Recording]) -> Vec<Met> {
    let full = recordings.iter().filter(|of| of.lost > 0);
    let complete = full.map(|of| of.events.iter().map(|call| call.end).max().unwrap_or(0));
    let complete = complete.min().unwrap_or(u64::MAX);
    let mut all: Vec<(u64, Routine, u64, CallId)> = calls(recordings)
        .filter(|(_, call)| is_collective(call.routine) && call.end <= complete)
        .map(|(id, call)| (call.at, call.routine, call.begin, id))
        .collect();
    all.sort_unstable();
    // In which collective each PE was seen last.
    let mut seen = vec![0; recordings.len()];
    let mut met = Vec::new();
    let mut members: Vec<CallId> = Vec::new();
    let (mut of, mut number) = (None, 0);
    for (at, routine, _, id) in all {
        let pe = &mut seen[id.recording as usize];
        if of != Some((at, routine)) || *pe == number {
            if members.len() > 1 {
                met.push(Met {
                    members: std::mem::take(&mut members),
                });
            }
            members.clear();
            of = Some((at, routine));
            number += 1;
        }
        *pe = number;
        members.push(id);
    }
    if members.len() > 1 {
        met.push(Met { members });
    }
    met
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call, recording};
    use super::*;
    use Routine::{Barrier, Broadcast, ClearLock, Put, SetLock, TestLock, WaitUntil};

    // In microseconds, as what they give.
    const US: u64 = 1000;

    fn put(begin: u64, pe: u32) -> Event {
        Event {
            pe,
            at: 64,
            ..call(Put, begin * US, (begin + 5) * US)
        }
    }

    fn wait(begin: u64, end: u64) -> Event {
        Event {
            at: 64,
            ..call(WaitUntil, begin * US, end * US)
        }
    }

    /// The beginnings of waits and of what ended each.
    fn enders(recordings: &[Recording]) -> Vec<(u64, u64)> {
        let begin = |id: CallId| id.of(recordings).begin / US;
        let ended = ended_waits(recordings);
        ended.iter().map(|e| (begin(e.wait), begin(e.by))).collect()
    }

    #[test]
    fn the_last_operation_before_its_end_ends_a_wait() {
        let other = Event {
            at: 8,
            ..put(95, 0)
        };
        let calls = vec![put(20, 0), put(60, 0), put(90, 1), other, put(120, 0)];
        let all = [
            recording(0, 0, vec![wait(10, 100)]),
            recording(1, 0, calls.clone()),
        ];
        assert_eq!(enders(&all), [(10, 60)]);
        for routine in [SetLock, TestLock, ClearLock] {
            let lock = Event {
                routine,
                ..wait(10, 100)
            };
            let all = [recording(0, 0, vec![lock]), recording(1, 0, calls.clone())];
            assert_eq!(enders(&all), [], "{routine:?}");
        }
    }

    #[test]
    fn an_operation_ends_one_wait_after_the_other_only_once() {
        let at_once = Event {
            end: 60 * US + 50,
            ..wait(60, 60)
        };
        let waits = vec![wait(10, 50), wait(30, 55), at_once, wait(70, 90)];
        let puts = vec![put(40, 0), put(80, 0)];
        for node in [0, 1] {
            let all = [
                recording(0, 0, waits.clone()),
                recording(1, node, puts.clone()),
            ];
            assert_eq!(enders(&all), [(10, 40), (30, 40), (70, 80)]);
        }
    }

    #[test]
    fn clocks_of_machines_may_be_apart() {
        // The writer's clock is ahead by 60, which is longer than from one wait to the next.
        let waits = vec![wait(10, 50), wait(60, 90), wait(100, 130)];
        let puts = vec![put(105, 0), put(145, 0), put(185, 0)];
        let all = [recording(0, 0, waits), recording(1, 1, puts)];
        assert_eq!(enders(&all), [(10, 105), (60, 145), (100, 185)]);
        let mut near = all;
        near[1].node = 0;
        assert_eq!(enders(&near), [(100, 105)]);
    }

    #[test]
    fn the_last_to_arrive_is_who_others_wait_for() {
        let barrier = |begin, end, at| Event {
            at,
            ..call(Barrier, begin, end)
        };
        let all = [
            recording(0, 0, vec![barrier(10, 105, 1), barrier(110, 150, 2)]),
            recording(1, 0, vec![barrier(100, 106, 1), barrier(111, 151, 2)]),
            recording(2, 0, vec![barrier(20, 104, 1), barrier(9, 10, 7)]),
        ];
        let met = collectives(&all);
        assert_eq!(met.len(), 2);
        let first = &met[0];
        assert_eq!((first.last().pe(&all), first.spread(&all)), (1, 90));
        let waited: Vec<u64> = first
            .members
            .iter()
            .map(|&m| first.waited(m, &all))
            .collect();
        assert_eq!(waited, [90, 80, 0]);
        assert_eq!(met[1].last().pe(&all), 1);
    }

    #[test]
    fn who_has_left_waits_for_nobody() {
        let all = [
            recording(0, 0, vec![call(Broadcast, 10, 20)]),
            recording(1, 0, vec![call(Broadcast, 100, 110)]),
        ];
        let met = &collectives(&all)[0];
        assert_eq!(met.waited(met.members[0], &all), 0);
    }

    #[test]
    fn numbers_are_used_again_by_other_teams() {
        let calls = |shift: u64| vec![call(Barrier, 10 + shift, 20), call(Barrier, 30 + shift, 50)];
        let all = [recording(0, 0, calls(0)), recording(1, 0, calls(5))];
        let met = collectives(&all);
        assert_eq!(met.len(), 2);
        assert!(met.iter().all(|met| met.spread(&all) == 5));
    }

    #[test]
    fn nothing_is_said_of_what_some_did_not_record() {
        let calls = vec![call(Barrier, 10, 20), call(Barrier, 30, 50)];
        let mut full = recording(1, 0, vec![call(Barrier, 11, 21)]);
        full.lost = 1;
        let other = recording(2, 0, calls.clone());
        let all = [recording(0, 0, calls), full, other];
        let met = collectives(&all);
        assert_eq!(met.len(), 1);
        assert_eq!(met[0].members.len(), 3);
        assert_eq!(collectives(&[]), []);
    }
}

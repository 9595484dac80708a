//! The room in which a PE records: counters, then calls one behind the other.
//!
//! Threads of a PE write at the same time: counters are added to, and each call takes a place of its own. A
//! place is valid when the word that names the routine is there, which is written last; a PE that is killed
//! leaves at most one place for each thread that is not.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::{Event, Group, ROUTINES, Recording, Routine, Total, Traffic};
use crate::layout::region_up;
use crate::stats::PeStats;

/// Words of a call: begin, end, offset, bytes, and what it was.
const CALL: usize = 5;
/// Words of a routine's counters.
const TOTAL: usize = 4;
/// Words of a PE's.
const TRAFFIC: usize = 3;

/// Where counters and calls begin, in words.
const PLACES: usize = 0;
const PAUSED: usize = 1;
const TOTALS: usize = 8;
/// One bit for each group of PEs: whether anything is noted of one. Who reads looks at nothing else, since to look
/// at memory that was never written takes memory.
const NOTED: usize = TOTALS + ROUTINES * TOTAL;
/// PEs of a group: their counters are about a page of 4 KiB.
const GROUP: usize = 128;

const fn noted_words(n_pes: usize) -> usize {
    n_pes.div_ceil(GROUP * u64::BITS as usize)
}

const fn traffics_at(n_pes: usize) -> usize {
    NOTED + noted_words(n_pes)
}

const fn calls_at(n_pes: usize) -> usize {
    traffics_at(n_pes) + n_pes * TRAFFIC
}

/// Bytes for a PE that records so many calls, in a job of so many PEs: a region. `None` if that
/// overflows.
#[must_use]
pub fn room(n_pes: usize, calls: usize) -> Option<usize> {
    let traffics = n_pes.checked_mul(TRAFFIC)?;
    let words = calls
        .checked_mul(CALL)?
        .checked_add(traffics)?
        .checked_add(traffics_at(n_pes))?;
    let bytes = words.checked_mul(size_of::<u64>())?;
    (bytes < usize::MAX / 2).then(|| region_up(bytes))
}

/// Numbers of threads, in the order in which they are first recorded.
fn thread() -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    thread_local! { static OWN: Cell<Option<u8>> = const { Cell::new(None) }; }
    OWN.with(|own| match own.get() {
        Some(number) => number,
        None => {
            let next = |n: u8| Some(n.saturating_add(1));
            let number = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            let number = number.unwrap_or_else(|n| n);
            own.set(Some(number));
            number
        }
    })
}

/// A PE's room. Zeroed memory is an empty one.
#[derive(Debug, Clone, Copy)]
pub struct Recorder {
    words: &'static [AtomicU64],
    n_pes: usize,
    /// For how many calls there is room.
    calls: usize,
}

impl Recorder {
    /// The room for so many calls that these words are: as many as [`room`] says.
    #[must_use]
    pub fn new(words: &'static [AtomicU64], n_pes: usize, calls: usize) -> Self {
        let needed = calls_at(n_pes) + calls * CALL;
        assert!(words.len() >= needed, "{} words of {needed}", words.len());
        Self {
            words,
            n_pes,
            calls,
        }
    }

    /// Whether calls are recorded now.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.words[PAUSED].load(Ordering::Relaxed) == 0
    }

    /// Records no more calls, or does so again.
    pub fn pause(&self, paused: bool) {
        self.words[PAUSED].store(paused.into(), Ordering::Relaxed);
    }

    /// Records a call that has returned.
    pub fn add(&self, event: &Event) {
        let took = event.end.saturating_sub(event.begin);
        let moved = if event.routine.is_one_sided() {
            event.bytes
        } else {
            0
        };
        let totals = &self.words[TOTALS + event.routine as usize * TOTAL..][..TOTAL];
        totals[0].fetch_add(1, Ordering::Relaxed);
        totals[1].fetch_add(took, Ordering::Relaxed);
        totals[2].fetch_max(took, Ordering::Relaxed);
        totals[3].fetch_add(moved, Ordering::Relaxed);
        if (event.pe as usize) < self.n_pes {
            self.note(event.pe as usize / GROUP);
            let traffic = self.traffic(event.pe as usize);
            if event.routine.is_one_sided() {
                traffic[0].fetch_add(1, Ordering::Relaxed);
                traffic[1].fetch_add(moved, Ordering::Relaxed);
            } else if event.routine == Routine::Connect {
                traffic[2].fetch_add(1, Ordering::Relaxed);
            }
        }
        let place = self.words[PLACES].fetch_add(1, Ordering::Relaxed);
        let calls = self.calls();
        let Some(call) = usize::try_from(place).ok().and_then(|at| calls.get(at)) else {
            return;
        };
        // Connections are nobody's: a thread of the library may see to them.
        let thread = match event.routine.group() {
            Group::Network => 0,
            _ => thread(),
        };
        let what = [event.routine as u8, thread, 0, 0];
        let what = u64::from(u32::from_le_bytes(what)) | u64::from(event.pe) << 32;
        for (word, value) in call
            .iter()
            .zip([event.begin, event.end, event.at, event.bytes])
        {
            word.store(value, Ordering::Relaxed);
        }
        // ORDERING(recorded-call): the rest is there when this is; pairs with `read`.
        call[CALL - 1].store(what, Ordering::Release);
    }

    fn traffic(&self, pe: usize) -> &'static [AtomicU64] {
        &self.words[traffics_at(self.n_pes) + pe * TRAFFIC..][..TRAFFIC]
    }

    /// Something is written of a PE of this group.
    fn note(&self, group: usize) {
        let (word, bit) = self.noted(group);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn noted(&self, group: usize) -> (&'static AtomicU64, u64) {
        let bits = u64::BITS as usize;
        (&self.words[NOTED + group / bits], 1 << (group % bits))
    }

    fn calls(&self) -> &'static [[AtomicU64; CALL]] {
        let (calls, _) = self.words[calls_at(self.n_pes)..].as_chunks::<CALL>();
        &calls[..self.calls]
    }

    /// All that is there.
    #[must_use]
    pub fn read(&self, rank: u32, node: u32, stats: PeStats) -> Recording {
        let word = |at: usize| self.words[at].load(Ordering::Relaxed);
        let total = |&routine: &Routine| {
            let at = TOTALS + routine as usize * TOTAL;
            Total {
                routine,
                calls: word(at),
                ns: word(at + 1),
                longest: word(at + 2),
                bytes: word(at + 3),
            }
        };
        let traffic = |pe: usize| {
            let word = |at: usize| self.traffic(pe)[at].load(Ordering::Relaxed);
            Traffic {
                pe: pe as u32,
                operations: word(0),
                bytes: word(1),
                connections: word(2),
            }
        };
        let groups = (0..self.n_pes.div_ceil(GROUP)).filter(|&group| {
            let (word, bit) = self.noted(group);
            word.load(Ordering::Relaxed) & bit != 0
        });
        let noted = groups.flat_map(|group| {
            let first = group * GROUP;
            first..(first + GROUP).min(self.n_pes)
        });
        let (calls, places) = (self.calls(), word(PLACES));
        let written = usize::try_from(places).map_or(calls.len(), |n| n.min(calls.len()));
        Recording {
            rank,
            node,
            lost: places - written as u64,
            totals: Routine::ALL
                .iter()
                .map(total)
                .filter(|t| t.calls > 0)
                .collect(),
            traffic: noted
                .map(traffic)
                .filter(|t| t.operations > 0 || t.connections > 0)
                .collect(),
            events: calls[..written].iter().filter_map(call).collect(),
            stats,
        }
    }
}

/// The call in a place, if it was written.
fn call(words: &[AtomicU64; CALL]) -> Option<Event> {
    // ORDERING(recorded-call): pairs with `add`.
    let what = words[CALL - 1].load(Ordering::Acquire);
    let [number, thread, ..] = what.to_le_bytes();
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    Some(Event {
        begin: word(0),
        end: word(1).max(word(0)),
        routine: Routine::from_number(number)?,
        thread,
        pe: (what >> 32) as u32,
        bytes: word(3),
        at: word(2),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::STAT_COUNT;
    use proptest::prelude::*;

    fn recorder(n_pes: usize, calls: usize) -> Recorder {
        // As many words as calls need, without those that fill the last page.
        let words = calls_at(n_pes) + calls * CALL;
        assert!(words * 8 <= room(n_pes, calls).unwrap());
        let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        Recorder::new(words.leak(), n_pes, calls)
    }

    const NO_STATS: PeStats = PeStats([0; STAT_COUNT]);

    fn put(begin: u64, pe: u32, bytes: u64) -> Event {
        Event {
            begin,
            end: begin + 10 * bytes,
            routine: Routine::Put,
            thread: thread(),
            pe,
            bytes,
            at: 64,
        }
    }

    #[test]
    fn calls_that_find_no_room_are_counted() {
        let recorder = recorder(4, 2);
        let calls = [put(5, 1, 3), put(50, 3, 8), put(200, 1, 1)];
        calls.iter().for_each(|call| recorder.add(call));
        let read = recorder.read(2, 1, NO_STATS);
        assert_eq!((read.rank, read.node, read.lost), (2, 1, 1));
        assert_eq!(read.events, calls[..2]);
        let all = Total {
            routine: Routine::Put,
            calls: 3,
            ns: 120,
            longest: 80,
            bytes: 12,
        };
        assert_eq!(read.totals, [all]);
        let traffic = |pe, operations, bytes| Traffic {
            pe,
            operations,
            bytes,
            connections: 0,
        };
        assert_eq!(read.traffic, [traffic(1, 2, 4), traffic(3, 1, 8)]);
    }

    #[test]
    fn any_pe_of_a_large_job_is_found_again() {
        let n = 20_000;
        let recorder = recorder(n, 0);
        let pes = [0, 127, 128, 8191, 8192, 19_999];
        pes.iter().for_each(|&pe| recorder.add(&put(1, pe, 4)));
        recorder.add(&put(1, n as u32, 4));
        let read = recorder.read(0, 0, NO_STATS);
        assert_eq!(read.traffic.iter().map(|t| t.pe).collect::<Vec<_>>(), pes);
        assert_eq!((read.totals[0].calls, read.lost), (7, 7));
    }

    #[test]
    fn threads_write_side_by_side() {
        let recorder = recorder(2, 4000);
        std::thread::scope(|scope| {
            for first in 0..4 {
                scope.spawn(move || (0..1000).for_each(|i| recorder.add(&put(first + i, 1, 2))));
            }
        });
        let read = recorder.read(0, 0, NO_STATS);
        assert_eq!((read.events.len(), read.lost), (4000, 0));
        assert_eq!((read.totals[0].calls, read.traffic[0].bytes), (4000, 8000));
        let mut threads: Vec<u8> = read.events.iter().map(|e| e.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        assert_eq!(threads.len(), 4);
    }

    #[test]
    fn what_a_killed_pe_has_not_finished_is_left_out() {
        let recorder = recorder(1, 3);
        recorder.words[PLACES].fetch_add(1, Ordering::Relaxed);
        recorder.add(&put(1, 0, 1));
        let read = recorder.read(0, 0, NO_STATS);
        assert_eq!((read.events.len(), read.lost), (1, 0));
    }

    #[test]
    fn recording_pauses() {
        let recorder = recorder(1, 1);
        assert!(recorder.is_on());
        recorder.pause(true);
        assert!(!recorder.is_on());
        recorder.pause(false);
        assert!(recorder.is_on());
    }

    #[test]
    fn rooms_are_bounded() {
        assert_eq!(room(usize::MAX, 1), None);
        assert_eq!(room(1, usize::MAX / 8), None);
        let room = room(8192, 1000).unwrap();
        assert!(
            room.is_multiple_of(crate::layout::REGION) && room <= 256 << 10,
            "{room}"
        );
    }

    proptest! {
        #[test]
        fn any_memory_can_be_read(words in prop::collection::vec(any::<u64>(), calls_at(2)..calls_at(2) + 64)) {
            let words: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
            let calls = (words.len() - calls_at(2)) / CALL;
            let read = Recorder::new(words.leak(), 2, calls).read(0, 0, NO_STATS);
            prop_assert!(read.events.iter().all(|e| e.begin <= e.end));
        }
    }
}

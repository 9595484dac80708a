//! The protocols between PEs of a node, under loom: every interleaving up to a number of
//! preemptions, with the memory model of C11.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p shmem-node --test loom --release
//! ```
//! Without `--cfg loom` this file is empty. The protocols are the files of `src` themselves,
//! compiled here against loom's atomics, and `sys` models the system calls. Sleeps have no end: a
//! bell that is missed is a deadlock, which loom reports. What the atomics have to protect lies in
//! loom's cells, which report accesses that nothing orders.
#![cfg(loom)]

/// What `crate::sync` is for the files of `src`.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use shmem_testkit::models::fence;
}

#[allow(dead_code, unreachable_pub)]
#[path = "../../src/absence.rs"]
mod absence;
#[allow(dead_code, unreachable_pub)]
#[path = "../../src/barrier.rs"]
mod barrier;
#[allow(dead_code)]
#[path = "../../src/kvs/locks/deadline.rs"]
mod deadline;
#[allow(dead_code, unreachable_pub)]
#[path = "../../src/doorbell.rs"]
mod doorbell;
#[allow(dead_code)]
#[path = "../../src/kvs/index.rs"]
mod index;
mod kvs;
#[allow(dead_code, unreachable_pub)]
#[path = "../../src/waiting/record.rs"]
mod record;
#[allow(dead_code)]
#[path = "../../src/kvs/locks/rwlock.rs"]
mod rwlock;
#[path = "../../src/slot.rs"]
mod slot;
mod sys;
#[allow(dead_code, unreachable_pub)]
#[path = "../../src/turns.rs"]
mod turns;
#[path = "../../src/kvs/locks/two_n.rs"]
mod two_n;

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

use absence::Absence;
use barrier::NodeBarrier;
use doorbell::{Doorbell, Pace};
use record::Record;
use shmem_testkit::models::{model, noticed};
use slot::SlotHeader;
use turns::Turns;

/// Words of a note: what `super` has for the record.
const WORDS: usize = 5;

/// A word that the program may store to at any time, and the bell beside it.
#[derive(Default)]
struct Watched {
    word: AtomicU64,
    bell: Doorbell,
}

impl Watched {
    fn put(&self) {
        self.word.fetch_add(1, Ordering::Relaxed);
        self.bell.ring();
    }

    fn wait_for(&self, value: u64) {
        let ready = || self.word.load(Ordering::Relaxed) >= value;
        let sleepers = AtomicU32::new(0);
        while !ready() {
            self.bell.sleep(Turns::new(&sleepers, 1), Pace::RUNG, ready);
        }
    }
}

/// Plain stores, a plain look at the bell: no sleeper is left behind.
#[test]
fn no_bell_is_missed() {
    model(4, || {
        let watched = Arc::new(Watched::default());
        let writer = {
            let watched = watched.clone();
            thread::spawn(move || watched.word.store(1, Ordering::Relaxed))
        };
        writer.join().unwrap();
        let writer = {
            let watched = watched.clone();
            thread::spawn(move || {
                watched.word.store(2, Ordering::Relaxed);
                watched.bell.ring();
            })
        };
        watched.wait_for(2);
        writer.join().unwrap();
    });
}

/// Two writers, two threads of the owner that wait for different values.
#[test]
fn no_bell_is_missed_by_two_sleepers_of_two_writers() {
    model(2, || {
        let watched = Arc::new(Watched::default());
        let spawn = |f: fn(&Watched)| {
            let watched = watched.clone();
            thread::spawn(move || f(&watched))
        };
        let threads = [
            spawn(Watched::put),
            spawn(Watched::put),
            spawn(|w| w.wait_for(1)),
        ];
        watched.wait_for(2);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

const PES: u32 = 3;

/// What each PE wrote before it arrived, and what the leader wrote before it released.
struct Meeting {
    barrier: NodeBarrier,
    given: [UnsafeCell<u32>; PES as usize],
    result: UnsafeCell<u32>,
}

// SAFETY: that the cells are only accessed in turns is what the model checks; loom reports it if
// they are not.
unsafe impl Sync for Meeting {}

impl Meeting {
    fn take_part(&self, pe: u32, round: u32) {
        // SAFETY: only this PE and, between arrival and release, the leader access it.
        self.given[pe as usize].with_mut(|v| unsafe { *v = round });
        if pe == 0 {
            while !self.barrier.complete(PES) {
                self.barrier.sleep_incomplete(PES, None);
            }
            // SAFETY: all have arrived.
            let sum = |cell: &UnsafeCell<u32>| cell.with(|v| unsafe { *v });
            let total = self.given.iter().map(sum).sum();
            // SAFETY: nobody was released.
            self.result.with_mut(|v| unsafe { *v = total });
            self.barrier.release();
        } else {
            let arrival = self.barrier.arrive(PES);
            while !self.barrier.released(arrival) {
                self.barrier.sleep_unreleased(arrival, None);
            }
        }
        // SAFETY: written before the release, and not again before this PE's next arrival.
        let result = self.result.with(|v| unsafe { *v });
        assert_eq!(result, PES * round);
    }

    /// The last to come leads. What PE 0 shows it changes when the others have departed.
    fn take_part_and_depart(&self, pe: u32, round: u32) {
        if pe == 0 {
            // SAFETY: the others have departed from the last round, or there was none.
            self.result.with_mut(|v| unsafe { *v = round });
        }
        match self.barrier.arrive_or_lead(PES) {
            None => self.barrier.release(),
            Some(arrival) => {
                while !self.barrier.released(arrival) {
                    self.barrier.sleep_unreleased(arrival, None);
                }
            }
        }
        // SAFETY: written before the release, and not again before this PE departs.
        let result = self.result.with(|v| unsafe { *v });
        assert_eq!(result, round);
        if pe == 0 {
            while !self.barrier.all_departed(PES) {
                self.barrier.sleep_undeparted(PES, None);
            }
            self.barrier.departures_seen();
        } else {
            self.barrier.depart(PES);
        }
    }

    fn rounds(take_part: fn(&Self, u32, u32)) {
        let meeting = Arc::new(Meeting {
            barrier: NodeBarrier::default(),
            given: Default::default(),
            result: UnsafeCell::default(),
        });
        let others = [1, 2].map(|pe| {
            let meeting = meeting.clone();
            thread::spawn(move || (1..=2).for_each(|round| take_part(&meeting, pe, round)))
        });
        (1..=2).for_each(|round| take_part(&meeting, 0, round));
        for other in others {
            other.join().unwrap();
        }
    }
}

/// What PEs did before is done before what the leader does, and that before what they do next;
/// nobody sleeps for ever; rounds do not mix.
#[test]
fn the_barrier_orders_and_wakes() {
    model(2, || Meeting::rounds(Meeting::take_part));
}

/// Nobody takes away what another still reads, with the leader by chance.
#[test]
fn what_is_shown_stays_until_all_have_departed() {
    model(2, || Meeting::rounds(Meeting::take_part_and_depart));
}

/// Values are there when the slot says so, also in a slot that is used again.
#[test]
fn gathered_values_come_before_their_flag() {
    struct Slot {
        header: SlotHeader,
        value: UnsafeCell<u32>,
    }
    // SAFETY: as for `Meeting`.
    unsafe impl Sync for Slot {}
    model(2, || {
        let slot = Arc::new(Slot {
            header: SlotHeader::default(),
            value: UnsafeCell::default(),
        });
        let readers = [(); 2].map(|()| {
            let slot = slot.clone();
            thread::spawn(move || {
                assert!(slot.header.wait(8, Duration::MAX));
                assert_eq!(slot.header.value_len(), 80);
                // SAFETY: shown, and not used again.
                assert_eq!(slot.value.with(|v| unsafe { *v }), 800);
            })
        });
        for request in [0, 8] {
            slot.header.begin(request * 10);
            // SAFETY: readers of this request wait for `finish`.
            slot.value.with_mut(|v| unsafe { *v = request * 100 });
            slot.header.finish(request);
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

/// Words of different notes are never read together, though nothing orders reader and writer.
///
/// Readers are threads of their own that come after the writers at first: of a store behind a load of the same thread loom
/// forgets that others have loaded before.
fn read_while_written() {
    let record = Arc::new(Record::default());
    let reader = reader(&record);
    let note = record.begin(1, &[1; WORDS]).unwrap();
    record.end(note, 2);
    let note = record.begin(3, &[3; WORDS]).unwrap();
    record.change(note, &[3; WORDS]);
    reader.join().unwrap();
    assert_eq!(record.read().count(), 1);
}

fn reader(record: &Arc<Record>) -> thread::JoinHandle<()> {
    let record = record.clone();
    thread::spawn(move || {
        for seen in record.read() {
            assert_eq!(seen.words, [seen.since; WORDS]);
        }
    })
}

#[test]
fn a_reader_sees_whole_notes() {
    model(3, read_while_written);
    for order in [Ordering::Release, Ordering::Acquire] {
        noticed(3, order, Ordering::Relaxed, read_while_written);
    }
}

/// As that, when one thread takes the note of another.
#[test]
fn a_reader_sees_whole_notes_of_two_threads() {
    model(2, || {
        let record = Arc::new(Record::default());
        let write = |record: &Record, value: u64| {
            let note = record.begin(value, &[value; WORDS]).unwrap();
            record.end(note, value);
        };
        let writer = {
            let record = record.clone();
            thread::spawn(move || write(&record, 3))
        };
        let reader = reader(&record);
        write(&record, 1);
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

/// A PE says that it is in init and looks who is absent; the agent notes who is and looks who is in init. Of two who are
/// absent one is noted, and whoever is first looks.
fn someone_sees_the_absent() {
    let node = Arc::new((AtomicU32::new(0), Absence::default()));
    let agent = |rank| {
        let node = node.clone();
        move || {
            let (state, absence) = &*node;
            absence.note(rank).then(|| state.load(Ordering::Relaxed))
        }
    };
    let other = thread::spawn(agent(7));
    let pe = {
        let node = node.clone();
        thread::spawn(move || {
            let (state, absence) = &*node;
            state.store(1, Ordering::Relaxed);
            absence.noted()
        })
    };
    let looks = [agent(8)(), other.join().unwrap()];
    let noted = pe.join().unwrap();
    assert_eq!(looks.iter().flatten().count(), 1, "one is first");
    assert!(noted.is_some() || looks.contains(&Some(1)));
    assert!(noted.is_none_or(|rank| rank == 7 || rank == 8));
}

#[test]
fn a_pe_in_init_or_the_agent_sees_who_is_absent() {
    model(3, someone_sees_the_absent);
    noticed(
        3,
        Ordering::SeqCst,
        Ordering::AcqRel,
        someone_sees_the_absent,
    );
}

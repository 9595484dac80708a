//! The node's key-value store: the index that readers walk without a lock, and its two locks.

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use shmem_testkit::models::model;

use super::index;
use super::rwlock::RwLock;
use super::sync::{AtomicU32, AtomicU64};
use super::two_n::{self, Pair};

const FOREVER: Duration = Duration::MAX;

/// Two indexes of a few slots, and a log of records with a key and a value. Each record is written
/// once, so a reader that gets to it too early is an access that nothing orders.
struct Kvs {
    level: AtomicU32,
    small: [AtomicU64; 2],
    large: [AtomicU64; 4],
    log: [UnsafeCell<(u64, u32)>; 4],
}

// SAFETY: that the cells are only accessed in turns is what the model checks.
unsafe impl Sync for Kvs {}

impl Kvs {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            level: AtomicU32::new(0),
            small: Default::default(),
            large: Default::default(),
            log: Default::default(),
        })
    }

    fn slots(&self) -> &[AtomicU64] {
        match index::level(&self.level) {
            0 => &self.small,
            _ => &self.large,
        }
    }

    fn record(&self, place: index::Place) -> (u64, u32) {
        // SAFETY: a slot leads here.
        self.log[place as usize].with(|record| unsafe { *record })
    }

    /// For the writer: puts the record that was not used yet, as number `place` (from 1), into the
    /// index in use.
    fn insert(&self, place: index::Place, key: u64, value: u32) {
        // SAFETY: no slot leads here.
        self.log[place as usize].with_mut(|record| unsafe { *record = (key, value) });
        let slots = self.slots();
        let found = index::find(slots, key, |place| self.record(place).0 == key);
        let at = match found {
            Some((at, _)) => at,
            None => index::vacancy(slots, key).unwrap().0,
        };
        index::show(&slots[at], key, place);
    }

    fn grow(&self) {
        index::copy(&self.small, &self.large, |place| self.record(place).0);
        index::use_level(&self.level, 1);
    }

    fn get(&self, key: u64) -> Option<u32> {
        let (_, place) = index::find(self.slots(), key, |place| self.record(place).0 == key)?;
        Some(self.record(place).1)
    }
}

/// A record is whole when a slot leads to it, a key that is put again changes its value at once, and
/// readers never go back to an older one.
#[test]
fn a_replaced_value_is_old_or_new_and_whole() {
    model(3, || {
        let kvs = Kvs::new();
        let readers = [(); 2].map(|()| {
            let kvs = kvs.clone();
            thread::spawn(move || {
                let first = kvs.get(7);
                let second = kvs.get(7);
                assert!(matches!(first, None | Some(1) | Some(2)));
                assert!(first <= second, "{first:?} then {second:?}");
            })
        });
        kvs.insert(1, 7, 1);
        kvs.insert(2, 7, 2);
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(kvs.get(7), Some(2));
    });
}

/// What was there before the index grew is there all the time; what comes later comes whole. The keys
/// collide, so that searches walk over each other's slots.
#[test]
fn growth_loses_nothing() {
    model(3, || {
        let kvs = Kvs::new();
        kvs.insert(1, 4, 40);
        let reader = {
            let kvs = kvs.clone();
            thread::spawn(move || {
                let other = kvs.get(8);
                assert!(matches!(other, None | Some(80)));
                assert!(matches!(kvs.get(4), Some(40 | 41)));
                if other.is_some() {
                    assert_eq!(kvs.get(8), other, "it is not lost again");
                }
            })
        };
        kvs.grow();
        kvs.insert(2, 8, 80);
        kvs.insert(3, 4, 41);
        reader.join().unwrap();
    });
}

/// A key that is taken away and comes again, in the slot that another key has left.
#[test]
fn a_vacant_slot_is_used_again() {
    model(3, || {
        let kvs = Kvs::new();
        kvs.insert(1, 2, 20);
        let reader = {
            let kvs = kvs.clone();
            thread::spawn(move || {
                assert!(matches!(kvs.get(2), None | Some(20)));
                assert!(matches!(kvs.get(4), None | Some(40)));
            })
        };
        let (at, _) = index::find(&kvs.small, 2, |_| true).unwrap();
        index::hide(&kvs.small[at], 2);
        kvs.insert(2, 4, 40);
        reader.join().unwrap();
        assert_eq!((kvs.get(2), kvs.get(4)), (None, Some(40)));
    });
}

/// Values under the 2N-lock.
struct Guarded {
    pairs: [Pair; 2],
    words: [UnsafeCell<u32>; 2],
    /// Whether the writer keeps new readers out, though it may still wait for others.
    shut: AtomicBool,
}

// SAFETY: as for `Kvs`.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            pairs: Default::default(),
            words: Default::default(),
            shut: AtomicBool::new(false),
        })
    }

    fn write(&self) {
        // The two steps of `exclude`.
        assert!(two_n::shut(&self.pairs, FOREVER));
        self.shut.store(true, Ordering::Release);
        assert!(two_n::drain(&self.pairs, FOREVER));
        for word in &self.words {
            // SAFETY: readers are out.
            word.with_mut(|word| unsafe { *word += 1 });
        }
        two_n::admit(&self.pairs);
    }

    fn read(&self, reader: usize) -> u32 {
        let pair = &self.pairs[reader];
        assert!(pair.enter(FOREVER));
        // SAFETY: the writer is out.
        let [a, b] = self
            .words
            .each_ref()
            .map(|word| word.with(|word| unsafe { *word }));
        pair.leave();
        assert_eq!(a, b);
        a
    }
}

/// Readers and the writer exclude each other and nobody sleeps for ever, with readers on pairs of
/// their own.
#[test]
fn the_2n_lock_excludes_and_wakes() {
    model(2, || {
        let guarded = Guarded::new();
        let readers = [0, 1].map(|reader| {
            let guarded = guarded.clone();
            thread::spawn(move || {
                guarded.read(reader);
            })
        });
        guarded.write();
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(guarded.read(0), 1);
    });
}

/// Two threads of a PE share a pair; the writer comes twice.
#[test]
fn threads_of_a_reader_share_its_pair() {
    model(2, || {
        let guarded = Guarded::new();
        let threads = [(); 2].map(|()| {
            let guarded = guarded.clone();
            thread::spawn(move || {
                let first = guarded.read(1);
                assert!(first <= 1);
            })
        });
        guarded.write();
        assert!(two_n::exclude(&guarded.pairs, FOREVER));
        two_n::admit(&guarded.pairs);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// The writer goes first: while it has the first locks of the readers, a reader that comes does not
/// get past it.
#[test]
fn a_reader_that_comes_after_the_writer_sees_what_it_wrote() {
    model(3, || {
        let guarded = Guarded::new();
        let reader = {
            let guarded = guarded.clone();
            thread::spawn(move || {
                let late = guarded.shut.load(Ordering::Acquire);
                let seen = guarded.read(0);
                assert!(seen == 1 || !late);
                // Having seen it once, always.
                assert!(guarded.read(0) >= seen);
            })
        };
        guarded.write();
        reader.join().unwrap();
    });
}

/// Values under the lock for all.
#[derive(Default)]
struct Common {
    lock: RwLock,
    words: [UnsafeCell<u32>; 2],
}

// SAFETY: as for `Kvs`.
unsafe impl Sync for Common {}

impl Common {
    fn read(&self) -> u32 {
        assert!(self.lock.enter(FOREVER));
        // SAFETY: the writer is out.
        let read = |word: &UnsafeCell<u32>| word.with(|word| unsafe { *word });
        let [a, b] = self.words.each_ref().map(read);
        self.lock.leave();
        assert_eq!(a, b);
        a
    }
}

/// Readers and the writer exclude each other, and nobody sleeps for ever: the writer may come while readers are there, and
/// readers while it writes.
#[test]
fn the_lock_for_all_excludes_and_wakes() {
    model(3, || {
        let common = Arc::new(Common::default());
        let readers = [(); 2].map(|()| {
            let common = common.clone();
            thread::spawn(move || {
                let first = common.read();
                assert!(first <= common.read());
            })
        });
        assert!(common.lock.exclude(FOREVER));
        for word in &common.words {
            // SAFETY: readers are out.
            word.with_mut(|word| unsafe { *word += 1 });
        }
        common.lock.admit();
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(common.read(), 1);
    });
}

//! The table of an XRC domain: what is read of a region belongs together, and nobody is in memory that its owner has
//! taken back.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use shmem_ib::verbs::{Access, Rkey, SrqNum};

use super::sync::{AtomicU64, Ordering};
use shmem_testkit::models::{model, noticed};

use domain::Reach;
use table::{Region, Table, WORDS};

/// What the table takes from there.
mod domain {
    use shmem_ib::verbs::{Access, Rkey};

    pub(super) struct Reach {
        pub(super) rkey: Rkey,
        pub(super) va: u64,
        pub(super) len: u64,
        pub(super) need: Access,
    }
}

/// Each word takes part in the search.
mod sizes {
    pub(super) const MEMBERS: usize = 2;
    pub(super) const SRQS: usize = 1 << INDEX_BITS;
    pub(super) const INDEX_BITS: u32 = 1;
    pub(super) const REGIONS: usize = 1;
}

#[allow(dead_code, unreachable_pub)] // what is public there is private here
#[path = "../../soft/src/xrc/table.rs"]
mod table;

const KEY: Rkey = Rkey(7);

struct Shared {
    words: Vec<AtomicU64>,
    /// What the region is for.
    memory: UnsafeCell<u32>,
}

// SAFETY: that the cell is accessed in turns is what the model checks.
unsafe impl Sync for Shared {}

impl Shared {
    /// With a region, and a receive queue, of member 0; member 1 has joined.
    fn new() -> (Arc<Self>, SrqNum) {
        let shared = Arc::new(Self {
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            memory: UnsafeCell::new(0),
        });
        let table = Table::on(&shared.words).unwrap();
        assert_eq!((table.join(), table.join()), (Some(0), Some(1)));
        let srqn = table.add_srq(0).unwrap();
        assert!(table.publish(0, &region(100, 1000)));
        (shared, srqn)
    }

    fn table(&self) -> Table<'_> {
        Table::known(&self.words)
    }
}

fn region(va: u64, offset: u64) -> Region {
    Region {
        rkey: KEY,
        access: Access::ALL,
        va,
        len: 500,
        offset,
    }
}

fn reach(va: u64) -> Reach {
    Reach {
        rkey: KEY,
        va,
        len: 8,
        need: Access::REMOTE_WRITE,
    }
}

/// One accesses the region, the other takes it back and uses the memory itself.
fn an_owner_waits_for_accesses() {
    let (shared, srqn) = Shared::new();
    let other = {
        let shared = shared.clone();
        thread::spawn(move || {
            let table = shared.table();
            table.enter(1);
            if table.resolve(srqn, &reach(100)).is_some() {
                // SAFETY: the owner waits until the turn is over.
                shared.memory.with_mut(|v| unsafe { *v += 1 });
            }
            table.exit(1);
        })
    };
    let table = shared.table();
    assert!(table.withdraw(0, KEY));
    let accessing: Vec<_> = table.accessing().collect();
    for (member, turns) in accessing {
        while !table.has_moved_on(member, turns) {
            thread::yield_now();
        }
    }
    // SAFETY: nobody is there any more.
    shared.memory.with_mut(|v| unsafe { *v += 1 });
    other.join().unwrap();
}

#[test]
fn nobody_is_in_memory_that_was_taken_back() {
    model(3, an_owner_waits_for_accesses);
    noticed(
        3,
        Ordering::SeqCst,
        Ordering::AcqRel,
        an_owner_waits_for_accesses,
    );
}

/// One region takes the place of another under the same key.
fn a_reader_finds_whole_regions() {
    let (shared, srqn) = Shared::new();
    let other = {
        let shared = shared.clone();
        thread::spawn(move || {
            let found = shared.table().resolve(srqn, &reach(300));
            assert!(matches!(found, None | Some(1200 | 5100)), "{found:?}");
        })
    };
    let table = shared.table();
    assert!(table.withdraw(0, KEY));
    assert!(table.publish(0, &region(200, 5000)));
    other.join().unwrap();
}

#[test]
fn what_is_read_of_a_region_belongs_together() {
    model(3, a_reader_finds_whole_regions);
    for fence in [Ordering::Release, Ordering::Acquire] {
        noticed(3, fence, Ordering::Relaxed, a_reader_finds_whole_regions);
    }
}

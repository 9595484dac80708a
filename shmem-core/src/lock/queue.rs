//! The queue of PEs that want a lock (after Mellor-Crummey and Scott, 1991).
//!
//! A lock is one symmetric word of 64 bits, 0 on all PEs while it is free. Each PE's copy has two
//! parts:
//!
//! ```text
//!  63       62      61 ... 32            31 ... 0
//!  granted  queued  next PE + 1 or 0     last PE of the queue + 1 or 0
//!  `---- node: of the PE whose copy ---´ `- tail: on the lock's home -´
//! ```
//!
//! A PE that wants the lock marks its node as queued, and exchanges the *tail* on the lock's *home*, a PE
//! that follows from the address. If there was somebody before, it adds its number to the *node* of
//! that PE and waits until its own node is granted. A PE that lets go either finds a next PE in its node,
//! and grants; or takes itself from the tail; or, if that fails since somebody has come meanwhile,
//! waits for it to say who it is.
//!
//! A PE in the queue looks at its own copy alone. Taking a free lock and giving it back is a
//! compare-and-swap each; handing it over is two additions. All are atomics of 64 bits, which every
//! kind of device has, so nothing here depends on who executes them. Additions fit because the fields
//! are 0 before, and all changes to a node come one after another: the next PE's number once, the
//! grant once, and the reset only when both have come or cannot come.
//!
//! `queued` is also what keeps the threads of a PE apart: a thread that finds it set waits for the PE's own
//! word until the thread before is through. Any thread of the PE may let go of the lock, so with thread level
//! Multiple nobody can tell that a thread waits for itself.

use std::panic::Location;

use shmem_ib::atomic::{AtomicOp, Width};
use shmem_node::recording::Routine;
use shmem_node::waiting::{LockWait, Place, Wait};

use crate::context::Ctx;
use crate::error::Called;
use crate::fault;
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::recording::RecordedCall;
use crate::runtime::{Runtime, ThreadLevel, rt};

const GRANTED: u64 = 1 << 63;
const QUEUED: u64 = 1 << 62;
const NEXT_SHIFT: u32 = 32;
const NEXT: u64 = (QUEUED - 1) & !TAIL;
const TAIL: u64 = 0xffff_ffff;

/// The PE after this one, if it has said so.
const fn next_of(word: u64) -> Option<usize> {
    match (word & NEXT) >> NEXT_SHIFT {
        0 => None,
        pe => Some(pe as usize - 1),
    }
}

/// A PE as it stands in a tail.
const fn name(pe: usize) -> u64 {
    pe as u64 + 1
}

/// Where the tail of the lock at `offset` is. Locks that lie side by side have different homes.
const fn home(offset: usize, n_pes: usize) -> usize {
    offset / size_of::<u64>() % n_pes
}

/// A wait at the lock at `at`, as others are told of it.
fn told(why: LockWait, at: usize, behind: u32, called: Called) -> impl Fn() -> Wait {
    move || Wait::Lock {
        why,
        at: at as u64,
        behind,
        called: called.map_or(Place::NOWHERE, |at| fault::place_in_program(at)),
    }
}

impl Runtime {
    /// One of the atomics of a lock; gives the old value.
    fn lock_word(&self, pe: usize, at: usize, op: AtomicOp) -> u64 {
        Ctx::default_ctx().atomic(SymAddr::new(at), Width::W8, op, pe)
    }

    /// Changes another PE's node, sooner or later.
    fn tell_node(&self, pe: usize, at: usize, what: u64) {
        Ctx::default_ctx().atomic_plain(SymAddr::new(at), Width::W8, AtomicOp::Add(what), pe);
    }

    /// This PE's copy.
    fn own_lock_word(&self, at: usize) -> u64 {
        // SAFETY: handles to 8-byte words lie aligned inside the segment.
        unsafe { access::load(self.own(at)) }
    }

    /// Replaces the tail by `new` if `wanted` accepts it; gives the tail before, or the one that was
    /// not wanted. Tried first is that the home's copy is `guess`.
    fn exchange_tail(
        &self,
        at: usize,
        guess: u64,
        new: u64,
        wanted: impl Fn(u64) -> bool,
    ) -> Result<u64, u64> {
        let home = home(at, self.n_pes);
        let mut compare = guess;
        loop {
            let op = AtomicOp::CompareSwap {
                compare,
                new: compare & !TAIL | new,
            };
            let old = self.lock_word(home, at, op);
            if old == compare {
                return Ok(old & TAIL);
            }
            if !wanted(old & TAIL) {
                return Err(old & TAIL);
            }
            compare = old;
        }
    }

    /// Marks this PE as queued, unless a thread of it is already.
    fn enter(&self, at: usize) -> bool {
        let old = self.lock_word(self.me, at, AtomicOp::Or(QUEUED));
        old & QUEUED == 0
    }

    /// Takes this PE out of the queue, of which it is no part any more, and lets its other threads
    /// in.
    fn leave(&self, at: usize) {
        // It wakes the threads of this PE that sleep until they can enter.
        self.lock_word(self.me, at, AtomicOp::And(TAIL));
    }

    /// What the home's copy is likely to hold if its tail is `tail`: a node that is not in the queue,
    /// unless this PE is the home.
    fn guess(&self, at: usize, tail: u64) -> u64 {
        if home(at, self.n_pes) == self.me {
            self.own_lock_word(at) & !TAIL | tail
        } else {
            tail
        }
    }

    /// Takes the lock at `at`, when it is this PE's turn.
    #[track_caller]
    pub(crate) fn lock_set(&self, at: usize) {
        let _recorded = self.scope(|| RecordedCall {
            at,
            ..RecordedCall::of(Routine::SetLock)
        });
        let called = Some(Location::caller());
        while !self.enter(at) {
            if self.threads.level() < ThreadLevel::Multiple {
                self.waits_for_itself(at);
            }
            self.wait_for(told(LockWait::Thread, at, Wait::NOBODY, called), || {
                self.own_lock_word(at) & QUEUED == 0
            });
        }
        let before = self.exchange_tail(at, self.guess(at, 0), name(self.me), |_| true);
        // The exchange accepts every tail.
        let (Ok(before) | Err(before)) = before;
        if before == 0 {
            return;
        }
        let before = before as usize - 1;
        self.tell_node(before, at, name(self.me) << NEXT_SHIFT);
        self.wait_for(told(LockWait::Turn, at, before as u32, called), || {
            self.own_lock_word(at) & GRANTED != 0
        });
    }

    /// Takes the lock at `at` if it is free. Returns whether it did.
    pub(crate) fn lock_test(&self, at: usize) -> bool {
        let _recorded = self.scope(|| RecordedCall {
            at,
            ..RecordedCall::of(Routine::TestLock)
        });
        if !self.enter(at) {
            self.progress();
            return false;
        }
        let free = |tail| tail == 0;
        let taken = self.exchange_tail(at, self.guess(at, 0), name(self.me), free);
        if taken.is_err() {
            self.leave(at);
        }
        taken.is_ok()
    }

    /// Lets go of the lock at `at`, after a quiet. Returns whether this PE held it.
    pub(crate) fn lock_clear(&self, at: usize) -> bool {
        if self.own_lock_word(at) & QUEUED == 0 {
            return false;
        }
        let _recorded = self.scope(|| RecordedCall {
            at,
            ..RecordedCall::of(Routine::ClearLock)
        });
        self.quiet();
        let mut next = next_of(self.own_lock_word(at));
        if next.is_none() {
            let mine = |tail| tail == name(self.me);
            if self
                .exchange_tail(at, self.guess(at, name(self.me)), 0, mine)
                .is_ok()
            {
                self.leave(at);
                return true;
            }
            self.wait_for(told(LockWait::Next, at, Wait::NOBODY, None), || {
                next = next_of(self.own_lock_word(at));
                next.is_some()
            });
        }
        self.leave(at);
        if let Some(next) = next {
            self.tell_node(next, at, GRANTED);
        }
        true
    }

    #[cold]
    #[track_caller]
    fn waits_for_itself(&self, at: usize) -> ! {
        panic!(
            "this PE holds the lock at symmetric offset {at:#x} already: it would wait for itself. (Threads may wait \
             for each other's locks after an init with thread level Multiple.)"
        )
    }

    #[cold]
    #[track_caller]
    fn not_held(&self, at: usize) -> ! {
        panic!("this PE lets go of the lock at symmetric offset {at:#x}, but does not hold it")
    }
}

/// Takes a lock: a word of 8 bytes that is 0 on all PEs when first used. Waits until it is this
/// PE's turn; PEs get it in the order in which they asked.
///
/// # Safety
/// `lock` is the address of a symmetric word of 8 bytes, aligned, which nothing but these routines
/// changes.
///
/// # Panics
/// Before init, or if this PE holds the lock and its thread level is below `Multiple`: then no other thread can let go
/// of it meanwhile.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_set_lock`.
#[track_caller]
pub unsafe fn lock_set(lock: SymAddr) {
    rt().lock_set(lock.offset());
}

/// Lets go of a lock, after a quiet.
///
/// # Safety
/// As for [`lock_set`].
///
/// # Panics
/// Before init, or if this PE does not hold it.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_clear_lock`.
#[track_caller]
pub unsafe fn lock_clear(lock: SymAddr) {
    let rt = rt();
    if !rt.lock_clear(lock.offset()) {
        rt.not_held(lock.offset());
    }
}

/// Takes a lock if it is free, without waiting. Returns whether it did.
///
/// # Safety
/// As for [`lock_set`].
///
/// # Panics
/// Before init.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_test_lock`.
#[track_caller]
pub unsafe fn lock_test(lock: SymAddr) -> bool {
    rt().lock_test(lock.offset())
}

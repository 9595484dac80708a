//! The 2N-lock of "A Scalable PMIx Database" (EuroMPI 2018), section 5: a lock for one writer and N
//! readers in which a reader touches nothing that another reader touches, and the writer goes first.
//!
//! Each reader has two locks of its own, called μ and ν in the paper. The writer takes all ν, which
//! keeps new readers away, then all μ, which waits for those that are reading. A reader takes its μ
//! and tries its ν. If that is free, it gives it back and reads; else the writer has come, so it
//! lets go of μ and waits for ν. The paper ends there: with ν the reader then takes μ again and gives
//! ν back, so that the next writer is the first that can overtake it.
//!
//! Threads of one PE share its pair, so they read one at a time.

#![forbid(unsafe_code)]

use std::time::Duration;

use super::deadline::Deadline;
use crate::sync::{AtomicU32, Ordering};
use crate::sys;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep.
const AWAITED: u32 = 2;

/// A lock in memory that processes share. Zeroed memory is a free one.
#[repr(C)]
#[derive(Debug, Default)]
struct Mutex(AtomicU32);

impl Mutex {
    fn try_lock(&self) -> bool {
        // ORDERING(kvs-mutex): pairs with `unlock`.
        self.0
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Waits up to `patience`; says whether it has the lock.
    fn lock(&self, patience: Duration) -> bool {
        self.try_lock() || self.lock_slowly(patience)
    }

    #[cold]
    fn lock_slowly(&self, patience: Duration) -> bool {
        let end = Deadline::after(patience);
        // ORDERING(kvs-mutex): pairs with `unlock`. A thread that has slept does not know whether
        // others do.
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            if !end.sleep(&self.0, AWAITED) {
                return false;
            }
        }
        true
    }

    fn unlock(&self) {
        // ORDERING(kvs-mutex): what the holder did comes before what the next one does.
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            sys::futex_wake(&self.0, 1);
        }
    }
}

/// The locks of one reader, on a cache line of their own.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(crate) struct Pair {
    mu: Mutex,
    nu: Mutex,
}

impl Pair {
    /// For the reader whose pair it is. False if it had to wait for longer than `patience` somewhere.
    pub(crate) fn enter(&self, patience: Duration) -> bool {
        if !self.mu.lock(patience) {
            return false;
        }
        if self.nu.try_lock() {
            self.nu.unlock();
            return true;
        }
        self.mu.unlock();
        if !self.nu.lock(patience) {
            return false;
        }
        let entered = self.mu.lock(patience);
        self.nu.unlock();
        entered
    }

    /// For the reader, which has entered.
    pub(crate) fn leave(&self) {
        self.mu.unlock();
    }
}

/// For the writer: keeps all readers out. False, with nothing held, if one of them does not leave
/// within `patience`.
pub(crate) fn exclude(pairs: &[Pair], patience: Duration) -> bool {
    if !shut(pairs, patience) {
        return false;
    }
    let alone = drain(pairs, patience);
    if !alone {
        pairs.iter().for_each(|pair| pair.nu.unlock());
    }
    alone
}

/// The writer's first step: no reader enters any more.
pub(crate) fn shut(pairs: &[Pair], patience: Duration) -> bool {
    lock_all(pairs, |pair| &pair.nu, patience)
}

/// The writer's second step: those that have entered leave.
pub(crate) fn drain(pairs: &[Pair], patience: Duration) -> bool {
    lock_all(pairs, |pair| &pair.mu, patience)
}

/// All or none.
fn lock_all(pairs: &[Pair], which: fn(&Pair) -> &Mutex, patience: Duration) -> bool {
    let locked = pairs.iter().take_while(|p| which(p).lock(patience)).count();
    if locked < pairs.len() {
        pairs[..locked].iter().for_each(|p| which(p).unlock());
    }
    locked == pairs.len()
}

/// For the writer, which has excluded the readers: lets them in again.
pub(crate) fn admit(pairs: &[Pair]) {
    for pair in pairs {
        // In this order a reader that waits for ν finds μ free.
        pair.mu.unlock();
        pair.nu.unlock();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::tests::{LONG, READERS, SHORT, readers_and_the_writer_take_turns};
    use super::*;

    #[test]
    fn one_takes_turns_with_all() {
        let pairs: [Pair; READERS] = Default::default();
        readers_and_the_writer_take_turns(
            |reader| assert!(pairs[reader].enter(LONG)),
            |reader| pairs[reader].leave(),
            || assert!(exclude(&pairs, LONG)),
            || admit(&pairs),
        );
    }

    #[test]
    fn nobody_waits_for_ever_for_one_that_does_not_leave() {
        let pairs: [Pair; 3] = Default::default();
        assert!(pairs[1].enter(SHORT));
        assert!(!exclude(&pairs, SHORT), "a reader is there");
        assert!(pairs[0].enter(SHORT), "the writer has let go of all others");
        assert!(!pairs[1].enter(SHORT), "its own lock is held");
        pairs[0].leave();
        pairs[1].leave();
        assert!(exclude(&pairs, SHORT));
        assert!(!pairs[2].enter(SHORT), "the writer is there");
        admit(&pairs);
        assert!(pairs[2].enter(SHORT));
    }
}

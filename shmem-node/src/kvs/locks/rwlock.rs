//! One lock for all readers and the writer, in memory that processes share: what PMIx used before the
//! 2N-lock ("A Scalable PMIx Database", EuroMPI 2018, section 5), which takes that of the threads library.
//!
//! Here it is one word, as most of that lock is: readers count themselves in and out, so each moves
//! the word's cache line to its core. The writer goes first: readers that overlap could keep it out for
//! ever.

#![forbid(unsafe_code)]

use std::time::Duration;

use super::deadline::Deadline;
use crate::sync::{AtomicU32, Ordering};
use crate::sys;

/// Set while the writer waits or writes. The other bits count the readers.
const WRITER: u32 = 1 << 31;

/// The lock. Zeroed memory is a free one.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(crate) struct RwLock(AtomicU32);

impl RwLock {
    /// For a reader. False if it had to wait for longer than `patience`.
    pub(super) fn enter(&self, patience: Duration) -> bool {
        self.try_enter() || self.enter_slowly(patience)
    }

    fn try_enter(&self) -> bool {
        // A reader that finds the writer leaves the word alone: a count that goes up and down would look like one that leaves,
        // and wake everybody.
        let one_more = |seen| (seen & WRITER == 0).then_some(seen + 1);
        // ORDERING(kvs-rwlock): pairs with `admit`.
        let counted = self
            .0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more);
        counted.is_ok()
    }

    #[cold]
    fn enter_slowly(&self, patience: Duration) -> bool {
        let end = Deadline::after(patience);
        loop {
            let seen = self.0.load(Ordering::Relaxed);
            let sleeps = seen & WRITER != 0;
            // Also where the writer comes again each time that it has let go.
            if (sleeps && !end.sleep(&self.0, seen)) || end.is_over() {
                return false;
            }
            if self.try_enter() {
                return true;
            }
        }
    }

    /// For a reader, which has entered.
    pub(super) fn leave(&self) {
        // ORDERING(kvs-rwlock): what was read comes before what the writer writes.
        if self.0.fetch_sub(1, Ordering::Release) == WRITER | 1 {
            sys::futex_wake(&self.0, u32::MAX);
        }
    }

    /// For the writer: keeps readers out. False, with nothing held, if they do not leave within
    /// `patience`.
    pub(super) fn exclude(&self, patience: Duration) -> bool {
        let end = Deadline::after(patience);
        self.0.fetch_or(WRITER, Ordering::Relaxed);
        loop {
            // ORDERING(kvs-rwlock): pairs with `leave`.
            let seen = self.0.load(Ordering::Acquire);
            if seen == WRITER {
                return true;
            }
            if !end.sleep(&self.0, seen) {
                self.admit();
                return false;
            }
        }
    }

    /// For the writer: lets readers in.
    pub(super) fn admit(&self) {
        // ORDERING(kvs-rwlock): what was written comes before what readers read.
        self.0.fetch_and(!WRITER, Ordering::Release);
        sys::futex_wake(&self.0, u32::MAX);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::tests::{LONG, SHORT, readers_and_the_writer_take_turns};
    use super::*;

    #[test]
    fn readers_overlap_and_the_writer_is_alone() {
        let lock = RwLock::default();
        assert!(lock.enter(SHORT) && lock.enter(SHORT));
        assert!(!lock.exclude(SHORT), "readers are there");
        assert!(lock.enter(SHORT), "the writer has let go");
        (0..3).for_each(|_| lock.leave());
        assert!(lock.exclude(SHORT));
        assert!(!lock.enter(SHORT), "the writer is there");
        lock.admit();
        readers_and_the_writer_take_turns(
            |_| assert!(lock.enter(LONG)),
            |_| lock.leave(),
            || assert!(lock.exclude(LONG)),
            || lock.admit(),
        );
    }
}

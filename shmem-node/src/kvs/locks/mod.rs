//! The locks with which "A Scalable PMIx Database" (EuroMPI 2018, section 5) keeps readers and the writer of
//! a store out of each other's way: one for all readers ([`rwlock`]), and two for each ([`two_n`]).
//!
//! They are here to be measured against the store that needs none (`benches`, `pmi_get`).
//! `SHMEM_PMI_STORE=rwlock` or `2n` selects them; in a job with any other setting nothing here runs. Their
//! words lie in the heap memory, which PEs may write.

mod deadline;
mod rwlock;
mod two_n;

use std::time::Duration;

use crate::settings::StoreKind;
use crate::sys::Mapping;
use rwlock::RwLock;
use two_n::Pair;

/// The locks of a store. The pairs are all of the node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Locks {
    RwLock(&'static RwLock),
    TwoN(&'static [Pair]),
}

impl Locks {
    /// The locks of a store of this `kind`, if it has any; they lie at `at` of the heap memory.
    ///
    /// # Safety
    /// The layout of `heap` keeps that place for them.
    pub(crate) unsafe fn new(
        kind: StoreKind,
        heap: &Mapping,
        at: usize,
        n_local: usize,
    ) -> Option<Self> {
        match kind {
            StoreKind::Shared | StoreKind::Message => None,
            // SAFETY: by the caller; it consists of atomics, and zero is its initial state.
            StoreKind::RwLock => Some(Self::RwLock(unsafe { heap.get(at) })),
            // SAFETY: as above.
            StoreKind::TwoN => Some(Self::TwoN(unsafe {
                heap.slice(at + size_of::<RwLock>(), n_local)
            })),
        }
    }

    /// Bytes of the locks of all kinds for `n_local` readers.
    pub(crate) const fn len(n_local: usize) -> usize {
        size_of::<RwLock>() + n_local * size_of::<Pair>()
    }

    /// For the PE at position `local` of its node: the lock, held; `None` if that took longer than
    /// `patience`.
    pub(super) fn enter(self, local: usize, patience: Duration) -> Option<Held> {
        let entered = match self {
            Self::RwLock(lock) => lock.enter(patience),
            Self::TwoN(pairs) => pairs[local].enter(patience),
        };
        entered.then_some(Held { locks: self, local })
    }

    /// For the writer; false if a reader does not leave.
    pub(super) fn exclude(self, patience: Duration) -> bool {
        match self {
            Self::RwLock(lock) => lock.exclude(patience),
            Self::TwoN(pairs) => two_n::exclude(pairs, patience),
        }
    }

    /// For the writer, which has excluded the readers.
    pub(super) fn admit(self) {
        match self {
            Self::RwLock(lock) => lock.admit(),
            Self::TwoN(pairs) => two_n::admit(pairs),
        }
    }
}

/// A reader's lock, until this is dropped.
pub(super) struct Held {
    locks: Locks,
    local: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        match self.locks {
            Locks::RwLock(lock) => lock.leave(),
            Locks::TwoN(pairs) => pairs[self.local].leave(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    pub(super) const LONG: Duration = Duration::from_secs(60);
    pub(super) const SHORT: Duration = Duration::from_millis(20);
    pub(super) const READERS: usize = 4;

    /// Two words that the writer changes one after the other are the same for all readers.
    pub(super) fn readers_and_the_writer_take_turns(
        enter: impl Fn(usize) + Sync,
        leave: impl Fn(usize) + Sync,
        exclude: impl Fn(),
        admit: impl Fn(),
    ) {
        let words = [const { AtomicUsize::new(0) }; 2];
        std::thread::scope(|s| {
            // Two threads of each PE.
            for reader in (0..READERS).chain(0..READERS) {
                let (words, enter, leave) = (&words, &enter, &leave);
                s.spawn(move || {
                    for _ in 0..500 {
                        enter(reader);
                        let seen = words.each_ref().map(|w| w.load(Ordering::Relaxed));
                        leave(reader);
                        assert_eq!(seen[0], seen[1]);
                    }
                });
            }
            for _ in 0..200 {
                exclude();
                for word in &words {
                    word.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                }
                admit();
            }
        });
        assert_eq!(words[0].load(Ordering::Relaxed), 200);
    }
}

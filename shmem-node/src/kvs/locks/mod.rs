//! The locks with which "A Scalable PMIx Database" (EuroMPI 2018, section 5) keeps readers and the writer of
//! a store out of each other's way: one for all readers ([`rwlock`]), and two for each ([`two_n`]).
//!
//! They are here to be measured against the store that needs none (`benches`, `pmi_get`).
//! `SHMEM_PMI_STORE=rwlock` or `2n` selects them; in a job with any other setting nothing here runs. Their
//! words lie in the heap memory, which PEs may write.

mod rwlock;
mod two_n;

use std::io;
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
            // SAFETY: by the caller; it is touched by the functions of the threads library alone.
            StoreKind::RwLock => Some(Self::RwLock(unsafe { heap.get(at) })),
            // SAFETY: by the caller; they consist of atomics, and zero is their initial state.
            StoreKind::TwoN => Some(Self::TwoN(unsafe {
                heap.slice(at + size_of::<RwLock>(), n_local)
            })),
        }
    }

    /// Bytes of the locks of all kinds for `n_local` readers.
    pub(crate) const fn len(n_local: usize) -> usize {
        size_of::<RwLock>() + n_local * size_of::<Pair>()
    }

    /// For the agent, before anybody uses them.
    pub(crate) fn init(&self) -> io::Result<()> {
        match self {
            Self::RwLock(lock) => lock.init(),
            Self::TwoN(_) => Ok(()),
        }
    }

    /// What the PE at position `local` of its node locks.
    pub(super) fn of_reader(&self, local: usize) -> ReaderLock {
        match self {
            Self::RwLock(lock) => ReaderLock::One(lock),
            Self::TwoN(pairs) => ReaderLock::Own(&pairs[local]),
        }
    }

    /// For the writer; false if a reader does not leave.
    pub(super) fn exclude(&self, patience: Duration) -> bool {
        match self {
            Self::RwLock(lock) => lock.exclude(patience),
            Self::TwoN(pairs) => two_n::exclude(pairs, patience),
        }
    }

    /// For the writer, which has excluded the readers.
    pub(super) fn admit(&self) {
        match self {
            Self::RwLock(lock) => lock.leave(),
            Self::TwoN(pairs) => two_n::admit(pairs),
        }
    }
}

/// What a reader locks.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReaderLock {
    /// That of all readers.
    One(&'static RwLock),
    /// This one's.
    Own(&'static Pair),
}

impl ReaderLock {
    /// The lock, held; `None` if that took longer than `patience`.
    pub(super) fn enter(self, patience: Duration) -> Option<Held> {
        let entered = match self {
            Self::One(lock) => lock.enter(patience),
            Self::Own(pair) => pair.enter(patience),
        };
        entered.then_some(Held(self))
    }
}

/// A reader's lock, until this is dropped.
pub(super) struct Held(ReaderLock);

impl Drop for Held {
    fn drop(&mut self) {
        match self.0 {
            ReaderLock::One(lock) => lock.leave(),
            ReaderLock::Own(pair) => pair.leave(),
        }
    }
}

//! Locks that all PEs share: first come, first served.
//!
//! * This file: [`Lock`], for programs.
//! * [`queue`]: how it works, over symmetric addresses, for every interface.

pub(crate) mod queue;

use std::fmt;

use crate::allocate::typed::{alloc, free};
use crate::error::Error;
use crate::runtime::{rt, try_rt};
use crate::symmetric::array::SymSlice;
use crate::symmetric::element::Element;

/// A lock that all PEs of the job share: one PE at a time holds it, and they get it in the order in
/// which they asked.
///
/// It is a symmetric word, so this is a handle that is free to copy. PEs that wait each look at
/// memory of their own, and the holder passes the lock on to the next one with one message.
///
/// It is held through a [`LockGuard`]. What a holder has read and written anywhere in symmetric
/// memory is complete when it lets go (it calls [`quiet`](crate::quiet)), so the next holder finds it.
/// What it has started on a [`Context`](crate::Context) it completes itself.
///
/// Threads of a PE may use the same lock: one of them at a time stands in the queue of PEs. A thread
/// that asks for a lock that this PE holds waits until a thread of the PE drops the guard, which may be another thread than
/// the one that took the lock. A thread that keeps the guard itself waits for ever: `shmrun --ps` shows where.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// # let _world = shmem::init()?;
/// use shmem::{Lock, alloc, barrier_all, g, n_pes, p, quiet};
/// let lock = Lock::new()?;
/// let total = alloc::<u64>(1)?;
/// {
///     let _held = lock.lock();
///     let old = g(total, 0);
///     p(total, old + 1, 0);
/// } // complete, and the next PE's turn
/// barrier_all();
/// assert_eq!(g(total, 0), n_pes() as u64);
/// # lock.free()?;
/// # Ok(())
/// # }
/// ```
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_set_lock`, `shmem_test_lock`, `shmem_clear_lock`.
#[derive(Clone, Copy)]
pub struct Lock {
    word: SymSlice<u64>,
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lock").field(&self.word).finish()
    }
}

impl Lock {
    /// Makes a lock that nobody holds.
    ///
    /// **Collective**, as [`alloc`] is.
    ///
    /// # Errors
    /// As for [`alloc`].
    #[track_caller]
    pub fn new() -> Result<Self, Error> {
        alloc(1).map(|word: SymSlice<u64>| Self::at(word))
    }

    /// The lock that is this element, which must be 0 on all PEs before one of them
    /// takes the lock, and which nothing else may write. So arrays of locks can be made.
    ///
    /// # Panics
    /// If `word` is an array of another number of elements than one.
    #[track_caller]
    #[must_use]
    pub fn at(word: impl Element<u64>) -> Self {
        Self { word: word.one() }
    }

    /// Gives the memory of a lock from [`Lock::new`] back.
    ///
    /// **Collective**, as [`free`] is. Nobody holds the lock or waits for it.
    ///
    /// # Errors
    /// As for [`free`].
    #[track_caller]
    pub fn free(self) -> Result<(), Error> {
        free(self.word)
    }

    /// Waits until it is this PE's turn, and takes the lock.
    ///
    /// # Panics
    /// Before [`init`](crate::init). If this PE holds the lock and its [thread level](crate::ThreadLevel) is below
    /// `Multiple`: then no other thread can let go of it meanwhile.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_set_lock`.
    #[track_caller]
    pub fn lock(&self) -> LockGuard {
        let rt = rt();
        rt.lock_set(self.word.offset());
        LockGuard {
            lock: *self,
            life: rt.life(),
        }
    }

    /// Takes the lock if nobody holds it and nobody waits for it.
    ///
    /// # Panics
    /// Before [`init`](crate::init).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_test_lock`.
    #[track_caller]
    pub fn try_lock(&self) -> Option<LockGuard> {
        let rt = rt();
        rt.lock_test(self.word.offset()).then(|| LockGuard {
            lock: *self,
            life: rt.life(),
        })
    }
}

/// Possession of a [`Lock`]; dropping it lets go, after a [`quiet`](crate::quiet).
///
/// It also lets go while its thread panics. Dropped after finalize it does nothing.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_clear_lock`.
#[derive(Debug)]
#[must_use = "the lock is let go when its guard is dropped"]
pub struct LockGuard {
    lock: Lock,
    /// The life in which the lock was taken.
    life: u32,
}

impl LockGuard {
    /// Lets go. The same as dropping.
    pub fn unlock(self) {}

    /// Whether the lock was taken since the last init, and the PE has not finalized. After another init the word is part of
    /// something else.
    pub(crate) fn is_of_this_life(&self) -> bool {
        try_rt().is_some_and(|rt| rt.life() == self.life)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(rt) = try_rt()
            && self.is_of_this_life()
        {
            // It is held, unless something else has written the word. A panic here could only hide
            // that the program goes on to fail.
            let _held = rt.lock_clear(self.lock.word.offset());
        }
    }
}

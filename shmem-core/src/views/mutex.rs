//! A value that one PE at a time has, with the lock that guards it.

#![forbid(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::scalar::{Sym, alloc_value};
use crate::allocate::typed::free;
use crate::datum::Datum;
use crate::error::Error;
use crate::lock::{Lock, LockGuard};

/// The PE in whose memory values of mutexes lie.
const HOME: usize = 0;

/// A value that all PEs share, and that one PE at a time reads and changes.
///
/// It is a handle that is free to copy. The value lies on PE 0. [`lock`](Self::lock) waits as [`Lock::lock`] does, and gets
/// the value; dropping the [`MutexGuard`] puts it back if it was changed.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// # let world = shmem::init()?;
/// let best = shmem::Mutex::new([0usize; 2])?;
/// let mine = world.my_pe() * 7 % 5;
/// {
///     let mut best = best.lock();
///     if mine >= best[0] {
///         *best = [mine, world.my_pe()];
///     }
/// } // the next PE's turn
/// world.barrier();
/// assert!(best.lock()[0] >= mine);
/// # world.barrier();
/// # best.free()?;
/// # Ok(())
/// # }
/// ```
///
/// To count, [`Sym::fetch_add`] is many times as fast.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_set_lock`, `shmem_clear_lock`, with the data.
pub struct Mutex<T> {
    lock: Lock,
    value: Sym<T>,
}

impl<T> Clone for Mutex<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Mutex<T> {}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mutex").field(&self.value).finish()
    }
}

impl<T: Datum> Mutex<T> {
    /// Makes a mutex with the value that PE 0 gives.
    ///
    /// **Collective**, as [`alloc`](crate::alloc) is.
    ///
    /// # Errors
    /// As for [`alloc`](crate::alloc).
    #[track_caller]
    pub fn new(value: T) -> Result<Self, Error> {
        let value = alloc_value(value)?;
        match Lock::new() {
            Ok(lock) => Ok(Self { lock, value }),
            Err(e) => {
                // The error that the program can do something about is the first.
                let _freed = free(value.slice());
                Err(e)
            }
        }
    }

    /// Gives the memory back.
    ///
    /// **Collective**, as [`free`] is. No PE has the value or waits for it.
    ///
    /// # Errors
    /// As for [`free`].
    #[track_caller]
    pub fn free(self) -> Result<(), Error> {
        self.lock.free()?;
        free(self.value.slice())
    }

    /// Waits until it is this PE's turn, and gets the value.
    ///
    /// # Panics
    /// As [`Lock::lock`].
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<T> {
        self.guard(self.lock.lock())
    }

    /// Gets the value if no PE has it or waits for it.
    ///
    /// # Panics
    /// As [`Lock::try_lock`].
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<T>> {
        self.lock.try_lock().map(|held| self.guard(held))
    }

    #[track_caller]
    fn guard(&self, held: LockGuard) -> MutexGuard<T> {
        MutexGuard {
            value: self.value.get(HOME),
            home: self.value,
            changed: false,
            held,
        }
    }
}

/// The value of a [`Mutex`], which this PE alone has. Dropping it puts back what was changed, then lets the next PE have its
/// turn.
///
/// A guard that is dropped while its thread panics does the same: the next PE may find a value that is half changed. A guard
/// that is dropped after finalize does nothing.
#[must_use = "the mutex is let go when its guard is dropped"]
pub struct MutexGuard<T: Datum> {
    value: T,
    home: Sym<T>,
    changed: bool,
    held: LockGuard,
}

impl<T: Datum> fmt::Debug for MutexGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MutexGuard").field(&self.value).finish()
    }
}

impl<T: Datum> Deref for MutexGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Datum> DerefMut for MutexGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.changed = true;
        &mut self.value
    }
}

impl<T: Datum> Drop for MutexGuard<T> {
    fn drop(&mut self) {
        if self.changed && self.held.is_of_this_life() {
            self.home.put(self.value, HOME);
        }
        // The lock's guard, which is dropped now, completes the put first.
    }
}

//! Signals: 64-bit words that tell a PE that data has come.

use crate::atomics::{AtomicOp, Width};
use crate::context::{Ctx, routines};
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::symmetric::element::Element;

/// What a signal does to its word.
///
/// # Spec
/// OpenSHMEM 1.6, `SHMEM_SIGNAL_SET`, `SHMEM_SIGNAL_ADD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SignalOp {
    /// Replaces it.
    Set,
    /// Adds to it, wrapping.
    Add,
}

/// An update of a signal word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Where the word of 8 bytes is.
    pub at: SymAddr,
    /// The operand.
    pub value: u64,
    /// What is done with it.
    pub op: SignalOp,
}

impl Signal {
    #[inline]
    pub(crate) fn atomic(self) -> AtomicOp {
        match self.op {
            SignalOp::Set => AtomicOp::Swap(self.value),
            SignalOp::Add => AtomicOp::Add(self.value),
        }
    }

    /// # Panics
    /// If its address is no multiple of 8.
    #[inline]
    #[track_caller]
    pub(crate) fn check(self) {
        assert!(
            self.at.offset().is_multiple_of(8),
            "a signal at symmetric offset {:#x}: the address must be a multiple of 8",
            self.at.offset()
        );
    }
}

impl Ctx {
    /// Updates a signal of `pe`, behind what this context has put there before.
    #[inline]
    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal, pe: usize) {
        // ORDERING(signal): after the data; the partner is the acquiring load of a wait.
        self.atomic_plain(signal.at, Width::W8, signal.atomic(), pe);
    }
}

/// Reads a signal word of this PE, atomically; what was put before the signal that is seen may be read
/// after it.
///
/// # Safety
/// The word is mapped and aligned.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_signal_fetch`.
#[inline]
pub unsafe fn signal_word(at: *const u64) -> u64 {
    // SAFETY: by the caller.
    unsafe { access::load(at.cast()) }
}

routines! {
    /// Adds to `signal` on `pe`, atomically. Delivered at the latest by quiet.
    ///
    /// # Panics
    /// If `signal` is an array of another number of elements than one, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_signal_add`.
    pub fn signal_add(&ctx, signal: impl Element<u64>, value: u64, pe: usize) {
        ctx.atomic_plain(signal.one().addr(), Width::W8, AtomicOp::Add(value), pe);
    }

    /// Sets `signal` on `pe`, atomically. Delivered at the latest by quiet.
    ///
    /// # Panics
    /// If `signal` is an array of another number of elements than one, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_signal_set`.
    pub fn signal_set(&ctx, signal: impl Element<u64>, value: u64, pe: usize) {
        ctx.atomic_plain(signal.one().addr(), Width::W8, AtomicOp::Swap(value), pe);
    }
}

/// Reads `signal` of this PE, atomically; what was put before the signal that is seen
/// may be read after it.
///
/// # Panics
/// If `signal` is an array of another number of elements than one.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_signal_fetch`.
#[inline]
#[track_caller]
#[must_use]
pub fn signal_fetch(signal: impl Element<u64>) -> u64 {
    // SAFETY: the handle lies aligned inside the own segment.
    unsafe { signal_word(signal.one().as_ptr()) }
}

//! When an allgather's result may be read: the word that its writer and its readers share.
//!
//! Apart from the bytes, which [`crate::gather`] has, so that the model in `tests/loom` compiles
//! this against loom's atomics.

#![forbid(unsafe_code)]

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, fence};
use crate::sys;

/// State of one slot.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct SlotHeader {
    /// Futex word: 1 + the number of the request whose result lies here; 0 while empty.
    done: AtomicU32,
    /// Bytes of each PE's value.
    value_len: AtomicU32,
}

impl SlotHeader {
    /// Takes the old result away. The writer may store values of `value_len` bytes from here on.
    pub(crate) fn begin(&self, value_len: u32) {
        self.done.store(0, Ordering::Relaxed);
        // ORDERING(gather-reuse): no reader may find new bytes where `done` still tells of the old
        // result.
        fence(Ordering::Release);
        self.value_len.store(value_len, Ordering::Relaxed);
    }

    /// Shows the result of `request`, and wakes who waits for it.
    pub(crate) fn finish(&self, request: u32) {
        // ORDERING(gather-done): makes the values visible to whoever reads `done`.
        self.done.store(request.wrapping_add(1), Ordering::Release);
        sys::futex_wake(&self.done, u32::MAX);
    }

    /// Whether the result of `request` is there.
    pub(crate) fn is_done(&self, request: u32) -> bool {
        // ORDERING(gather-done): pairs with `finish`.
        self.done.load(Ordering::Acquire) == request.wrapping_add(1)
    }

    /// Bytes of each PE's value, for the writer, or a reader that has found `is_done`.
    pub(crate) fn value_len(&self) -> u32 {
        self.value_len.load(Ordering::Relaxed)
    }

    /// Sleeps until the result of `request` is there or `max` has passed; says which.
    pub(crate) fn wait(&self, request: u32, max: Duration) -> bool {
        let end = sys::monotonic_ns().saturating_add(max.as_nanos() as u64);
        loop {
            let seen = self.done.load(Ordering::Relaxed);
            if self.is_done(request) {
                return true;
            }
            let now = sys::monotonic_ns();
            if now >= end {
                return false;
            }
            sys::futex_wait(&self.done, seen, Some(Duration::from_nanos(end - now)));
        }
    }
}

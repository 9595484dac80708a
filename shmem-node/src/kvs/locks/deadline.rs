//! Waiting for a word of a lock, but not for ever.

#![forbid(unsafe_code)]

use std::time::Duration;

use crate::sync::AtomicU32;
use crate::sys;

/// The time until which a thread waits for a lock.
pub(super) struct Deadline(u64);

impl Deadline {
    pub(super) fn after(patience: Duration) -> Self {
        Self(sys::monotonic_ns().saturating_add(patience.as_nanos() as u64))
    }

    /// Whether it is too late.
    pub(super) fn is_over(&self) -> bool {
        sys::monotonic_ns() >= self.0
    }

    /// Sleeps while `word` has this value; false if it is too late for that.
    pub(super) fn sleep(&self, word: &AtomicU32, value: u32) -> bool {
        let left = self.0.saturating_sub(sys::monotonic_ns());
        if left > 0 {
            sys::futex_wait(word, value, Some(Duration::from_nanos(left)));
        }
        left > 0
    }
}

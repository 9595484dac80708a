//! What threads of one endpoint tell each other without its lock: that somebody sleeps.
//!
//! A file of its own because the model in `tests/loom` compiles it against loom's atomics.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU32, Ordering};

/// Threads that sleep in the completion channel while they wait for something.
#[derive(Debug, Default)]
pub(super) struct Asleep(AtomicU32);

impl Asleep {
    /// A thread is about to sleep. It still holds the endpoint's lock.
    pub(super) fn enter(&self) {
        // ORDERING(sleepers): counted while the lock is held. Whoever makes the condition true
        // does so under the lock later, and then sees the count.
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// It has slept.
    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether somebody has to be woken, for a thread that has changed something under the lock.
    pub(super) fn anybody(&self) -> bool {
        // ORDERING(sleepers): see `enter`.
        self.0.load(Ordering::SeqCst) > 0
    }
}

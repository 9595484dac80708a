//! Completions that a thread took out of a queue before it went to sleep, only to know whether
//! there are any. They are handed out before those that are still in the device.
//!
//! Whoever puts some in holds the queue alone; whoever takes some out shares it with others who
//! poll. So a look at the count is enough to see that there are none, which is the usual case.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use shmem_verbs::Completion;

#[derive(Debug, Default)]
pub(super) struct Stash {
    /// Relaxed throughout: it changes under the mutex, and grows only while the queue's lock is held
    /// alone, which orders that before every poll.
    len: AtomicUsize,
    queue: Mutex<VecDeque<Completion>>,
}

impl Stash {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Puts in completions, behind those that are there.
    pub(super) fn put(&self, completions: &[Completion]) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.extend(completions);
        self.len.store(queue.len(), Ordering::Relaxed);
    }

    /// Takes out as many as there are and `out` has room for.
    pub(super) fn take(&self, out: &mut [Completion]) -> usize {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let n = queue.len().min(out.len());
        for (slot, completion) in out.iter_mut().zip(queue.drain(..n)) {
            *slot = completion;
        }
        self.len.store(queue.len(), Ordering::Relaxed);
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_come_out_as_they_went_in() {
        let stash = Stash::default();
        let numbered = |wr_id| Completion {
            wr_id,
            ..Completion::EMPTY
        };
        assert!(stash.is_empty());
        stash.put(&[numbered(1), numbered(2)]);
        stash.put(&[numbered(3)]);
        let mut out = [Completion::EMPTY; 2];
        assert_eq!(
            (stash.take(&mut out), out[0].wr_id, out[1].wr_id),
            (2, 1, 2)
        );
        assert!(!stash.is_empty());
        assert_eq!((stash.take(&mut out), out[0].wr_id), (1, 3));
        assert!(stash.is_empty());
        assert_eq!(stash.take(&mut out), 0);
    }
}

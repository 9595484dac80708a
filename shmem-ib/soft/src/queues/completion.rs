//! Completion queues.
//!
//! A queue that is full when a completion comes has failed, as on hardware: that completion and all
//! later ones are lost, what was in it can still be polled, and each queue pair that reports to it
//! fails at its next completion.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use shmem_verbs::provider::{MAX_SLOTS, Slots};
use shmem_verbs::{Completion, Cq, Qpn, VerbsError};

#[derive(Debug)]
struct Queue {
    entries: VecDeque<Completion>,
    depth: u32,
    failed: bool,
    /// Queues that report to it.
    users: u32,
}

/// What became of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    Stored,
    /// It is the first that was lost.
    Overflow,
    /// Lost, as others before it.
    Lost,
}

/// All completion queues of one HCA.
#[derive(Debug, Default)]
pub(crate) struct CqTable {
    queues: Slots<Queue>,
    /// Completions in all queues together.
    unpolled: usize,
}

impl CqTable {
    pub(crate) fn create(&mut self, depth: u32) -> Result<Cq, VerbsError> {
        let queue = Queue {
            entries: VecDeque::new(),
            depth,
            failed: false,
            users: 0,
        };
        let (what, limit) = ("completion queues", MAX_SLOTS);
        let number = self.queues.insert(queue);
        number.map(Cq).ok_or(VerbsError::Exhausted { what, limit })
    }

    /// One of them.
    #[cfg(test)]
    pub(crate) fn any(&mut self) -> Option<Cq> {
        self.queues.iter_numbered().next().map(|(n, _)| Cq(n))
    }

    /// Destroys a queue that nobody reports to.
    pub(crate) fn destroy(&mut self, cq: Cq) -> Result<(), VerbsError> {
        self.check(cq)?;
        let unused = |q: &Queue| q.users == 0;
        if !self.queues.get(cq.0).is_some_and(unused) {
            let what = "a CQ";
            return Err(VerbsError::Busy { what });
        }
        if let Some(queue) = self.queues.remove(cq.0) {
            self.unpolled -= queue.entries.len();
        }
        Ok(())
    }

    pub(crate) fn check(&self, cq: Cq) -> Result<(), VerbsError> {
        match self.queues.get(cq.0) {
            Some(_) => Ok(()),
            None => Err(VerbsError::NoSuchCq(cq)),
        }
    }

    /// One more queue reports to it.
    pub(crate) fn attach(&mut self, cq: Cq) {
        if let Some(queue) = self.queues.get_mut(cq.0) {
            queue.users += 1;
        }
    }

    /// The queue of `qpn` does not report to it any more: what it has reported is forgotten.
    pub(crate) fn detach(&mut self, cq: Cq, qpn: Qpn) {
        if let Some(queue) = self.queues.get_mut(cq.0) {
            queue.users -= 1;
            let before = queue.entries.len();
            queue.entries.retain(|c| c.qpn != qpn);
            self.unpolled -= before - queue.entries.len();
        }
    }

    /// A shared receive queue does not report to it any more. What it has reported stays.
    pub(crate) fn release(&mut self, cq: Cq) {
        if let Some(queue) = self.queues.get_mut(cq.0) {
            queue.users -= 1;
        }
    }

    pub(crate) fn push(&mut self, cq: Cq, completion: Completion) -> Pushed {
        let Some(queue) = self.queues.get_mut(cq.0) else {
            return Pushed::Lost;
        };
        if queue.failed {
            return Pushed::Lost;
        }
        if queue.entries.len() >= queue.depth as usize {
            queue.failed = true;
            return Pushed::Overflow;
        }
        queue.entries.push_back(completion);
        self.unpolled += 1;
        Pushed::Stored
    }

    pub(crate) fn poll(&mut self, cq: Cq, out: &mut [Completion]) -> usize {
        let Some(queue) = self.queues.get_mut(cq.0) else {
            return 0;
        };
        let n = out.len().min(queue.entries.len());
        for (slot, entry) in out.iter_mut().zip(queue.entries.drain(..n)) {
            *slot = entry;
        }
        self.unpolled -= n;
        n
    }

    pub(crate) fn is_empty(&self, cq: Cq) -> bool {
        self.queues.get(cq.0).is_none_or(|q| q.entries.is_empty())
    }

    pub(crate) const fn unpolled(&self) -> usize {
        self.unpolled
    }
}

//! Completion queues.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use crate::verbs::{Completion, Cq, VerbsError};

#[derive(Debug)]
struct Queue {
    entries: VecDeque<Completion>,
    depth: u32,
}

/// All completion queues of one HCA.
#[derive(Debug, Default)]
pub(crate) struct CqTable {
    queues: Vec<Queue>,
    /// Completions in all queues together.
    unpolled: usize,
    /// Completions that exceeded the depth of their queue.
    overruns: u64,
}

impl CqTable {
    pub(crate) fn create(&mut self, depth: u32) -> Cq {
        self.queues.push(Queue {
            entries: VecDeque::new(),
            depth,
        });
        Cq(self.queues.len() as u32 - 1)
    }

    pub(crate) fn check(&self, cq: Cq) -> Result<(), VerbsError> {
        match self.queues.get(cq.0 as usize) {
            Some(_) => Ok(()),
            None => Err(VerbsError::NoSuchCq(cq)),
        }
    }

    pub(crate) fn push(&mut self, cq: Cq, completion: Completion) {
        if let Some(queue) = self.queues.get_mut(cq.0 as usize) {
            // Hardware would lose completions of a queue that was made too short and fail its
            // queue pairs. Memory is no problem here: keep them, and count the mistake.
            self.overruns += u64::from(queue.entries.len() >= queue.depth as usize);
            queue.entries.push_back(completion);
            self.unpolled += 1;
        }
    }

    pub(crate) fn poll(&mut self, cq: Cq, out: &mut [Completion]) -> usize {
        let Some(queue) = self.queues.get_mut(cq.0 as usize) else {
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
        self.queues
            .get(cq.0 as usize)
            .is_none_or(|q| q.entries.is_empty())
    }

    pub(crate) const fn unpolled(&self) -> usize {
        self.unpolled
    }

    pub(crate) const fn overruns(&self) -> u64 {
        self.overruns
    }
}

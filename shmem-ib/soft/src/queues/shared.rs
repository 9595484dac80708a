//! Shared receive queues: one pool of receives for many queue pairs.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use super::receive::RecvWqe;
use shmem_verbs::provider::checks::sge_count;
use shmem_verbs::provider::{MAX_SLOTS, Slots};
use shmem_verbs::{Cq, RecvWr, Srq, SrqInit, SrqKind, SrqNum, VerbsError};

/// One shared receive queue.
#[derive(Debug)]
pub(crate) struct SrqQueue {
    pub(crate) init: SrqInit,
    queue: VecDeque<RecvWqe>,
    /// Queue pairs that were created with it.
    pub(crate) users: u32,
    /// Its number on the wire, if it is one of XRC.
    pub(crate) srqn: Option<SrqNum>,
}

impl SrqQueue {
    pub(crate) fn take(&mut self) -> Option<RecvWqe> {
        self.queue.pop_front()
    }

    pub(crate) fn front(&self) -> Option<&RecvWqe> {
        self.queue.front()
    }

    pub(crate) fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        sge_count(wr.sges, self.init.max_sge)?;
        let (what, limit) = ("places in the shared receive queue", self.init.max_wr);
        if self.queue.len() >= limit as usize {
            return Err(VerbsError::Exhausted { what, limit });
        }
        self.queue.push_back(RecvWqe::new(wr));
        Ok(())
    }
}

/// Where a queue pair takes receives from.
pub(crate) struct Receives<'a> {
    pub(crate) own: &'a mut VecDeque<RecvWqe>,
    pub(crate) shared: Option<&'a mut SrqQueue>,
}

impl Receives<'_> {
    /// Takes the next receive.
    pub(crate) fn take(&mut self) -> Option<RecvWqe> {
        match &mut self.shared {
            Some(srq) => srq.take(),
            None => self.own.pop_front(),
        }
    }

    /// The next receive.
    pub(crate) fn front(&self) -> Option<&RecvWqe> {
        match &self.shared {
            Some(srq) => srq.front(),
            None => self.own.front(),
        }
    }
}

/// All shared receive queues of one HCA.
#[derive(Debug, Default)]
pub(crate) struct SrqTable(Slots<SrqQueue>);

impl SrqTable {
    pub(crate) fn create(&mut self, init: &SrqInit) -> Result<Srq, VerbsError> {
        let queue = SrqQueue {
            init: *init,
            queue: VecDeque::new(),
            users: 0,
            srqn: None,
        };
        let (what, limit) = ("shared receive queues", MAX_SLOTS);
        let number = self.0.insert(queue);
        number.map(Srq).ok_or(VerbsError::Exhausted { what, limit })
    }

    pub(crate) fn remove(&mut self, srq: Srq) -> Option<SrqQueue> {
        self.0.remove(srq.0)
    }

    pub(crate) fn get_mut(&mut self, srq: Srq) -> Option<&mut SrqQueue> {
        self.0.get_mut(srq.0)
    }

    pub(crate) fn find(&mut self, srq: Srq) -> Result<&mut SrqQueue, VerbsError> {
        self.get_mut(srq).ok_or(VerbsError::NoSuchSrq(srq))
    }

    /// Where completions of an XRC receive queue go.
    pub(crate) fn cq(&self, srq: Srq) -> Option<Cq> {
        match self.0.get(srq.0)?.init.kind {
            SrqKind::Xrc { cq, .. } => Some(cq),
            SrqKind::Basic => None,
        }
    }

    /// The queue, if queue pairs can be created with it.
    pub(crate) fn find_basic(&mut self, srq: Srq) -> Result<&mut SrqQueue, VerbsError> {
        match self.find(srq)? {
            queue if queue.init.kind == SrqKind::Basic => Ok(queue),
            _ => Err(VerbsError::NoSuchSrq(srq)),
        }
    }
}

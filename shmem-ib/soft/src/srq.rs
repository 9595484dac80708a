//! Shared receive queues: one pool of receives for many queue pairs.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use super::engine::Engine;
use super::mr::Memory;
use super::receive::RecvWqe;
use shmem_verbs::provider::checks::{check_srq, sge_count};
use shmem_verbs::provider::{MAX_SLOTS, Slots};
use shmem_verbs::{Cq, RecvWr, Srq, SrqInit, SrqKind, SrqNum, VerbsError};

/// One shared receive queue.
#[derive(Debug)]
pub(crate) struct SrqQueue {
    init: SrqInit,
    queue: VecDeque<RecvWqe>,
    /// Queue pairs that were created with it.
    pub(crate) users: u32,
    /// Its number on the wire, if it is one of XRC.
    srqn: Option<SrqNum>,
}

impl SrqQueue {
    pub(crate) fn take(&mut self) -> Option<RecvWqe> {
        self.queue.pop_front()
    }

    pub(crate) fn front(&self) -> Option<&RecvWqe> {
        self.queue.front()
    }
}

/// All shared receive queues of one HCA.
#[derive(Debug, Default)]
pub(crate) struct SrqTable(Slots<SrqQueue>);

impl SrqTable {
    pub(crate) fn get_mut(&mut self, srq: Srq) -> Option<&mut SrqQueue> {
        self.0.get_mut(srq.0)
    }

    fn find(&mut self, srq: Srq) -> Result<&mut SrqQueue, VerbsError> {
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

impl<M: Memory> Engine<M> {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::create_srq`].
    pub fn create_srq(&mut self, init: &SrqInit) -> Result<Srq, VerbsError> {
        check_srq(init, &self.port)?;
        if let SrqKind::Xrc { xrcd, cq } = init.kind {
            self.cqs.check(cq)?;
            self.xrcds.check(xrcd)?;
        }
        let queue = SrqQueue {
            init: *init,
            queue: VecDeque::new(),
            users: 0,
            srqn: None,
        };
        let (what, limit) = ("shared receive queues", MAX_SLOTS);
        let exhausted = VerbsError::Exhausted { what, limit };
        let srq = Srq(self.srqs.0.insert(queue).ok_or(exhausted)?);
        if let SrqKind::Xrc { xrcd, cq } = init.kind {
            let srqn = self.xrcds.add_srq(xrcd, srq).inspect_err(|_| {
                self.srqs.0.remove(srq.0);
            })?;
            self.srqs.find(srq)?.srqn = Some(srqn);
            self.cqs.attach(cq);
        }
        Ok(srq)
    }

    /// The number on the wire.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::srq_num`].
    pub fn srq_num(&mut self, srq: Srq) -> Result<SrqNum, VerbsError> {
        self.srqs
            .find(srq)
            .map(|queue| queue.srqn.unwrap_or(SrqNum(srq.0)))
    }

    /// Destroys a shared receive queue.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::destroy_srq`].
    pub fn destroy_srq(&mut self, srq: Srq) -> Result<(), VerbsError> {
        if self.srqs.find(srq)?.users > 0 {
            let what = "a shared receive queue";
            return Err(VerbsError::Busy { what });
        }
        let queue = self.srqs.0.remove(srq.0);
        if let Some(SrqQueue { init, srqn, .. }) = queue
            && let (SrqKind::Xrc { xrcd, cq }, Some(srqn)) = (init.kind, srqn)
        {
            self.xrcds.remove_srq(xrcd, srqn);
            self.cqs.release(cq);
        }
        Ok(())
    }

    /// Appends a receive.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::post_srq_recv`].
    pub fn post_srq_recv(&mut self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        let queue = self.srqs.find(srq)?;
        sge_count(wr.sges, queue.init.max_sge)?;
        let (what, limit) = ("places in the shared receive queue", queue.init.max_wr);
        if queue.queue.len() >= limit as usize {
            return Err(VerbsError::Exhausted { what, limit });
        }
        queue.queue.push_back(RecvWqe::new(wr));
        Ok(())
    }
}

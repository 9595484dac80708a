//! Operations from their first work request to their end: posting, completions, what an operation
//! gives back, and its error.

use super::buffers::{Slot, copy};
use super::driver::{Driver, KIND_RC, KIND_SHIFT};
use super::error::{ConnError, hint};
use super::ops::{Failed, Holds, Op, OpId};
use super::rma::Target;
use super::ud::SEND_SLOTS;
use shmem_verbs::{Hca, SendOp, SendWr, Sge, VerbsError, WcStatus};

/// What became of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    Yes,
    /// The queue is full.
    NoRoom,
    /// The connection, or the memory behind it, is not the one any more that the operation was meant
    /// for, and nothing of the operation has been posted.
    Elsewhere,
}

impl<H: Hca> Driver<H> {
    /// A slot of the pool for `len` bytes, if one is free.
    pub(super) fn take_slot(&mut self, len: usize) -> Option<Result<Slot, ConnError>> {
        let taken = self.pool.take(&*self.hca, len);
        taken
            .map_err(ConnError::verbs("register a buffer for copies"))
            .transpose()
    }

    /// Posts one work request of operation `id`, and tells whether there was room. `target` may be from
    /// before the lock was given up.
    ///
    /// # Safety
    /// As [`Hca::post_send`]: the local buffer stays valid until the operation completes.
    pub(super) unsafe fn post(
        &mut self,
        id: OpId,
        target: &Target,
        what: SendOp,
        sge: Sge,
        inline: Option<&[u8]>,
    ) -> Result<Posted, ConnError> {
        if self.closing {
            return Err(self.over());
        }
        let (pe, qpn) = (target.pe, target.qpn);
        let Some(peer) = self.peers.get_mut(&pe) else {
            return Err(self.over());
        };
        if let Some(error) = &peer.broken {
            return Err(error.clone());
        }
        if peer.left {
            let peer = self.describe(pe);
            return Err(ConnError::PeerLeft { peer });
        }
        let Some(op) = self.ops.get_mut(id) else {
            return Err(self.over());
        };
        let replaced = peer.open != Some(qpn);
        // The peer keeps the registrations with which an operation has begun until that is over.
        if !op.begun && (replaced || peer.reach() != target.reach) {
            return Ok(Posted::Elsewhere);
        }
        if replaced {
            let op = *op;
            return Err(self.explain(&op, Failed::Lost));
        }
        if self.in_flight >= self.config.cq_depth - self.config.ud_depth - SEND_SLOTS {
            return Ok(Posted::NoRoom);
        }
        // Places are left for answers, and for those to us.
        let full = || peer.posted - peer.completed >= u64::from(self.config.sq_depth);
        if self.owner.is_some() && (full() || op.asks && !peer.asked.has_room()) {
            return Ok(Posted::NoRoom);
        }
        let wr_id = KIND_RC << KIND_SHIFT | id.to_bits();
        let wr = SendWr {
            inline,
            srqn: peer.srqn,
            ..SendWr::new(wr_id, what, std::slice::from_ref(&sge))
        };
        // SAFETY: by the caller's promise.
        match unsafe { self.hca.post_send(qpn, &wr) } {
            Ok(()) => {
                self.in_flight += 1;
                peer.posted += 1;
                self.posts += 1;
                peer.used = self.posts;
                op.pending += 1;
                op.begun = true;
                if op.asks {
                    op.pending += 1;
                    peer.asked.asked += 1;
                    self.unanswered += 1;
                }
                self.accounts.of(op.ctx).note(pe, peer.mark());
                Ok(Posted::Yes)
            }
            Err(VerbsError::QueueFull { .. }) => Ok(Posted::NoRoom),
            Err(e) => Err(ConnError::verbs("post an operation")(e)),
        }
    }

    pub(super) fn rc_completed(&mut self, id: OpId, status: WcStatus) {
        // Work requests of a destroyed queue pair were settled when it was destroyed.
        let Some(op) = self.ops.get_mut(id).filter(|op| op.pending > 0) else {
            return;
        };
        op.pending -= 1;
        let pe = op.pe;
        if status != WcStatus::Success {
            op.failed.get_or_insert(Failed::Status(status));
            let op = *op;
            let error = self.explain(&op, Failed::Status(status));
            // The first failure is the cause, the flushes behind it are consequences.
            self.broke(pe, error);
        }
        self.in_flight -= 1;
        if let Some(peer) = self.peers.get_mut(&pe) {
            peer.completed += 1;
        }
        match self.ops.get_mut(id) {
            Some(op) if op.composed => self.stepped(id),
            _ => self.finish_if_done(id),
        }
    }

    /// No more work requests of this operation will be posted.
    pub(super) fn all_posted(&mut self, id: OpId) {
        if let Some(op) = self.ops.get_mut(id) {
            op.posting = false;
        }
        self.finish_if_done(id);
    }

    pub(super) fn finish_if_done(&mut self, id: OpId) {
        let Some(op) = self.ops.get_mut(id).filter(|op| op.is_done()) else {
            return;
        };
        let holds = std::mem::replace(&mut op.holds, Holds::Nothing);
        let good = op.failed.is_none();
        let mut result = None;
        match holds {
            Holds::Nothing => {}
            Holds::Slot(slot) => self.pool.give(slot),
            Holds::CopyOut { slot, dst, len } => {
                if good {
                    let (from, _) = self.pool.place(slot, len);
                    // SAFETY: who started the get promised that `dst` stays valid for `len`
                    // bytes until it has completed, which is now; the slot is ours.
                    unsafe { copy(from, std::ptr::with_exposed_provenance_mut(dst), len) };
                }
                self.pool.give(slot);
            }
            Holds::Result(slot) => {
                let (from, _) = self.pool.place(slot, 8);
                // SAFETY: slots are aligned to 64, and the HCA has written this one.
                result = Some(unsafe { from.cast::<u64>().read_volatile() });
                self.pool.give(slot);
            }
            Holds::Registration(mr) => {
                // It was registered for this operation; nobody else can have ended it.
                let _ = self.hca.dereg_mr(&mr);
            }
        }
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        op.result = result.unwrap_or(op.result);
        if let Some(fetch) = op.fetch.take().filter(|_| good) {
            // SAFETY: it completes now.
            unsafe { fetch.store(op.result) };
        }
        if op.waited {
            self.notify = true;
            return;
        }
        let failed = op.failed;
        if let (Some(op), Some(failed)) = (self.ops.remove(id), failed) {
            let error = self.explain_or_cause(&op, failed);
            self.accounts.of(op.ctx).lost_error.get_or_insert(error);
        }
    }

    /// The error of an operation that failed.
    pub(super) fn explain_or_cause(&self, op: &Op, failed: Failed) -> ConnError {
        let broken = self.peers.get(&op.pe).and_then(|p| p.broken.clone());
        match (failed, broken) {
            (Failed::Status(WcStatus::WrFlushErr), Some(cause)) => cause,
            _ => self.explain(op, failed),
        }
    }

    fn explain(&self, op: &Op, failed: Failed) -> ConnError {
        if let (Failed::Lost, Some(failure)) = (failed, &self.failure) {
            return failure.clone();
        }
        let (kind, peer) = (op.kind.name(), self.describe_way(op.pe));
        let (offset, len) = (op.offset, op.len);
        match failed {
            Failed::Lost => ConnError::ConnectionLost {
                op: kind,
                peer,
                offset,
                len,
            },
            Failed::Status(status) => ConnError::Operation {
                op: kind,
                peer,
                offset,
                len,
                status,
                hint: hint(status),
            },
            Failed::Refused(why) => ConnError::Refused {
                op: kind,
                peer,
                offset,
                len,
                why,
            },
        }
    }

    /// Nothing that is under way towards `pe` will complete.
    pub(super) fn lose_all(&mut self, pe: u32) {
        let Some(peer) = self.peers.get_mut(&pe) else {
            return;
        };
        let lost = peer.posted - peer.completed;
        peer.completed = peer.posted;
        self.in_flight -= lost as u32;
        self.unanswered -= peer.asked.forget();
        self.composer.forget(pe);
        for id in self.ops.unfinished_towards(pe) {
            self.lose(id);
        }
        self.notify = true;
    }

    /// The queue pair of an operation is gone, and its work requests with it.
    pub(super) fn lose(&mut self, id: OpId) {
        if let Some(op) = self.ops.get_mut(id) {
            op.failed.get_or_insert(Failed::Lost);
            op.pending = 0;
            op.asks = false;
        }
        self.uncount_composed(id);
        self.finish_if_done(id);
    }
}

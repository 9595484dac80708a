//! From the completion of a work request to the end of its operation: what an operation gives back, its
//! result, and its error.

use super::table::{Failed, Holds, Op, OpId, OpKind};
use crate::endpoint::driver::Driver;
use crate::endpoint::error::{ConnError, hint};
use crate::endpoint::lock::Locked;
use shmem_verbs::memory::{copy, load};
use shmem_verbs::{Hca, WcStatus};

impl<H: Hca> Driver<H> {
    pub(crate) fn rc_completed(&mut self, id: OpId, status: WcStatus) {
        // Work requests of a destroyed queue pair were settled when it was destroyed.
        let Some(op) = self.ops.get_mut(id).filter(|op| op.pending > 0) else {
            return;
        };
        op.pending -= 1;
        let pe = op.pe;
        let (covers, silent) = (op.covers, op.silent);
        if status != WcStatus::Success {
            op.failed.get_or_insert(Failed::Status(status));
            let op = *op;
            let error = self.explain(&op, Failed::Status(status));
            // The first failure is the cause, the flushes behind it are consequences.
            self.broke(pe, error);
        }
        self.sends.in_flight -= 1;
        if let Some(peer) = self.peers.get_mut(&pe) {
            peer.completed += 1;
            // What it covers has not failed.
            if peer.silent.is_behind(covers) {
                self.retire_silent(pe, covers);
            }
        }
        if silent && let Some(peer) = self.peers.get_mut(&pe) {
            peer.silent.told();
        }
        match self.ops.get_mut(id) {
            Some(op) if op.composed => self.stepped(id),
            _ => self.finish_if_done(id),
        }
    }

    /// The first `upto` of the silent requests towards `pe` are complete.
    fn retire_silent(&mut self, pe: u32, upto: u64) {
        let Some(peer) = self.peers.get_mut(&pe) else {
            return;
        };
        let done = peer.silent.retire(upto);
        peer.completed += done.len() as u64;
        self.sends.in_flight -= done.len() as u32;
        for id in done {
            if let Some(op) = self.ops.get_mut(id) {
                op.pending = 0;
            }
            self.finish_if_done(id);
        }
    }

    /// No more work requests of this operation will be posted.
    pub(crate) fn all_posted(&mut self, id: OpId) {
        if let Some(op) = self.ops.get_mut(id) {
            op.posting = false;
        }
        self.finish_if_done(id);
    }

    pub(crate) fn finish_if_done(&mut self, id: OpId) {
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
                result = Some(unsafe { load(from) });
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
        self.notices.fetched |= op.kind == OpKind::Get || op.fetch.is_some();
        if let Some(fetch) = op.fetch.take().filter(|_| good) {
            // SAFETY: it completes now.
            unsafe { fetch.store(op.result) };
        }
        if op.waited {
            return;
        }
        let failed = op.failed;
        if let (Some(op), Some(failed)) = (self.ops.remove(id), failed) {
            let error = self.explain_or_cause(&op, failed);
            self.accounts.of(op.ctx).lost_error.get_or_insert(error);
        }
    }

    /// The error of an operation that failed.
    pub(crate) fn explain_or_cause(&self, op: &Op, failed: Failed) -> ConnError {
        match (failed, self.manager.in_error(op.pe)) {
            (Failed::Status(WcStatus::WrFlushErr), Some(qpn)) => self.why_broken(qpn),
            _ => self.explain(op, failed),
        }
    }

    pub(super) fn explain(&self, op: &Op, failed: Failed) -> ConnError {
        if let (Failed::Lost, Some(failure)) = (failed, &self.life.failure) {
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
    pub(crate) fn lose_all(&mut self, pe: u32) {
        let Some(peer) = self.peers.get_mut(&pe) else {
            return;
        };
        let lost = peer.posted - peer.completed;
        peer.completed = peer.posted;
        peer.silent.forget();
        self.sends.in_flight -= lost as u32;
        self.unanswered -= peer.requests.forget();
        self.composer.forget(pe);
        for id in self.ops.unfinished_towards(pe) {
            self.lose(id);
        }
        self.notices.happened = true;
    }

    /// The queue pair of an operation is gone, and its work requests with it.
    pub(crate) fn lose(&mut self, id: OpId) {
        if let Some(op) = self.ops.get_mut(id) {
            op.failed.get_or_insert(Failed::Lost);
            op.pending = 0;
            op.asks = false;
        }
        self.uncount_composed(id);
        self.finish_if_done(id);
    }
}

impl<H: Hca> Locked<'_, H> {
    /// Waits for an operation that was started with `waited`.
    pub(crate) fn result(&mut self, id: OpId) -> Result<u64, ConnError> {
        self.wait_until(
            |d| d.awaited(id),
            |d| {
                d.ops
                    .get_mut(id)
                    .is_none_or(|op| op.is_done())
                    .then_some(())
            },
        );
        let Some(op) = self.ops.remove(id) else {
            return Err(self.over());
        };
        match op.failed {
            Some(failed) => Err(self.explain_or_cause(&op, failed)),
            None => Ok(op.result),
        }
    }
}

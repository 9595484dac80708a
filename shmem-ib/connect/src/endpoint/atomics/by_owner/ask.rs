//! What a PE does as requester: it asks owners, takes their answers, and looks after those that are
//! silent.

use smallvec::SmallVec;

use super::message::{Answer, Answers, MAX_LEN, Message, Request, encode};
use crate::atomic::AtomicOp;
use crate::endpoint::atomics::word::{At, Old};
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::endpoint::lock::Locked;
use crate::endpoint::operations::accounts::ContextId;
use crate::endpoint::operations::context::Context;
use crate::endpoint::operations::post::{Posted, Target};
use crate::endpoint::operations::table::{Failed, Holds, Op, OpId, OpKind};
use shmem_verbs::memory::copy;
use shmem_verbs::{Hca, SendOp, Sge, WcStatus};

/// How long answers may be missing, in nanoseconds, before a probe asks whether the owner is there.
const SILENCE: u64 = 1_000_000_000;

impl<H: Hca> Context<'_, H> {
    /// Has the owner of a word execute an atomic on it.
    pub(crate) fn ask(self, at: At, op: AtomicOp, old: Old) -> Result<u64, ConnError> {
        let At {
            pe,
            segment,
            offset,
            width,
        } = at;
        let kind = OpKind::Asked(op.name());
        let mut locked = self.endpoint.lock();
        let len = width.bytes();
        let mut target = locked.connected(pe, segment, kind, offset, len)?;
        let id = locked.ops.insert(Op {
            asks: true,
            ..old.mark(Op::new(self.id, kind, pe, offset, len))
        });
        let request = Message::Request(Request {
            token: id.to_bits(),
            segment,
            offset,
            what: Some((op, width)),
        });
        locked.post_message(id, &mut target, &request)?;
        match old {
            Old::Returned => locked.result(id),
            Old::Dropped | Old::Stored(_) => Ok(0),
        }
    }
}

impl<H: Hca> Driver<H> {
    /// Takes what an owner has answered.
    pub(super) fn answered(&mut self, pe: u32, answers: &Answers) {
        for Answer { token, result } in answers.as_slice() {
            let id = OpId::from_bits(*token);
            let op = self.ops.get_mut(id);
            let Some(op) = op.filter(|op| op.asks && op.begun && op.pe == pe) else {
                // It was given up.
                continue;
            };
            op.asks = false;
            op.pending -= 1;
            match result {
                Ok(value) => op.result = *value,
                Err(refusal) => {
                    op.failed.get_or_insert(Failed::Refused(*refusal));
                }
            }
            self.unanswered -= 1;
            if let Some(peer) = self.peers.get_mut(&pe) {
                peer.requests.answered += 1;
            }
            self.finish_if_done(id);
        }
    }

    /// What is unanswered by `pe` never will be: the connection is broken.
    pub(crate) fn expect_no_answers(&mut self, pe: u32) {
        let Some(peer) = self.peers.get_mut(&pe) else {
            return;
        };
        let lost = peer.requests.forget();
        if lost == 0 {
            return;
        }
        self.unanswered -= lost;
        for id in self.ops.unfinished_towards(pe) {
            if let Some(op) = self.ops.get_mut(id).filter(|op| op.asks) {
                op.asks = false;
                op.pending -= 1;
                op.failed
                    .get_or_insert(Failed::Status(WcStatus::WrFlushErr));
                self.finish_if_done(id);
            }
        }
        self.notices.happened = true;
    }

    /// Probes owners that have not answered for long. Call it while answers are missing.
    pub(crate) fn probe_silent(&mut self) {
        let now = self.now();
        let Some(owner) = &mut self.owner else { return };
        if now < owner.probe_at {
            return;
        }
        owner.probe_at = now + SILENCE;
        let peers = self.peers.iter_mut();
        // Work requests under way fail by themselves if there is nobody.
        let silent = peers.filter_map(|(pe, peer)| {
            let silent = peer.requests.is_silent() && peer.completed == peer.posted;
            silent.then_some(*pe)
        });
        let silent: SmallVec<[u32; 8]> = silent.collect();
        for pe in silent {
            if let Some(route) = self.manager.route(pe) {
                let owner = self.target_of_nothing(pe, 0, &route);
                self.probe(&owner);
            }
        }
    }

    fn probe(&mut self, owner: &Target) {
        let mut bytes = [0; MAX_LEN];
        let len = encode(self.config.number(), &Message::Probe, &mut bytes);
        let mut op = Op::new(ContextId::DEFAULT, OpKind::Asked("probe"), owner.pe, 0, 0);
        let (mut sge, mut inline) = (Sge::default(), Some(&bytes[..len]));
        if len > self.copies.inline {
            let Some(Ok(slot)) = self.take_slot(len) else {
                return;
            };
            let (place, its) = self.pool.place(slot, len);
            // SAFETY: the slot is ours and long enough.
            unsafe { copy(bytes.as_ptr(), place, len) };
            (op.holds, sge, inline) = (Holds::Slot(slot), its, None);
        }
        let id = self.ops.insert(op);
        let what = SendOp::Send { imm: None };
        // SAFETY: the data is inline, or in a slot that is held until the operation completes.
        let posted = unsafe { self.post(id, owner, what, sge, inline) };
        self.all_posted(id);
        debug_assert!(!matches!(posted, Ok(Posted::Elsewhere)));
    }
}

impl<H: Hca> Locked<'_, H> {
    /// Posts the one message of operation `id`, waiting for room.
    pub(super) fn post_message(
        &mut self,
        id: OpId,
        target: &mut Target,
        message: &Message,
    ) -> Result<(), ConnError> {
        let mut bytes = [0; MAX_LEN];
        let len = encode(self.config.number(), message, &mut bytes);
        let (mut sge, mut inline) = (Sge::default(), Some(&bytes[..len]));
        if len > self.copies.inline {
            let slot = match self.slot(len) {
                Ok(slot) => slot,
                Err(e) => {
                    self.abandon(id);
                    return Err(e);
                }
            };
            let (place, its) = self.pool.place(slot, len);
            // SAFETY: the slot is ours and long enough.
            unsafe { copy(bytes.as_ptr(), place, len) };
            (sge, inline) = (its, None);
            if let Some(op) = self.ops.get_mut(id) {
                op.holds = Holds::Slot(slot);
            }
        }
        let what = SendOp::Send { imm: None };
        // SAFETY: the data is inline, or in a slot that is held until the operation completes.
        unsafe { self.post_one(id, target, what, sge, inline)? };
        self.all_posted(id);
        Ok(())
    }
}

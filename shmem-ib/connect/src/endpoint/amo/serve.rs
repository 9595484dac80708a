//! The driver's part in atomics that owners execute: receives, execution, answers, and probes.

use smallvec::SmallVec;

use super::super::buffers::{Registered, copy};
use super::super::context::ContextId;
use super::super::driver::{Driver, amo_recv_id, amo_sent_id};
use super::super::error::ConnError;
use super::super::ops::{OpId, OpKind};
use super::super::posting::Posted;
use super::super::rma::{Target, new_op};
use super::super::wait::Locked;
use super::books::{ANSWER_MESSAGES, Outbox};
use super::message::{Answer, Answers, MAX_LEN, Message, Refusal, Request, decode, encode};
use super::{Failed, Holds, SILENCE};
use crate::atomic::execute;
use shmem_verbs::{
    Completion, Hca, QpAttr, Qpn, RecvWr, SendOp, SendWr, Sge, Srq, SrqInit, SrqKind, VerbsError,
    WcStatus,
};

/// Receives that are posted: the windows of four peers. A burst of more waits at the senders, a few
/// hundred microseconds at a time, and costs no memory here.
pub(in super::super) const RECEIVES: u32 = 256;
/// Bytes per buffer: a multiple of the cache line that holds any message.
const BUFFER: usize = 128;
const _: () = assert!(MAX_LEN <= BUFFER);

/// What a PE has for atomics that owners execute.
#[derive(Debug)]
pub(in super::super) struct Owner {
    /// Made with the first queue pair.
    receiver: Option<Receiver>,
    outbox: Outbox,
    /// Atomics executed for peers since the beginning.
    pub(in super::super) served: u64,
    /// Some of them since [`Owner::has_executed`] was last called.
    executed: bool,
    /// When to look for silent owners again.
    probe_at: u64,
}

/// Where messages arrive, and, if the device takes no inline data of their length, where answers
/// leave from.
#[derive(Debug)]
struct Receiver {
    srq: Srq,
    memory: Registered,
}

impl Owner {
    pub(in super::super) fn new() -> Self {
        Self {
            receiver: None,
            outbox: Outbox::new(),
            served: 0,
            executed: false,
            probe_at: 0,
        }
    }

    /// Whether an atomic was executed since the last call.
    pub(in super::super) const fn has_executed(&mut self) -> bool {
        std::mem::replace(&mut self.executed, false)
    }

    /// The queue pair towards `pe` is gone.
    pub(in super::super) fn gone(&mut self, pe: u32, qpn: Qpn) {
        self.outbox.gone(pe, qpn);
    }

    /// Gives everything back. No queue pair is left.
    pub(in super::super) fn release<H: Hca>(self, hca: &H) {
        if let Some(receiver) = self.receiver
            && hca.destroy_srq(receiver.srq).is_ok()
        {
            receiver.memory.release(hca);
        }
    }
}

impl Receiver {
    fn new<H: Hca>(hca: &H, with_answers: bool) -> Result<Self, VerbsError> {
        let answers = if with_answers { ANSWER_MESSAGES } else { 0 };
        let memory = Registered::new(hca, (RECEIVES + answers) as usize * BUFFER)?;
        let srq = hca.create_srq(&SrqInit {
            max_wr: RECEIVES,
            max_sge: 1,
            kind: SrqKind::Basic,
        });
        let srq = match srq {
            Ok(srq) => srq,
            Err(e) => {
                memory.release(hca);
                return Err(e);
            }
        };
        let receiver = Self { srq, memory };
        for slot in 0..RECEIVES {
            if let Err(e) = receiver.post(hca, slot) {
                if hca.destroy_srq(srq).is_ok() {
                    receiver.memory.release(hca);
                }
                return Err(e);
            }
        }
        Ok(receiver)
    }

    fn post<H: Hca>(&self, hca: &H, slot: u32) -> Result<(), VerbsError> {
        let sge = self.memory.sge(slot as usize * BUFFER, BUFFER);
        let wr = RecvWr {
            wr_id: amo_recv_id(slot),
            sges: std::slice::from_ref(&sge),
        };
        // SAFETY: the buffer is registered until the queue is destroyed, and is looked at only
        // between a completion and the next post.
        unsafe { hca.post_srq_recv(self.srq, &wr) }
    }

    /// The place from which answer `slot` leaves.
    fn answer(&self, slot: u16, len: usize) -> (*mut u8, Sge) {
        let at = (RECEIVES as usize + usize::from(slot)) * BUFFER;
        (self.memory.at(at), self.memory.sge(at, len))
    }
}

impl<H: Hca> Driver<H> {
    /// Where queue pairs take receives from, if they need any.
    pub(in super::super) fn receives(&mut self) -> Result<Option<Srq>, VerbsError> {
        let (hca, with_answers) = (self.shared_hca(), self.max_inline < MAX_LEN);
        let Some(owner) = &mut self.owner else {
            return Ok(None);
        };
        let receiver = match owner.receiver.take() {
            Some(receiver) => receiver,
            None => Receiver::new(&*hca, with_answers)?,
        };
        Ok(Some(owner.receiver.insert(receiver).srq))
    }

    /// A receive has completed.
    pub(in super::super) fn message_received(&mut self, slot: u32, completion: &Completion) {
        let hca = self.shared_hca();
        let Some(receiver) = self.owner.as_ref().and_then(|o| o.receiver.as_ref()) else {
            return;
        };
        let mut bytes = [0; BUFFER];
        let len = (completion.byte_len as usize).min(BUFFER);
        let good = completion.status == WcStatus::Success;
        if good {
            let from = receiver.memory.at(slot as usize * BUFFER);
            // SAFETY: the slot lies in our memory, and between completion and post is ours alone.
            unsafe { copy(from, bytes.as_mut_ptr(), len) };
        }
        // Its completion has made room for it.
        let _ = receiver.post(&*hca, slot);
        if !good {
            // The queue pair has failed, and whoever posts to it will find out.
            return;
        }
        let qpn = completion.qpn;
        match decode(&bytes[..len]) {
            // Of a connection that is no more, or from somebody who is not at its other end.
            Ok((pe, _)) if self.manager.rc_qp(pe) != Some(qpn) => {}
            Ok((pe, message)) => {
                self.note_use(pe, qpn);
                match message {
                    Message::Request(request) => self.serve(pe, qpn, &request),
                    Message::Answers(answers) => self.answered(pe, &answers),
                    Message::Probe => {}
                }
            }
            Err(e) => {
                if let Some(pe) = self.manager.rc_peer(qpn) {
                    self.give_up(pe, qpn, e.to_string());
                }
            }
        }
    }

    /// Where connections make room for each other: this one is in use now, and not at some time since
    /// the last look, which is all that could be told of what arrives without a message.
    fn note_use(&mut self, pe: u32, qpn: Qpn) {
        if self.config.max_qps == 0 {
            return;
        }
        let mark = self.hca().inbound_mark(qpn);
        self.posts += 1;
        if let Some(peer) = self.peers.get_mut(&pe) {
            peer.used = self.posts;
            peer.inbound = mark.unwrap_or(peer.inbound);
        }
    }

    /// Executes a request and has its result sent.
    pub(super) fn serve(&mut self, pe: u32, qpn: Qpn, request: &Request) {
        let result = self.execute(request);
        let Some(owner) = &mut self.owner else { return };
        owner.served += u64::from(result.is_ok());
        owner.executed |= result.is_ok();
        let token = request.token;
        if !owner.outbox.push(pe, qpn, Answer { token, result }) {
            let why = "it has more requests under way than it may".to_owned();
            self.give_up(pe, qpn, why);
        }
    }

    fn execute(&self, request: &Request) -> Result<u64, Refusal> {
        let (op, width) = request.what.ok_or(Refusal::Unknown)?;
        let segment = self.segments.iter().find(|s| s.id == request.segment);
        let mr = segment.ok_or(Refusal::NoSegment)?.mr;
        let bytes = width.bytes() as u64;
        let end = request.offset.checked_add(bytes);
        if end.is_none_or(|end| end > mr.len) {
            return Err(Refusal::OutOfRange);
        }
        let addr = mr.addr + request.offset;
        if !addr.is_multiple_of(bytes) {
            return Err(Refusal::Misaligned);
        }
        let at = std::ptr::with_exposed_provenance_mut(addr as usize);
        // SAFETY: inside of a registered segment, which stays mapped, readable and writable as long as
        // it is in the list, and is accessed through raw pointers and atomics only
        // (`register_segment`); alignment was checked.
        Ok(unsafe { execute(at, width, op) })
    }

    /// Sends the answers for which there is room.
    pub(in super::super) fn send_answers(&mut self) {
        let (hca, me) = (self.shared_hca(), self.config.pe);
        let inline = self.max_inline >= MAX_LEN;
        while let Some(owner) = &mut self.owner
            && let Some(out) = owner.outbox.next()
        {
            let mut bytes = [0; MAX_LEN];
            let len = encode(me, &Message::Answers(out.answers), &mut bytes);
            let mut sge = Sge::default();
            if !inline && let Some(receiver) = &owner.receiver {
                let (place, its) = receiver.answer(out.slot, len);
                // SAFETY: the place is ours until the message has left, and long enough.
                unsafe { copy(bytes.as_ptr(), place, len) };
                sge = its;
            }
            let op = SendOp::Send { imm: None };
            let wr = SendWr {
                inline: inline.then_some(&bytes[..len]),
                ..SendWr::new(amo_sent_id(out.slot), op, std::slice::from_ref(&sge))
            };
            // SAFETY: the data is inline, or in a place that is kept until the completion.
            if let Err(e) = unsafe { hca.post_send(out.qpn, &wr) } {
                owner.outbox.sent(out.slot, out.qpn);
                self.give_up(out.pe, out.qpn, e.to_string());
            }
        }
    }

    pub(in super::super) fn has_answers(&self) -> bool {
        self.owner.as_ref().is_some_and(|o| !o.outbox.is_idle())
    }

    /// A message with answers has left, or could not.
    pub(in super::super) fn answer_sent(&mut self, slot: u16, completion: &Completion) {
        let Some(owner) = &mut self.owner else { return };
        let status = completion.status;
        if let Some(pe) = owner.outbox.sent(slot, completion.qpn)
            && status != WcStatus::Success
        {
            let why = format!("the answer to its atomic failed with {status:?}");
            self.give_up(pe, completion.qpn, why);
        }
    }

    /// Takes what an owner has answered.
    fn answered(&mut self, pe: u32, answers: &Answers) {
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
                peer.asked.answered += 1;
            }
            self.finish_if_done(id);
        }
        // Somebody may wait for room.
        self.notify = true;
    }

    /// What is unanswered by `pe` never will be: the connection is broken.
    pub(in super::super) fn expect_no_answers(&mut self, pe: u32) {
        let Some(peer) = self.peers.get_mut(&pe) else {
            return;
        };
        let lost = peer.asked.forget();
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
        self.notify = true;
    }

    /// Ends the use of a connection whose peer does not keep to the protocol, or does not take answers.
    /// The peer finds out: its next request, or its next probe, fails.
    fn give_up(&mut self, pe: u32, qpn: Qpn, why: String) {
        let _ = self.hca().modify_qp(qpn, &QpAttr::Err);
        let peer = self.describe(pe);
        self.broke(pe, ConnError::Conversation { peer, why });
    }

    /// Probes owners that have not answered for long. Call it while answers are missing.
    pub(in super::super) fn probe_silent(&mut self) {
        let now = self.now();
        let Some(owner) = &mut self.owner else { return };
        if now < owner.probe_at {
            return;
        }
        owner.probe_at = now + SILENCE;
        let peers = self.peers.iter_mut();
        // Work requests under way fail by themselves if there is nobody.
        let silent = peers.filter_map(|(pe, peer)| {
            let silent = peer.asked.is_silent() && peer.completed == peer.posted;
            let qpn = peer.open.filter(|_| silent)?;
            Some(Target::nothing_of(*pe, peer, qpn))
        });
        let silent: SmallVec<[Target; 8]> = silent.collect();
        for owner in silent {
            self.probe(&owner);
        }
    }

    fn probe(&mut self, owner: &Target) {
        let mut bytes = [0; MAX_LEN];
        let len = encode(self.config.pe, &Message::Probe, &mut bytes);
        let mut op = new_op(ContextId::DEFAULT, OpKind::Asked("probe"), owner.pe, 0, 0);
        let (mut sge, mut inline) = (Sge::default(), Some(&bytes[..len]));
        if len > self.max_inline {
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

    /// Before a queue pair is destroyed or reset: takes what it has received. Its receives would
    /// vanish with their completions otherwise.
    pub(in super::super) fn take_last_receives(&mut self, qpn: Qpn) {
        if self.owner.is_none() {
            return;
        }
        // From now on it takes no more.
        let _ = self.hca().modify_qp(qpn, &QpAttr::Err);
        let mut batch = [Completion::EMPTY; 16];
        loop {
            let n = self.hca().poll_cq(self.cq, &mut batch);
            self.late.extend_from_slice(&batch[..n]);
            if n < batch.len() {
                break;
            }
        }
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
        let len = encode(self.config.pe, message, &mut bytes);
        let (mut sge, mut inline) = (Sge::default(), Some(&bytes[..len]));
        if len > self.max_inline {
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

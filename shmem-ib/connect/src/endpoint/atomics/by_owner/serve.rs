//! What a PE does as owner: it takes requests, executes them with the processor's atomics, and sends the
//! answers.

use super::message::{Answer, MAX_LEN, Message, Refusal, Request, decode, encode};
use super::owner::{BUFFER, Receiver};
use crate::atomic::execute;
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::endpoint::wr_id::Whose;
use shmem_verbs::memory::copy;
use shmem_verbs::{Completion, Hca, QpAttr, Qpn, SendOp, SendWr, Sge, Srq, VerbsError, WcStatus};

impl<H: Hca> Driver<H> {
    /// Where queue pairs take receives from, if they need any.
    pub(crate) fn receives(&mut self) -> Result<Option<Srq>, VerbsError> {
        let (hca, with_answers) = (self.shared_hca(), self.copies.inline < MAX_LEN);
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
    pub(crate) fn message_received(&mut self, slot: u32, completion: &Completion) {
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
        let used = self.sends.used();
        if let Some(peer) = self.peers.get_mut(&pe) {
            peer.used = used;
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
    pub(crate) fn send_answers(&mut self) {
        let (hca, me) = (self.shared_hca(), self.config.number());
        let inline = self.copies.inline >= MAX_LEN;
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
                ..SendWr::new(
                    Whose::Answered(out.slot).to_wr_id(),
                    op,
                    std::slice::from_ref(&sge),
                )
            };
            // SAFETY: the data is inline, or in a place that is kept until the completion.
            if let Err(e) = unsafe { hca.post_send(out.qpn, &wr) } {
                owner.outbox.sent(out.slot, out.qpn);
                self.give_up(out.pe, out.qpn, e.to_string());
            }
        }
    }

    pub(crate) fn has_answers(&self) -> bool {
        self.owner.as_ref().is_some_and(|o| !o.outbox.is_idle())
    }

    /// A message with answers has left, or could not.
    pub(crate) fn answer_sent(&mut self, slot: u16, completion: &Completion) {
        let Some(owner) = &mut self.owner else { return };
        let status = completion.status;
        if let Some(pe) = owner.outbox.sent(slot, completion.qpn)
            && status != WcStatus::Success
        {
            let why = format!("the answer to its atomic failed with {status:?}");
            self.give_up(pe, completion.qpn, why);
        }
    }

    /// Ends the use of a connection whose peer does not keep to the protocol, or does not take answers.
    /// The peer finds out: its next request, or its next probe, fails.
    fn give_up(&mut self, pe: u32, qpn: Qpn, why: String) {
        let _ = self.hca().modify_qp(qpn, &QpAttr::Err);
        let peer = self.describe(pe);
        self.broke(pe, ConnError::Conversation { peer, why });
    }

    /// Before a queue pair is destroyed or reset: takes what it has received. Its receives would
    /// vanish with their completions otherwise.
    pub(crate) fn take_last_receives(&mut self, qpn: Qpn) {
        if self.owner.is_none() {
            return;
        }
        // From now on it takes no more.
        let _ = self.hca().modify_qp(qpn, &QpAttr::Err);
        let mut batch = [Completion::EMPTY; 16];
        loop {
            let n = self.hca().poll_cq(self.completions.cq, &mut batch);
            self.completions.late.extend_from_slice(&batch[..n]);
            if n < batch.len() {
                break;
            }
        }
    }
}

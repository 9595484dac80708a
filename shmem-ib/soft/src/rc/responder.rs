//! The receiving half of an RC queue pair: executes requests in order, once, and answers.
//!
//! # Rules
//! * A request with the expected PSN is executed. An earlier one is a duplicate: WRITEs are
//!   acknowledged again, so are SENDs, READs read again, atomics answered from a saved reply, never executed
//!   twice. A later one means that a packet is missing: one NAK, then silence until the
//!   missing packet arrives.
//! * Answers leave in PSN order through one queue, since the requester takes an answer that
//!   overtakes another for a loss. ACKs are cumulative: while one waits at the end of the queue
//!   it is raised instead of queueing another, so a burst of requests gets a single ACK.
//! * A SEND takes a receive with its first packet, a WRITE with immediate data with its last. If
//!   there is none, that packet is not executed: a NAK says when to send it again, and whatever
//!   follows it is dropped silently.
//! * A READ is answered from memory packet by packet while it is sent. InfiniBand lets a
//!   later WRITE pass it, and so does this.
//! * A request that may not be executed ends the connection: NAK, then nothing is executed any
//!   more. The NAK is repeated as often as the requester asks, in case it was lost.

#![forbid(unsafe_code)]

pub(crate) mod replies;
mod writes;

use std::collections::VecDeque;

use super::part;
use super::target::{Target, takes_receive};
use crate::memory::mr::Memory;
use crate::memory::sge;
use crate::queues::receive::{Received, RecvWqe};
use crate::wire::{AtomicEth, Ext, NakCode, Opcode, Packet, Reth, Syndrome};
use crate::xrc::SrqOwner;
use replies::{Read, Reply};
use shmem_verbs::{Access, Psn, SrqNum, WcStatus};
use writes::Write;

/// What became of a request packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handled {
    /// Executed; `true`: it completed an operation.
    Executed(bool),
    /// Executed before.
    Duplicate,
    /// Dropped, since earlier packets are missing.
    OutOfSequence,
    /// Not executed for want of a receive.
    NotReady,
    /// Refused for good.
    Fatal,
    /// Dropped: the requester will send it again.
    Dropped,
}

/// A message of which packets are still to come.
#[derive(Debug)]
enum Message {
    Write(Write),
    Send(Send),
}

/// A SEND and the receive that it fills.
#[derive(Debug)]
struct Send {
    wqe: RecvWqe,
    filled: u32,
}

#[derive(Debug)]
pub(crate) struct Responder {
    /// PSN of the next request packet.
    expected: Psn,
    /// Messages completed, 24 bits.
    msn: u32,
    /// The requester knows what is expected: whatever else comes is dropped.
    nak_sent: bool,
    message: Option<Message>,
    /// The shared receive queue that the packets of the last message named (XRC).
    srqn: Option<SrqNum>,
    /// Replies of the last atomics, oldest first, for duplicates.
    atomics: VecDeque<(Psn, u64)>,
    replies: VecDeque<Reply>,
    /// The refusal that ended this connection.
    fatal: Option<(Psn, NakCode)>,
    mtu: u32,
    max_rd_atomic: usize,
    /// Timer code of RNR NAKs.
    rnr_timer: u8,
    /// What acknowledgements say.
    ack: Syndrome,
}

impl Responder {
    /// PSN of the next request.
    pub(crate) const fn expected(&self) -> Psn {
        self.expected
    }

    pub(crate) fn new(rq_psn: Psn, mtu: u32, max_rd_atomic: u8, rnr_timer: u8) -> Self {
        Self {
            expected: rq_psn,
            msn: 0,
            nak_sent: false,
            message: None,
            srqn: None,
            atomics: VecDeque::new(),
            replies: VecDeque::new(),
            fatal: None,
            mtu,
            max_rd_atomic: usize::from(max_rd_atomic),
            rnr_timer,
            ack: Syndrome::OK,
        }
    }

    /// Acknowledgements say this from now on.
    pub(crate) const fn set_ack(&mut self, ack: Syndrome) {
        self.ack = ack;
    }

    /// Whether it refused a request, and thus the queue pair has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.fatal.is_some()
    }

    /// The receive of a SEND that will not end any more.
    pub(crate) fn take_unfinished(&mut self) -> Option<(u64, Option<SrqNum>)> {
        match self.message.take() {
            Some(Message::Send(send)) => Some((send.wqe.wr_id, self.srqn)),
            _ => None,
        }
    }

    /// Takes a request packet.
    pub(crate) fn handle<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        target: &mut Target<'_, M>,
    ) -> Handled {
        let psn = packet.bth.psn;
        if let Some((psn, code)) = self.fatal {
            self.queue_nak(psn, code);
            return Handled::Fatal;
        }
        let ahead = psn.since(self.expected);
        if ahead > 0 {
            if !self.nak_sent {
                self.nak_sent = true;
                self.queue_nak(self.expected, NakCode::PsnSequence);
            }
            return Handled::OutOfSequence;
        }
        if ahead < 0 {
            return self.repeat(packet, target);
        }
        let handled = self.execute(packet, target);
        if matches!(handled, Handled::Executed(_)) {
            // The packet that a NAK asked for is acknowledged at once: some requesters give up after
            // a few NAKs without an ACK between, though each NAK tells of progress (Soft-RoCE).
            let asked_for = std::mem::take(&mut self.nak_sent);
            if (packet.bth.ack_req || asked_for) && !packet_has_answer(packet.bth.opcode) {
                self.queue_ack();
            }
        }
        handled
    }

    fn execute<M: Memory>(&mut self, packet: &Packet<'_>, target: &mut Target<'_, M>) -> Handled {
        let opcode = packet.bth.opcode;
        if opcode.is_first_or_only() == self.message.is_some() {
            // A message begins inside of another, or goes on without having begun.
            return self.refuse(NakCode::InvalidRequest);
        }
        if self.message.is_some() && self.srqn != target.srqn {
            // It goes on for somebody else.
            return self.refuse(NakCode::InvalidRequest);
        }
        self.srqn = target.srqn;
        match target.owner() {
            SrqOwner::Here => {}
            SrqOwner::Elsewhere if !takes_receive(opcode) => {}
            SrqOwner::Elsewhere | SrqOwner::Nobody => {
                return self.refuse(NakCode::InvalidRequest);
            }
        }
        match (opcode, &packet.ext) {
            (
                Opcode::WriteFirst | Opcode::WriteOnly | Opcode::WriteOnlyImm,
                Ext::Reth(reth) | Ext::RethImm(reth, _),
            ) => {
                let len = u64::from(reth.len);
                // A WRITE of nothing needs no rights to anything.
                if len > 0 && !target.allows(reth.rkey, reth.va, len, Access::REMOTE_WRITE) {
                    return self.refuse(NakCode::RemoteAccess);
                }
                if !target.access.contains(Access::REMOTE_WRITE) {
                    return self.refuse(NakCode::InvalidRequest);
                }
                self.write_packet(Write::new(reth), packet, target)
            }
            (Opcode::WriteMiddle | Opcode::WriteLast | Opcode::WriteLastImm, _) => {
                match self.message {
                    Some(Message::Write(write)) => self.write_packet(write, packet, target),
                    _ => self.refuse(NakCode::InvalidRequest),
                }
            }
            (
                Opcode::SendFirst
                | Opcode::SendOnly
                | Opcode::SendOnlyImm
                | Opcode::SendMiddle
                | Opcode::SendLast
                | Opcode::SendLastImm,
                _,
            ) => self.send_packet(packet, target),
            (Opcode::ReadRequest, Ext::Reth(reth)) => self.read(reth, target),
            (Opcode::FetchAdd | Opcode::CompareSwap, Ext::Atomic(eth)) => {
                self.atomic(opcode, eth, target)
            }
            _ => self.refuse(NakCode::InvalidRequest),
        }
    }

    fn send_packet<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        target: &mut Target<'_, M>,
    ) -> Handled {
        let opcode = packet.bth.opcode;
        let len = packet.payload.len() as u32;
        let last = opcode.is_last_or_only();
        let fits = match (opcode.is_first_or_only(), last) {
            _ if target.run && last => true,
            _ if target.run => len > 0 && len.is_multiple_of(self.mtu),
            (true, true) => len <= self.mtu,
            (false, true) => (1..=self.mtu).contains(&len),
            (_, false) => len == self.mtu,
        };
        if !fits || matches!(self.message, Some(Message::Write(_))) {
            return self.refuse(NakCode::InvalidRequest);
        }
        let send = match self.message.take() {
            Some(Message::Send(send)) => send,
            _ => match target.receives.take() {
                Some(wqe) => Send { wqe, filled: 0 },
                None => return self.not_ready(),
            },
        };
        let wr_id = send.wqe.wr_id;
        if u64::from(send.filled) + u64::from(len) > send.wqe.capacity() {
            target.received = Some(Received::new(wr_id, WcStatus::LocLenErr));
            return self.refuse(NakCode::InvalidRequest);
        }
        let (mrs, sges) = (target.mrs, &send.wqe.sges);
        if sge::scatter(mrs, target.memory, sges, send.filled, packet.payload).is_err() {
            target.received = Some(Received::new(wr_id, WcStatus::LocProtErr));
            return self.refuse(NakCode::RemoteOperational);
        }
        let filled = send.filled + len;
        let imm = match packet.ext {
            Ext::Imm(imm) => Some(imm),
            _ => None,
        };
        self.expected = self.expected.add(part::packets(len, self.mtu));
        if last {
            target.received = Some(Received {
                byte_len: filled,
                imm,
                ..Received::new(wr_id, WcStatus::Success)
            });
            self.complete_message();
        } else {
            self.message = Some(Message::Send(Send { filled, ..send }));
        }
        Handled::Executed(last)
    }

    /// There is no receive for the expected packet: the requester has to send it again later.
    fn not_ready(&mut self) -> Handled {
        self.nak_sent = true;
        let psn = self.expected;
        if !matches!(self.replies.back(), Some(Reply::Rnr(p)) if *p == psn) {
            self.queue_answer(Reply::Rnr(psn));
        }
        Handled::NotReady
    }

    fn complete_message(&mut self) {
        self.msn = (self.msn + 1) & Psn::MASK;
    }

    fn read_packets(&self, reth: &Reth) -> Option<u32> {
        let packets = reth.len.div_ceil(self.mtu).max(1);
        (packets < 1 << 23).then_some(packets)
    }

    fn read<M: Memory>(&mut self, reth: &Reth, target: &mut Target<'_, M>) -> Handled {
        let Some(packets) = self.read_packets(reth) else {
            return self.refuse(NakCode::InvalidRequest);
        };
        let len = u64::from(reth.len);
        if len > 0 && !target.allows(reth.rkey, reth.va, len, Access::REMOTE_READ) {
            return self.refuse(NakCode::RemoteAccess);
        }
        if !target.access.contains(Access::REMOTE_READ) || self.is_over_limit() {
            return self.refuse(NakCode::InvalidRequest);
        }
        if self.is_crowded() {
            return Handled::Dropped;
        }
        let first = self.expected;
        self.expected = first.add(packets);
        self.complete_message();
        self.queue_answer(Reply::Read(Read {
            first,
            packets,
            sent: 0,
            reth: *reth,
            srqn: target.srqn,
            duplicate: false,
        }));
        Handled::Executed(true)
    }

    fn atomic<M: Memory>(
        &mut self,
        opcode: Opcode,
        eth: &AtomicEth,
        target: &mut Target<'_, M>,
    ) -> Handled {
        if !eth.va.is_multiple_of(8)
            || !target.access.contains(Access::REMOTE_ATOMIC)
            || self.is_over_limit()
        {
            return self.refuse(NakCode::InvalidRequest);
        }
        let Some(word) = target.locate(eth.rkey, eth.va, 8, Access::REMOTE_ATOMIC) else {
            return self.refuse(NakCode::RemoteAccess);
        };
        if !word.is_multiple_of(8) {
            // Aligned for its owner, but not in the mapping of this process.
            return self.refuse(NakCode::RemoteOperational);
        }
        if self.is_crowded() {
            return Handled::Dropped;
        }
        let old = match opcode {
            Opcode::FetchAdd => target.memory.fetch_add(word, eth.swap_add),
            _ => target.memory.compare_swap(word, eth.compare, eth.swap_add),
        };
        if self.atomics.len() == self.max_rd_atomic {
            self.atomics.pop_front();
        }
        self.atomics.push_back((self.expected, old));
        self.queue_answer(Reply::Atomic(self.expected, old, false));
        self.expected = self.expected.add(1);
        self.complete_message();
        Handled::Executed(true)
    }

    /// A packet that was executed before.
    fn repeat<M: Memory>(&mut self, packet: &Packet<'_>, target: &mut Target<'_, M>) -> Handled {
        let psn = packet.bth.psn;
        match (packet.bth.opcode, &packet.ext) {
            (Opcode::ReadRequest, Ext::Reth(reth)) => {
                let Some(packets) = self.read_packets(reth) else {
                    return Handled::Dropped;
                };
                let len = u64::from(reth.len);
                if psn.add(packets).since(self.expected) > 0
                    || (len > 0 && !target.allows(reth.rkey, reth.va, len, Access::REMOTE_READ))
                {
                    return Handled::Dropped;
                }
                let still_to_come = |reply: &Reply| match reply {
                    Reply::Read(r) => r.contains(psn) && r.next().since(psn) <= 0,
                    _ => false,
                };
                if !self.replies.iter().any(still_to_come) {
                    // What is left of an answer in progress is superseded by this request.
                    self.replies
                        .retain(|r| !matches!(r, Reply::Read(r) if r.contains(psn)));
                    if self.is_crowded() {
                        return Handled::Dropped;
                    }
                    self.queue_answer(Reply::Read(Read {
                        first: psn,
                        packets,
                        sent: 0,
                        reth: *reth,
                        srqn: target.srqn,
                        duplicate: true,
                    }));
                }
            }
            (Opcode::FetchAdd | Opcode::CompareSwap, _) => {
                let saved = self.atomics.iter().find(|(p, _)| *p == psn);
                let Some(&(_, old)) = saved else {
                    return Handled::Dropped;
                };
                let queued = |r: &Reply| matches!(r, Reply::Atomic(p, ..) if *p == psn);
                if !self.replies.iter().any(queued) {
                    if self.is_crowded() {
                        return Handled::Dropped;
                    }
                    self.queue_answer(Reply::Atomic(psn, old, true));
                }
            }
            _ => self.queue_ack(),
        }
        Handled::Duplicate
    }

    fn refuse(&mut self, code: NakCode) -> Handled {
        let psn = self.expected;
        self.fatal = Some((psn, code));
        self.queue_nak(psn, code);
        Handled::Fatal
    }
}

/// Whether the answer to this request is more than an ACK.
const fn packet_has_answer(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::ReadRequest | Opcode::FetchAdd | Opcode::CompareSwap
    )
}

#[cfg(test)]
#[path = "tests/responder.rs"]
mod tests;

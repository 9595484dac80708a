//! The receiving side of the engine: from a datagram to what it does.

#![forbid(unsafe_code)]

use super::machine::{Engine, SILENCE};
use crate::memory::mr::{Memory, MrTable};
use crate::memory::sge;
use crate::qp::Service;
use crate::queues::receive::Received;
use crate::queues::send::Done;
use crate::queues::shared::Receives;
use crate::rc::pacing::SHORT;
use crate::rc::requester::Requester;
use crate::rc::responder::Handled;
use crate::rc::target::Target;
use crate::wire::{Ext, Flow, NakCode, Opcode, Packet, STANDARD_MAX, Syndrome, Xrc, icrc};
use crate::xrc::SrqOwner;
use shmem_verbs::timeouts::rnr_delay_ns;
use shmem_verbs::{AddressVector, Counters, Pkey, Psn, QpState, QpType, Qpn, WcStatus};

impl<M: Memory> Engine<M> {
    /// Takes the payload of a UDP datagram that came from `src`.
    ///
    /// Anything wrong with it is counted and otherwise ignored, as an HCA does: whoever sent
    /// it in good faith will send it again.
    pub fn handle_datagram(&mut self, now: u64, src: AddressVector, bytes: &[u8]) {
        self.arrives(now, bytes.len());
        let Ok(packet) = Packet::decode(bytes) else {
            self.counters.dropped += 1;
            return;
        };
        let Some(src) = self.checked_sender(src, &packet, bytes) else {
            self.counters.icrc_errors += 1;
            return;
        };
        let ours = self.port.lane.pkey.hears(Pkey(packet.bth.pkey));
        if !ours || !self.dispatch(now, src, &packet, None) {
            self.counters.dropped += 1;
        }
    }

    pub(super) fn arrives(&mut self, now: u64, len: usize) {
        self.share.tick(now);
        self.counters.packets_received += 1;
        self.counters.bytes_received += len as u64;
    }

    /// What the ICRC of packets to a queue pair is changed by.
    pub(super) fn salt_of(&self, packet: &Packet<'_>) -> u32 {
        match self.qps.get(packet.bth.dest_qp.0).map(|qp| &qp.service) {
            Some(Service::Rc(rc)) => rc.salt_in,
            _ => 0,
        }
    }

    /// The port that an undamaged packet came from.
    fn checked_sender(
        &self,
        mut src: AddressVector,
        packet: &Packet<'_>,
        bytes: &[u8],
    ) -> Option<AddressVector> {
        let dst = self.port.av;
        let (flow, salt) = (Flow { src, dst }, self.salt_of(packet));
        let intact = match packet.payload.len() {
            0..=STANDARD_MAX => {
                icrc::verify(&flow, bytes, salt)
                    || (self.interop && icrc::solve_ip_id(&flow, bytes).is_some())
            }
            _ => {
                let (head, tail) = bytes.split_at(packet.header().len());
                icrc::verify_head(&flow, head, tail, bytes.len(), salt)
            }
        };
        if self.interop {
            // Other devices send from any UDP port and listen on the one of RoCEv2, as we then do.
            src.udp_port = dst.udp_port;
        }
        intact.then_some(src)
    }

    /// Returns whether the packet was meant for somebody.
    ///
    /// `placed`: so many bytes of payload are where they belong.
    pub(super) fn dispatch(
        &mut self,
        now: u64,
        src: AddressVector,
        packet: &Packet<'_>,
        placed: Option<u32>,
    ) -> bool {
        let qpn = packet.bth.dest_qp;
        let opcode = packet.bth.opcode;
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return false;
        };
        let fits = match qp.init.ty {
            QpType::Rc | QpType::Ud => packet.bth.xrc == Xrc::No,
            QpType::XrcIni => packet.bth.xrc == Xrc::Response,
            QpType::XrcTgt => matches!(packet.bth.xrc, Xrc::Request(_)),
        };
        if !fits {
            return false;
        }
        match &mut qp.service {
            Service::Ud(_) => self.handle_ud(src, packet),
            Service::Rc(rc) => {
                let known = rc.dest.as_ref().is_some_and(|d| d.av == src);
                if !known || matches!(qp.state, QpState::Reset | QpState::Init) {
                    return false;
                }
                if opcode.is_rc_request() {
                    self.handle_request(now, packet, placed, false)
                } else if opcode.is_rc_response() {
                    self.leave_stream_for(packet);
                    self.handle_response(now, packet, placed, false)
                } else if opcode == Opcode::Invite {
                    self.handle_invite(now, packet)
                } else {
                    false
                }
            }
        }
    }

    /// Takes a run of requests that came by a stream; returns whether the stream can go on.
    pub(super) fn handle_run(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        placed: Option<u32>,
    ) -> bool {
        let qpn = packet.bth.dest_qp;
        let executed = self.handle_request(now, packet, placed, true);
        let qp = self.qps.get(qpn.0);
        executed && qp.is_some_and(|qp| matches!(qp.state, QpState::Rtr | QpState::Rts))
    }

    /// `run`: it came by a stream. Returns whether it was for somebody, and if it is a run, whether it was executed.
    fn handle_request(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        placed: Option<u32>,
        run: bool,
    ) -> bool {
        let qpn = packet.bth.dest_qp;
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return false;
        };
        let Service::Rc(rc) = &mut qp.service else {
            return false;
        };
        let Some(responder) = &mut rc.responder else {
            return false;
        };
        let mut left = None;
        if let Some(of) = rc.stream.as_mut().filter(|_| !run) {
            left = of.left_for(packet.bth.psn, responder.expected());
            if !of.answer_by_datagrams(packet.bth.psn) {
                self.counters.duplicates += 1;
                return true;
            }
        }
        // Of a long message; a packet that is shorter counts little in any buffer.
        let whole = rc.dest.as_ref().map(|dest| dest.mtu.bytes());
        let len = placed.map_or(packet.payload.len(), |len| len as usize);
        if whole == Some(len) && !run {
            self.share.brought(&mut rc.sent);
        }
        // In ERR nothing is executed, but a refusal is repeated.
        if qp.state == QpState::Err && !responder.has_failed() {
            return false;
        }
        let Some((handled, received)) = self.respond(packet, placed, run) else {
            return false;
        };
        let executed = matches!(handled, Handled::Executed(_));
        let complete = handled == Handled::Executed(true) && !run;
        self.schedule_replies(now, qpn, complete.then_some(len));
        if let Some(received) = &received {
            self.receive_ended(qpn, received);
        }
        if !run && executed {
            self.end_run_under_way(qpn);
        }
        if let Some(id) = left {
            self.stream_broke(id);
        }
        match handled {
            Handled::Executed(complete) => self.counters.rdma_inbound += u64::from(complete),
            Handled::Duplicate => self.counters.duplicates += 1,
            Handled::OutOfSequence => self.counters.out_of_sequence += 1,
            Handled::NotReady => return !run,
            Handled::Dropped => return false,
            Handled::Fatal => self.fail_qp(qpn),
        }
        true
    }

    /// Has the responder execute a request, with the memory and the receives that are meant.
    #[inline]
    fn respond(
        &mut self,
        packet: &Packet<'_>,
        placed: Option<u32>,
        run: bool,
    ) -> Option<(Handled, Option<Received>)> {
        let qp = self.qps.get_mut(packet.bth.dest_qp.0)?;
        let Service::Rc(rc) = &mut qp.service else {
            return None;
        };
        let srqn = match packet.bth.xrc {
            Xrc::Request(srqn) => Some(srqn),
            Xrc::No | Xrc::Response => None,
        };
        let domain = qp.init.xrcd.and_then(|xrcd| self.xrcds.get(xrcd));
        let srq = match (qp.init.xrcd, srqn) {
            (Some(xrcd), Some(srqn)) => self.xrcds.srq(xrcd, srqn),
            _ => qp.init.srq,
        };
        let mut target = Target {
            mrs: &self.mrs,
            memory: &mut self.memory,
            access: qp.access,
            domain,
            srqn,
            receives: Receives {
                own: &mut qp.rq,
                shared: srq.and_then(|srq| self.srqs.get_mut(srq)),
            },
            placed,
            run,
            received: None,
        };
        // A number that is nobody's now may be another process's a moment later.
        let elsewhere = match (domain, srqn) {
            (Some(domain), Some(srqn)) => domain.owner(srqn) != SrqOwner::Here,
            _ => false,
        };
        let elsewhere = domain.filter(|_| elsewhere);
        if let Some(domain) = elsewhere {
            domain.enter();
        }
        let handled = rc.responder.as_mut()?.handle(packet, &mut target);
        if let Some(domain) = elsewhere {
            domain.exit();
        }
        let received = target.received;
        // A requester that asks for the same again and again does not get the answers.
        rc.asked_again = match (handled, packet.bth.opcode) {
            (Handled::Executed(_), _) => 0,
            (Handled::Duplicate, Opcode::ReadRequest) => rc.asked_again.saturating_add(1),
            _ => rc.asked_again,
        };
        if handled == Handled::Duplicate && rc.asked_again >= SILENCE {
            self.unheard = rc.dest.map(|dest| dest.av).or(self.unheard);
        }
        Some((handled, received.map(|of| Received { srqn, ..of })))
    }

    /// Has what the responder wants to send leave, or holds an acknowledgement that a request of this side may carry:
    /// after a message that `came` by datagrams and is complete, whose last packet has so many bytes.
    #[inline]
    fn schedule_replies(&mut self, now: u64, qpn: Qpn, came: Option<usize>) {
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return;
        };
        let Service::Rc(rc) = &mut qp.service else {
            return;
        };
        let Some(responder) = &rc.responder else {
            return;
        };
        if !responder.has_replies() {
            return;
        }
        // Only of a queue pair that may send can it be known what its PE has to say.
        let speaks = !self.interop && rc.requester.is_some() && qp.state == QpState::Rts;
        let mut held = false;
        if let Some(len) = came.filter(|_| speaks) {
            let short = len <= SHORT as usize && responder.has_only_an_ack() && !qp.in_ready;
            held = rc.turns.came(now, short);
            if !std::mem::replace(&mut rc.in_taken, true) {
                self.taken.push(qpn);
            }
        }
        if held {
            self.queue_timer(qpn);
        } else {
            rc.turns.release();
            self.mark_ready(qpn);
        }
    }

    /// `run`: it came by a stream. Returns whether it was for somebody, and if it is a run, whether it answers what is
    /// outstanding.
    pub(super) fn handle_response(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        placed: Option<u32>,
        run: bool,
    ) -> bool {
        let qpn = packet.bth.dest_qp;
        let psn = packet.bth.psn;
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return false;
        };
        if qp.state != QpState::Rts {
            return false;
        }
        let Service::Rc(rc) = &mut qp.service else {
            return false;
        };
        let Some(requester) = &mut rc.requester else {
            return false;
        };
        // Credits of other makes are about receives.
        if let Ext::Aeth(aeth) | Ext::AtomicAck(aeth, _) = &packet.ext
            && let ack @ Syndrome::Ack(_) = aeth.syndrome
            && !self.interop
        {
            requester.set_share(ack.credits());
        }
        let done = &mut self.done;
        let taken = match (packet.bth.opcode, &packet.ext) {
            (Opcode::Ack, Ext::Aeth(aeth)) => {
                let counters = &mut self.counters;
                take_acknowledgement(requester, counters, (now, psn), aeth.syndrome, done)
            }
            (opcode, ext) => {
                let old;
                let data = match ext {
                    Ext::AtomicAck(_, value) => {
                        old = value.to_ne_bytes();
                        &old[..]
                    }
                    _ => packet.payload,
                };
                let answer = Answer {
                    psn,
                    len: placed.unwrap_or(data.len() as u32),
                    data: placed.is_none().then_some(data),
                    atomic: opcode == Opcode::AtomicAck,
                    run,
                };
                take_answer(requester, (&self.mrs, &mut self.memory), now, &answer, done)
            }
        };
        match taken {
            Err(status) => {
                requester.fail(now, psn, status, done);
                self.fail_qp(qpn);
                true
            }
            Ok(has_use) => {
                self.after_answer(qpn);
                has_use
            }
        }
    }

    /// Reports what an answer has ended, and goes on with what it has made room for.
    pub(super) fn after_answer(&mut self, qpn: Qpn) {
        let unsent = match self.qps.get(qpn.0).map(|qp| &qp.service) {
            Some(Service::Rc(rc)) => rc.requester.as_ref().is_some_and(Requester::has_unsent),
            _ => false,
        };
        self.end_left_stream(qpn);
        self.report(qpn);
        if unsent {
            self.mark_ready(qpn);
        }
        self.queue_timer(qpn);
    }

    /// Whether a queue pair exists and has something to send or repeat.
    pub fn is_ready(&self, qpn: Qpn) -> bool {
        self.qps.get(qpn.0).is_some_and(|qp| qp.in_ready)
    }
}

/// An answer to a READ or atomic: a packet, or a run of them that came by a stream.
struct Answer<'a> {
    psn: Psn,
    len: u32,
    /// What it brings, unless that is in its place already.
    data: Option<&'a [u8]>,
    atomic: bool,
    run: bool,
}

/// Stores an answer that the requester expects. Returns false for a run that it does not expect, and the status with which the
/// request of this PSN fails. A single packet that comes twice or late is no error of the peer.
fn take_answer<M: Memory>(
    requester: &mut Requester,
    (mrs, memory): (&MrTable, &mut M),
    now: u64,
    &Answer {
        psn,
        len,
        data,
        atomic,
        run,
    }: &Answer<'_>,
    done: &mut Vec<Done>,
) -> Result<bool, WcStatus> {
    if run && !requester.is_by_stream() {
        return Ok(false);
    }
    let Some(to) = requester.on_response(now, psn, len, run, done) else {
        return Ok(!run);
    };
    if !to.fits || to.atomic != atomic {
        return Err(WcStatus::BadRespErr);
    }
    if let Some(data) = data {
        sge::scatter(mrs, memory, to.sges, to.offset, data).map_err(|_| WcStatus::LocProtErr)?;
    }
    requester.on_response_stored(now, psn, len, done);
    Ok(true)
}

/// Takes an acknowledgement or a NAK. Returns false if it concerns no request, and the status with which the request of this
/// PSN fails.
fn take_acknowledgement(
    requester: &mut Requester,
    counters: &mut Counters,
    (now, psn): (u64, Psn),
    syndrome: Syndrome,
    done: &mut Vec<Done>,
) -> Result<bool, WcStatus> {
    let taken = match syndrome {
        Syndrome::Ack(_) => {
            requester.on_ack(now, psn, done);
            return Ok(true);
        }
        Syndrome::Rnr(timer) => match requester.on_rnr(now, psn, rnr_delay_ns(timer), done) {
            true => Err(WcStatus::RnrRetryExcErr),
            false => Ok(true),
        },
        Syndrome::Nak(NakCode::PsnSequence) => {
            requester.on_nak_sequence(now, psn, done);
            Ok(true)
        }
        Syndrome::Nak(code) if requester.concerns(psn) => Err(match code {
            NakCode::RemoteAccess => WcStatus::RemAccessErr,
            NakCode::RemoteOperational => WcStatus::RemOpErr,
            _ => WcStatus::RemInvReqErr,
        }),
        _ => return Ok(false),
    };
    counters.naks_received += 1;
    taken
}

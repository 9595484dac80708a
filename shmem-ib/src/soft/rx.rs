//! The receiving side of the engine: from a datagram to what it does.

#![forbid(unsafe_code)]

use super::engine::Engine;
use super::mr::Memory;
use super::qp::Service;
use super::responder::{Handled, Target};
use crate::verbs::{
    Access, AddressVector, Completion, GRH_LEN, Gid, QpState, Qpn, WcOpcode, WcStatus,
};
use crate::wire::{Ext, Flow, NakCode, Opcode, Packet, Syndrome, icrc, rnr_delay_ns};

impl<M: Memory> Engine<M> {
    /// Takes the payload of a UDP datagram that came from `src`.
    ///
    /// Anything wrong with it is counted and otherwise ignored, as an HCA does: whoever sent
    /// it in good faith will send it again.
    pub fn handle_datagram(&mut self, now: u64, src: AddressVector, bytes: &[u8]) {
        self.counters.packets_received += 1;
        self.counters.bytes_received += bytes.len() as u64;
        let Ok(packet) = Packet::decode(bytes) else {
            self.counters.dropped += 1;
            return;
        };
        let Some(src) = self.checked_sender(src, bytes) else {
            self.counters.icrc_errors += 1;
            return;
        };
        if !self.dispatch(now, src, &packet) {
            self.counters.dropped += 1;
        }
    }

    /// The port that an undamaged packet came from.
    fn checked_sender(&self, mut src: AddressVector, bytes: &[u8]) -> Option<AddressVector> {
        let dst = self.port.av;
        let flow = Flow { src, dst };
        let intact = icrc::verify(&flow, bytes)
            || (self.interop && icrc::solve_ip_id(&flow, bytes).is_some());
        if self.interop {
            // Other devices send from any UDP port and listen on the one of RoCEv2, as we then do.
            src.udp_port = dst.udp_port;
        }
        intact.then_some(src)
    }

    /// Returns whether the packet was meant for somebody.
    fn dispatch(&mut self, now: u64, src: AddressVector, packet: &Packet<'_>) -> bool {
        let qpn = packet.bth.dest_qp;
        let opcode = packet.bth.opcode;
        let Some(qp) = self.qps.get_mut(qpn) else {
            return false;
        };
        match &mut qp.service {
            Service::Ud(_) => self.handle_ud(src, packet),
            Service::Rc(rc) => {
                let known = rc.dest.as_ref().is_some_and(|d| d.av == src);
                if !known || matches!(qp.state, QpState::Reset | QpState::Init) {
                    return false;
                }
                if opcode.is_rc_request() {
                    self.handle_request(packet)
                } else if opcode.is_rc_response() {
                    self.handle_response(now, packet)
                } else {
                    false
                }
            }
        }
    }

    fn handle_request(&mut self, packet: &Packet<'_>) -> bool {
        let qpn = packet.bth.dest_qp;
        let Some(qp) = self.qps.get_mut(qpn) else {
            return false;
        };
        let Service::Rc(rc) = &mut qp.service else {
            return false;
        };
        let Some(responder) = &mut rc.responder else {
            return false;
        };
        // In ERR nothing is executed, but a refusal is repeated.
        if qp.state == QpState::Err && !responder.has_failed() {
            return false;
        }
        let mut target = Target {
            mrs: &self.mrs,
            memory: &mut self.memory,
            access: qp.access,
        };
        let handled = responder.handle(packet, &mut target);
        if responder.has_replies() {
            self.mark_ready(qpn);
        }
        match handled {
            Handled::Executed(complete) => self.counters.rdma_inbound += u64::from(complete),
            Handled::Duplicate => self.counters.duplicates += 1,
            Handled::OutOfSequence => self.counters.out_of_sequence += 1,
            Handled::Dropped => return false,
            Handled::Fatal => self.fail_qp(qpn),
        }
        true
    }

    fn handle_response(&mut self, now: u64, packet: &Packet<'_>) -> bool {
        let qpn = packet.bth.dest_qp;
        let psn = packet.bth.psn;
        let Some(qp) = self.qps.get_mut(qpn) else {
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
        let done = &mut self.done;
        let mut failure = None;
        match (packet.bth.opcode, &packet.ext) {
            (Opcode::Ack, Ext::Aeth(aeth)) => match aeth.syndrome {
                Syndrome::Ack(_) => requester.on_ack(now, psn, done),
                Syndrome::Rnr(timer) => {
                    self.counters.naks_received += 1;
                    requester.on_rnr(now, psn, rnr_delay_ns(timer), done);
                }
                Syndrome::Nak(NakCode::PsnSequence) => {
                    self.counters.naks_received += 1;
                    requester.on_nak_sequence(now, psn, done);
                }
                Syndrome::Nak(code) if requester.concerns(psn) => {
                    self.counters.naks_received += 1;
                    let status = match code {
                        NakCode::RemoteAccess => WcStatus::RemAccessErr,
                        NakCode::RemoteOperational => WcStatus::RemOpErr,
                        _ => WcStatus::RemInvReqErr,
                    };
                    failure = Some((psn, status));
                }
                _ => return false,
            },
            (opcode, ext) => {
                if let Some(to) = requester.on_response(now, psn, done) {
                    let old;
                    let data = match ext {
                        Ext::AtomicAck(_, value) => {
                            old = value.to_ne_bytes();
                            &old[..]
                        }
                        _ => packet.payload,
                    };
                    if to.atomic != (opcode == Opcode::AtomicAck) || data.len() != to.len as usize {
                        failure = Some((psn, WcStatus::BadRespErr));
                    } else if !data.is_empty()
                        && !self.mrs.covers(
                            to.lkey.0,
                            to.addr,
                            u64::from(to.len),
                            Access::LOCAL_WRITE,
                        )
                    {
                        failure = Some((psn, WcStatus::LocProtErr));
                    } else {
                        if !data.is_empty() {
                            self.memory.write(to.addr, data);
                        }
                        requester.on_response_stored(now, psn, done);
                    }
                }
            }
        }
        match failure {
            Some((psn, status)) => {
                requester.fail(now, psn, status, done);
                self.fail_qp(qpn);
            }
            None => {
                self.report(qpn);
                self.mark_ready(qpn);
                self.queue_timer(qpn);
            }
        }
        true
    }

    fn handle_ud(&mut self, src: AddressVector, packet: &Packet<'_>) -> bool {
        let qpn = packet.bth.dest_qp;
        let Some(qp) = self.qps.get_mut(qpn) else {
            return false;
        };
        let Service::Ud(ud) = &qp.service else {
            return false;
        };
        let (Opcode::UdSendOnly, Ext::Deth(deth)) = (packet.bth.opcode, &packet.ext) else {
            return false;
        };
        if !matches!(qp.state, QpState::Rtr | QpState::Rts) || deth.qkey != ud.qkey {
            return false;
        }
        let Some(wr) = qp.rq.front() else {
            return false;
        };
        let byte_len = GRH_LEN + packet.payload.len();
        // A datagram that does not fit is dropped like one without a receive: an error would
        // let any sender take the queue pair down.
        let sge = wr.sges.first().copied().unwrap_or_default();
        if byte_len > sge.len as usize {
            return false;
        }
        let wr_id = wr.wr_id;
        qp.rq.pop_front();
        let recv_cq = qp.init.recv_cq;
        let need = u64::from(sge.len);
        let status = if self
            .mrs
            .covers(sge.lkey.0, sge.addr, need, Access::LOCAL_WRITE)
        {
            let grh = grh(src.gid, self.port.av.gid, packet.payload.len());
            self.memory.write(sge.addr, &grh);
            self.memory.write(sge.addr + GRH_LEN as u64, packet.payload);
            WcStatus::Success
        } else {
            WcStatus::LocProtErr
        };
        self.counters.ud_received += 1;
        self.cqs.push(
            recv_cq,
            Completion {
                wr_id,
                status,
                opcode: WcOpcode::Recv,
                qpn,
                byte_len: byte_len as u32,
                src: Some((src, deth.src_qp)),
                ..Completion::EMPTY
            },
        );
        if status != WcStatus::Success {
            self.fail_qp(qpn);
        }
        true
    }

    /// Whether a queue pair exists and has something to send or repeat.
    pub fn is_ready(&self, qpn: Qpn) -> bool {
        self.qps.get(qpn).is_some_and(|qp| qp.in_ready)
    }
}

/// The 40 bytes in front of a received datagram: an IPv6 header, or with IPv4 twenty undefined
/// bytes (here zero) and then the IPv4 header.
fn grh(src: Gid, dst: Gid, payload_len: usize) -> [u8; GRH_LEN] {
    let mut grh = [0; GRH_LEN];
    let len = payload_len as u16;
    match (src.ip(), dst.ip()) {
        (std::net::IpAddr::V4(s), std::net::IpAddr::V4(d)) => {
            let ip = &mut grh[20..];
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&len.to_be_bytes());
            ip[6] = 0x40;
            ip[9] = 17;
            ip[12..16].copy_from_slice(&s.octets());
            ip[16..20].copy_from_slice(&d.octets());
        }
        _ => {
            grh[0] = 0x60;
            grh[4..6].copy_from_slice(&len.to_be_bytes());
            grh[6] = 17;
            grh[8..24].copy_from_slice(&src.0);
            grh[24..40].copy_from_slice(&dst.0);
        }
    }
    grh
}

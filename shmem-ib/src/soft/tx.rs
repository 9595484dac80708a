//! The sending side of the engine: which packet is next, and its bytes.

#![forbid(unsafe_code)]

use super::engine::Engine;
use super::mr::Memory;
use super::qp::Service;
use super::requester::{Done, Payload};
use super::responder::Target;
use crate::verbs::{Access, AddressVector, QpState, Qpn, SendOp, WcOpcode, WcStatus};
use crate::wire::{Bth, Deth, Ext, Flow, Header, NakCode, Opcode, PACKET_MAX, Syndrome};

/// How many packets a queue pair sends before another one gets its turn: as many as one
/// segmented datagram of 64 KiB holds.
const TURN: u32 = 16;

/// A packet that was written to the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where it goes.
    pub dst: AddressVector,
    /// Its length in bytes.
    pub len: usize,
}

/// What a queue pair had to send.
enum Sent {
    Packet(Transmit),
    Nothing,
    /// It failed while it tried; what it has to report is in `done`.
    Failed,
}

impl<M: Memory> Engine<M> {
    /// Writes the next packet to `buf`, which has room for [`PACKET_MAX`] bytes.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn poll_transmit(&mut self, now: u64, buf: &mut [u8]) -> Option<Transmit> {
        assert!(
            buf.len() >= PACKET_MAX,
            "a packet needs up to {PACKET_MAX} bytes"
        );
        while let Some(&qpn) = self.ready.front() {
            match self.transmit_from(qpn, now, buf) {
                Sent::Packet(transmit) => {
                    self.counters.packets_sent += 1;
                    self.counters.bytes_sent += transmit.len as u64;
                    self.queue_timer(qpn);
                    self.turn += 1;
                    if self.turn >= TURN {
                        self.turn = 0;
                        self.ready.rotate_left(1);
                    }
                    return Some(transmit);
                }
                Sent::Nothing => {
                    self.turn = 0;
                    self.ready.pop_front();
                    if let Some(qp) = self.qps.get_mut(qpn) {
                        qp.in_ready = false;
                    }
                    self.report(qpn);
                }
                Sent::Failed => self.fail_qp(qpn),
            }
        }
        None
    }

    fn transmit_from(&mut self, qpn: Qpn, now: u64, buf: &mut [u8]) -> Sent {
        let src = self.port.av;
        let Some(qp) = self.qps.get_mut(qpn) else {
            return Sent::Nothing;
        };
        match &mut qp.service {
            Service::Ud(_) => self.transmit_ud(qpn, buf),
            Service::Rc(rc) => {
                let Some(dest) = rc.dest else {
                    return Sent::Nothing;
                };
                let flow = Flow { src, dst: dest.av };
                let sent = |len| Sent::Packet(Transmit { dst: dest.av, len });
                if let Some(responder) = &mut rc.responder {
                    let target = Target {
                        mrs: &self.mrs,
                        memory: &mut self.memory,
                        access: qp.access,
                    };
                    if let Some(r) = responder.poll(&target) {
                        let failed = responder.has_failed();
                        let bth = Bth::new(r.opcode, dest.qpn, r.psn, false);
                        let header = Header { bth, ext: r.ext };
                        let len = r.payload.map_or(0, |(_, len)| len as usize);
                        let at = header.encode(buf, len);
                        if let Some((addr, _)) = r.payload {
                            self.memory.read(addr, &mut buf[at..at + len]);
                        }
                        if let Ext::Aeth(aeth) = r.ext
                            && matches!(aeth.syndrome, Syndrome::Nak(code)
                                if code != NakCode::PsnSequence || !failed)
                        {
                            self.counters.naks_sent += 1;
                        }
                        let len = header.seal(buf, len, &flow);
                        if failed && qp.state != QpState::Err {
                            self.fail_qp(qpn);
                        }
                        return sent(len);
                    }
                }
                if qp.state != QpState::Rts {
                    return Sent::Nothing;
                }
                let Some(requester) = &mut rc.requester else {
                    return Sent::Nothing;
                };
                let Some(r) = requester.poll(now) else {
                    return Sent::Nothing;
                };
                let bth = Bth::new(r.opcode, dest.qpn, r.psn, r.ack_req);
                let header = Header { bth, ext: r.ext };
                let psn = r.psn;
                let len = match r.payload {
                    Payload::None => {
                        header.encode(buf, 0);
                        0
                    }
                    Payload::Inline(data) => {
                        let at = header.encode(buf, data.len());
                        buf[at..at + data.len()].copy_from_slice(data);
                        data.len()
                    }
                    Payload::Local { addr, len, lkey } => {
                        if !self.mrs.covers(lkey.0, addr, u64::from(len), Access::NONE) {
                            requester.fail(now, psn, WcStatus::LocProtErr, &mut self.done);
                            return Sent::Failed;
                        }
                        let len = len as usize;
                        let at = header.encode(buf, len);
                        self.memory.read(addr, &mut buf[at..at + len]);
                        len
                    }
                };
                self.counters.retransmitted += u64::from(r.again);
                sent(header.seal(buf, len, &flow))
            }
        }
    }

    fn transmit_ud(&mut self, qpn: Qpn, buf: &mut [u8]) -> Sent {
        let src = self.port.av;
        let Some(qp) = self.qps.get_mut(qpn) else {
            return Sent::Nothing;
        };
        let Service::Ud(ud) = &mut qp.service else {
            return Sent::Nothing;
        };
        let Some(wqe) = ud.sq.pop_front() else {
            return Sent::Nothing;
        };
        let SendOp::UdSend {
            av,
            qpn: dest_qp,
            qkey,
            ..
        } = wqe.op
        else {
            return Sent::Nothing;
        };
        let done = |status| Done {
            wr_id: wqe.wr_id,
            opcode: WcOpcode::Send,
            status,
            byte_len: 0,
        };
        let bth = Bth::new(Opcode::UdSendOnly, dest_qp, ud.psn, false);
        let header = Header {
            bth,
            ext: Ext::Deth(Deth { qkey, src_qp: qpn }),
        };
        let len = wqe.len as usize;
        let at = header.encode(buf, len);
        match &wqe.inline {
            Some(data) => buf[at..at + len].copy_from_slice(data),
            None if len == 0 => {}
            None => {
                let sge = wqe.sge;
                if !self
                    .mrs
                    .covers(sge.lkey.0, sge.addr, len as u64, Access::NONE)
                {
                    self.done.push(done(WcStatus::LocProtErr));
                    return Sent::Failed;
                }
                self.memory.read(sge.addr, &mut buf[at..at + len]);
            }
        }
        ud.psn = ud.psn.add(1);
        if wqe.signaled {
            self.done.push(done(WcStatus::Success));
            self.report(qpn);
        }
        Sent::Packet(Transmit {
            dst: av,
            len: header.seal(buf, len, &Flow { src, dst: av }),
        })
    }
}

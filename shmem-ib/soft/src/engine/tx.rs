//! The sending side of the engine: which packet is next, and its bytes.

#![forbid(unsafe_code)]

use super::machine::Engine;
use super::stream::invite_header;
use crate::memory::mr::Memory;
use crate::memory::sge;
use crate::proof::Way;
use crate::qp::Service;
use crate::queues::send::Payload;
use crate::wire::{Bth, Ext, Flow, Header, NakCode, PACKET_MAX, STANDARD_MAX, Syndrome, Xrc, icrc};
use shmem_verbs::{Access, AddressVector, QpState, QpType, Qpn, WcStatus};

/// How many bytes a queue pair sends before another one gets its turn, which comes at the end of a
/// burst or when as many are sent as a segmented datagram holds.
const TURN: u32 = 60 << 10;

/// A packet that was written to the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where it goes.
    pub dst: AddressVector,
    /// Its length in bytes.
    pub len: usize,
    /// It had better leave at once, together with those before it.
    pub ends_burst: bool,
    /// Its payload lies elsewhere: see [`Engine::set_lending`].
    pub lent: Option<Lent>,
}

/// Payload that was not copied into its packet, where a gap is left for it. It is valid until a registration ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lent {
    /// Where the gap begins in the packet.
    pub at: usize,
    /// Where the payload lies, in registered memory.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
}

/// What a queue pair had to send.
pub(crate) enum Sent {
    Packet(Transmit),
    Nothing,
    /// It failed while it tried; what it has to report is in `done`.
    Failed,
    /// Its send queue did.
    SendFailed,
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
                    self.turn += transmit.len as u32;
                    if self.turn >= TURN || transmit.ends_burst {
                        self.turn = 0;
                        self.ready.rotate_left(1);
                    }
                    return Some(transmit);
                }
                Sent::Nothing => {
                    self.turn = 0;
                    self.ready.pop_front();
                    if let Some(qp) = self.qps.get_mut(qpn.0) {
                        qp.in_ready = false;
                    }
                    self.report(qpn);
                }
                Sent::Failed => self.fail_qp(qpn),
                Sent::SendFailed => self.fail_send_queue(qpn),
            }
        }
        None
    }

    fn transmit_from(&mut self, qpn: Qpn, now: u64, buf: &mut [u8]) -> Sent {
        let (src, pkey) = (self.port.av, self.port.lane.pkey.0);
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return Sent::Nothing;
        };
        match &mut qp.service {
            Service::Ud(_) => self.transmit_ud(qpn, buf),
            Service::Rc(rc) => {
                let Some(dest) = rc.dest else {
                    return Sent::Nothing;
                };
                let (flow, salt) = (Flow { src, dst: dest.av }, rc.salt_out);
                let seal = |header: &Header, buf: &mut [u8], len| {
                    let len = header.seal(buf, len, &flow);
                    icrc::add_salt(&mut buf[..len], salt);
                    len
                };
                if let Some(of) = &mut rc.stream
                    && let Some(invite) = {
                        let way = Way::new(src, dest.av, dest.qpn);
                        let mac = |text: &[u8]| self.proof.of_invite(&way, rc.first, text);
                        self.streams.invite_due(now, of, mac)
                    }
                {
                    let header = invite_header(pkey, dest.qpn, rc.first);
                    let at = header.encode(buf, invite.len());
                    buf[at..at + invite.len()].copy_from_slice(&invite);
                    return Sent::Packet(Transmit {
                        dst: dest.av,
                        len: seal(&header, buf, invite.len()),
                        ends_burst: false,
                        lent: None,
                    });
                }
                let answers = rc.stream.as_ref().filter(|of| of.answers);
                let answers_by = answers.and_then(|of| of.back());
                let sent = |len, ends_burst, lent| {
                    Sent::Packet(Transmit {
                        dst: dest.av,
                        len,
                        ends_burst,
                        lent,
                    })
                };
                // Memory of other processes may go as soon as nobody is inside of the domain.
                let lends = |len| self.lends && len > STANDARD_MAX && qp.init.xrcd.is_none();
                // While the answer to a READ of another process is read, that process may not end the
                // region.
                let domain = qp.init.xrcd.and_then(|xrcd| self.xrcds.get(xrcd));
                if let Some(domain) = domain {
                    domain.enter();
                }
                if let Some(responder) = &mut rc.responder {
                    responder.set_ack(self.share.syndrome());
                }
                if let (Some(id), Some(responder)) = (answers_by, &rc.responder) {
                    if responder.has_replies() {
                        self.streams.mark(id);
                    }
                } else if !rc.turns.holds()
                    && let Some(responder) = &mut rc.responder
                    && let Some(r) = responder.poll(&self.mrs, qp.access, domain, 1)
                {
                    let failed = responder.has_failed();
                    let bth = Bth {
                        xrc: match qp.init.ty {
                            QpType::XrcTgt => Xrc::Response,
                            _ => Xrc::No,
                        },
                        pkey,
                        ..Bth::new(r.opcode, dest.qpn, r.psn, false)
                    };
                    let header = Header { bth, ext: r.ext };
                    let len = r.payload.map_or(0, |(_, len)| len as usize);
                    let at = header.encode(buf, len);
                    let mut lent = None;
                    match r.payload {
                        Some((addr, _)) if lends(len) => lent = Some(Lent { at, addr, len }),
                        Some((addr, _)) => self.memory.read(addr, &mut buf[at..at + len]),
                        None => {}
                    }
                    if let Some(domain) = domain {
                        domain.exit();
                    }
                    if let Ext::Aeth(aeth) = r.ext
                        && match aeth.syndrome {
                            Syndrome::Nak(code) => code != NakCode::PsnSequence || !failed,
                            Syndrome::Rnr(_) => true,
                            _ => false,
                        }
                    {
                        self.counters.naks_sent += 1;
                    }
                    let len = seal(&header, buf, len);
                    if failed && qp.state != QpState::Err {
                        self.fail_qp(qpn);
                    }
                    return sent(len, r.ends_burst, lent);
                }
                if let Some(domain) = domain {
                    domain.exit();
                }
                if qp.state != QpState::Rts {
                    return Sent::Nothing;
                }
                let Some(requester) = &mut rc.requester else {
                    return Sent::Nothing;
                };
                let Some(r) = requester.poll(now) else {
                    let stream = rc.stream.as_ref().and_then(|of| of.out);
                    if let Some(id) = stream.filter(|_| requester.is_by_stream()) {
                        self.streams.mark(id);
                    }
                    return Sent::Nothing;
                };
                rc.turns.sent();
                let bth = Bth {
                    xrc: r.srqn.map_or(Xrc::No, Xrc::Request),
                    pkey,
                    ..Bth::new(r.opcode, dest.qpn, r.psn, r.ack_req)
                };
                let header = Header { bth, ext: r.ext };
                let (psn, ends_burst) = (r.psn, r.ends_burst);
                let len = match r.payload {
                    Payload::None => 0,
                    Payload::Inline(data) => data.len(),
                    Payload::Gather { len, .. } => len as usize,
                };
                let at = header.encode(buf, len);
                let out = &mut buf[at..at + len];
                let mut lent = None;
                match r.payload {
                    Payload::None => {}
                    Payload::Inline(data) => out.copy_from_slice(data),
                    Payload::Gather { sges, offset, .. } => {
                        let place =
                            || sge::in_one_piece(&self.mrs, sges, offset, len, Access::NONE);
                        if let Some(addr) = lends(len).then(place).flatten() {
                            lent = Some(Lent { at, addr, len });
                        } else if sge::gather(&self.mrs, &mut self.memory, sges, offset, out)
                            .is_err()
                        {
                            requester.fail(now, psn, WcStatus::LocProtErr, &mut self.done);
                            return Sent::Failed;
                        }
                    }
                }
                self.counters.retransmitted += u64::from(r.again);
                sent(seal(&header, buf, len), ends_burst, lent)
            }
        }
    }
}

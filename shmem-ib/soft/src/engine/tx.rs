//! The sending side of the engine: which packet is next, and its bytes.

#![forbid(unsafe_code)]

use super::machine::Engine;
use super::stream::invite_header;
use crate::memory::mr::Memory;
use crate::memory::sge;
use crate::proof::Direction;
use crate::qp::Service;
use crate::queues::send::Payload;
use crate::wire::{Bth, Ext, Flow, Header, NakCode, PACKET_MAX, STANDARD_MAX, Syndrome, Xrc, icrc};
use shmem_verbs::{Access, AddressVector, QpState, QpType, Qpn, RcDest, WcStatus, Xrcd};

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
        let Some(qp) = self.qps.get(qpn.0) else {
            return Sent::Nothing;
        };
        let Service::Rc(rc) = &qp.service else {
            return self.transmit_ud(qpn, buf);
        };
        let Some(dest) = rc.dest else {
            return Sent::Nothing;
        };
        let envelope = Envelope {
            dest,
            pkey: self.port.lane.pkey.0,
            flow: Flow {
                src: self.port.av,
                dst: dest.av,
            },
            salt: rc.salt_out,
        };
        if rc.stream.is_some()
            && let Some(invitation) = self.transmit_invitation(qpn, now, &envelope, buf)
        {
            return invitation;
        }
        if let Some(reply) = self.transmit_reply(qpn, &envelope, buf) {
            return reply;
        }
        self.transmit_request(qpn, now, &envelope, buf)
    }

    /// An invitation to a stream, if one is due.
    fn transmit_invitation(
        &mut self,
        qpn: Qpn,
        now: u64,
        envelope: &Envelope,
        buf: &mut [u8],
    ) -> Option<Sent> {
        let Service::Rc(rc) = &mut self.qps.get_mut(qpn.0)?.service else {
            return None;
        };
        let (dest, first) = (envelope.dest, rc.first);
        let direction = Direction::new(envelope.flow.src, dest.av, dest.qpn);
        let mac = |text: &[u8]| self.proof.of_invite(&direction, first, text);
        let invite = self.streams.invite_due(now, rc.stream.as_mut()?, mac)?;
        let header = invite_header(envelope.pkey, dest.qpn, first);
        let at = header.encode(buf, invite.len());
        buf[at..at + invite.len()].copy_from_slice(&invite);
        Some(envelope.seal(&header, buf, invite.len(), Departure::default()))
    }

    /// The next answer to what the peer requested. If a stream carries the answers, only marks that stream.
    #[inline]
    fn transmit_reply(&mut self, qpn: Qpn, envelope: &Envelope, buf: &mut [u8]) -> Option<Sent> {
        let qp = self.qps.get_mut(qpn.0)?;
        let Service::Rc(rc) = &mut qp.service else {
            return None;
        };
        let responder = rc.responder.as_mut()?;
        responder.set_ack(self.share.syndrome());
        let answers = rc.stream.as_ref().filter(|of| of.answers);
        if let Some(id) = answers.and_then(|of| of.back) {
            if responder.has_replies() {
                self.streams.mark(id);
            }
            return None;
        }
        if rc.turns.holds() {
            return None;
        }
        // While the answer to a READ of another process is read, that process may not end the region.
        let domain = qp.init.xrcd.and_then(|xrcd| self.xrcds.get(xrcd));
        if let Some(domain) = domain {
            domain.enter();
        }
        let reply = responder.poll(&self.mrs, qp.access, domain, 1);
        let failed = responder.has_failed();
        let packet = reply.map(|r| {
            let bth = Bth {
                xrc: match qp.init.ty {
                    QpType::XrcTgt => Xrc::Response,
                    _ => Xrc::No,
                },
                pkey: envelope.pkey,
                ..Bth::new(r.opcode, envelope.dest.qpn, r.psn, false)
            };
            let header = Header { bth, ext: r.ext };
            let len = r.payload.map_or(0, |(_, len)| len as usize);
            let at = header.encode(buf, len);
            let mut lent = None;
            match r.payload {
                Some((addr, _)) if lends(self.lends, qp.init.xrcd, len) => {
                    lent = Some(Lent { at, addr, len });
                }
                Some((addr, _)) => self.memory.read(addr, &mut buf[at..at + len]),
                None => {}
            }
            let ends_burst = r.ends_burst;
            (header, len, Departure { ends_burst, lent })
        });
        if let Some(domain) = domain {
            domain.exit();
        }
        let (header, len, departure) = packet?;
        if let Ext::Aeth(aeth) = header.ext
            && match aeth.syndrome {
                Syndrome::Nak(code) => code != NakCode::PsnSequence || !failed,
                Syndrome::Rnr(_) => true,
                _ => false,
            }
        {
            self.counters.naks_sent += 1;
        }
        if failed && qp.state != QpState::Err {
            self.fail_qp(qpn);
        }
        Some(envelope.seal(&header, buf, len, departure))
    }

    /// The next request of this side. If a stream carries the requests, only marks that stream.
    #[inline]
    fn transmit_request(
        &mut self,
        qpn: Qpn,
        now: u64,
        envelope: &Envelope,
        buf: &mut [u8],
    ) -> Sent {
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return Sent::Nothing;
        };
        let Service::Rc(rc) = &mut qp.service else {
            return Sent::Nothing;
        };
        let Some(requester) = rc.requester.as_mut().filter(|_| qp.state == QpState::Rts) else {
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
            pkey: envelope.pkey,
            ..Bth::new(r.opcode, envelope.dest.qpn, r.psn, r.ack_req)
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
                let place = || sge::in_one_piece(&self.mrs, sges, offset, len, Access::NONE);
                let lends = lends(self.lends, qp.init.xrcd, len);
                if let Some(addr) = lends.then(place).flatten() {
                    lent = Some(Lent { at, addr, len });
                } else if sge::gather(&self.mrs, &mut self.memory, sges, offset, out).is_err() {
                    requester.fail(now, psn, WcStatus::LocProtErr, &mut self.done);
                    return Sent::Failed;
                }
            }
        }
        self.counters.retransmitted += u64::from(r.again);
        envelope.seal(&header, buf, len, Departure { ends_burst, lent })
    }
}

/// Whether a payload may stay where it is until it is sent. Memory of other processes may go as soon as nobody is
/// inside of the domain.
#[inline]
fn lends(lends: bool, xrcd: Option<Xrcd>, len: usize) -> bool {
    lends && len > STANDARD_MAX && xrcd.is_none()
}

/// What the packets of a queue pair have in common.
struct Envelope {
    dest: RcDest,
    pkey: u16,
    flow: Flow,
    salt: u32,
}

/// How a packet leaves: see [`Transmit`].
#[derive(Default)]
struct Departure {
    ends_burst: bool,
    lent: Option<Lent>,
}

impl Envelope {
    /// Ends a packet that has `len` bytes of payload.
    #[inline]
    fn seal(&self, header: &Header, buf: &mut [u8], len: usize, how: Departure) -> Sent {
        let len = header.seal(buf, len, &self.flow);
        icrc::add_salt(&mut buf[..len], self.salt);
        Sent::Packet(Transmit {
            dst: self.dest.av,
            len,
            ends_burst: how.ends_burst,
            lent: how.lent,
        })
    }
}

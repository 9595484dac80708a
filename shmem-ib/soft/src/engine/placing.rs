//! Long packets whose payload is received straight into the memory that it is for.
//!
//! The driver looks at the front of a datagram that the kernel still holds, and asks where the payload belongs
//! ([`Engine::place`]). It receives it there, and hands over what is around it ([`Engine::handle_placed`]). Nothing is
//! placed that would be refused: connection, sequence number, key and range are checked before.
//!
//! Two things are found out only when the payload is in its place: a damaged packet, by its check sum, and a write that
//! takes a receive where there is none. Memory outside of the registration, or without the right, is never reached. Neither
//! packet takes its sequence number, so the sender repeats it, and the repetition is placed again. Until the message is
//! complete its target has no content that anybody may count on, as on every HCA.

#![forbid(unsafe_code)]

use super::machine::Engine;
use crate::memory::mr::Memory;
use crate::memory::sge;
use crate::qp::Service;
use crate::wire::{Flow, Header, Packet, STANDARD_MAX, Xrc, icrc};
use shmem_verbs::{Access, AddressVector, Pkey, QpState};

/// Where the payload of a packet belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Bytes of headers before it.
    pub head: usize,
    /// Address, in registered memory.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
}

impl<M: Memory> Engine<M> {
    /// Where the payload belongs of a datagram from `src` with `len` bytes, of which `front` are the first; `None` if it
    /// has to be taken whole.
    pub fn place(&self, src: AddressVector, front: &[u8], len: usize) -> Option<Place> {
        let (packet, payload) = Packet::decode_head(front, len).ok()?;
        let fits = payload > STANDARD_MAX && packet.bth.xrc == Xrc::No && !self.interop;
        if !fits || !self.port.lane.pkey.hears(Pkey(packet.bth.pkey)) {
            return None;
        }
        let qp = self.qps.get(packet.bth.dest_qp.0)?;
        let Service::Rc(rc) = &qp.service else {
            return None;
        };
        let known = rc.dest.as_ref().is_some_and(|dest| dest.av == src);
        if !known || qp.init.xrcd.is_some() {
            return None;
        }
        let (addr, ..) = self.place_part(&packet.header(), payload as u32, false)?;
        Some(Place {
            head: packet.header().len(),
            addr,
            len: payload,
        })
    }

    /// Where the `len` bytes of payload of a packet or run belong, if nothing speaks against it: address, key, and the right that it
    /// takes.
    pub(super) fn place_part(
        &self,
        header: &Header,
        len: u32,
        run: bool,
    ) -> Option<(u64, u32, Access)> {
        let qp = self.qps.get(header.bth.dest_qp.0)?;
        let Service::Rc(rc) = &qp.service else {
            return None;
        };
        let opcode = header.bth.opcode;
        if opcode.is_rc_request() && matches!(qp.state, QpState::Rtr | QpState::Rts) {
            let responder = rc.responder.as_ref()?;
            let (addr, rkey) = responder.place(header, len, run, &self.mrs, qp.access)?;
            Some((addr, rkey.0, Access::REMOTE_WRITE))
        } else if opcode.is_read_response() && qp.state == QpState::Rts {
            let requester = rc.requester.as_ref()?;
            let (sges, offset) = requester.place(header.bth.psn, len, run)?;
            let (bytes, need) = (len as usize, Access::LOCAL_WRITE);
            let addr = sge::in_one_piece(&self.mrs, sges, offset, bytes, need)?;
            let key = sge::pieces(sges, offset, bytes).next()?.lkey.0;
            Some((addr, key, need))
        } else {
            None
        }
    }

    /// Takes a datagram whose payload is in its place, which [`Engine::place`] has named just before: the headers and
    /// what comes behind the payload.
    pub fn handle_placed(
        &mut self,
        now: u64,
        src: AddressVector,
        place: Place,
        head: &[u8],
        tail: &[u8],
    ) {
        let len = head.len() + place.len + tail.len();
        self.arrives(now, len);
        let Ok((packet, payload)) = Packet::decode_head(head, len) else {
            self.counters.dropped += 1;
            return;
        };
        let (dst, salt) = (self.port.av, self.salt_of(&packet));
        if !icrc::verify_head(&Flow { src, dst }, head, tail, len, salt) {
            self.counters.icrc_errors += 1;
            return;
        }
        if !self.dispatch(now, src, &packet, Some(payload as u32)) {
            self.counters.dropped += 1;
        }
    }
}

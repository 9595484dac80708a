//! Long packets whose payload is received straight into the memory that it is for.
//!
//! The driver looks at the front of a datagram that the kernel still holds, and asks where the payload belongs
//! ([`Engine::place`]). It receives it there, and hands over what is around it ([`Engine::handle_placed`]). Nothing is
//! placed that would be refused: connection, sequence number, key and range are checked before.

#![forbid(unsafe_code)]

use super::machine::Engine;
use crate::memory::mr::Memory;
use crate::memory::sge;
use crate::qp::Service;
use crate::wire::{Flow, Packet, STANDARD_MAX, Xrc, icrc};
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
        if !known || qp.init.xrcd.is_some() || !matches!(qp.state, QpState::Rtr | QpState::Rts) {
            return None;
        }
        let opcode = packet.bth.opcode;
        let addr = if opcode.is_rc_request() {
            let responder = rc.responder.as_ref()?;
            responder.place(&packet, payload as u32, &self.mrs, qp.access)?
        } else if opcode.is_read_response() && qp.state == QpState::Rts {
            let requester = rc.requester.as_ref()?;
            let (sges, offset) = requester.place(packet.bth.psn, payload as u32)?;
            sge::in_one_piece(&self.mrs, sges, offset, payload, Access::LOCAL_WRITE)?
        } else {
            return None;
        };
        Some(Place {
            head: packet.header().len(),
            addr,
            len: payload,
        })
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
        let dst = self.port.av;
        if !icrc::verify_head(&Flow { src, dst }, head, tail, len) {
            self.counters.icrc_errors += 1;
            return;
        }
        if !self.dispatch(now, src, &packet, Some(payload as u32)) {
            self.counters.dropped += 1;
        }
    }
}

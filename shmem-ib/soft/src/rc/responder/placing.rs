//! Where the payload of a WRITE belongs, before all of it has come: that of a long packet, and that of a run, which comes by
//! a stream. Nothing is named that would be refused.

#![forbid(unsafe_code)]

use super::{Message, Responder, Write};
use crate::memory::mr::MrTable;
use crate::rc::requester::run_fits;
use crate::rc::target::locate;
use crate::wire::{Ext, Header, Opcode, Packet};
use crate::xrc::Reach;
use shmem_verbs::{Access, Rkey};

impl Responder {
    /// Where the `len` bytes of payload of a WRITE's next packet belong, if nothing speaks against it; for those that
    /// would put them there before the whole packet is known.
    pub(crate) fn place(
        &self,
        packet: &Packet<'_>,
        len: u32,
        mrs: &MrTable,
        rights: Access,
    ) -> Option<u64> {
        if self.fatal.is_some() || packet.bth.psn != self.expected {
            return None;
        }
        let opcode = packet.bth.opcode;
        let write = match (opcode, &packet.ext, &self.message) {
            (Opcode::WriteFirst | Opcode::WriteOnly, Ext::Reth(reth), None) => Write::new(reth),
            (Opcode::WriteMiddle | Opcode::WriteLast, _, Some(Message::Write(write))) => *write,
            _ => return None,
        };
        if !self.continues(&write, len, opcode.is_last_or_only()) {
            return None;
        }
        let reach = Reach {
            rkey: write.rkey,
            va: write.va,
            len: len.into(),
            need: Access::REMOTE_WRITE,
        };
        locate(mrs, rights, None, None, &reach)
    }

    /// Whether a run with `len` bytes of payload is the next part of a WRITE.
    pub(super) fn run_continues(&self, write: &Write, len: u32, last: bool) -> bool {
        run_fits(write.left, len, self.mtu) && last == (len == write.left)
    }

    /// Where the `len` bytes of payload of a run belong, as [`Responder::place`].
    pub(crate) fn place_run(
        &self,
        header: &Header,
        len: u32,
        mrs: &MrTable,
        rights: Access,
    ) -> Option<u64> {
        if self.fatal.is_some() || header.bth.psn != self.expected {
            return None;
        }
        let opcode = header.bth.opcode;
        let write = match (opcode, &header.ext, &self.message) {
            (
                Opcode::WriteFirst | Opcode::WriteOnly | Opcode::WriteOnlyImm,
                Ext::Reth(reth) | Ext::RethImm(reth, _),
                None,
            ) => Write::new(reth),
            (
                Opcode::WriteMiddle | Opcode::WriteLast | Opcode::WriteLastImm,
                _,
                Some(Message::Write(write)),
            ) => *write,
            _ => return None,
        };
        if !self.run_continues(&write, len, opcode.is_last_or_only()) {
            return None;
        }
        let reach = Reach {
            rkey: write.rkey,
            va: write.va,
            len: len.into(),
            need: Access::REMOTE_WRITE,
        };
        locate(mrs, rights, None, None, &reach)
    }

    /// The region of the WRITE under way.
    pub(crate) fn rkey_of_write(&self, header: &Header) -> Option<Rkey> {
        match (&header.ext, &self.message) {
            (Ext::Reth(reth) | Ext::RethImm(reth, _), _) => Some(reth.rkey),
            (_, Some(Message::Write(write))) => Some(write.rkey),
            _ => None,
        }
    }
}

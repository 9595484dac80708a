//! WRITEs: where the payload of the next packet, or run of packets, belongs, and what it completes.

#![forbid(unsafe_code)]

use super::{Handled, Message, Responder};
use crate::memory::mr::{Memory, MrTable};
use crate::queues::receive::Received;
use crate::rc::part;
use crate::rc::target::{Target, locate};
use crate::wire::{Ext, Header, NakCode, Opcode, Packet, Reth};
use crate::xrc::Reach;
use shmem_verbs::{Access, Rkey, WcOpcode, WcStatus};

#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    va: u64,
    rkey: Rkey,
    left: u32,
    /// Bytes of the whole message.
    total: u32,
}

impl Write {
    pub(super) const fn new(reth: &Reth) -> Self {
        Self {
            va: reth.va,
            rkey: reth.rkey,
            left: reth.len,
            total: reth.len,
        }
    }
}

impl Responder {
    /// Whether `len` bytes of payload are the next part of a WRITE.
    fn continues(&self, write: &Write, len: u32, run: bool, last: bool) -> bool {
        part::fits(write.left, len, self.mtu, run) && last == (len == write.left)
    }

    /// Where the `len` bytes of payload of the next packet or run belong, and by which key, if they are of a WRITE and
    /// nothing speaks against it; for those that would put them there before all of it has come.
    pub(crate) fn place(
        &self,
        header: &Header,
        len: u32,
        run: bool,
        mrs: &MrTable,
        rights: Access,
    ) -> Option<(u64, Rkey)> {
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
        if !self.continues(&write, len, run, opcode.is_last_or_only()) {
            return None;
        }
        let reach = Reach {
            rkey: write.rkey,
            va: write.va,
            len: len.into(),
            need: Access::REMOTE_WRITE,
        };
        Some((locate(mrs, rights, None, None, &reach)?, write.rkey))
    }

    pub(super) fn write_packet<M: Memory>(
        &mut self,
        write: Write,
        packet: &Packet<'_>,
        target: &mut Target<'_, M>,
    ) -> Handled {
        let len = target.placed.unwrap_or(packet.payload.len() as u32);
        let last = packet.bth.opcode.is_last_or_only();
        if !self.continues(&write, len, target.run, last) {
            return self.refuse(NakCode::InvalidRequest);
        }
        // Checked for every packet: the region may have been deregistered in between.
        let to = match len {
            0 => None,
            _ => match target.locate(write.rkey, write.va, len.into(), Access::REMOTE_WRITE) {
                None => return self.refuse(NakCode::RemoteAccess),
                to => to,
            },
        };
        if let Ext::Imm(imm) | Ext::RethImm(_, imm) = packet.ext {
            let Some(wqe) = target.receives.take() else {
                return self.not_ready();
            };
            target.received = Some(Received {
                opcode: WcOpcode::RecvRdmaWithImm,
                byte_len: write.total,
                imm: Some(imm),
                ..Received::new(wqe.wr_id, WcStatus::Success)
            });
        }
        if let Some(to) = to
            && target.placed.is_none()
        {
            target.memory.write(to, packet.payload);
        }
        self.expected = self.expected.add(part::packets(len, self.mtu));
        if last {
            self.message = None;
            self.complete_message();
        } else {
            let (va, left) = (write.va + u64::from(len), write.left - len);
            self.message = Some(Message::Write(Write { va, left, ..write }));
        }
        Handled::Executed(last)
    }
}

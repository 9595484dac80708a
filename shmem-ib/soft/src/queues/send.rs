//! Send work requests as they lie in a send queue, and the packets that they turn into.

#![forbid(unsafe_code)]

use smallvec::SmallVec;

use crate::memory::sge;
use crate::wire::{Ext, Opcode, Reth};
use shmem_verbs::{Psn, SendOp, SendWr, Sge, SrqNum, WcOpcode, WcStatus};

/// What a request sends, or where its answer goes. Up to 64 bytes or four buffers lie in the
/// queue itself.
#[derive(Debug)]
pub(crate) enum Data {
    Inline(SmallVec<[u8; 64]>),
    Buffers(SmallVec<[Sge; 4]>),
}

/// A work request in a send queue.
#[derive(Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) data: Data,
    pub(crate) signaled: bool,
    /// It begins after the answers to all earlier READs and atomics.
    pub(crate) fence: bool,
    /// The shared receive queue of the peer (XRC).
    pub(crate) srqn: Option<SrqNum>,
    /// Bytes of payload.
    pub(crate) len: u32,
    /// PSN of its first packet; assigned when it begins, as is the next.
    pub(crate) first: Psn,
    pub(crate) packets: u32,
}

/// Where a packet lies in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MessagePosition {
    Only,
    First,
    Middle,
    Last,
}

impl Wqe {
    /// `sig_all`: the queue signals everything.
    pub(crate) fn new(wr: &SendWr<'_>, sig_all: bool) -> Self {
        let (data, len) = match wr.inline {
            Some(data) => (Data::Inline(SmallVec::from_slice(data)), data.len() as u32),
            None => {
                let buffers = SmallVec::from_slice(wr.sges);
                (Data::Buffers(buffers), sge::total(wr.sges) as u32)
            }
        };
        Self {
            wr_id: wr.wr_id,
            op: wr.op,
            data,
            signaled: wr.signaled || sig_all,
            fence: wr.fence,
            srqn: wr.srqn,
            len,
            first: Psn(0),
            packets: 0,
        }
    }

    /// The PSN behind its last packet.
    pub(crate) fn end(&self) -> Psn {
        self.first.add(self.packets)
    }

    /// Whether its end is an answer of its own instead of an acknowledgement.
    pub(crate) const fn awaits_response(&self) -> bool {
        self.op.writes_local()
    }

    /// Its local buffers; none if its payload is inline.
    pub(crate) fn buffers(&self) -> &[Sge] {
        match &self.data {
            Data::Inline(_) => &[],
            Data::Buffers(buffers) => buffers,
        }
    }

    /// Bytes `offset` to `offset + len` of what it sends.
    pub(crate) fn payload(&self, offset: u32, len: u32) -> Payload<'_> {
        match &self.data {
            _ if len == 0 => Payload::None,
            Data::Inline(data) => Payload::Inline(&data[offset as usize..(offset + len) as usize]),
            Data::Buffers(sges) => Payload::Gather { sges, offset, len },
        }
    }

    /// Opcode and headers of packet `index` of a SEND or WRITE, of which `left` packets, with
    /// this one, are to come.
    pub(crate) fn message_packet(&self, index: u32, left: u32) -> (Opcode, Ext) {
        use MessagePosition::{First, Last, Middle, Only};
        let place = match (index, left) {
            (0, 1) => Only,
            (0, _) => First,
            (_, 1) => Last,
            _ => Middle,
        };
        let reth = |va, rkey| Reth {
            va,
            rkey,
            len: self.len,
        };
        match (self.op, place) {
            (SendOp::Write { raddr, rkey, .. }, First) => {
                (Opcode::WriteFirst, Ext::Reth(reth(raddr, rkey)))
            }
            (SendOp::Write { raddr, rkey, imm }, Only) => match imm {
                None => (Opcode::WriteOnly, Ext::Reth(reth(raddr, rkey))),
                Some(imm) => (Opcode::WriteOnlyImm, Ext::RethImm(reth(raddr, rkey), imm)),
            },
            (SendOp::Write { .. }, Middle) => (Opcode::WriteMiddle, Ext::None),
            (SendOp::Write { imm: None, .. }, Last) => (Opcode::WriteLast, Ext::None),
            (SendOp::Write { imm: Some(imm), .. }, Last) => (Opcode::WriteLastImm, Ext::Imm(imm)),
            (_, First) => (Opcode::SendFirst, Ext::None),
            (_, Middle) => (Opcode::SendMiddle, Ext::None),
            (SendOp::Send { imm: Some(imm) }, Last) => (Opcode::SendLastImm, Ext::Imm(imm)),
            (SendOp::Send { imm: Some(imm) }, Only) => (Opcode::SendOnlyImm, Ext::Imm(imm)),
            (_, Last) => (Opcode::SendLast, Ext::None),
            (_, Only) => (Opcode::SendOnly, Ext::None),
        }
    }

    /// Its end, for the completion.
    pub(crate) fn done(&self, status: WcStatus) -> Done {
        let byte_len = if self.awaits_response() { self.len } else { 0 };
        Done {
            wr_id: self.wr_id,
            opcode: WcOpcode::from(&self.op),
            status,
            byte_len,
        }
    }
}

/// A work request that ended, and has to be reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    pub(crate) status: WcStatus,
    pub(crate) byte_len: u32,
}

/// Where the payload of a packet comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payload<'a> {
    None,
    Inline(&'a [u8]),
    /// A range of local buffers.
    Gather {
        sges: &'a [Sge],
        offset: u32,
        len: u32,
    },
}

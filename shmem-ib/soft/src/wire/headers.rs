//! The headers, one struct each, with their layout on the wire.

use super::opcode::Opcode;
use shmem_verbs::{Psn, Qkey, Qpn, Rkey, SrqNum};

/// Whether a packet is one of the XRC service, which has the opcodes of RC under its own prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Xrc {
    /// It is not.
    No,
    /// A request, for the memory and receives of the process that owns this shared receive queue
    /// (`XRCETH`).
    Request(SrqNum),
    /// A response or acknowledgement.
    Response,
}

impl Xrc {
    /// Bytes of `XRCETH`, if there is one.
    #[must_use]
    pub const fn header_len(self) -> usize {
        match self {
            Self::Request(_) => super::sizes::XRCETH_LEN,
            Self::No | Self::Response => 0,
        }
    }
}

/// Base transport header. The pad count is not here: it follows from the payload's length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// Whether it belongs to the XRC service, and to which shared receive queue it goes.
    pub xrc: Xrc,
    /// Solicited event.
    pub solicited: bool,
    /// Migration state; real NICs set it.
    pub mig_req: bool,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Queue pair that this goes to.
    pub dest_qp: Qpn,
    /// An acknowledgement is asked for.
    pub ack_req: bool,
    /// Sequence number.
    pub psn: Psn,
}

impl Bth {
    /// A header with the usual values.
    #[must_use]
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn, ack_req: bool) -> Self {
        Self {
            opcode,
            xrc: Xrc::No,
            solicited: false,
            mig_req: true,
            pkey: super::sizes::PKEY_DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req,
            psn,
        }
    }
}

/// RDMA extended header: where to write or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// First byte, a virtual address of the target.
    pub va: u64,
    /// Region there.
    pub rkey: Rkey,
    /// Bytes of the whole message.
    pub len: u32,
}

/// Atomic extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicEth {
    /// The 64-bit word.
    pub va: u64,
    /// Region there.
    pub rkey: Rkey,
    /// What to add, or the new value.
    pub swap_add: u64,
    /// Expected value.
    pub compare: u64,
}

/// Datagram extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deth {
    /// Key of the receiver.
    pub qkey: Qkey,
    /// Queue pair of the sender.
    pub src_qp: Qpn,
}

/// Why a request was refused for good, or has to be sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NakCode {
    /// A packet is missing: send again from this PSN.
    PsnSequence,
    /// The request makes no sense for this queue pair.
    InvalidRequest,
    /// The rkey, range or rights do not allow it.
    RemoteAccess,
    /// The responder failed for another reason.
    RemoteOperational,
}

/// What the 31 codes for credits mean (InfiniBand, volume 1, "End-to-End Flow Control").
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// The verdict of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// Executed. 5 bits of end-to-end credits; 0x1f: none are counted.
    Ack(u8),
    /// No receive buffer: wait as the 5-bit timer says ([`rnr_delay_ns`](shmem_verbs::timeouts::rnr_delay_ns)), then send again.
    Rnr(u8),
    /// Not executed.
    Nak(NakCode),
    /// A code that the specification reserves.
    Reserved(u8),
}

impl Syndrome {
    /// Executed, and credits are not counted.
    pub const OK: Self = Self::Ack(0x1f);

    /// Executed, with `credits`, or the next smaller number that can be said, but 1 at least.
    #[must_use]
    pub fn with_credits(credits: u32) -> Self {
        let at_most = CREDITS.partition_point(|n| *n <= credits);
        Self::Ack(at_most.saturating_sub(1).max(1) as u8)
    }

    /// The credits of an acknowledgement, if they are counted.
    #[must_use]
    pub fn credits(self) -> Option<u32> {
        match self {
            Self::Ack(code) => CREDITS.get(usize::from(code)).copied(),
            _ => None,
        }
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ack(credits) => credits & 0x1f,
            Self::Rnr(timer) => 0x20 | (timer & 0x1f),
            Self::Nak(NakCode::PsnSequence) => 0x60,
            Self::Nak(NakCode::InvalidRequest) => 0x61,
            Self::Nak(NakCode::RemoteAccess) => 0x62,
            Self::Nak(NakCode::RemoteOperational) => 0x63,
            Self::Reserved(code) => code,
        }
    }

    /// The meaning of a byte.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            0x00..=0x1f => Self::Ack(code),
            0x20..=0x3f => Self::Rnr(code & 0x1f),
            0x60 => Self::Nak(NakCode::PsnSequence),
            0x61 => Self::Nak(NakCode::InvalidRequest),
            0x62 => Self::Nak(NakCode::RemoteAccess),
            0x63 => Self::Nak(NakCode::RemoteOperational),
            _ => Self::Reserved(code),
        }
    }
}

/// Acknowledge extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// The verdict.
    pub syndrome: Syndrome,
    /// How many messages the responder has completed, 24 bits.
    pub msn: u32,
}

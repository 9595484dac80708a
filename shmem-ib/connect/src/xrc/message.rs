//! The bodies of the XRC messages, behind the 52 bytes that all connection messages share.
//!
//! # Layout
//! As in [`message`](crate::message): big-endian, one row is 32 bits, the number at the
//! right is the byte offset. The ticket is 0. "address" (of the sender's UD endpoint, 28 bytes) and
//! "segments" (24 bytes each, counted in byte 3) are as in an OFFER. The MAC follows.
//! ```text
//! kind 16, XRC_OPEN
//! +---------------------------------------------------------------+
//! |                    address, with the MTU code                 | 52
//! +-----------------------------------------------+---------------+
//! |             QPN of the initiator QP           | max rd atomic | 80
//! +-----------------------------------------------+---------------+
//! |        starting PSN of the initiator QP       |    (zero)     | 84
//! +-----------------------------------------------+---------------+
//!
//! kind 17, XRC_ACCEPT
//! +-----------------------------------------------+---------------+
//! |               QPN of the target QP            |   MTU code    | 52
//! +-----------------------------------------------+---------------+
//! |          starting PSN of the target QP        | max rd atomic | 56
//! +-----------------------------------------------+---------------+
//! |          number of the sender's XRC SRQ       |    (zero)     | 60
//! +-----------------------------------------------+---------------+
//! |                         segments                              | 64
//! +---------------------------------------------------------------+
//!
//! kind 18, XRC_ASK; kind 20, XRC_BYE; kind 22, XRC_LEAVE
//! +---------------------------------------------------------------+
//! |                    address, with zero                         | 52
//! +---------------------------------------------------------------+
//!
//! kind 19, XRC_INFO
//! +-----------------------------------------------+---------------+
//! |          number of the sender's XRC SRQ       |    (zero)     | 52
//! +-----------------------------------------------+---------------+
//! |                         segments                              | 56
//! +---------------------------------------------------------------+
//!
//! kind 21, XRC_GONE: nothing
//! ```
//! The longest is an ACCEPT with 6 segments: 224 bytes, less than an OFFER.

#![forbid(unsafe_code)]

use crate::UdAddress;
use crate::message::{
    COMMON, DecodeError, Epoch, MAX_LEN, MAX_SEGMENTS, Reader, SEGMENT_LEN, Segments,
    decode_address, decode_segments, encode_address, encode_segments, packed,
};
use shmem_verbs::{Mtu, Psn, Qpn, SrqNum};

/// Messages with this kind and above are XRC's.
pub(crate) const FIRST_KIND: u8 = OPEN;

const OPEN: u8 = 16;
const ACCEPT: u8 = 17;
const ASK: u8 = 18;
const INFO: u8 = 19;
const BYE: u8 = 20;
const GONE: u8 = 21;
const LEAVE: u8 = 22;

/// Where the address ends.
const ADDRESS_END: usize = COMMON + 28;
const OPEN_LEN: usize = ADDRESS_END + 8;
const ACCEPT_FIXED: usize = COMMON + 12;
const INFO_FIXED: usize = COMMON + 4;

/// What an initiator needs to address one PE through any connection to its node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Memory {
    /// The XRC SRQ of that PE: says to the target's HCA whose memory is meant.
    pub srqn: SrqNum,
    /// The ranges that may be accessed.
    pub segments: Segments,
}

/// What an initiator brings to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Open {
    /// Where the sender takes connection messages.
    pub ud: UdAddress,
    /// The initiator QP.
    pub qpn: Qpn,
    /// PSN of its first request.
    pub psn: Psn,
    /// Largest packet payload that the sender's port can do.
    pub mtu: Mtu,
    /// Most READs and atomics that it may have outstanding.
    pub max_rd_atomic: u8,
}

/// What a target brings to a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Accept {
    /// The target QP.
    pub qpn: Qpn,
    /// Its starting PSN.
    pub psn: Psn,
    /// Largest packet payload that the sender's port can do.
    pub mtu: Mtu,
    /// Most READs and atomics that it answers at a time.
    pub max_rd_atomic: u8,
    /// How the sender itself is addressed.
    pub memory: Memory,
}

/// An XRC message. What `epoch` and `echo` of the [`Message`](crate::message::Message)
/// around it mean depends on the kind.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Xrc {
    /// Make a target QP for my initiator QP, which is named by `epoch`. Repeated until answered.
    Open(Open),
    /// The target QP for the initiator QP `echo` is ready.
    Accept(Accept),
    /// How are you addressed? `epoch` counts the questions.
    Ask {
        /// Where the sender takes connection messages.
        ud: UdAddress,
    },
    /// So; answers the question `echo`.
    Info(Memory),
    /// The initiator QP `epoch` and all earlier ones of mine are gone. Repeated until
    /// acknowledged if `want_reply`.
    Bye {
        /// Where the sender takes connection messages.
        ud: UdAddress,
    },
    /// No target QP for the initiator QP `echo` or an earlier one exists here.
    Gone,
    /// I leave the job. Without `want_reply` it refuses the OPEN or ASK `echo`; with it, it asks
    /// for the BYE of the initiator QP `echo`.
    Leave {
        /// Where the sender takes connection messages.
        ud: UdAddress,
    },
}

impl Xrc {
    /// The number that stands in the message.
    pub(crate) const fn kind(&self) -> u8 {
        match self {
            Self::Open(_) => OPEN,
            Self::Accept(_) => ACCEPT,
            Self::Ask { .. } => ASK,
            Self::Info(_) => INFO,
            Self::Bye { .. } => BYE,
            Self::Gone => GONE,
            Self::Leave { .. } => LEAVE,
        }
    }

    /// Writes the body, and the number of segments, and returns where it ends.
    pub(crate) fn encode(&self, out: &mut [u8; MAX_LEN]) -> usize {
        let mut put = |at: usize, high24: u32, low8: u8| {
            out[at..at + 4].copy_from_slice(&packed(high24, low8));
        };
        match self {
            Self::Open(open) => {
                put(ADDRESS_END, open.qpn.0, open.max_rd_atomic);
                put(ADDRESS_END + 4, open.psn.0, 0);
                encode_address(&open.ud, open.mtu.code(), out);
                OPEN_LEN
            }
            Self::Accept(a) => {
                put(COMMON, a.qpn.0, a.mtu.code());
                put(COMMON + 4, a.psn.0, a.max_rd_atomic);
                put(COMMON + 8, a.memory.srqn.0, 0);
                encode_segments(&a.memory.segments, ACCEPT_FIXED, out)
            }
            Self::Info(memory) => {
                put(COMMON, memory.srqn.0, 0);
                encode_segments(&memory.segments, INFO_FIXED, out)
            }
            Self::Ask { ud } | Self::Bye { ud } | Self::Leave { ud } => {
                encode_address(ud, 0, out);
                ADDRESS_END
            }
            Self::Gone => COMMON,
        }
    }

    /// Reads the body of an authentic message of `kind`, of which `len` bytes before the MAC
    /// exist in all.
    pub(crate) fn decode(
        kind: u8,
        count: u8,
        len: usize,
        (epoch, echo): (Epoch, Epoch),
        input: &mut Reader<'_>,
    ) -> Result<Self, DecodeError> {
        let (fixed, segments, names_self, names_other) = match kind {
            OPEN => (OPEN_LEN, false, true, false),
            ACCEPT => (ACCEPT_FIXED, true, false, true),
            ASK => (ADDRESS_END, false, true, false),
            INFO => (INFO_FIXED, true, false, true),
            BYE => (ADDRESS_END, false, false, false),
            GONE => (COMMON, false, false, true),
            LEAVE => (ADDRESS_END, false, false, true),
            _ => return Err(DecodeError::Field("kind")),
        };
        let most = if segments { MAX_SEGMENTS } else { 0 };
        if usize::from(count) > most {
            return Err(DecodeError::Field("segment count"));
        }
        if len != fixed + SEGMENT_LEN * usize::from(count) {
            return Err(DecodeError::Length(len));
        }
        if names_self && epoch.generation == 0 {
            return Err(DecodeError::Field("generation"));
        }
        if names_other && echo.generation == 0 {
            return Err(DecodeError::Field("echo"));
        }
        Ok(match kind {
            OPEN => {
                let (ud, mtu) = decode_address(input)?;
                let (qpn, max_rd_atomic) = input.packed();
                let (psn, zero) = input.packed();
                Self::Open(Open {
                    ud,
                    qpn: Qpn(qpn),
                    psn: Psn(psn),
                    mtu: decode_mtu(mtu)?,
                    max_rd_atomic: must_be_zero(zero).map(|()| max_rd_atomic)?,
                })
            }
            ACCEPT => {
                let (qpn, mtu) = input.packed();
                let (psn, max_rd_atomic) = input.packed();
                Self::Accept(Accept {
                    qpn: Qpn(qpn),
                    psn: Psn(psn),
                    mtu: decode_mtu(mtu)?,
                    max_rd_atomic,
                    memory: decode_memory(input, count)?,
                })
            }
            INFO => Self::Info(decode_memory(input, count)?),
            GONE => Self::Gone,
            _ => {
                let (ud, zero) = decode_address(input)?;
                must_be_zero(zero)?;
                match kind {
                    ASK => Self::Ask { ud },
                    BYE => Self::Bye { ud },
                    _ => Self::Leave { ud },
                }
            }
        })
    }
}

fn decode_mtu(code: u8) -> Result<Mtu, DecodeError> {
    Mtu::from_code(code).ok_or(DecodeError::Field("MTU"))
}

const fn must_be_zero(reserved: u8) -> Result<(), DecodeError> {
    if reserved == 0 {
        Ok(())
    } else {
        Err(DecodeError::Field("reserved"))
    }
}

fn decode_memory(input: &mut Reader<'_>, count: u8) -> Result<Memory, DecodeError> {
    let (srqn, zero) = input.packed();
    must_be_zero(zero)?;
    Ok(Memory {
        srqn: SrqNum(srqn),
        segments: decode_segments(input, count)?,
    })
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;

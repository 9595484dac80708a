//! The bodies of the XRC messages, behind the 44 bytes that all connection messages share.
//!
//! # Layout
//! As in [`message`](crate::connect::message): big-endian, one row is 32 bits, the number at the
//! right is the byte offset. "segments" are as in an OFFER, 20 bytes each, and their count is
//! in byte 3; it is 0 where there are none. The MAC follows.
//! ```text
//! kind 16, XRC_OPEN: as an OFFER without segments, its RC QP being the initiator QP
//!
//! kind 17, XRC_ACCEPT
//! +-----------------------------------------------+---------------+
//! |               QPN of the target QP            |   MTU code    | 44
//! +-----------------------------------------------+---------------+
//! |          starting PSN of the target QP        | max rd atomic | 48
//! +-----------------------------------------------+---------------+
//! |          number of the sender's XRC SRQ       |    (zero)     | 52
//! +-----------------------------------------------+---------------+
//! |                         segments                              | 56 + 20 i
//! +---------------------------------------------------------------+
//!
//! kind 18, XRC_ASK; kind 20, XRC_BYE; kind 22, XRC_LEAVE
//! +---------------------------------------------------------------+
//! |        GID of the sender's UD endpoint (128 bits)             | 44
//! +---------------------------------------------------------------+
//! |                UD Q_Key (bit 31 is zero)                      | 60
//! +-----------------------------------------------+---------------+
//! |                   UD QPN                      |    (zero)     | 64
//! +-------------------------------+---------------+---------------+
//! |     UDP port of the UD QP     |            (zero)             | 68
//! +-------------------------------+-------------------------------+
//!
//! kind 19, XRC_INFO
//! +-----------------------------------------------+---------------+
//! |          number of the sender's XRC SRQ       |    (zero)     | 44
//! +-----------------------------------------------+---------------+
//! |                         segments                              | 48 + 20 i
//! +---------------------------------------------------------------+
//!
//! kind 21, XRC_GONE: nothing
//! ```
//! The longest is an ACCEPT with 8 segments: 232 bytes, less than an OFFER.

#![forbid(unsafe_code)]

use crate::connect::UdAddress;
use crate::connect::message::{
    DecodeError, Epoch, MAX_LEN, MAX_SEGMENTS, Offer, Reader, Segments, decode_offer,
    decode_segments, encode_offer, encode_segments,
};
use crate::verbs::{Gid, Mtu, Psn, Qkey, Qpn, SrqNum};

const OPEN: u8 = 16;
const ACCEPT: u8 = 17;
const ASK: u8 = 18;
const INFO: u8 = 19;
const BYE: u8 = 20;
const GONE: u8 = 21;
const LEAVE: u8 = 22;

/// Where the bodies begin.
const START: usize = 44;

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

/// An XRC message. What `epoch` and `echo` of the [`Message`](crate::connect::message::Message)
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
    /// The kind, and the number of segments.
    pub(in crate::connect) fn header(&self) -> (u8, usize) {
        match self {
            Self::Open(_) => (OPEN, 0),
            Self::Accept(accept) => (ACCEPT, accept.memory.segments.len()),
            Self::Ask { .. } => (ASK, 0),
            Self::Info(memory) => (INFO, memory.segments.len()),
            Self::Bye { .. } => (BYE, 0),
            Self::Gone => (GONE, 0),
            Self::Leave { .. } => (LEAVE, 0),
        }
    }

    /// Writes the body and returns where it ends.
    pub(in crate::connect) fn encode(&self, out: &mut [u8; MAX_LEN]) -> usize {
        match self {
            Self::Open(open) => encode_offer(&open.as_offer(), out),
            Self::Accept(a) => {
                put_packed(out, 44, a.qpn.0, a.mtu.code());
                put_packed(out, 48, a.psn.0, a.max_rd_atomic);
                put_packed(out, 52, a.memory.srqn.0, 0);
                encode_segments(&a.memory.segments, out, 56)
            }
            Self::Info(memory) => {
                put_packed(out, 44, memory.srqn.0, 0);
                encode_segments(&memory.segments, out, 48)
            }
            Self::Ask { ud } | Self::Bye { ud } | Self::Leave { ud } => {
                out[44..60].copy_from_slice(&ud.gid.0);
                out[60..64].copy_from_slice(&ud.qkey.0.to_be_bytes());
                put_packed(out, 64, ud.qpn.0, 0);
                out[68..70].copy_from_slice(&ud.udp_port.to_be_bytes());
                out[70..72].fill(0);
                72
            }
            Self::Gone => START,
        }
    }

    /// Reads the body of an authentic message of `kind`, of which `len` bytes before the MAC
    /// exist in all; `None` if that is no XRC message.
    pub(in crate::connect) fn decode(
        kind: u8,
        count: u8,
        len: usize,
        (epoch, echo): (Epoch, Epoch),
        input: &mut Reader<'_>,
    ) -> Result<Option<Self>, DecodeError> {
        let (fixed, segments, names_self, names_other) = match kind {
            OPEN => (80, false, true, false),
            ACCEPT => (56, true, false, true),
            ASK => (72, false, true, false),
            INFO => (48, true, false, true),
            BYE => (72, false, false, false),
            GONE => (START, false, false, true),
            LEAVE => (72, false, false, true),
            _ => return Ok(None),
        };
        let most = if segments { MAX_SEGMENTS } else { 0 };
        if usize::from(count) > most {
            return Err(DecodeError::Field("segment count"));
        }
        if len != fixed + 20 * usize::from(count) {
            return Err(DecodeError::Length(len));
        }
        if names_self && epoch.generation == 0 {
            return Err(DecodeError::Field("generation"));
        }
        if names_other && echo.generation == 0 {
            return Err(DecodeError::Field("echo"));
        }
        let body = match kind {
            OPEN => Self::Open(Open::from_offer(&decode_offer(input, 0)?)),
            ACCEPT => {
                let (qpn, mtu) = input.packed();
                let (psn, max_rd_atomic) = input.packed();
                Self::Accept(Accept {
                    qpn: Qpn(qpn),
                    psn: Psn(psn),
                    mtu: Mtu::from_code(mtu).ok_or(DecodeError::Field("MTU"))?,
                    max_rd_atomic,
                    memory: decode_memory(input, count)?,
                })
            }
            INFO => Self::Info(decode_memory(input, count)?),
            GONE => Self::Gone,
            _ => {
                let ud = decode_address(input)?;
                match kind {
                    ASK => Self::Ask { ud },
                    BYE => Self::Bye { ud },
                    _ => Self::Leave { ud },
                }
            }
        };
        Ok(Some(body))
    }
}

impl Open {
    /// The same as the OFFER that has its layout.
    fn as_offer(&self) -> Offer {
        Offer {
            ud: self.ud,
            qpn: self.qpn,
            psn: self.psn,
            mtu: self.mtu,
            max_rd_atomic: self.max_rd_atomic,
            segments: Segments::new(),
        }
    }

    const fn from_offer(offer: &Offer) -> Self {
        Self {
            ud: offer.ud,
            qpn: offer.qpn,
            psn: offer.psn,
            mtu: offer.mtu,
            max_rd_atomic: offer.max_rd_atomic,
        }
    }
}

fn put_packed(out: &mut [u8; MAX_LEN], at: usize, high24: u32, low8: u8) {
    let word = (high24 & Psn::MASK) << 8 | u32::from(low8);
    out[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

fn decode_memory(input: &mut Reader<'_>, count: u8) -> Result<Memory, DecodeError> {
    let (srqn, zero) = input.packed();
    if zero != 0 {
        return Err(DecodeError::Field("reserved"));
    }
    Ok(Memory {
        srqn: SrqNum(srqn),
        segments: decode_segments(input, count)?,
    })
}

fn decode_address(input: &mut Reader<'_>) -> Result<UdAddress, DecodeError> {
    let gid = Gid(input.array());
    let qkey = input.u32();
    let (qpn, zero) = input.packed();
    let port_and_zero = input.u32();
    if qkey >> 31 != 0 {
        return Err(DecodeError::Field("UD Q_Key"));
    }
    if zero != 0 || port_and_zero & 0xffff != 0 {
        return Err(DecodeError::Field("reserved"));
    }
    Ok(UdAddress {
        gid,
        udp_port: (port_and_zero >> 16) as u16,
        qpn: Qpn(qpn),
        qkey: Qkey(qkey),
    })
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;

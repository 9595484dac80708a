//! What the peers of a stream say over TCP, and the packet that asks for one.
//!
//! ```text
//!  INVITE  0        version 8        payload of a packet with the opcode Invite
//!          1        reserved 8
//!          2..4     TCP port 16
//!          4..20    token 128
//!
//!  hello   0..4     "SHS1"           the first bytes of who connects
//!          4        reserved 8
//!          5..8     queue pair 24    the one that invited
//!          8..24    token 128        as in the INVITE
//!
//!  frame   0..4     bytes of payload 32
//!          4..      BTH, extended headers, payload: of a run of packets as if it were one
//! ```
//! A run is as many packets of the queue pair's MTU as its payload fills, and takes as many sequence numbers; that in
//! its BTH is the first. Its opcode says whether the message begins and ends within it. There is no padding
//! and no ICRC.

#![forbid(unsafe_code)]

use super::headers::Xrc;
use super::opcode::Opcode;
use super::packet::{DecodeError, Header};
use super::sizes::{BTH_LEN, EXT_MAX};
use shmem_verbs::{Psn, Qpn};

/// Proves that who connects was invited.
pub type Token = [u8; 16];

/// Bytes of an INVITE.
pub const INVITE_LEN: usize = 20;
/// Bytes of a hello.
pub const HELLO_LEN: usize = 24;
/// Longest head of a frame.
pub const FRAME_HEAD_MAX: usize = LEN_LEN + BTH_LEN + EXT_MAX;
/// Longest payload of a frame.
pub const RUN_MAX: u32 = 256 << 10;
/// Longest payload of a frame for which the receiver need not have one place before it has all of it: SENDs go in runs of no
/// more, and READs into several buffers go by streams only if they are no longer.
pub const STAGED_MAX: u32 = 4096;

const LEN_LEN: usize = 4;
const INVITE_VERSION: u8 = 1;
const MAGIC: &[u8; 4] = b"SHS1";

/// An invitation to open a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invite {
    /// Where the inviter listens, at the address of its queue pair.
    pub port: u16,
    /// To be said there.
    pub token: Token,
}

impl Invite {
    /// As it stands in a packet.
    #[must_use]
    pub fn encode(&self) -> [u8; INVITE_LEN] {
        let mut out = [0; INVITE_LEN];
        out[0] = INVITE_VERSION;
        out[2..4].copy_from_slice(&self.port.to_be_bytes());
        out[4..].copy_from_slice(&self.token);
        out
    }

    /// From the payload of a packet; `None` if it is none of this version.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; INVITE_LEN] = payload.try_into().ok()?;
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        let mut token = [0; 16];
        token.copy_from_slice(&bytes[4..]);
        (bytes[0] == INVITE_VERSION && port != 0).then_some(Self { port, token })
    }
}

/// What who connects says first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The queue pair that has invited.
    pub qpn: Qpn,
    /// What it has told.
    pub token: Token,
}

impl Hello {
    /// As it stands in the stream.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut out = [0; HELLO_LEN];
        out[..4].copy_from_slice(MAGIC);
        out[4..8].copy_from_slice(&(self.qpn.0 & Psn::MASK).to_be_bytes());
        out[8..].copy_from_slice(&self.token);
        out
    }

    /// From the first bytes of a stream; `None` if they are no hello.
    #[must_use]
    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Option<Self> {
        let mut token = [0; 16];
        token.copy_from_slice(&bytes[8..]);
        let qpn = Qpn(u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]));
        (&bytes[..4] == MAGIC).then_some(Self { qpn, token })
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Headers of the run.
    pub header: Header,
    /// Bytes of its payload.
    pub len: u32,
}

impl Frame {
    /// Writes the head to the front of `out`, which has room for [`FRAME_HEAD_MAX`] bytes; returns its length.
    ///
    /// # Panics
    /// If `out` is shorter.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        out[..LEN_LEN].copy_from_slice(&self.len.to_be_bytes());
        LEN_LEN + self.header.encode(&mut out[LEN_LEN..], 0)
    }

    /// The head at the front of `bytes`, and its length; `None` if more bytes are needed to tell.
    ///
    /// # Errors
    /// There is no such frame.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some((len, rest)) = bytes.split_first_chunk::<LEN_LEN>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*len);
        let header = match Header::decode(rest) {
            Err(DecodeError::Truncated { .. }) => return Ok(None),
            decoded => decoded?,
        };
        let opcode = header.bth.opcode;
        let known = opcode.is_rc_request() || opcode.is_rc_response();
        if !known || header.bth.xrc != Xrc::No {
            return Err(DecodeError::Opcode(opcode as u8));
        }
        let most = match opcode {
            Opcode::ReadRequest
            | Opcode::Ack
            | Opcode::AtomicAck
            | Opcode::CompareSwap
            | Opcode::FetchAdd => 0,
            _ => RUN_MAX,
        };
        if len > most {
            return Err(DecodeError::Run(len));
        }
        Ok(Some((Self { header, len }, LEN_LEN + header.len())))
    }
}

#[cfg(test)]
#[path = "tests/stream.rs"]
mod tests;

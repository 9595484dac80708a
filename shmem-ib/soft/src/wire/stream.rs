//! What the peers of a stream say over TCP, and the packet that asks for one.
//!
//! ```text
//!  INVITE  0        version 8        payload of a packet with the opcode Invite
//!          1        attempt 8
//!          2..4     TCP port 16
//!          4..20    token 128
//!          20..36   MAC 128
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

/// Proves that an INVITE is of the peer.
pub type Mac = [u8; 16];

/// Bytes of an INVITE.
pub const INVITE_LEN: usize = TEXT_LEN + 16;
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
const TEXT_LEN: usize = 20;
const INVITE_VERSION: u8 = 2;
const MAGIC: &[u8; 4] = b"SHS1";

/// Whether two codes or tokens are the same, found out in a time that does not tell where they differ.
pub(crate) fn same(a: &[u8; 16], b: &[u8; 16]) -> bool {
    let differ = a.iter().zip(b).fold(0, |bits, (x, y)| bits | (x ^ y));
    std::hint::black_box(differ) == 0
}

/// An invitation to open a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invite {
    /// How often its queue pair has invited, this time included.
    pub attempt: u8,
    /// Where the inviter listens, at the address of its queue pair.
    pub port: u16,
    /// To be said there.
    pub token: Token,
}

impl Invite {
    /// As it stands in a packet; `mac` computes the code of what stands before it.
    #[must_use]
    pub fn encode(&self, mac: impl FnOnce(&[u8]) -> Mac) -> [u8; INVITE_LEN] {
        let mut out = [0; INVITE_LEN];
        (out[0], out[1]) = (INVITE_VERSION, self.attempt);
        out[2..4].copy_from_slice(&self.port.to_be_bytes());
        out[4..TEXT_LEN].copy_from_slice(&self.token);
        let mac = mac(&out[..TEXT_LEN]);
        out[TEXT_LEN..].copy_from_slice(&mac);
        out
    }

    /// From the payload of a packet; `None` if it is none of this version, or carries another code than `mac` computes.
    #[must_use]
    pub fn decode(payload: &[u8], mac: impl FnOnce(&[u8]) -> Mac) -> Option<Self> {
        let bytes: &[u8; INVITE_LEN] = payload.try_into().ok()?;
        let (text, said) = bytes.split_first_chunk::<TEXT_LEN>()?;
        if !same(&mac(text), said.try_into().ok()?) {
            return None;
        }
        let port = u16::from_be_bytes([text[2], text[3]]);
        let mut token = [0; 16];
        token.copy_from_slice(&text[4..]);
        (text[0] == INVITE_VERSION && port != 0).then_some(Self {
            attempt: text[1],
            port,
            token,
        })
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

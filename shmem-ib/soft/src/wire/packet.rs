//! Encoding and decoding of whole packets.

use super::headers::{Aeth, AtomicEth, Bth, Deth, Reth, Syndrome, Xrc};
use super::icrc::{self, Flow};
use super::opcode::{self, ExtKind, Opcode};
use super::sizes::{BTH_LEN, ICRC_LEN, STANDARD_MAX};
use shmem_verbs::{Psn, Qkey, Qpn, Rkey, SrqNum};

/// The extended headers of a packet; which ones follows from the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ext {
    /// None.
    None,
    /// Immediate data.
    Imm(u32),
    /// Target of a READ or WRITE.
    Reth(Reth),
    /// Target of a WRITE, and immediate data.
    RethImm(Reth, u32),
    /// Acknowledgement.
    Aeth(Aeth),
    /// Acknowledgement, and the old value of an atomic.
    AtomicAck(Aeth, u64),
    /// Target and operands of an atomic.
    Atomic(AtomicEth),
    /// Datagram.
    Deth(Deth),
    /// Datagram with immediate data.
    DethImm(Deth, u32),
}

impl Ext {
    /// Which headers these are.
    #[must_use]
    pub const fn kind(&self) -> ExtKind {
        match self {
            Self::None => ExtKind::None,
            Self::Imm(_) => ExtKind::Imm,
            Self::Reth(_) => ExtKind::Reth,
            Self::RethImm(..) => ExtKind::RethImm,
            Self::Aeth(_) => ExtKind::Aeth,
            Self::AtomicAck(..) => ExtKind::AtomicAck,
            Self::Atomic(_) => ExtKind::Atomic,
            Self::Deth(_) => ExtKind::Deth,
            Self::DethImm(..) => ExtKind::DethImm,
        }
    }
}

/// All headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Base transport header.
    pub bth: Bth,
    /// Extended headers, of the kind that the opcode has.
    pub ext: Ext,
}

/// A decoded packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// Extended headers.
    pub ext: Ext,
    /// Payload, without padding.
    pub payload: &'a [u8],
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Shorter than its headers.
    #[error("{have} bytes are too short for a RoCEv2 packet that needs {need}")]
    Truncated {
        /// Bytes given.
        have: usize,
        /// Bytes that the headers need.
        need: usize,
    },
    /// Unknown opcode.
    #[error("opcode {0:#04x} is not one of the RC, XRC or UD service")]
    Opcode(u8),
    /// Unknown transport version.
    #[error("transport version {0} is not 0")]
    Version(u8),
    /// Fewer payload bytes than the pad count says.
    #[error("pad count {pad} with only {have} bytes of payload")]
    Pad {
        /// Pad count of the BTH.
        pad: u8,
        /// Bytes behind the headers.
        have: usize,
    },
    /// The length is not a multiple of 4.
    #[error("length {0} is not a multiple of 4")]
    Unaligned(usize),
    /// A frame of a stream is longer than any.
    #[error("a frame of a stream has {0} bytes of payload")]
    Run(u32),
}

fn be24(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn be64(bytes: &[u8]) -> u64 {
    (u64::from(be32(bytes)) << 32) | u64::from(be32(&bytes[4..]))
}

fn put24(out: &mut [u8], v: u32) {
    out[..3].copy_from_slice(&v.to_be_bytes()[1..]);
}

fn put32(out: &mut [u8], v: u32) {
    out[..4].copy_from_slice(&v.to_be_bytes());
}

fn put64(out: &mut [u8], v: u64) {
    out[..8].copy_from_slice(&v.to_be_bytes());
}

fn put_reth(out: &mut [u8], r: &Reth) {
    put64(out, r.va);
    put32(&mut out[8..], r.rkey.0);
    put32(&mut out[12..], r.len);
}

fn get_reth(b: &[u8]) -> Reth {
    Reth {
        va: be64(b),
        rkey: Rkey(be32(&b[8..])),
        len: be32(&b[12..]),
    }
}

fn put_deth(out: &mut [u8], d: &Deth) {
    put32(out, d.qkey.0);
    put32(&mut out[4..], d.src_qp.0 & Psn::MASK);
}

fn get_deth(b: &[u8]) -> Deth {
    Deth {
        qkey: Qkey(be32(b)),
        src_qp: Qpn(be24(&b[5..])),
    }
}

fn put_aeth(out: &mut [u8], a: &Aeth) {
    put32(
        out,
        (u32::from(a.syndrome.code()) << 24) | (a.msn & Psn::MASK),
    );
}

fn get_aeth(b: &[u8]) -> Aeth {
    Aeth {
        syndrome: Syndrome::from_code(b[0]),
        msn: be24(&b[1..]),
    }
}

impl Header {
    /// Bytes of the headers.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ext_at() + self.ext.kind().len()
    }

    /// Where the extended headers begin that follow from the opcode.
    const fn ext_at(&self) -> usize {
        BTH_LEN + self.bth.xrc.header_len()
    }

    /// Never: there is always a BTH.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Decodes the headers at the front of `bytes`.
    ///
    /// # Errors
    /// They are not those of a packet of the RC, XRC or UD service, or end early.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let have = bytes.len();
        let truncated = |need| DecodeError::Truncated { have, need };
        if have < BTH_LEN {
            return Err(truncated(BTH_LEN));
        }
        let is_xrc = bytes[0] & opcode::SERVICE == opcode::XRC;
        let code = match is_xrc {
            true => bytes[0] & !opcode::SERVICE,
            false => bytes[0],
        };
        let opcode = Opcode::from_code(code).ok_or(DecodeError::Opcode(bytes[0]))?;
        let version = bytes[1] & 0x0f;
        if version != 0 {
            return Err(DecodeError::Version(version));
        }
        let kind = opcode.ext();
        let mut xrc = match (is_xrc, opcode.is_rc_request()) {
            (false, _) => Xrc::No,
            (true, true) => Xrc::Request(SrqNum(0)),
            (true, false) => Xrc::Response,
        };
        let ext_at = BTH_LEN + xrc.header_len();
        let head = ext_at + kind.len();
        if have < head {
            return Err(truncated(head));
        }
        if let Xrc::Request(srqn) = &mut xrc {
            srqn.0 = be24(&bytes[BTH_LEN + 1..]);
        }
        let bth = Bth {
            opcode,
            xrc,
            solicited: bytes[1] & 0x80 != 0,
            mig_req: bytes[1] & 0x40 != 0,
            pkey: u16::from_be_bytes([bytes[2], bytes[3]]),
            fecn: bytes[4] & 0x80 != 0,
            becn: bytes[4] & 0x40 != 0,
            dest_qp: Qpn(be24(&bytes[5..])),
            ack_req: bytes[8] & 0x80 != 0,
            psn: Psn(be24(&bytes[9..])),
        };
        let e = &bytes[ext_at..head];
        let ext = match kind {
            ExtKind::None => Ext::None,
            ExtKind::Imm => Ext::Imm(be32(e)),
            ExtKind::Reth => Ext::Reth(get_reth(e)),
            ExtKind::RethImm => Ext::RethImm(get_reth(e), be32(&e[16..])),
            ExtKind::Aeth => Ext::Aeth(get_aeth(e)),
            ExtKind::AtomicAck => Ext::AtomicAck(get_aeth(e), be64(&e[4..])),
            ExtKind::Atomic => Ext::Atomic(AtomicEth {
                va: be64(e),
                rkey: Rkey(be32(&e[8..])),
                swap_add: be64(&e[12..]),
                compare: be64(&e[20..]),
            }),
            ExtKind::Deth => Ext::Deth(get_deth(e)),
            ExtKind::DethImm => Ext::DethImm(get_deth(e), be32(&e[8..])),
        };
        Ok(Self { bth, ext })
    }

    /// Writes the headers to the front of `out` and returns their length. The caller puts
    /// `payload_len` bytes behind them and then calls [`Header::seal`].
    ///
    /// # Panics
    /// If `out` is shorter than the headers.
    pub fn encode(&self, out: &mut [u8], payload_len: usize) -> usize {
        debug_assert_eq!(
            self.bth.opcode.ext(),
            self.ext.kind(),
            "headers do not fit the opcode"
        );
        let b = &self.bth;
        let pad = payload_len.wrapping_neg() & 3;
        out[0] = match b.xrc {
            Xrc::No => b.opcode as u8,
            Xrc::Request(_) | Xrc::Response => opcode::XRC | b.opcode as u8,
        };
        if let Xrc::Request(srqn) = b.xrc {
            put32(&mut out[BTH_LEN..], srqn.0 & Psn::MASK);
        }
        out[1] = (u8::from(b.solicited) << 7) | (u8::from(b.mig_req) << 6) | ((pad as u8) << 4);
        out[2..4].copy_from_slice(&b.pkey.to_be_bytes());
        out[4] = (u8::from(b.fecn) << 7) | (u8::from(b.becn) << 6);
        put24(&mut out[5..], b.dest_qp.0);
        out[8] = u8::from(b.ack_req) << 7;
        put24(&mut out[9..], b.psn.0);
        let e = &mut out[self.ext_at()..];
        match &self.ext {
            Ext::None => {}
            Ext::Imm(v) => put32(e, *v),
            Ext::Reth(r) => put_reth(e, r),
            Ext::RethImm(r, imm) => {
                put_reth(e, r);
                put32(&mut e[16..], *imm);
            }
            Ext::Aeth(a) => put_aeth(e, a),
            Ext::AtomicAck(a, old) => {
                put_aeth(e, a);
                put64(&mut e[4..], *old);
            }
            Ext::Atomic(a) => {
                put64(e, a.va);
                put32(&mut e[8..], a.rkey.0);
                put64(&mut e[12..], a.swap_add);
                put64(&mut e[20..], a.compare);
            }
            Ext::Deth(d) => put_deth(e, d),
            Ext::DethImm(d, imm) => {
                put_deth(e, d);
                put32(&mut e[8..], *imm);
            }
        }
        self.len()
    }

    /// Pads and signs a packet whose headers and payload are in place; returns its length.
    ///
    /// # Panics
    /// If `out` has no room for padding and ICRC.
    pub fn seal(&self, out: &mut [u8], payload_len: usize, flow: &Flow) -> usize {
        let end = self.len() + payload_len;
        let padded = end.next_multiple_of(4);
        out[end..padded].fill(0);
        let crc = match payload_len {
            0..=STANDARD_MAX => icrc::compute(flow, &out[..padded]),
            _ => icrc::compute_head(flow, &out[..self.len()], padded),
        };
        out[padded..padded + ICRC_LEN].copy_from_slice(&crc.to_le_bytes());
        padded + ICRC_LEN
    }

    /// Length of a sealed packet with this payload.
    #[must_use]
    pub const fn packet_len(&self, payload_len: usize) -> usize {
        (self.len() + payload_len).next_multiple_of(4) + ICRC_LEN
    }
}

impl<'a> Packet<'a> {
    /// Decodes the payload of a UDP datagram. The ICRC is not checked here, because it depends
    /// on addresses: see [`icrc::verify`].
    ///
    /// # Errors
    /// The bytes are not a packet of the RC, XRC or UD service.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (head, payload_len) = Self::decode_head(bytes, bytes.len())?;
        let at = head.header().len();
        Ok(Self {
            payload: &bytes[at..at + payload_len],
            ..head
        })
    }

    /// Decodes the headers at the front of `bytes`, of a datagram with `have` bytes of payload; gives a packet
    /// without payload, and how many bytes that has.
    ///
    /// # Errors
    /// As [`Packet::decode`]; or `bytes` ends within the headers.
    pub fn decode_head(bytes: &'a [u8], have: usize) -> Result<(Self, usize), DecodeError> {
        let truncated = |need| DecodeError::Truncated { have, need };
        if have < BTH_LEN + ICRC_LEN {
            return Err(truncated(BTH_LEN + ICRC_LEN));
        }
        let header = Header::decode(bytes).map_err(|error| match error {
            DecodeError::Truncated { need, .. } => truncated(need + ICRC_LEN),
            other => other,
        })?;
        if !have.is_multiple_of(4) {
            return Err(DecodeError::Unaligned(have));
        }
        let head = header.len();
        if have < head + ICRC_LEN {
            return Err(truncated(head + ICRC_LEN));
        }
        let pad = (bytes[1] >> 4) & 3;
        let body = have - ICRC_LEN - head;
        let payload_len = body
            .checked_sub(usize::from(pad))
            .ok_or(DecodeError::Pad { pad, have: body })?;
        let packet = Self {
            bth: header.bth,
            ext: header.ext,
            payload: &[],
        };
        Ok((packet, payload_len))
    }

    /// The headers alone.
    #[must_use]
    pub const fn header(&self) -> Header {
        Header {
            bth: self.bth,
            ext: self.ext,
        }
    }
}

#[cfg(test)]
#[path = "tests/packet.rs"]
mod tests;

//! RoCEv2 packets: what lies in a UDP datagram to port 4791.
//!
//! ```text
//!  UDP payload = BTH 12 | XRCETH 0 or 4 | extended headers 0..28 | payload | pad 0..3 | ICRC 4
//!
//!  BTH    0        opcode 8
//!         1        SE 1 | M 1 | Pad 2 | TVer 4
//!         2..4     P_Key 16
//!         4        FECN 1 | BECN 1 | reserved 6
//!         5..8     destination QP 24
//!         8        A 1 | reserved 7
//!         9..12    PSN 24
//!
//!  XRCETH 0        reserved 8        requests of the XRC service
//!         1..4     SRQ number 24
//! ```
//! All numbers are big-endian but the ICRC, which goes low byte first ([`icrc`]).
//!
//! Nothing here allocates: headers are encoded into the buffer of the caller, who puts the
//! payload behind them and then seals the packet; decoding borrows the payload.

#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "tests/golden.rs"]
mod golden_tests;
mod headers;
pub mod icrc;
mod opcode;
mod packet;
mod sizes;
mod stream;

pub use headers::{Aeth, AtomicEth, Bth, Deth, NakCode, Reth, Syndrome, Xrc};
pub use icrc::Flow;
pub use opcode::{ExtKind, Opcode};
pub use packet::{DecodeError, Ext, Header, Packet};
pub use sizes::{
    BTH_LEN, EXT_MAX, HEAD_MAX, ICRC_LEN, PACKET_MAX, PKEY_DEFAULT, STANDARD_MAX, XRCETH_LEN,
};
pub(crate) use stream::same;
pub use stream::{
    FRAME_HEAD_MAX, Frame, HELLO_LEN, Hello, INVITE_LEN, Invite, Mac, RUN_MAX, STAGED_MAX, Token,
};

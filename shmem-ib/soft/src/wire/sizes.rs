//! How long the parts of a packet are.

/// Bytes of the base transport header.
pub const BTH_LEN: usize = 12;
/// Bytes of the invariant CRC.
pub const ICRC_LEN: usize = 4;
/// Longest extended headers: `AtomicETH`.
pub const EXT_MAX: usize = 28;
/// Bytes of the header that names a shared receive queue.
pub const XRCETH_LEN: usize = 4;
/// Longest payload of InfiniBand. The ICRC of a packet with more covers its headers alone.
pub const STANDARD_MAX: usize = 4096;
/// Longest headers.
pub const HEAD_MAX: usize = BTH_LEN + XRCETH_LEN + EXT_MAX;
/// Longest packet.
pub const PACKET_MAX: usize = HEAD_MAX + 61_440 + ICRC_LEN;
/// Default partition key with full membership.
pub const PKEY_DEFAULT: u16 = 0xffff;

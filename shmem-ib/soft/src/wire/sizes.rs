//! How long the parts of a packet are.

/// Bytes of the base transport header.
pub const BTH_LEN: usize = 12;
/// Bytes of the invariant CRC.
pub const ICRC_LEN: usize = 4;
/// Longest extended headers: `AtomicETH`.
pub const EXT_MAX: usize = 28;
/// Bytes of the header that names a shared receive queue.
pub const XRCETH_LEN: usize = 4;
/// Longest packet with an MTU of 4096.
pub const PACKET_MAX: usize = BTH_LEN + XRCETH_LEN + EXT_MAX + 4096 + ICRC_LEN;
/// Default partition key with full membership.
pub const PKEY_DEFAULT: u16 = 0xffff;

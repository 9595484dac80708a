//! Parts of a message: by datagrams each is a packet, by a stream a run of packets.

#![forbid(unsafe_code)]

/// How many packets a part of so many bytes stands for.
pub(crate) const fn packets(len: u32, mtu: u32) -> u32 {
    match len.div_ceil(mtu) {
        0 => 1,
        packets => packets,
    }
}

/// Whether `len` bytes can be the next part of a message of which `left` bytes are to come.
pub(crate) const fn fits(left: u32, len: u32, mtu: u32, run: bool) -> bool {
    let whole = len == left || (len > 0 && len < left && len.is_multiple_of(mtu));
    whole && (run || len <= mtu)
}

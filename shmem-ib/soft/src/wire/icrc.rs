//! The invariant CRC: what a RoCEv2 packet is signed with.
//!
//! CRC-32 (the polynomial of Ethernet) over everything that no router changes: 8 bytes of
//! ones (in place of InfiniBand's local header), the IP header, the UDP header, and the packet
//! up to the ICRC, where all fields that do change on the way (type of service, time to live,
//! checksums, congestion bits) count as ones.
//!
//! The IPv4 header has an identification field that is covered. A socket program neither sets
//! nor sees it, but Linux sends 0 from an unconnected socket whose path MTU discovery is on,
//! with the don't-fragment bit: that is what is assumed here. Other senders (the kernel's own
//! device, hardware) number their packets. The CRC is affine in those 16 bits, so that they can be
//! worked out from what the packet carries: [`solve_ip_id`].
//!
//! Between HCAs that share a key the ICRC is changed by a *salt* that strangers do not know: see `proof`.

use shmem_verbs::AddressVector;

/// From where to where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Sender.
    pub src: AddressVector,
    /// Receiver.
    pub dst: AddressVector,
}

const UDP_LEN: usize = 8;
const BTH_LEN: usize = super::sizes::BTH_LEN;
const PREFIX_MAX: usize = 8 + 40 + UDP_LEN + BTH_LEN;
const V4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The ICRC of a padded packet without its last 4 bytes; it goes on the wire low byte first.
///
/// # Panics
/// If `packet` is shorter than a BTH.
#[must_use]
pub fn compute(flow: &Flow, packet: &[u8]) -> u32 {
    compute_with_id(flow, packet, 0)
}

/// As [`compute`], for an IPv4 packet with another identification.
#[must_use]
pub fn compute_with_id(flow: &Flow, packet: &[u8], ip_id: u16) -> u32 {
    covering(flow, packet, packet.len(), ip_id)
}

/// As [`compute`], over the headers alone, of a packet of `len` bytes with its padding: for those that are
/// longer than InfiniBand's, which never leave their machine.
///
/// # Panics
/// If `head` is shorter than a BTH.
#[must_use]
pub fn compute_head(flow: &Flow, head: &[u8], len: usize) -> u32 {
    covering(flow, head, len, 0)
}

fn covering(flow: &Flow, packet: &[u8], len: usize, ip_id: u16) -> u32 {
    let udp_len = (UDP_LEN + len + super::sizes::ICRC_LEN) as u16;
    let mut prefix = [0xff_u8; PREFIX_MAX];
    let (src, dst) = (&flow.src.gid.0, &flow.dst.gid.0);
    let mut at = 8;
    if src[..12] == V4_MAPPED && dst[..12] == V4_MAPPED {
        let ip = &mut prefix[at..at + 20];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(udp_len + 20).to_be_bytes());
        ip[4..6].copy_from_slice(&ip_id.to_be_bytes());
        ip[6..8].copy_from_slice(&[0x40, 0]);
        ip[9] = 17;
        ip[12..16].copy_from_slice(&src[12..]);
        ip[16..20].copy_from_slice(&dst[12..]);
        at += 20;
    } else {
        let ip = &mut prefix[at..at + 40];
        ip[0] = 0x6f;
        ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
        ip[6] = 17;
        ip[8..24].copy_from_slice(src);
        ip[24..40].copy_from_slice(dst);
        at += 40;
    }
    prefix[at..at + 2].copy_from_slice(&flow.src.udp_port.to_be_bytes());
    prefix[at + 2..at + 4].copy_from_slice(&flow.dst.udp_port.to_be_bytes());
    prefix[at + 4..at + 6].copy_from_slice(&udp_len.to_be_bytes());
    at += UDP_LEN;
    prefix[at..at + BTH_LEN].copy_from_slice(&packet[..BTH_LEN]);
    prefix[at + 4] = 0xff; // FECN, BECN and the reserved bits beside them.
    at += BTH_LEN;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&prefix[..at]);
    crc.update(&packet[BTH_LEN..]);
    crc.finalize()
}

/// Whether the last 4 bytes of a packet are its ICRC with this salt; 0: the plain one.
#[must_use]
pub fn verify(flow: &Flow, packet: &[u8], salt: u32) -> bool {
    let Some((body, crc)) = packet.split_last_chunk::<4>() else {
        return false;
    };
    body.len() >= BTH_LEN && u32::from_le_bytes(*crc) == compute(flow, body) ^ salt
}

/// Changes the ICRC, the last 4 bytes of a packet, by a salt.
pub fn add_salt(packet: &mut [u8], salt: u32) {
    if let Some(crc) = packet.last_chunk_mut::<4>() {
        *crc = (u32::from_le_bytes(*crc) ^ salt).to_le_bytes();
    }
}

/// Whether the last 4 bytes of `tail` are the ICRC of a packet of `len` bytes, `tail` included, that covers its
/// headers alone, with this salt.
#[must_use]
pub fn verify_head(flow: &Flow, head: &[u8], tail: &[u8], len: usize, salt: u32) -> bool {
    let Some((_, crc)) = tail.split_last_chunk::<4>() else {
        return false;
    };
    head.len() >= BTH_LEN && u32::from_le_bytes(*crc) == compute_head(flow, head, len - 4) ^ salt
}

/// The IPv4 identification that makes the last 4 bytes of a packet its ICRC, if there is one.
///
/// Where the answer is taken for proof that the packet is undamaged, 16 of the 32 bits of the
/// check are spent on the search: one damaged packet of 65536 passes (and then still has the UDP
/// checksum against it). Over IPv6 there is nothing to solve, and the answer is `None`.
///
/// A CRC of bytes `a b 0 ... 0` that starts from 0 is the CRC of `0 0 0 ... 0` started from the
/// number `a | b << 8`. So the difference between the ICRC carried and the one for identification 0
/// is run backwards over the zeros; what comes out has to fit into those two bytes.
#[must_use]
pub fn solve_ip_id(flow: &Flow, packet: &[u8]) -> Option<u16> {
    let (body, crc) = packet.split_last_chunk::<4>()?;
    let v4 = |av: &AddressVector| av.gid.0[..12] == V4_MAPPED;
    if body.len() < BTH_LEN || !v4(&flow.src) || !v4(&flow.dst) {
        return None;
    }
    let mut state = u32::from_le_bytes(*crc) ^ compute(flow, body);
    for _ in 0..V4_FROM_ID + UDP_LEN + body.len() {
        state = back_one_byte(state);
    }
    let [first, second, 0, 0] = state.to_le_bytes() else {
        return None;
    };
    Some(u16::from_be_bytes([first, second]))
}

/// Bytes of an IPv4 header from its identification on.
const V4_FROM_ID: usize = 16;

/// The state of the CRC before a zero byte, from the one after it.
fn back_one_byte(state: u32) -> u32 {
    (state << 8) ^ BACK[(state >> 24) as usize]
}

const BACK: [u32; 256] = {
    let mut table = [0; 256];
    let mut top = 0;
    while top < 256 {
        let mut state = (top as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            // The polynomial, reflected; its top bit tells whether it was added on the way here.
            state = if state & 0x8000_0000 != 0 {
                ((state ^ 0xedb8_8320) << 1) | 1
            } else {
                state << 1
            };
            bit += 1;
        }
        table[top] = state;
        top += 1;
    }
    table
};

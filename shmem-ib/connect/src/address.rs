//! The address under which the UD endpoint of a PE is found, and the 40 bytes with it that a job's
//! bootstrap exchanges.

#![forbid(unsafe_code)]

use std::fmt;

use shmem_verbs::{AddressVector, Fabric, Gid, Pkey, Qkey, Qpn};

/// Where a PE takes connection messages: everything that a peer needs to send it a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct UdAddress {
    /// Address of the port.
    pub gid: Gid,
    /// UDP port, or LID on InfiniBand: see [`AddressVector::udp_port`].
    pub udp_port: u16,
    /// The UD queue pair, 24 bits.
    pub qpn: Qpn,
    /// The key which its datagrams must carry; bit 31 is clear.
    pub qkey: Qkey,
}

/// Why 40 bytes are no [`Published`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// All bytes are zero: nobody has published an address here.
    #[error("the 40-byte UD address is all zero: its PE has not published one")]
    Absent,
    /// Written by an incompatible version.
    #[error("UD address has format version {0}, this program reads version 4: mixed builds?")]
    Version(u8),
    /// The checksum or a reserved bit is wrong.
    #[error("UD address is damaged (its checksum or a reserved bit is wrong)")]
    Damaged,
}

/// In four bits.
const VERSION: u8 = 4;

impl UdAddress {
    /// The port, as verbs names it.
    #[must_use]
    pub const fn av(&self) -> AddressVector {
        AddressVector {
            gid: self.gid,
            udp_port: self.udp_port,
        }
    }
}

/// What a PE publishes of itself: where it is found, and on which fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Published {
    /// Where it takes connection messages.
    pub ud: UdAddress,
    /// What carries them. Who is on another fabric cannot reach it.
    pub fabric: Fabric,
    /// In which partition it is. Who does not [hear](Pkey::hears) it cannot reach it, and would learn that
    /// from nobody.
    pub pkey: Pkey,
    /// Whether it takes atomics as requests to the owner of a word. Who does it the other way does
    /// not connect to it.
    pub by_owner: bool,
    /// Whether it compares the collectives that it calls. Of no matter to connections: a directory may keep those
    /// apart who would wait for each other.
    pub checks: bool,
    /// Tells the layout of its static data from others; 0 if that is not symmetric. Of no matter to connections either.
    pub statics: u32,
    /// Where the heap begins in the memory that it offers, in a unit of the directory's choice.
    pub heap_start: u32,
}

/// Bit of [`Published::by_owner`] in the byte of version and fabric.
const BY_OWNER: u8 = 0x08;
/// Bit of [`Published::checks`] there.
const CHECKS: u8 = 0x04;
/// Bits of the fabric there.
const FABRIC: u8 = 0x03;

impl Published {
    /// Bytes of the encoded form.
    pub const LEN: usize = 40;
    /// Where the checksum is.
    const CRC: usize = 36;

    /// Encodes, big-endian: GID 16, UDP port 2, P_Key 2, a byte (version 4 bits, atomics by owners 1,
    /// comparing 1, fabric 2), QPN 3, Q_Key 4, layout of static data 4, start of the heap 4, CRC-32 of the 36
    /// bytes before.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let ud = &self.ud;
        let mut out = [0; Self::LEN];
        out[..16].copy_from_slice(&ud.gid.0);
        out[16..18].copy_from_slice(&ud.udp_port.to_be_bytes());
        out[18..20].copy_from_slice(&self.pkey.0.to_be_bytes());
        out[20..24].copy_from_slice(&ud.qpn.0.to_be_bytes());
        let by_owner = if self.by_owner { BY_OWNER } else { 0 };
        let checks = if self.checks { CHECKS } else { 0 };
        out[20] = VERSION << 4 | by_owner | checks | self.fabric.code();
        out[24..28].copy_from_slice(&ud.qkey.0.to_be_bytes());
        out[28..32].copy_from_slice(&self.statics.to_be_bytes());
        out[32..Self::CRC].copy_from_slice(&self.heap_start.to_be_bytes());
        let crc = crc32fast::hash(&out[..Self::CRC]);
        out[Self::CRC..].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Decodes what [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// The bytes are all zero, of another version, or damaged.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, AddressError> {
        if bytes.iter().all(|b| *b == 0) {
            return Err(AddressError::Absent);
        }
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if word(Self::CRC) != crc32fast::hash(&bytes[..Self::CRC]) {
            return Err(AddressError::Damaged);
        }
        let kind = bytes[20];
        if kind >> 4 != VERSION {
            return Err(AddressError::Version(kind >> 4));
        }
        let (qpn, qkey) = (word(20) & 0x00ff_ffff, word(24));
        let Some(fabric) = Fabric::from_code(kind & FABRIC).filter(|_| qkey >> 31 == 0) else {
            return Err(AddressError::Damaged);
        };
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[..16]);
        let ud = UdAddress {
            gid: Gid(gid),
            udp_port: u16::from_be_bytes([bytes[16], bytes[17]]),
            qpn: Qpn(qpn),
            qkey: Qkey(qkey),
        };
        Ok(Self {
            ud,
            fabric,
            pkey: Pkey(u16::from_be_bytes([bytes[18], bytes[19]])),
            by_owner: kind & BY_OWNER != 0,
            checks: kind & CHECKS != 0,
            statics: word(28),
            heap_start: word(32),
        })
    }
}

impl fmt::Display for UdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} UD QP {}", self.av(), self.qpn)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn published(gid: [u8; 16], udp_port: u16, qpn: u32, qkey: u32, fabric: u8) -> Published {
        let (gid, qpn, qkey) = (Gid(gid), Qpn(qpn), Qkey(qkey));
        let ud = UdAddress {
            gid,
            udp_port,
            qpn,
            qkey,
        };
        let fabric = Fabric::from_code(fabric).expect("a fabric");
        Published {
            ud,
            fabric,
            ..Published::default()
        }
    }

    proptest! {
        #[test]
        fn round_trips(
            gid: [u8; 16], port: u16, qpn in 0u32..1 << 24, qkey in 0u32..1 << 31, fabric in 0u8..3,
            pkey: u16, by_owner: bool, checks: bool, statics: u32, heap_start: u32,
        ) {
            let pkey = Pkey(pkey);
            let known = published(gid, port, qpn, qkey, fabric);
            let this = Published { pkey, by_owner, checks, statics, heap_start, ..known };
            prop_assert_eq!(Published::from_bytes(&this.to_bytes()), Ok(this));
        }

        #[test]
        fn any_flipped_bit_is_noticed(gid: [u8; 16], port: u16, fabric in 0u8..3, bit in 0usize..8 * Published::LEN) {
            let mut bytes = published(gid, port, 77, 0x1234_5678, fabric).to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Published::from_bytes(&bytes), Err(AddressError::Damaged));
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::array::uniform::<_, { Published::LEN }>(any::<u8>())) {
            let _ = Published::from_bytes(&bytes);
        }
    }

    /// `bytes` with another value at `at` and a fitting checksum.
    fn altered(at: usize, value: u8) -> [u8; Published::LEN] {
        let mut bytes = Published::default().to_bytes();
        bytes[at] = value;
        let crc = crc32fast::hash(&bytes[..Published::CRC]);
        bytes[Published::CRC..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    #[test]
    fn an_unwritten_slot_is_absent_not_damaged() {
        assert_eq!(
            Published::from_bytes(&[0; Published::LEN]),
            Err(AddressError::Absent)
        );
    }

    #[test]
    fn another_version_says_so() {
        let bytes = altered(20, 0x90);
        assert_eq!(Published::from_bytes(&bytes), Err(AddressError::Version(9)));
        // The first format had zero there.
        let bytes = altered(20, 0);
        assert_eq!(Published::from_bytes(&bytes), Err(AddressError::Version(0)));
    }

    #[test]
    fn an_unknown_fabric_is_refused() {
        for code in [3, 7, 0x0b] {
            let bytes = altered(20, VERSION << 4 | code);
            assert_eq!(Published::from_bytes(&bytes), Err(AddressError::Damaged));
        }
    }
}

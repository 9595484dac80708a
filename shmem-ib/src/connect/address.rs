//! The address under which the UD endpoint of a PE is found, in the 32 bytes that a job's
//! bootstrap exchanges.

#![forbid(unsafe_code)]

use std::fmt;

use crate::verbs::{AddressVector, Gid, Qkey, Qpn};

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

/// Why 32 bytes are no [`UdAddress`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// All bytes are zero: nobody has published an address here.
    #[error("the 32-byte UD address is all zero: its PE has not published one")]
    Absent,
    /// Written by an incompatible version.
    #[error("UD address has format version {0}, this program reads version 1: mixed builds?")]
    Version(u8),
    /// The checksum or a reserved bit is wrong.
    #[error("UD address is damaged (its checksum or a reserved bit is wrong)")]
    Damaged,
}

const VERSION: u8 = 1;

impl UdAddress {
    /// Bytes of the encoded form.
    pub const LEN: usize = 32;

    /// The port, as verbs names it.
    #[must_use]
    pub const fn av(&self) -> AddressVector {
        AddressVector {
            gid: self.gid,
            udp_port: self.udp_port,
        }
    }

    /// Encodes, big-endian: GID 16, UDP port 2, version 1, zero 1, QPN 4, Q_Key 4, CRC-32 of
    /// the 28 bytes before.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..16].copy_from_slice(&self.gid.0);
        out[16..18].copy_from_slice(&self.udp_port.to_be_bytes());
        out[18] = VERSION;
        out[20..24].copy_from_slice(&self.qpn.0.to_be_bytes());
        out[24..28].copy_from_slice(&self.qkey.0.to_be_bytes());
        let crc = crc32fast::hash(&out[..28]);
        out[28..].copy_from_slice(&crc.to_be_bytes());
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
        if word(28) != crc32fast::hash(&bytes[..28]) {
            return Err(AddressError::Damaged);
        }
        if bytes[18] != VERSION {
            return Err(AddressError::Version(bytes[18]));
        }
        let (qpn, qkey) = (word(20), word(24));
        if bytes[19] != 0 || qpn >> 24 != 0 || qkey >> 31 != 0 {
            return Err(AddressError::Damaged);
        }
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[..16]);
        Ok(Self {
            gid: Gid(gid),
            udp_port: u16::from_be_bytes([bytes[16], bytes[17]]),
            qpn: Qpn(qpn),
            qkey: Qkey(qkey),
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

    proptest! {
        #[test]
        fn round_trips(gid: [u8; 16], udp_port: u16, qpn in 0u32..1 << 24, qkey in 0u32..1 << 31) {
            let address =
                UdAddress { gid: Gid(gid), udp_port, qpn: Qpn(qpn), qkey: Qkey(qkey) };
            prop_assert_eq!(UdAddress::from_bytes(&address.to_bytes()), Ok(address));
        }

        #[test]
        fn any_flipped_bit_is_noticed(gid: [u8; 16], udp_port: u16, bit in 0usize..256) {
            let address =
                UdAddress { gid: Gid(gid), udp_port, qpn: Qpn(77), qkey: Qkey(0x1234_5678) };
            let mut bytes = address.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(UdAddress::from_bytes(&bytes), Err(AddressError::Damaged));
        }

        #[test]
        fn random_bytes_never_panic(bytes: [u8; 32]) {
            let _ = UdAddress::from_bytes(&bytes);
        }
    }

    #[test]
    fn an_unwritten_slot_is_absent_not_damaged() {
        assert_eq!(UdAddress::from_bytes(&[0; 32]), Err(AddressError::Absent));
    }

    #[test]
    fn another_version_says_so() {
        let mut bytes = UdAddress::default().to_bytes();
        bytes[18] = 9;
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(UdAddress::from_bytes(&bytes), Err(AddressError::Version(9)));
    }
}

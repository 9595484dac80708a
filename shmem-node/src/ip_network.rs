//! A range of IP addresses, as users name one of the networks that their machines are in.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bits that IPv4-mapped IPv6 addresses have in common.
const MAPPED_BITS: u8 = 96;

/// All addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(IpAddr, u8)", try_from = "(IpAddr, u8)")]
pub struct IpNetwork {
    address: IpAddr,
    bits: u8,
}

/// A text that names no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a network such as 10.5.0.0/24")]
pub struct NotANetwork;

impl IpNetwork {
    /// The network of `address` whose addresses share the first `bits` bits; `None` if an address
    /// of that family has fewer. One of IPv4-mapped addresses is the network of IPv4.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let canonical = address.to_canonical();
        let (address, bits) = match bits.checked_sub(MAPPED_BITS) {
            Some(bits) if address.is_ipv6() && canonical.is_ipv4() => (canonical, bits),
            _ => (address, bits),
        };
        let width = if address.is_ipv4() { 32 } else { 128 };
        (bits <= width).then(|| Self {
            address: masked(address, bits),
            bits,
        })
    }

    /// Whether `address` is one of its addresses.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.bits) == self.address
    }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Ipv4Addr::from(u32::from(ip) & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Ipv6Addr::from(u128::from(ip) & mask).into()
        }
    }
}

impl FromStr for IpNetwork {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, bits) = text.split_once('/').ok_or(NotANetwork)?;
        let address = address.parse().map_err(|_| NotANetwork)?;
        let bits = bits.parse().map_err(|_| NotANetwork)?;
        Self::new(address, bits).ok_or(NotANetwork)
    }
}

impl From<IpNetwork> for (IpAddr, u8) {
    fn from(network: IpNetwork) -> Self {
        (network.address, network.bits)
    }
}

impl TryFrom<(IpAddr, u8)> for IpNetwork {
    type Error = NotANetwork;

    fn try_from((address, bits): (IpAddr, u8)) -> Result<Self, NotANetwork> {
        Self::new(address, bits).ok_or(NotANetwork)
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(text: &str) -> IpNetwork {
        text.parse().unwrap()
    }

    #[test]
    fn networks_hold_their_addresses() {
        let n = net("10.5.0.77/24");
        assert_eq!(n.to_string(), "10.5.0.0/24");
        assert!(n.contains("10.5.0.255".parse().unwrap()));
        assert!(!n.contains("10.5.1.0".parse().unwrap()));
        assert!(!n.contains("::1".parse().unwrap()));
        assert_eq!(net("::ffff:10.5.0.77/120"), n);
        assert_eq!(net("::ffff:10.5.0.77/95").bits, 95);
        assert!("::ffff:10.5.0.77/129".parse::<IpNetwork>().is_err());
        assert!(net("0.0.0.0/0").contains("9.9.9.9".parse().unwrap()));
        assert!(net("fd00::/16").contains("fd00::7".parse().unwrap()));
        assert!(!net("fd00::1/128").contains("fd00::2".parse().unwrap()));
        for wrong in [
            "10.0.0.0",
            "10.0.0.0/33",
            "::/129",
            "x/8",
            "10.0.0.0/",
            "/8",
        ] {
            assert!(wrong.parse::<IpNetwork>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn addresses_with_the_same_first_bits_are_inside(ip: u32, other: u32, bits in 0u8..=32) {
            let n = IpNetwork::new(Ipv4Addr::from(ip).into(), bits).unwrap();
            let same = (ip ^ other).leading_zeros() >= u32::from(bits);
            prop_assert_eq!(n.contains(Ipv4Addr::from(other).into()), same);
            prop_assert_eq!(net(&n.to_string()), n);
        }
    }
}

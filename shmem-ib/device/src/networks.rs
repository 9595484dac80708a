//! Which IP networks this machine is connected to: ports of RoCE in one of them reach each other, of those in
//! different ones nobody knows.

#![forbid(unsafe_code)]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::hardware::Network;
use shmem_verbs::Gid;

/// Bits of a GID in front of an IPv4 address.
const MAPPED: u32 = 96;

/// The networks that `/proc/net` tells of. What cannot be read is left out.
pub(crate) fn connected(net: &Path) -> Vec<Network> {
    let read = |name| fs::read_to_string(net.join(name)).unwrap_or_default();
    let (v4, v6) = (read("route"), read("if_inet6"));
    let v4 = v4.lines().filter_map(route);
    v4.chain(v6.lines().filter_map(inet6)).collect()
}

/// A line of `/proc/net/route`: interface, destination, gateway, flags, three numbers, mask, and more. Words are
/// in hexadecimal as the machine reads them from memory, where they have the network's order.
fn route(line: &str) -> Option<Network> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let word = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    let (destination, gateway, mask) = (word(1)?, word(2)?, word(7)?);
    // What is behind a router is a network that others are connected to.
    if gateway != 0 || mask == 0 {
        return None;
    }
    let address = IpAddr::V4(Ipv4Addr::from(destination.to_ne_bytes()));
    let bits = MAPPED + u32::from_be_bytes(mask.to_ne_bytes()).leading_ones();
    Some(Network {
        address: Gid::from(address),
        bits: bits as u8,
    })
}

/// A line of `/proc/net/if_inet6`: address, number of the interface, length of the prefix, scope, flags, name;
/// numbers in hexadecimal. Scope 0 is what counts everywhere.
fn inet6(line: &str) -> Option<Network> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let address = u128::from_str_radix(fields.first()?, 16).ok()?;
    let bits = u8::from_str_radix(fields.get(2)?, 16).ok()?;
    let scope = u8::from_str_radix(fields.get(3)?, 16).ok()?;
    (scope == 0 && bits <= 128).then(|| Network {
        address: Gid::from(IpAddr::V6(Ipv6Addr::from(address))),
        bits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        text.parse::<IpAddr>().expect("an address").into()
    }

    #[test]
    fn networks_are_read_and_hold_their_addresses() {
        let destination = u32::from_ne_bytes([10, 1, 0, 0]);
        let mask = u32::from_ne_bytes([255, 255, 0, 0]);
        let text = format!("eth0\t{destination:08X}\t00000000\t0001\t0\t0\t0\t{mask:08X}\t0\t0\t0");
        let network = route(&text).expect("a network");
        assert!(network.contains(gid("10.1.255.3")) && !network.contains(gid("10.2.0.1")));
        assert!(!network.contains(gid("fd00::1")));
        // By a router, by default, and the heading.
        let behind = text.replace("\t00000000\t0001", "\t0100000A\t0003");
        let rest = format!("lo\t{destination:08X}\t00000000\t0001\t0\t0\t0\t00000000\t0");
        for line in [&behind, &rest, "Iface\tDestination\tGateway", ""] {
            assert_eq!(route(line), None, "{line}");
        }
        let text = "20010db8000000000000000000000007 02 40 00 80     eth0";
        let network = inet6(text).expect("a network");
        assert!(network.contains(gid("2001:db8::9")) && !network.contains(gid("2001:db8:0:1::9")));
        let link_local = "fe800000000000005054fffffe123456 02 40 20 80     eth0";
        assert_eq!(inet6(link_local), None);
    }

    #[test]
    fn this_machine_is_read() {
        assert!(connected(Path::new("/nowhere")).is_empty());
        // Whatever there is; nothing is in a network of nobody's (RFC 5737).
        let all = connected(Path::new("/proc/net"));
        assert!(
            !all.iter().any(|n| n.contains(gid("203.0.113.1"))),
            "{all:?}"
        );
    }
}

//! The address of this machine at which software HCAs of other machines reach it.
//!
//! Tried in this order:
//!
//! 1. the source address of the route to another host of the job,
//! 2. an address of this machine's name, as the job's hosts are told,
//! 3. the address that the remote shell reached (`SSH_CONNECTION`),
//! 4. the source address of the default route,
//! 5. the first address of any interface.
//!
//! The first that other machines can use is taken; a machine that has only loopback addresses is
//! alone, and takes one of those.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use crate::ip_network::IpNetwork;
use crate::sys;

/// Any port: nothing is sent to it.
const PORT: u16 = 9;

/// Addresses for documentation, which no machine has (RFC 5737, RFC 3849): the way to them is the
/// default route.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Headers and trailers of the longest RoCEv2 packet beside its payload: IPv6, UDP, BTH, the longest
/// extension headers, ICRC; rounded up.
const HEADERS: u32 = 100;

/// The first address in a network that other machines can use, or else the first: a wide network has
/// loopback in it.
fn best_in(network: IpNetwork, all: &[(String, IpAddr)]) -> Option<IpAddr> {
    let inside = || all.iter().map(|a| a.1).filter(|ip| network.contains(*ip));
    inside().find(usable).or_else(|| inside().next())
}

fn not_in(network: IpNetwork, on: &str, all: &[(String, IpAddr)]) -> String {
    let all = all.iter().filter(|(_, ip)| !ip.is_loopback());
    let all: Vec<String> = all.map(|(name, ip)| format!("{ip} on {name}")).collect();
    let has = match all.is_empty() {
        true => "it has none but loopback".into(),
        false => format!("it has {}", all.join(", ")),
    };
    format!("{on} has no address in SHMEM_SOFT_ADDRESS={network}; {has}")
}

/// What is known of the hosts of the job. Empty names mean nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hints<'a> {
    /// Names or addresses of other hosts, the best first.
    pub others: &'a [&'a str],
    /// How others call this one.
    pub own_name: &'a str,
}

/// The address of this machine.
pub fn find(hints: &Hints<'_>) -> IpAddr {
    let others = hints.others.iter().filter(|name| !name.is_empty());
    let by_route = || {
        let all = others.flat_map(|name| resolve(name));
        all.filter_map(route_source).find(usable)
    };
    let by_name = || match hints.own_name {
        "" => None,
        name => resolve(name).find(|ip| usable(ip) && is_here(*ip)),
    };
    let by_shell = || {
        // Client's address and port, server's address and port.
        let connection = std::env::var("SSH_CONNECTION").ok()?;
        let server = connection.split_whitespace().nth(2)?;
        server.parse().ok().filter(|ip| usable(ip) && is_here(*ip))
    };
    let by_default = || {
        ELSEWHERE
            .into_iter()
            .find_map(|ip| route_source(ip).filter(usable))
    };
    let any = || {
        let all = sys::interface_addresses().ok()?;
        all.into_iter().map(|(_, ip)| ip).find(usable)
    };
    by_route()
        .or_else(by_name)
        .or_else(by_shell)
        .or_else(by_default)
        .or_else(any)
        .unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// The address of this machine in a network.
///
/// # Errors
/// It has none. The text calls this machine what `on` says, such as "host a".
pub fn within(network: IpNetwork, on: &str) -> Result<IpAddr, String> {
    let all = sys::interface_addresses()
        .map_err(|e| format!("cannot list the addresses of {on}: {e}"))?;
    best_in(network, &all).ok_or_else(|| not_in(network, on, &all))
}

/// Whether other machines can use it, as far as the address itself tells.
fn usable(ip: &IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_loopback() && !ip.is_unspecified() && !link_local
}

/// Addresses of a host by its name; none if only the remote shell knows that name.
fn resolve(name: &str) -> impl Iterator<Item = IpAddr> {
    let name = name.rsplit('@').next().unwrap_or(name);
    let found = (name, PORT).to_socket_addrs();
    found.into_iter().flatten().map(|a| a.ip().to_canonical())
}

/// The address from which this machine sends to `ip`, if there is a way. Nothing is sent.
pub fn route_source(ip: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(SocketAddr::new(ip, PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Whether this machine has the address.
fn is_here(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// The largest path MTU in bytes whose packets fit the interface that has this address; `None` if it is not
/// known. On the way to this machine itself, packets may be longer than those of any device.
pub fn path_mtu(ip: IpAddr) -> Option<u32> {
    let all = sys::interface_addresses().ok()?;
    // Of its addresses the loopback interface has but the first.
    let is_it = |a: IpAddr| a == ip || (ip.is_loopback() && a.is_loopback());
    let (name, _) = all.iter().find(|(_, a)| is_it(*a))?;
    let room = sys::interface_mtu(name).ok()?;
    Some(match ip.is_loopback() && room >= OWN_MTU + HEADERS {
        true => OWN_MTU,
        false => path_mtu_in(room),
    })
}

/// Payload of a packet that fills a datagram of 64 KiB, by whole pages.
const OWN_MTU: u32 = 61_440;

fn path_mtu_in(interface_mtu: u32) -> u32 {
    let room = interface_mtu.saturating_sub(HEADERS);
    let sizes = [4096, 2048, 1024, 512].into_iter();
    sizes.filter(|&mtu| mtu <= room).max().unwrap_or(256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_fit_their_interface() {
        let fits = [1500, 9000, 4200, 4100, 2200, 1280, 576].map(path_mtu_in);
        assert_eq!(fits, [1024, 4096, 4096, 2048, 2048, 1024, 256]);
        let own = [[127, 0, 0, 1], [127, 5, 6, 7]].map(|ip| path_mtu(Ipv4Addr::from(ip).into()));
        assert!(own[0] == own[1] && own[0] >= Some(1024), "{own:?}");
    }

    #[test]
    fn a_wide_network_does_not_mean_loopback() {
        let all = ["127.0.0.1", "::1", "169.254.1.1", "10.5.0.7", "fe80::1"];
        let all = all.map(|ip| ("eth0".to_owned(), ip.parse().unwrap()));
        let best = |network: &str| best_in(network.parse().unwrap(), &all);
        let ip = |text: &str| Some(text.parse().unwrap());
        assert_eq!(best("0.0.0.0/0"), ip("10.5.0.7"));
        assert_eq!(best("127.0.0.0/8"), ip("127.0.0.1"));
        assert_eq!(best("::/0"), ip("::1"));
        assert_eq!(best("10.6.0.0/16"), None);
    }

    #[test]
    fn somebody_is_always_found() {
        let found = find(&Hints::default());
        assert!(is_here(found), "{found}");
        let hints = Hints {
            others: &["", "no such host", "127.0.0.1"],
            own_name: "no such host either",
        };
        assert_eq!(find(&hints), found);
        assert!(within("127.0.0.0/8".parse().unwrap(), "this machine").is_ok());
        let error = within("198.51.100.0/24".parse().unwrap(), "host a").unwrap_err();
        assert!(error.starts_with("host a has no address in"), "{error}");
    }

    #[test]
    fn loopback_is_for_loopback() {
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert_eq!(route_source(local), Some(local));
        assert!(is_here(local) && !usable(&local));
        assert!(!usable(&"fe80::1".parse().unwrap()));
        assert!(!is_here(ELSEWHERE[0]));
        assert_eq!(resolve("user@127.0.0.1").next(), Some(local));
        assert_eq!(resolve("no such host").next(), None);
    }
}

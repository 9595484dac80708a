//! Ports of the loopback interface that nobody uses.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports among which [`free`] chooses, if the kernel gives others to sockets that ask for none. Tests that have
/// an address of their own take ports above.
const USUAL: (u16, u16) = (10_000, 20_000);

/// How many ports one process has before it comes to those of the next one.
const EACH: u32 = 8;

/// A UDP port that was free just now on all of 127.0.0.0/8. The kernel gives it to nobody by itself, and other
/// tests, of this process and of others, get other ones for a long while.
///
/// # Panics
/// If all are in use.
pub fn free_udp() -> u16 {
    // Bound to all addresses: that fails where one of them has the port.
    free(|port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok())
}

/// A TCP port that was free just now on 127.0.0.1 and, if there is one, on ::1. Otherwise as [`free_udp`].
///
/// # Panics
/// If all are in use.
pub fn free_tcp() -> u16 {
    free(|port| {
        let old = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let new = TcpListener::bind((Ipv6Addr::LOCALHOST, port));
        let absent = |e: std::io::Error| e.kind() == ErrorKind::AddrNotAvailable;
        old.is_ok() && new.map_or_else(absent, |_| true)
    })
}

fn free(is_free: impl Fn(u16) -> bool) -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let (first, count) = choice(&range.unwrap_or_default());
    let tries = (0..u32::from(count)).map(|_| NEXT.fetch_add(1, Ordering::Relaxed));
    let number = |n: u32| std::process::id().wrapping_mul(EACH).wrapping_add(n);
    let mut ports = tries.map(|n| first + (number(n) % u32::from(count)) as u16);
    ports.find(|&port| is_free(port)).expect("a free port")
}

/// First and number of the ports to choose from, where the kernel itself gives out those of `range`.
fn choice(range: &str) -> (u16, u16) {
    let mut ends = range.split_whitespace().map_while(|end| end.parse().ok());
    let (first, end) = USUAL;
    let below = ends.next().unwrap_or(end).min(end);
    match below > first + 1000 {
        true => (first, below - first),
        // Then it gives out nearly all.
        false => (first, end - first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_each_is_given_once() {
        let ports: Vec<_> = (0..20).map(|_| free_udp()).collect();
        let mut sockets = Vec::new();
        for &port in &ports {
            // Others could take one meanwhile, but hardly all.
            sockets.extend(UdpSocket::bind(("127.9.8.7", port)));
        }
        assert!(sockets.len() > 10, "{ports:?}");
        let mut different = ports.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), ports.len());
        // One that any address of the loopback interface has is not free.
        let taken = sockets[0].local_addr().unwrap().port();
        let asked = std::cell::Cell::new(false);
        free(|port| {
            let first = !asked.replace(true);
            let port = if first { taken } else { port };
            let is_free = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
            assert!(!(first && is_free), "{port}");
            is_free
        });
    }

    #[test]
    fn ports_are_none_that_the_kernel_gives_out() {
        assert_eq!(choice("32768\t60999\n"), (10_000, 10_000));
        assert_eq!(choice("15000 65535"), (10_000, 5000));
        assert_eq!(choice("1024 65535"), (10_000, 10_000));
        assert_eq!(choice(""), (10_000, 10_000));
        assert!((USUAL.0..USUAL.1).contains(&free_tcp()));
    }
}

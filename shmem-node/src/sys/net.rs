//! System calls about this machine's network interfaces.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

/// Turns a C return value of -1 into the error in `errno`.
fn cerr(ret: libc::c_int) -> io::Result<libc::c_int> {
    match ret {
        -1 => Err(io::Error::last_os_error()),
        ret => Ok(ret),
    }
}

/// The addresses of the interfaces that are up, with the interfaces' names.
///
/// # Errors
/// The kernel refuses the list.
pub fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is writable.
    cerr(unsafe { libc::getifaddrs(&mut first) })?;
    let mut found = Vec::new();
    let mut at: *const libc::ifaddrs = first;
    // SAFETY: the list is linked by `ifa_next` to its end, NULL, and lives until it is freed below.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        let up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        if entry.ifa_addr.is_null() || !up {
            continue;
        }
        // SAFETY: not NULL, and every socket address begins with its family; the family tells which
        // structure lies there. Interface names are NUL-terminated.
        let (name, ip): (_, IpAddr) = unsafe {
            let name = CStr::from_ptr(entry.ifa_name);
            let ip = match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let v4 = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into()
                }
                libc::AF_INET6 => {
                    let v6 = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    Ipv6Addr::from(v6.sin6_addr.s6_addr).into()
                }
                _ => continue,
            };
            (name, ip)
        };
        found.push((name.to_string_lossy().into_owned(), ip));
    }
    // SAFETY: the list was made by getifaddrs and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Longest IP packet in bytes that this interface sends.
///
/// # Errors
/// There is no such interface.
pub fn interface_mtu(name: &str) -> io::Result<u32> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .or_else(|_| std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)))?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays NUL.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the kernel reads the name and writes the MTU, both within `request`.
    unsafe {
        cerr(libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFMTU as _,
            &mut request,
        ))?;
        Ok(request.ifr_ifru.ifru_mtu.max(0) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_an_interface_with_an_mtu() {
        let all = interface_addresses().unwrap();
        let (name, _) = all
            .iter()
            .find(|(_, ip)| *ip == IpAddr::from(Ipv4Addr::LOCALHOST))
            .expect("loopback is up");
        assert!(interface_mtu(name).unwrap() >= 1280);
        assert!(interface_mtu("no-such-interface").is_err());
    }
}

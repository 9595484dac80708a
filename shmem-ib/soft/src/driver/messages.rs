//! Datagrams with control data, which carry the length of the packets that the kernel is to make of them, or
//! has made them of: system calls and an option that rustix does not have. All unsafe code for the socket is
//! here.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{Ordering, fence};

use crate::engine::{Lent, Place};
use shmem_verbs::{AddressVector, Gid};

/// Trains sent per system call.
pub(super) const TX_TRAINS: usize = 32;

const UDP_SEGMENT: i32 = 103;
const UDP_GRO: i32 = 104;
const UDP_NO_CHECK6_RX: i32 = 102;
const CMSG_LEN: usize = 64;

fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    let value = ptr::from_ref(&value).cast();
    // SAFETY: `value` points to an i32.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, len) }).map(drop)
}

fn udp_option(fd: BorrowedFd<'_>, name: i32) -> io::Result<()> {
    option(fd, libc::SOL_UDP, name, 1)
}

/// From now on datagrams over IPv6 go in packets of at most so many bytes; 0: as the interface has it.
pub(super) fn cut_to(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU, bytes)
}

/// From now on several packets may come as one datagram.
pub(super) fn join_packets(fd: BorrowedFd<'_>) -> io::Result<()> {
    udp_option(fd, UDP_GRO)
}

/// From now on datagrams over IPv6 may come without a checksum.
pub(super) fn take_unchecked(fd: BorrowedFd<'_>) -> io::Result<()> {
    udp_option(fd, UDP_NO_CHECK6_RX)
}

/// A socket address of either family.
#[derive(Clone, Copy)]
#[repr(C)]
union SockAddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl SockAddr {
    fn zero() -> Self {
        // SAFETY: all-zero bytes are a valid value of these plain C structs.
        unsafe { zeroed() }
    }

    fn new(to: SocketAddr) -> (Self, libc::socklen_t) {
        let mut sa = Self::zero();
        let port = to.port();
        match to.ip() {
            IpAddr::V4(v4) => {
                sa.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: port.to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.octets()),
                    },
                    sin_zero: [0; 8],
                };
                (sa, size_of::<libc::sockaddr_in>() as u32)
            }
            IpAddr::V6(v6) => {
                sa.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: port.to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.octets(),
                    },
                    sin6_scope_id: 0,
                };
                (sa, size_of::<libc::sockaddr_in6>() as u32)
            }
        }
    }

    fn av(&self) -> AddressVector {
        // SAFETY: the family is at the same place in both variants, and every bit pattern is
        // valid for both.
        unsafe {
            if i32::from(self.v4.sin_family) == libc::AF_INET {
                let ip = Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                AddressVector {
                    gid: Gid::from(ip),
                    udp_port: u16::from_be(self.v4.sin_port),
                }
            } else {
                let ip = Ipv6Addr::from(self.v6.sin6_addr.s6_addr);
                AddressVector {
                    gid: Gid::from(IpAddr::V6(ip)),
                    udp_port: u16::from_be(self.v6.sin6_port),
                }
            }
        }
    }
}

/// Packets that lie one after the other in the send buffer and go to one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub(crate) dst: AddressVector,
    /// Where they begin.
    pub(crate) start: usize,
    /// Bytes of all together.
    pub(crate) len: usize,
    /// Bytes of each, except that the last may be shorter.
    pub(crate) packet_len: usize,
    pub(crate) packets: usize,
    /// For a single packet: the payload that is to be taken from elsewhere, and the gap for it.
    pub(crate) lent: Option<Lent>,
}

/// A received datagram, at the start of the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) src: AddressVector,
    pub(crate) len: usize,
    /// Bytes of each packet, except that the last may be shorter.
    pub(crate) packet_len: usize,
}

/// What comes before anything is sent.
pub(super) fn before_sending() {
    // ORDERING(wire): what was done in memory for a peer is seen by every PE of this node before an
    // acknowledgement of it can be. Pairs with `after_receiving`. The kernel's own locks order as much, which
    // nobody promises.
    fence(Ordering::Release);
}

/// What comes after anything has been received.
pub(super) fn after_receiving() {
    // ORDERING(wire): pairs with `before_sending`.
    fence(Ordering::Acquire);
}

/// Sends trains that lie in `buffer`, each to its address; returns how many the kernel took.
///
/// # Errors
/// The first train was refused.
///
/// # Safety
/// What trains are lent is mapped.
pub(super) unsafe fn send_trains(
    fd: BorrowedFd<'_>,
    buffer: &[u8],
    trains: &[Train],
    name_of: impl Fn(AddressVector) -> SocketAddr,
) -> io::Result<usize> {
    let trains = &trains[..trains.len().min(TX_TRAINS)];
    let mut names = [MaybeUninit::<SockAddr>::uninit(); TX_TRAINS];
    let mut iovs = [MaybeUninit::<[libc::iovec; 3]>::uninit(); TX_TRAINS];
    let mut cmsgs = [MaybeUninit::<Cmsg>::uninit(); TX_TRAINS];
    let mut headers = [MaybeUninit::<libc::mmsghdr>::uninit(); TX_TRAINS];
    for (i, train) in trains.iter().enumerate() {
        let (sa, sa_len) = SockAddr::new(name_of(train.dst));
        let bytes = &buffer[train.start..train.start + train.len];
        let name = names[i].write(sa);
        let (parts, count) = parts(bytes, train.lent);
        let iov = iovs[i].write(parts);
        // SAFETY: all-zero bytes are a valid mmsghdr.
        let header = headers[i].write(unsafe { zeroed() });
        let h = &mut header.msg_hdr;
        h.msg_name = ptr::from_mut(name).cast();
        h.msg_namelen = sa_len;
        h.msg_iov = iov.as_mut_ptr();
        h.msg_iovlen = count;
        if train.packets > 1 {
            let cmsg = cmsgs[i].write(Cmsg([0; CMSG_LEN]));
            h.msg_control = ptr::from_mut(cmsg).cast();
            // SAFETY: the control buffer is aligned and has room for one header and a u16;
            // the macros stay within `msg_controllen`.
            unsafe {
                h.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
                let first = libc::CMSG_FIRSTHDR(h);
                (*first).cmsg_level = libc::SOL_UDP;
                (*first).cmsg_type = UDP_SEGMENT;
                (*first).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
                let size = train.packet_len as u16;
                libc::CMSG_DATA(first).cast::<u16>().write_unaligned(size);
            }
        }
    }
    let first = headers[0].as_mut_ptr();
    let n = trains.len() as u32;
    // SAFETY: the first `n` headers are written, and what they point to (names, buffers,
    // control data) is alive and of the length given. The kernel only reads them, except
    // for `msg_len`.
    let sent = check(unsafe { libc::sendmmsg(fd.as_raw_fd(), first, n, libc::MSG_DONTWAIT) })?;
    Ok(sent as usize)
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// What a train is sent from: its place in the buffer, or that around what is lent, and this.
fn parts(bytes: &[u8], lent: Option<Lent>) -> ([libc::iovec; 3], usize) {
    let Some(lent) = lent else {
        return ([part(bytes), part(&[]), part(&[])], 1);
    };
    let (head, rest) = bytes.split_at(lent.at);
    let middle = libc::iovec {
        iov_base: ptr::with_exposed_provenance_mut(lent.addr as usize),
        iov_len: lent.len,
    };
    ([part(head), middle, part(&rest[lent.len..])], 3)
}

/// Looks at the front of the next datagram, and leaves it where it is. Its length is that of the whole.
///
/// # Errors
/// None has come, or an error of an earlier send is reported.
pub(super) fn peek(fd: BorrowedFd<'_>, front: &mut [u8]) -> io::Result<Received> {
    let mut iov = [libc::iovec {
        iov_base: front.as_mut_ptr().cast(),
        iov_len: front.len(),
    }];
    // SAFETY: `front` is exclusively borrowed.
    unsafe { receive_into(fd, &mut iov, libc::MSG_PEEK | libc::MSG_TRUNC) }
}

/// Receives a datagram around its payload, which goes where it belongs; `head` and `tail` get what comes before and
/// behind.
///
/// # Errors
/// None has come, or an error of an earlier send is reported.
///
/// # Safety
/// The place is mapped and writable, and no Rust reference to it is used meanwhile.
pub(super) unsafe fn receive_around(
    fd: BorrowedFd<'_>,
    head: &mut [u8],
    place: Place,
    tail: &mut [u8],
) -> io::Result<Received> {
    let mut iov = [
        libc::iovec {
            iov_base: head.as_mut_ptr().cast(),
            iov_len: place.head,
        },
        libc::iovec {
            iov_base: ptr::with_exposed_provenance_mut(place.addr as usize),
            iov_len: place.len,
        },
        libc::iovec {
            iov_base: tail.as_mut_ptr().cast(),
            iov_len: tail.len(),
        },
    ];
    assert!(place.head <= head.len(), "no room for the headers");
    // What was written before is visible before this, as with every write of a peer.
    fence(Ordering::Release);
    // SAFETY: `head` and `tail` are exclusively borrowed, the place by the caller's promise.
    unsafe { receive_into(fd, &mut iov, libc::MSG_TRUNC) }
}

/// Receives a datagram into `buffer`.
///
/// # Errors
/// None has come, or an error of an earlier send is reported.
pub(super) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut iov = [libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    }];
    // SAFETY: `buffer` is exclusively borrowed.
    unsafe { receive_into(fd, &mut iov, 0) }
}

/// # Safety
/// What `iov` names may be written to.
unsafe fn receive_into(
    fd: BorrowedFd<'_>,
    iov: &mut [libc::iovec],
    flags: i32,
) -> io::Result<Received> {
    let mut name = SockAddr::zero();
    let mut cmsg = MaybeUninit::<Cmsg>::uninit();
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = ptr::from_mut(&mut name).cast();
    header.msg_namelen = size_of::<SockAddr>() as u32;
    header.msg_iov = iov.as_mut_ptr();
    header.msg_iovlen = iov.len();
    header.msg_control = cmsg.as_mut_ptr().cast();
    header.msg_controllen = CMSG_LEN;
    // SAFETY: all that `header` points to is alive, exclusively borrowed, and of the length
    // given; what `iov` names, by the caller's promise.
    let got = unsafe {
        // As `libc::recvmsg`, which spends two atomic operations on thread cancellation.
        let header = &raw mut header;
        libc::syscall(
            libc::SYS_recvmsg,
            fd.as_raw_fd(),
            header,
            libc::MSG_DONTWAIT | flags,
        )
    };
    let Ok(len) = usize::try_from(got) else {
        return Err(io::Error::last_os_error());
    };
    after_receiving();
    Ok(Received {
        src: name.av(),
        len,
        packet_len: gro_size(&header).filter(|n| *n > 0).unwrap_or(len),
    })
}

/// Control data, aligned as its headers need it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Cmsg([u8; CMSG_LEN]);

/// The packet length that receive offload reports.
fn gro_size(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel wrote well-formed control messages and their total length; the macros
    // stay within it.
    unsafe {
        let mut cmsg = libc::CMSG_FIRSTHDR(header);
        while !cmsg.is_null() {
            if (*cmsg).cmsg_level == libc::SOL_UDP && (*cmsg).cmsg_type == UDP_GRO {
                let size = libc::CMSG_DATA(cmsg).cast::<i32>().read_unaligned();
                return usize::try_from(size).ok();
            }
            cmsg = libc::CMSG_NXTHDR(header, cmsg);
        }
    }
    None
}

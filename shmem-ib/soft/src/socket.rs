//! System calls of the driver: a UDP socket in batches, an event, a timer, sleeping.
//!
//! All unsafe code for system calls of this crate is here and in `xrc::map`.
//!
//! Both directions use the kernel's segmentation offload: a *train* of packets of equal length
//! to one peer (the last may be shorter) is one datagram of up to 64 KiB for the kernel, which
//! on the loopback never takes it apart. That is worth a factor of seven in bandwidth.

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

use shmem_verbs::provider::{Event, Timer};
use shmem_verbs::{AddressVector, Gid};

/// Room for any datagram, that is, for one train.
pub(super) const DATAGRAM_MAX: usize = 1 << 16;
/// Trains sent per system call.
pub(super) const TX_TRAINS: usize = 32;
/// Packets per train: the kernel takes 64, newer ones 128.
pub(super) const TRAIN_PACKETS: usize = 64;
/// Bytes per train: an IP packet is at most 65535 long.
pub(super) const TRAIN_BYTES: usize = 65_000;

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

/// Random bytes of the system.
pub(super) fn secret() -> io::Result<[u8; 16]> {
    let mut bytes = [0_u8; 16];
    // SAFETY: as many bytes are on the stack. So few are given at once, or none.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match got == bytes.len() as isize {
        true => Ok(bytes),
        false => Err(io::Error::last_os_error()),
    }
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

    fn new(ip: IpAddr, port: u16) -> (Self, libc::socklen_t) {
        let mut sa = Self::zero();
        match ip {
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
pub(super) struct Train {
    pub(super) dst: AddressVector,
    /// Where they begin.
    pub(super) start: usize,
    /// Bytes of all together.
    pub(super) len: usize,
    /// Bytes of each, except that the last may be shorter.
    pub(super) packet_len: usize,
    pub(super) packets: usize,
}

/// A received datagram, at the start of the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) src: AddressVector,
    pub(super) len: usize,
    /// Bytes of each packet, except that the last may be shorter.
    pub(super) packet_len: usize,
}

/// A bound, unconnected, non-blocking UDP socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    v4: bool,
    av: AddressVector,
    #[cfg(test)]
    pub(super) unwilling: super::unwilling::Unwilling,
}

impl Socket {
    /// A socket for `ip` and `port` that keeps so many bytes of received packets, or as many as the system
    /// allows.
    pub(super) fn bind(ip: IpAddr, port: u16, receive_buffer: u32) -> io::Result<Self> {
        let family = if ip.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        let ty = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::socket(family, ty, 0) })?;
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut socket = Self {
            fd,
            v4: ip.is_ipv4(),
            av: AddressVector::default(),
            #[cfg(test)]
            unwilling: super::unwilling::Unwilling::default(),
        };
        // Unconnected and with path MTU discovery, Linux sends IP identification 0 and the
        // don't-fragment bit, as the ICRC supposes.
        if socket.v4 {
            let probe = libc::IP_PMTUDISC_PROBE;
            socket.option(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe)?;
        } else {
            socket.option(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            let probe = libc::IPV6_PMTUDISC_PROBE;
            socket.option(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
            // RoCEv2 devices leave the UDP checksum 0: the ICRC covers more.
            socket.option(libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)?;
        }
        // The kernel cuts these to its limits (rmem_max, wmem_max), but for privileged processes.
        let wanted = i32::try_from(receive_buffer).unwrap_or(i32::MAX);
        let forced = socket.option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted);
        forced.or_else(|_| socket.option(libc::SOL_SOCKET, libc::SO_RCVBUF, wanted))?;
        socket.option(libc::SOL_SOCKET, libc::SO_SNDBUF, 4 << 20)?;
        // Without it (kernels before 5.0) every packet comes alone, which works as well.
        let _ = socket.option(libc::SOL_UDP, UDP_GRO, 1);
        let (sa, len) = SockAddr::new(ip, port);
        // SAFETY: `sa` is alive and at least `len` bytes long.
        check(unsafe { libc::bind(socket.raw(), ptr::from_ref(&sa).cast(), len) })?;
        let mut sa = SockAddr::zero();
        let mut len = size_of::<SockAddr>() as libc::socklen_t;
        // SAFETY: `sa` is alive, and `len` is its length.
        check(unsafe {
            libc::getsockname(socket.raw(), ptr::from_mut(&mut sa).cast(), &raw mut len)
        })?;
        socket.av = sa.av();
        Ok(socket)
    }

    fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) const fn av(&self) -> AddressVector {
        self.av
    }

    fn option(&self, level: i32, name: i32, value: i32) -> io::Result<()> {
        let len = size_of::<i32>() as libc::socklen_t;
        let value = ptr::from_ref(&value).cast();
        // SAFETY: `value` points to an i32 on the stack.
        check(unsafe { libc::setsockopt(self.raw(), level, name, value, len) }).map(drop)
    }

    /// Bytes of received packets that the kernel keeps, with what it adds to each.
    pub(super) fn receive_buffer(&self) -> u32 {
        let mut bytes = 0_i32;
        let mut len = size_of::<i32>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVBUF);
        let value = ptr::from_mut(&mut bytes).cast();
        // SAFETY: `value` points to an i32 on the stack, and `len` says so.
        let rc = unsafe { libc::getsockopt(self.raw(), level, name, value, &raw mut len) };
        // Not known is said as 0.
        if rc == 0 { bytes.max(0) as u32 } else { 0 }
    }

    /// The name of `dst` in the family of the socket.
    fn name(&self, dst: AddressVector) -> (SockAddr, libc::socklen_t) {
        let ip = match (self.v4, dst.gid.ip()) {
            (false, IpAddr::V4(v4)) => IpAddr::V6(v4.to_ipv6_mapped()),
            (_, ip) => ip,
        };
        SockAddr::new(ip, dst.udp_port)
    }

    /// Sends trains that lie in `buffer`; returns how many the kernel took.
    ///
    /// # Errors
    /// The first train was refused.
    pub(super) fn send(&self, buffer: &[u8], trains: &[Train]) -> io::Result<usize> {
        #[cfg(test)]
        let trains = self.unwilling.limit(trains)?;
        match trains {
            [] => Ok(0),
            // One packet to one peer, the usual case, is worth the leanest call.
            [train] if train.packets == 1 => self.send_packet(buffer, train).map(|()| 1),
            _ => self.send_trains(buffer, trains),
        }
    }

    fn send_packet(&self, buffer: &[u8], packet: &Train) -> io::Result<()> {
        let (name, name_len) = self.name(packet.dst);
        let bytes = &buffer[packet.start..packet.start + packet.len];
        let (at, len) = (bytes.as_ptr().cast(), bytes.len());
        let flags = libc::MSG_DONTWAIT;
        let (at, name): (*const u8, *const SockAddr) = (at, ptr::from_ref(&name));
        // SAFETY: `bytes` and `name` are alive and of the lengths given; the kernel reads them.
        let sent = unsafe {
            // As `libc::sendto`, which spends two atomic operations on thread cancellation.
            libc::syscall(libc::SYS_sendto, self.raw(), at, len, flags, name, name_len)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn send_trains(&self, buffer: &[u8], trains: &[Train]) -> io::Result<usize> {
        let trains = &trains[..trains.len().min(TX_TRAINS)];
        let mut names = [MaybeUninit::<SockAddr>::uninit(); TX_TRAINS];
        let mut iovs = [MaybeUninit::<libc::iovec>::uninit(); TX_TRAINS];
        let mut cmsgs = [MaybeUninit::<Cmsg>::uninit(); TX_TRAINS];
        let mut headers = [MaybeUninit::<libc::mmsghdr>::uninit(); TX_TRAINS];
        for (i, train) in trains.iter().enumerate() {
            let (sa, sa_len) = self.name(train.dst);
            let bytes = &buffer[train.start..train.start + train.len];
            let name = names[i].write(sa);
            let iov = iovs[i].write(libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            });
            // SAFETY: all-zero bytes are a valid mmsghdr.
            let header = headers[i].write(unsafe { zeroed() });
            let h = &mut header.msg_hdr;
            h.msg_name = ptr::from_mut(name).cast();
            h.msg_namelen = sa_len;
            h.msg_iov = iov;
            h.msg_iovlen = 1;
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
        let sent = check(unsafe { libc::sendmmsg(self.raw(), first, n, libc::MSG_DONTWAIT) })?;
        Ok(sent as usize)
    }

    /// Receives a datagram into `buffer`, which has [`DATAGRAM_MAX`] bytes.
    ///
    /// One call for each: a datagram is a whole train where that matters, and a call for several
    /// at once costs more while the peer waits for the answer to the first.
    ///
    /// # Errors
    /// None has come, or an error of an earlier send is reported.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut name = SockAddr::zero();
        let mut cmsg = MaybeUninit::<Cmsg>::uninit();
        let mut iov = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: all-zero bytes are a valid msghdr.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_name = ptr::from_mut(&mut name).cast();
        header.msg_namelen = size_of::<SockAddr>() as u32;
        header.msg_iov = &raw mut iov;
        header.msg_iovlen = 1;
        header.msg_control = cmsg.as_mut_ptr().cast();
        header.msg_controllen = CMSG_LEN;
        // SAFETY: all that `header` points to is alive, exclusively borrowed, and of the length
        // given.
        let got = unsafe {
            // As `libc::recvmsg`; see `send_packet`.
            let header = &raw mut header;
            libc::syscall(libc::SYS_recvmsg, self.raw(), header, libc::MSG_DONTWAIT)
        };
        let Ok(len) = usize::try_from(got) else {
            return Err(io::Error::last_os_error());
        };
        Ok(Received {
            src: name.av(),
            len,
            packet_len: gro_size(&header).filter(|n| *n > 0).unwrap_or(len),
        })
    }
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

/// A buffer of pages that exist only once they are touched.
///
/// Memory of the allocator would do at first, but after a program has freed large blocks the
/// allocator reuses them, which means zeroing half a megabyte for a few small packets.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its memory as a Box<[u8]> would.
unsafe impl Send for Pages {}
// SAFETY: shared references only read.
unsafe impl Sync for Pages {}

impl Pages {
    /// No memory at all.
    pub(super) const fn none() -> Self {
        Self {
            start: NonNull::dangling(),
            len: 0,
        }
    }

    /// `len` zeros, not 0.
    pub(super) fn new(len: usize) -> Self {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping anywhere; nothing else is touched.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
        let layout = Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>());
        if start == libc::MAP_FAILED {
            handle_alloc_error(layout);
        }
        match NonNull::new(start.cast()) {
            Some(start) => Self { start, len },
            None => handle_alloc_error(layout),
        }
    }

    /// Gives the pages back; the buffer reads as zeros afterwards.
    pub(super) fn release(&mut self) {
        if self.len > 0 {
            // SAFETY: our own anonymous mapping of plain bytes, exclusively borrowed: zeros are
            // as good a content as any.
            unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_DONTNEED) };
        }
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped, initialised by the kernel, and owned; or dangling with length 0.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: our own mapping, and no reference to it is left.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn timespec(d: Duration) -> libc::timespec {
    let tv_sec = d.as_secs().min(i32::MAX as u64) as libc::time_t;
    libc::timespec {
        tv_sec,
        tv_nsec: libc::c_long::from(d.subsec_nanos() as i32),
    }
}

/// Sleeps until one of these is ready or the time is over; returns which are ready. With `room` the
/// socket is so, too, when it has room to send.
pub(super) fn sleep(
    socket: Option<&Socket>,
    room: bool,
    event: Option<&Event>,
    timer: Option<&Timer>,
    max: Duration,
) -> (bool, bool, bool) {
    let entry = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // A negative descriptor is skipped by the kernel.
    let mut fds = [
        entry(socket.map_or(-1, Socket::raw)),
        entry(event.map_or(-1, |e| e.as_fd().as_raw_fd())),
        entry(timer.map_or(-1, |t| t.as_fd().as_raw_fd())),
    ];
    if room {
        fds[0].events |= libc::POLLOUT;
    }
    let time = timespec(max);
    let n = fds.len() as libc::nfds_t;
    // SAFETY: `fds` and `time` are alive; no signal mask is given.
    let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), n, &raw const time, ptr::null()) };
    if ready <= 0 {
        return (false, false, false); // Time is over, or a signal came: the caller looks.
    }
    (
        fds[0].revents != 0,
        fds[1].revents != 0,
        fds[2].revents != 0,
    )
}

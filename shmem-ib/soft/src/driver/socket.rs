//! A UDP socket in trains of packets, and sleeping on it.
//!
//! Both directions use the kernel's segmentation offload: a *train* of packets of equal length
//! to one peer (the last may be shorter) is one datagram of up to 64 KiB for the kernel, which
//! on the loopback never takes it apart. That is worth a factor of seven in bandwidth.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ip_tos,
    set_ipv6_mtu_discover, set_ipv6_tclass, set_ipv6_v6only, set_socket_recv_buffer_size,
    set_socket_recv_buffer_size_force, set_socket_send_buffer_size, socket_recv_buffer_size,
};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, getsockname, sendto, socket_with,
};
use rustix::rand::{GetRandomFlags, getrandom};
use smallvec::SmallVec;

use super::config::SoftConfig;
use super::messages::{self, Received, Train};
use crate::engine::Place;
use crate::wire::{HEAD_MAX, ICRC_LEN};
use shmem_verbs::provider::{Event, Timer};
use shmem_verbs::{AddressVector, Gid};

/// Room for any datagram, that is, for one train.
pub(super) const DATAGRAM_MAX: usize = 1 << 16;
/// Packets per train: the kernel takes 64, newer ones 128.
pub(super) const TRAIN_PACKETS: usize = 64;
/// Bytes per train: an IP packet is at most 65535 long.
pub(super) const TRAIN_BYTES: usize = 65_000;
/// Bytes of packets that the kernel keeps until the link has sent them.
const SEND_BUFFER: usize = 4 << 20;

/// Random bytes of the system.
pub(super) fn secret() -> io::Result<[u8; 16]> {
    let mut bytes = [0_u8; 16];
    // So few are given at once, or none.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}

/// What comes around the payload of a packet.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) head: [u8; HEAD_MAX],
    pub(super) tail: [u8; TAIL_MAX],
}

impl Frame {
    pub(super) const EMPTY: Self = Self {
        head: [0; HEAD_MAX],
        tail: [0; TAIL_MAX],
    };
}

/// Padding and ICRC.
const TAIL_MAX: usize = 3 + ICRC_LEN;

/// A datagram received around its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    pub(super) src: AddressVector,
    pub(super) place: Place,
    /// Bytes behind the payload.
    pub(super) tail: usize,
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

/// A port that is free, from the first to the last, beginning somewhere among them: many processes look for one at once.
/// `take` takes a port, or finds it in use.
pub(super) fn free_among<T>(
    (first, last): (u16, u16),
    seed: u64,
    mut take: impl FnMut(u16) -> io::Result<T>,
) -> io::Result<T> {
    let count = u64::from(last.saturating_sub(first)) + 1;
    let mut taken = io::ErrorKind::AddrInUse.into();
    for n in 0..count {
        let port = first + ((seed % count + n) % count) as u16;
        match take(port) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => taken = e,
            took => return took,
        }
    }
    Err(taken)
}

/// An unbound socket for addresses of this family alone, whose packets are marked so.
pub(super) fn unbound(ip: IpAddr, kind: SocketType, traffic_class: u8) -> io::Result<OwnedFd> {
    let family = match ip {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, kind, flags, None)?;
    if ip.is_ipv6() {
        set_ipv6_v6only(&fd, true)?;
    }
    mark(&fd, ip, traffic_class)?;
    Ok(fd)
}

/// Has the packets of a socket of this family marked.
pub(super) fn mark(fd: &OwnedFd, ip: IpAddr, traffic_class: u8) -> io::Result<()> {
    match traffic_class {
        0 => {}
        class if ip.is_ipv4() => set_ip_tos(fd, class)?,
        class => set_ipv6_tclass(fd, class.into())?,
    }
    Ok(())
}

/// Has packets sent with the don't-fragment bit, of any length that the interface takes.
fn probe_path(fd: &OwnedFd, v4: bool) -> io::Result<()> {
    match v4 {
        true => set_ip_mtu_discover(fd, Ipv4PathMtuDiscovery::PROBE)?,
        false => set_ipv6_mtu_discover(fd, Ipv6PathMtuDiscovery::PROBE)?,
    }
    Ok(())
}

impl Socket {
    /// A socket as `config` has it: with its address, and for as many bytes of received packets, or as many as
    /// the system allows.
    pub(super) fn bind(config: &SoftConfig) -> io::Result<Self> {
        let ip = config.bind;
        let v4 = ip.is_ipv4();
        // The ICRC leaves out the marks, which routers may change.
        let fd = unbound(ip, SocketType::DGRAM, config.lane.traffic_class)?;
        // Unconnected and with path MTU discovery, Linux sends IP identification 0 and the
        // don't-fragment bit, as the ICRC supposes.
        probe_path(&fd, v4)?;
        if !v4 {
            // RoCEv2 devices leave the UDP checksum 0: the ICRC covers more.
            messages::take_unchecked(fd.as_fd())?;
        }
        // The kernel cuts these to its limits (rmem_max, wmem_max), but for privileged processes.
        let wanted = config.receive_buffer.min(i32::MAX as u32) as usize;
        set_socket_recv_buffer_size_force(&fd, wanted)
            .or_else(|_| set_socket_recv_buffer_size(&fd, wanted))?;
        set_socket_send_buffer_size(&fd, SEND_BUFFER)?;
        // Without it (kernels before 5.0) every packet comes alone, which works as well.
        let _ = messages::join_packets(fd.as_fd());
        let at = |port| SocketAddr::new(ip, port);
        free_among(config.ports, config.seed, |port| Ok(bind(&fd, &at(port))?))?;
        let bound = SocketAddr::try_from(getsockname(&fd)?)?;
        Ok(Self {
            fd,
            v4,
            av: AddressVector {
                gid: Gid::from(bound.ip()),
                udp_port: bound.port(),
            },
            #[cfg(test)]
            unwilling: super::unwilling::Unwilling::default(),
        })
    }

    /// Has this machine and routers cut packets that are longer than a link on the path takes, instead of dropping them. Numbers of the cut
    /// packets, of which the ICRC knows nothing, are no matter between software HCAs.
    ///
    /// What drops long packets without being a router, such as a switch, drops them still.
    pub(super) fn let_cut(&self) -> io::Result<()> {
        if self.v4 {
            return Ok(set_ip_mtu_discover(&self.fd, Ipv4PathMtuDiscovery::DONT)?);
        }
        set_ipv6_mtu_discover(&self.fd, Ipv6PathMtuDiscovery::DONT)?;
        // Routers of IPv6 cut nothing, and may not say what they drop: so the length that every way takes.
        messages::cut_to(self.fd.as_fd(), 1280)
    }

    /// Takes [`Self::let_cut`] back.
    pub(super) fn keep_whole(&self) -> io::Result<()> {
        probe_path(&self.fd, self.v4)?;
        match self.v4 {
            true => Ok(()),
            false => messages::cut_to(self.fd.as_fd(), 0),
        }
    }

    pub(super) const fn av(&self) -> AddressVector {
        self.av
    }

    /// Bytes of received packets that the kernel keeps, with what it adds to each; 0: nobody knows.
    pub(super) fn receive_buffer(&self) -> u32 {
        let bytes = socket_recv_buffer_size(&self.fd).unwrap_or(0);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// The name of `dst` in the family of the socket.
    fn name(&self, dst: AddressVector) -> SocketAddr {
        let ip = match (self.v4, dst.gid.ip()) {
            (false, IpAddr::V4(v4)) => IpAddr::V6(v4.to_ipv6_mapped()),
            (_, ip) => ip,
        };
        SocketAddr::new(ip, dst.udp_port)
    }

    /// Sends trains that lie in `buffer`; returns how many the kernel took.
    ///
    /// # Errors
    /// The first train was refused.
    ///
    /// # Safety
    /// What trains are lent is mapped.
    pub(super) unsafe fn send(&self, buffer: &[u8], trains: &[Train]) -> io::Result<usize> {
        #[cfg(test)]
        let trains = self.unwilling.limit(trains)?;
        messages::before_sending();
        match trains {
            [] => Ok(0),
            // One packet to one peer, the usual case, is worth the leanest call.
            [train] if train.packets == 1 && train.lent.is_none() => {
                let bytes = &buffer[train.start..train.start + train.len];
                let name = self.name(train.dst);
                sendto(&self.fd, bytes, SendFlags::DONTWAIT, &name)?;
                Ok(1)
            }
            _ => {
                let name_of = |dst| self.name(dst);
                // SAFETY: by the caller's promise.
                unsafe { messages::send_trains(self.fd.as_fd(), buffer, trains, name_of) }
            }
        }
    }

    /// The next datagram, received around its payload if the engine knows a place for that; `None` if it has to be
    /// received whole.
    ///
    /// # Errors
    /// As [`Self::receive`].
    ///
    /// # Safety
    /// Places that `place` names are mapped and writable.
    pub(super) unsafe fn receive_around(
        &self,
        frame: &mut Frame,
        place: impl FnOnce(AddressVector, &[u8], usize) -> Option<Place>,
    ) -> io::Result<Option<Around>> {
        let Frame { head, tail } = frame;
        let next = messages::peek(self.fd.as_fd(), head)?;
        let front = &head[..next.len.min(HEAD_MAX)];
        let Some(place) = place(next.src, front, next.len) else {
            return Ok(None);
        };
        // SAFETY: by the caller's promise.
        let got = unsafe { messages::receive_around(self.fd.as_fd(), head, place, tail)? };
        // Nobody else receives here; without an ICRC the packet would be dropped.
        let same = (got.len, got.src) == (next.len, next.src);
        let tail = match same {
            true => got.len.saturating_sub(place.head + place.len),
            false => 0,
        };
        Ok(Some(Around {
            src: got.src,
            place,
            tail: tail.min(TAIL_MAX),
        }))
    }

    /// Receives a datagram into `buffer`, which has [`DATAGRAM_MAX`] bytes.
    ///
    /// One call for each: a datagram is a whole train where that matters, and a call for several
    /// at once costs more while the peer waits for the answer to the first.
    ///
    /// # Errors
    /// None has come, or an error of an earlier send is reported.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        messages::receive(self.fd.as_fd(), buffer)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sleeps until one of these is ready or the time is over; returns which are ready. With `room` the
/// socket is so, too, when it has room to send. Streams come last.
pub(super) fn sleep(
    socket: Option<&Socket>,
    room: bool,
    streams: Option<BorrowedFd<'_>>,
    event: Option<&Event>,
    timer: Option<&Timer>,
    max: Duration,
) -> [bool; 4] {
    let wire = match room {
        true => PollFlags::IN | PollFlags::OUT,
        false => PollFlags::IN,
    };
    let entry = |fd, flags| PollFd::from_borrowed_fd(fd, flags);
    let watched = [
        socket.map(|s| entry(s.as_fd(), wire)),
        event.map(|e| entry(e.as_fd(), PollFlags::IN)),
        timer.map(|t| entry(t.as_fd(), PollFlags::IN)),
        streams.map(|s| entry(s, PollFlags::IN)),
    ];
    let mut fds: SmallVec<[PollFd<'_>; 4]> = watched.iter().flatten().cloned().collect();
    let time = Timespec {
        tv_sec: max.as_secs().min(i32::MAX as u64) as i64,
        tv_nsec: max.subsec_nanos().into(),
    };
    // Nothing: time is over, or a signal came, and the caller looks.
    let any = poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0);
    let mut found = fds.iter().map(|fd| any && !fd.revents().is_empty());
    watched.map(|w| w.is_some() && found.next().unwrap_or(false))
}

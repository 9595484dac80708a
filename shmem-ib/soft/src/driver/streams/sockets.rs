//! TCP sockets as streams need them, and the epoll instance that watches them.

#![forbid(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ip_tos, set_ipv6_tclass, set_ipv6_v6only, set_socket_keepalive, set_tcp_nodelay,
    socket_error,
};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, connect as start_connecting,
    getsockname, listen as start_listening, socket_with,
};

use crate::driver::config::SoftConfig;
use crate::driver::socket::bind_among;
use crate::stream::StreamId;

/// What the listener's events are marked with: no stream has such a number.
const LISTENER: u64 = u64::MAX;
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 64;
/// Events taken at a time.
const EVENTS: usize = 32;

/// What sockets of streams have from the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    ports: (u16, u16),
    traffic_class: u8,
    seed: u64,
}

impl From<&SoftConfig> for How {
    fn from(config: &SoftConfig) -> Self {
        Self {
            ports: config.ports,
            traffic_class: config.lane.traffic_class,
            seed: config.seed,
        }
    }
}

impl How {
    /// An unbound socket for addresses of this family.
    fn socket(&self, ip: IpAddr) -> io::Result<OwnedFd> {
        let family = match ip {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(family, SocketType::STREAM, flags, None)?;
        if ip.is_ipv6() {
            set_ipv6_v6only(&fd, true)?;
        }
        self.mark(&fd, ip)?;
        Ok(fd)
    }

    /// Heads and acknowledgements are not to wait for more. Buffers are the kernel's business, which makes them as long as
    /// the path needs.
    fn mark(&self, fd: &OwnedFd, ip: IpAddr) -> io::Result<()> {
        set_tcp_nodelay(fd, true)?;
        set_socket_keepalive(fd, true)?; // Of a peer that is gone without a word.
        match self.traffic_class {
            0 => {}
            class if ip.is_ipv4() => set_ip_tos(fd, class)?,
            class => set_ipv6_tclass(fd, class.into())?,
        }
        Ok(())
    }
}

/// Listens at one of the ports; says at which.
pub(super) fn listen(ip: IpAddr, how: &How) -> io::Result<(OwnedFd, u16)> {
    let fd = how.socket(ip)?;
    bind_among(&fd, ip, how.ports, how.seed)?;
    start_listening(&fd, BACKLOG)?;
    let port = SocketAddr::try_from(getsockname(&fd)?)?.port();
    Ok((fd, port))
}

/// Begins to connect, from this address: by that the peer knows who it is.
pub(super) fn connect(from: IpAddr, to: SocketAddr, how: &How) -> io::Result<OwnedFd> {
    let fd = how.socket(from)?;
    bind(&fd, &SocketAddr::new(from, 0))?;
    match start_connecting(&fd, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(e) => Err(e.into()),
    }
}

/// Whether a connection that was begun has succeeded.
pub(super) fn connected(fd: &OwnedFd) -> io::Result<()> {
    socket_error(fd)??;
    Ok(())
}

/// The next connection, and from whom it is.
pub(super) fn accept(listener: &OwnedFd, how: &How) -> io::Result<(OwnedFd, IpAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, from) = acceptfrom_with(listener, flags)?;
    let from = from.ok_or(Errno::INVAL)?;
    let ip = SocketAddr::try_from(from)?.ip();
    how.mark(&fd, ip)?;
    Ok((fd, ip))
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Happened {
    /// Somebody connects.
    Listener,
    /// A stream has something, or its end; it takes something.
    Stream {
        id: StreamId,
        reads: bool,
        writes: bool,
        /// Behind what it has there is the end.
        ends: bool,
    },
}

/// Watches sockets.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    fn add(&self, fd: &OwnedFd, data: u64, flags: epoll::EventFlags) -> io::Result<()> {
        let flags = flags | epoll::EventFlags::ET;
        epoll::add(&self.0, fd, epoll::EventData::new_u64(data), flags)?;
        Ok(())
    }

    pub(super) fn watch_listener(&self, fd: &OwnedFd) -> io::Result<()> {
        self.add(fd, LISTENER, epoll::EventFlags::IN)
    }

    pub(super) fn watch(&self, fd: &OwnedFd, id: StreamId) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP;
        self.add(fd, id.0.into(), flags)
    }

    /// Tells what has happened since it was asked the last time.
    pub(super) fn take(&self, mut tell: impl FnMut(Happened)) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        loop {
            let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
            let Ok((taken, _)) = epoll::wait(&self.0, &mut events, Some(&now)) else {
                return;
            };
            for event in taken.iter() {
                let (data, flags) = (event.data.u64(), event.flags);
                let broken = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
                let reads = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | broken;
                tell(match u32::try_from(data) {
                    Ok(id) => Happened::Stream {
                        id: StreamId(id),
                        reads: flags.intersects(reads),
                        writes: flags.intersects(epoll::EventFlags::OUT | broken),
                        ends: flags.intersects(epoll::EventFlags::RDHUP | broken),
                    },
                    Err(_) => Happened::Listener,
                });
            }
            if taken.len() < EVENTS {
                return;
            }
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

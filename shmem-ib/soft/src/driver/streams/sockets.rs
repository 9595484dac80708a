//! TCP sockets as streams need them, and the epoll instance that watches them.

#![forbid(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_reuseaddr, set_tcp_nodelay, socket_error,
};
use rustix::net::{
    Shutdown, SocketFlags, SocketType, acceptfrom_with, bind, connect as start_connecting,
    getsockname, listen as start_listening, shutdown,
};

use crate::driver::config::SoftConfig;
use crate::driver::socket::{free_among, mark, unbound};
use crate::engine::stream::STREAMS_MAX;
use crate::stream::StreamId;

/// What the listener's events are marked with: no stream has such a number.
const LISTENER: u64 = u64::MAX;
/// Connections that the kernel keeps until they are accepted: all who may be invited can come at once.
pub(super) const BACKLOG: i32 = STREAMS_MAX as i32;
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
    fn socket(&self, ip: IpAddr) -> io::Result<OwnedFd> {
        let fd = unbound(ip, SocketType::STREAM, self.traffic_class)?;
        tune(&fd)?;
        Ok(fd)
    }
}

/// Heads and acknowledgements are not to wait for more. Buffers are the kernel's business, which makes them as long as
/// the path needs.
fn tune(fd: &OwnedFd) -> io::Result<()> {
    set_tcp_nodelay(fd, true)?;
    set_socket_keepalive(fd, true)?; // Of a peer that is gone without a word.
    Ok(())
}

/// Listens at one of the ports; says at which.
///
/// Streams that were accepted keep their listener's port, and the kernel keeps it for a minute after them: others listen there all
/// the same. So two sockets can be bound to a port, of which only one gets to listen.
pub(super) fn listen(ip: IpAddr, how: &How) -> io::Result<(OwnedFd, u16)> {
    let fd = free_among(how.ports, how.seed, |port| {
        let fd = how.socket(ip)?;
        set_socket_reuseaddr(&fd, true)?;
        bind(&fd, &SocketAddr::new(ip, port))?;
        start_listening(&fd, BACKLOG)?;
        Ok(fd)
    })?;
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

/// The next connection, and from whom it is; an error of it alone is `Ok(None)`.
pub(super) fn accept(listener: &OwnedFd, how: &How) -> Result<Option<(OwnedFd, IpAddr)>, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, from) = match acceptfrom_with(listener, flags) {
        Ok(accepted) => accepted,
        Err(e @ (Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
            return Err(e);
        }
        Err(_) => return Ok(None),
    };
    let ready = || {
        let ip = SocketAddr::try_from(from?).ok()?.ip();
        tune(&fd).ok()?;
        mark(&fd, ip, how.traffic_class).ok()?;
        Some(ip)
    };
    Ok(ready().map(|ip| (fd, ip)))
}

/// Ends a connection, or listening, for whoever has a descriptor of it: children of a program that forks may have kept one.
pub(super) fn end(fd: &OwnedFd) {
    let _ = shutdown(fd, Shutdown::Both);
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

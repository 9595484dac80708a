//! Sets of descriptors to wait for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::naming;

/// One event of an epoll set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// What the descriptor was registered with.
    pub(crate) token: u64,
    flags: EventFlags,
}

impl Ready {
    fn has(self, flags: EventFlags) -> bool {
        self.flags.intersects(flags)
    }

    /// Data, an end or an error can be read.
    pub(crate) fn readable(self) -> bool {
        self.has(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
    }

    /// No writer is left.
    pub(crate) fn hangup(self) -> bool {
        self.has(EventFlags::HUP)
    }

    /// Bytes can be written, or the reader is gone.
    pub(crate) fn writable(self) -> bool {
        self.has(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR)
    }
}

/// Interest of an epoll registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Nothing,
    Read,
    Write,
    ReadWrite,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Nothing => EventFlags::empty(),
            Self::Read => EventFlags::IN,
            Self::Write => EventFlags::OUT,
            Self::ReadWrite => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC);
        Ok(Self(set.map_err(naming("epoll_create1"))?))
    }

    pub(crate) fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(token);
        epoll::add(&self.0, fd, data, interest.flags()).map_err(naming("epoll_ctl"))
    }

    pub(crate) fn change(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(token);
        Ok(epoll::modify(&self.0, fd, data, interest.flags())?)
    }

    pub(crate) fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits up to `timeout` (`None`: as long as it takes) and fills `ready`.
    pub(crate) fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        const MAX: usize = 256;
        const LONGEST: Duration = Duration::from_secs(1 << 20);
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [nothing; MAX];
        // In whole milliseconds, rounded up: waking early would only mean waiting again.
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.min(LONGEST).as_secs() as i64,
            tv_nsec: t.subsec_nanos().into(),
        });
        ready.clear();
        match epoll::wait(&self.0, &mut events[..], timeout.as_ref()) {
            Ok(n) => {
                ready.extend(events[..n].iter().map(|e| Ready {
                    token: e.data.u64(),
                    flags: e.flags,
                }));
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(e) => Err(naming("epoll_wait")(e)),
        }
    }
}

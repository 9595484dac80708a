//! The process group of a node's program and the guard that leads it.
//!
//! Template, PEs and what they start are in one process group. Its leader is a tiny process that
//! does nothing but read from a pipe whose other end only the agent holds: when the agent has gone,
//! even by SIGKILL, the read ends and the guard kills the group. The kernel delivers a signal for
//! a group either to a process before it forks or to both parent and child, so nobody slips through.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::NULL_FD;
use crate::sys;

/// Number of the pipe's read end in the guard.
const LIFE_FD: i32 = 3;

/// The agent's hold on the group.
#[derive(Debug)]
pub(super) struct Group {
    guard: i32,
    /// Until the guard is reaped; after that its number may belong to others.
    alive: bool,
    /// Never written; its end is the message.
    _life: OwnedFd,
}

impl Group {
    /// Starts the guard.
    ///
    /// # Safety
    /// This process has a single thread.
    pub(super) unsafe fn start() -> io::Result<Self> {
        let (read, write) = sys::pipe()?;
        let child = || {
            // PEs may signal their group; only SIGKILL shall reach the guard.
            sys::block_all();
            sys::set_name(c"shmrun-guard");
            let null = NULL_FD;
            let placed = [
                (null, 0, true),
                (null, 1, true),
                (null, 2, true),
                (read.as_raw_fd(), LIFE_FD, true),
            ];
            if sys::set_group(0, 0).is_err() || sys::arrange_fds(&placed, LIFE_FD + 1).is_err() {
                return 1;
            }
            // SAFETY: the pipe was just put there and nobody else owns it here.
            let life = unsafe { sys::own(LIFE_FD) };
            while rustix::io::read(&life, &mut [0]) == Err(Errno::INTR) {}
            sys::kill(-(std::process::id() as i32), libc::SIGKILL);
            0
        };
        // SAFETY: one thread, as promised by the caller.
        let guard = unsafe { sys::fork(child)? };
        // Both sides do this: whichever comes first, the group exists when we return.
        let _ = sys::set_group(guard, guard);
        Ok(Self {
            guard,
            alive: true,
            _life: write,
        })
    }

    /// Process id of the guard, which is the id of the group.
    pub(super) fn id(&self) -> i32 {
        self.guard
    }

    /// Sends a signal to the group.
    pub(super) fn signal(&self, signal: i32) {
        if self.alive {
            sys::kill(-self.guard, signal);
        }
    }

    /// Notes that the guard was reaped.
    pub(super) fn guard_reaped(&mut self) {
        self.alive = false;
    }
}

//! The process group of a node's program and the guard that leads it.
//!
//! Template, PEs and what they start are in one process group. Its leader is a tiny process that
//! does nothing but read from a pipe whose other end only the agent holds: when the agent has gone,
//! even by SIGKILL, the read ends and the guard kills the group. The kernel delivers a signal for
//! a group either to a process before it forks or to both parent and child, so nobody slips through.
//! Who has left the group is for those above the agent, or for `sweep`.
//!
//! Its name is not like those of the others: it outlives `pkill -9 shmrun`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::NULL_FD;
use super::cgroup::{self, Cgroup};
use super::sweep::sweep;
use crate::sys::{self, NotExecuted};

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
    /// Where the kernel keeps all of them together, and the way in.
    cgroup: Option<(Cgroup, OwnedFd)>,
}

impl Group {
    /// Starts the guard. `mark` is a variable with its value that all processes of the job have in their
    /// environment.
    ///
    /// # Safety
    /// This process has a single thread.
    pub(super) unsafe fn start(mark: &[u8], cgroup: Option<Cgroup>) -> io::Result<Self> {
        let (read, write) = sys::pipe()?;
        let cgroup = cgroup.and_then(|cgroup| {
            let door = cgroup.door().ok()?;
            Some((cgroup, door))
        });
        let child = || {
            // PEs may signal their group; only SIGKILL shall reach the guard.
            sys::block_all();
            sys::set_name(c"pe-guard");
            let null = NULL_FD;
            let placed = [
                (null, 0, true),
                (null, 1, true),
                (null, 2, true),
                (read.as_raw_fd(), LIFE_FD, true),
            ];
            if sys::set_group(0, 0).is_err() || sys::arrange_fds(&placed).is_err() {
                return 1;
            }
            // SAFETY: the pipe was just put there and nobody else owns it here.
            let life = unsafe { sys::own(LIFE_FD) };
            while rustix::io::read(&life, &mut [0]) == Err(Errno::INTR) {}
            let group = std::process::id() as i32;
            let sweeper = || {
                let _ = sys::new_session();
                sweep(group, cgroup.as_ref().map(|(cgroup, _)| cgroup), mark);
                0
            };
            // SAFETY: a forked process has one thread.
            if let Ok(sweeper) = unsafe { sys::fork(sweeper) } {
                // It kills this process first.
                let _ = sys::wait_for(sweeper);
            }
            sys::kill(-group, libc::SIGKILL);
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
            cgroup,
        })
    }

    /// Process id of the guard, which is the id of the group.
    pub(super) fn id(&self) -> i32 {
        self.guard
    }

    /// The guard, while it lives.
    pub(super) fn guard(&self) -> Option<i32> {
        self.alive.then_some(self.guard)
    }

    /// Sends a signal to the group.
    pub(super) fn signal(&self, signal: i32) {
        if self.alive {
            sys::kill(-self.guard, signal);
        }
        if signal == libc::SIGKILL
            && let Some((cgroup, _)) = &self.cgroup
        {
            cgroup.kill();
        }
    }

    /// Has this process, a forked child, be one of them from now on.
    pub(super) fn join(&self) -> Result<(), NotExecuted> {
        if let Some((_, door)) = &self.cgroup {
            cgroup::enter(door);
        }
        sys::set_group(0, self.guard).map_err(NotExecuted::before("setpgid"))
    }

    /// Nobody is left, or is to be.
    pub(super) fn end(&mut self) {
        if let Some((cgroup, _)) = self.cgroup.take() {
            cgroup.end();
        }
    }

    /// Notes that the guard was reaped.
    pub(super) fn guard_reaped(&mut self) {
        self.alive = false;
    }
}

//! Parking: more open pipes than the descriptor table has room for.
//!
//! Where the limit of descriptors cannot be raised, an agent with thousands of PEs would be refused
//! for want of a third descriptor per PE. So the read ends of stderr, which mostly stay silent, are
//! left to *keepers*: forked copies of the agent that have them open and do nothing. epoll goes on
//! watching an open file that is in no table of ours (a registration lives as long as the open file,
//! and is reported with its token: epoll(7), Q6), and when it has something to say, the pipe is opened
//! anew under the name that it has in the keeper's part of /proc, and read as any other. Nothing is
//! sent to a keeper, so nothing counts as being on its way.
//!
//! Registrations that are left behind cannot be changed any more; they are edge-triggered, so what is
//! read elsewhere, or has ended, is told once.

use std::collections::{HashMap, VecDeque};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::io::Errno;

use crate::sys;

/// Pipes that a keeper takes.
const LOT: usize = 1024;

/// Pipes that may be open anew before those that have been so for longest are closed again.
const MOST_OUT: usize = 64;

/// Descriptors that parking needs for `n` PEs: a lot that is not full yet, what is open anew, and the
/// life of each keeper.
pub(crate) fn descriptors(n: u64) -> u64 {
    (LOT + MOST_OUT + 1) as u64 + n.div_ceil(LOT as u64)
}

#[derive(Debug)]
struct Keeper {
    pid: i32,
    /// Never written; its end ends the keeper.
    _life: OwnedFd,
}

impl Keeper {
    /// Forks a process that keeps `fds` open and nothing else.
    ///
    /// # Safety
    /// This process has a single thread.
    unsafe fn start(fds: impl Iterator<Item = RawFd>) -> io::Result<Self> {
        let (read, write) = sys::pipe()?;
        let mut keep: Vec<RawFd> = fds.chain([read.as_raw_fd()]).collect();
        keep.sort_unstable();
        let child = || {
            sys::block_all();
            sys::set_name(c"shmrun-keeper");
            if sys::close_all_but(&keep).is_err() {
                return 1;
            }
            while rustix::io::read(&read, &mut [0]) == Err(Errno::INTR) {}
            0
        };
        // SAFETY: one thread, as promised by the caller.
        let pid = unsafe { sys::fork(child)? };
        Ok(Self { pid, _life: write })
    }
}

/// All that is parked of a node's pipes.
#[derive(Debug, Default)]
pub(super) struct Parking {
    keepers: Vec<Keeper>,
    /// The process and the number under which a local PE's pipe is kept.
    kept: HashMap<u32, (i32, RawFd)>,
    /// Local PEs whose pipe is open anew, in that order.
    out: VecDeque<u32>,
}

impl Parking {
    /// Whether so many pipes make a lot.
    pub(super) fn is_lot(pipes: usize) -> bool {
        pipes >= LOT
    }

    /// Leaves the pipes of these local PEs to a keeper. They are still open here, so that their
    /// registrations can be changed before they are closed.
    ///
    /// # Safety
    /// This process has a single thread.
    ///
    /// # Errors
    /// When there can be no keeper; nothing is kept then.
    pub(super) unsafe fn keep(&mut self, pipes: &[(u32, OwnedFd)]) -> io::Result<()> {
        let numbers = pipes.iter().map(|(_, fd)| fd.as_raw_fd());
        // SAFETY: as promised by the caller.
        let keeper = unsafe { Keeper::start(numbers)? };
        let kept = pipes
            .iter()
            .map(|(local, fd)| (*local, (keeper.pid, fd.as_raw_fd())));
        self.kept.extend(kept);
        self.keepers.push(keeper);
        Ok(())
    }

    /// Opens the pipe of a local PE anew, if it is kept; reading it does not block.
    pub(super) fn open(&mut self, local: u32) -> Option<io::Result<OwnedFd>> {
        let (pid, number) = self.kept.get(&local)?;
        let open = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(format!("/proc/{pid}/fd/{number}"));
        self.out.push_back(local);
        Some(open.map(OwnedFd::from))
    }

    /// A local PE whose pipe should be closed here again, because too many are open.
    pub(super) fn overdue(&mut self) -> Option<u32> {
        (self.out.len() > MOST_OUT)
            .then(|| self.out.pop_front())
            .flatten()
    }

    /// Keeps the pipe of a local PE open here after all.
    pub(super) fn stays_out(&mut self, local: u32) {
        self.out.push_back(local);
    }

    /// The process that keeps the pipe of a local PE.
    pub(super) fn keeper_of(&self, local: u32) -> Option<i32> {
        self.kept.get(&local).map(|&(pid, _)| pid)
    }

    /// Whether the pipe of a local PE is kept.
    pub(super) fn has(&self, local: u32) -> bool {
        self.kept.contains_key(&local)
    }

    /// Forgets a pipe that has ended.
    pub(super) fn ended(&mut self, local: u32) {
        if self.kept.remove(&local).is_some() {
            self.out.retain(|&l| l != local);
        }
    }

    /// Whether a process is a keeper that is needed.
    pub(super) fn is_keeper(&self, pid: i32) -> bool {
        self.keepers.iter().any(|k| k.pid == pid)
    }

    /// Closes what is kept: nobody reads it any more.
    pub(super) fn close(&mut self) {
        for keeper in self.keepers.drain(..) {
            sys::kill(keeper.pid, libc::SIGKILL);
        }
        self.kept.clear();
        self.out.clear();
    }
}

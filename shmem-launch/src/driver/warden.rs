//! The process above an agent on another host.
//!
//! What an agent leaves when it is killed, and is out of the guard's reach because it made a session of its
//! own, becomes a child of whoever is a sub-reaper above. On the launcher's machine that is another agent
//! or the launcher. On another host it is the warden: it does nothing but wait for the agent, and then ends
//! what is left.
//!
//! An agent that somebody has stopped does not see that its link has ended, nor can it be told anything. So
//! the warden looks at what the agent reads from, too, and ends an agent that outlives it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::parent_id;
use std::time::Duration;

use super::pmix;
use super::reap::reap_all;
use crate::exit::End;
use crate::sys::{self, monotonic_ns};

/// How long what ends by itself may take for that.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long ending what is left may take.
const LIMIT: Duration = Duration::from_secs(5);

/// How long an agent that is at work may take to end after its link has.
const OUTLIVE: Duration = Duration::from_secs(6);

/// How often an agent that lives on is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// What must not end or stop it. SIGTERM does, and the agent hears of that.
const BLOCKED: [i32; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Runs an agent in a process below this one, and gives its exit status. Should this process end first, the
/// agent is told to end, too.
///
/// # Safety
/// This process has a single thread.
pub(super) unsafe fn watch(agent: impl FnOnce() -> u8) -> io::Result<u8> {
    sys::become_subreaper()?;
    // Whoever started this process may have ignored it, and nobody could be waited for.
    sys::set_ignored(libc::SIGCHLD, false);
    let warden = std::process::id();
    let agent = || {
        sys::end_with_parent();
        // It may have ended before that.
        if parent_id() != warden {
            return crate::exit::LAUNCHER;
        }
        agent()
    };
    // SAFETY: one thread, as promised by the caller.
    let pid = unsafe { sys::fork(agent)? };
    sys::set_blocked(&BLOCKED);
    sys::set_name(c"shmrun-warden");
    // The link is the agent's alone, but for its end.
    sys::close_all_but(&[0])?;
    // SAFETY: standard input, which nobody else uses here.
    let link = unsafe { sys::own(0) };
    if sys::wait_for_end(pid, link.as_fd()) {
        end_agent(pid, link);
    }
    let end = End::from_wait(sys::wait_for(pid)?);
    reap_all(|_| false, PATIENCE, LIMIT);
    // Those of agents that were killed together with their servers.
    pmix::remove_abandoned();
    Ok(end.status())
}

/// Ends an agent whose link has ended, unless it does so itself.
fn end_agent(pid: i32, link: OwnedFd) {
    drop(link);
    let end = monotonic_ns() + OUTLIVE.as_nanos() as u64;
    while sys::is_running(pid) {
        if monotonic_ns() >= end || sys::is_stopped(pid) {
            return sys::kill(pid, libc::SIGKILL);
        }
        std::thread::sleep(LOOK);
    }
}

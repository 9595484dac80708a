//! The drivers: processes, descriptors and clocks around the pure machines.
//!
//! ```text
//! shmrun ------------------ launcher/ drives root::Root; threads write the two streams and read stdin
//!   | socketpair
//!   agent of node 0 ------- agent/ drives agent::Agent, single-threaded, one epoll loop
//!   |  |  |\
//!   |  |  | pe-guard        group.rs: leads the node's process group, kills it when the agent is gone
//!   |  |  template          forks the node's PEs, or executes them, then exits
//!   |  PMIx server          pmix/: libpmix, for programs that speak it
//!   |  PEs                  children of the agent once the template has gone
//!   agents of nodes 1, ..   forked before anything else was opened
//!                           (on another host below a warden, warden.rs)
//! ```
//!
//! A job that a PE spawns has a `shmrun --spawned` beside the agent of node 0, and from there the same
//! tree: launcher/spawned.rs.
//!
//! # Who inherits what
//! An agent is forked from a parent that has only links and standard streams open, and closes all
//! but its own link. Guard, template and spawner get exactly the descriptors they need. PEs are
//! forked by the template, which never holds more than one batch of their descriptors. So nobody
//! ever copies or closes a table of thousands of descriptors, which is what makes launchers
//! quadratic.
//!
//! # On several hosts
//! A remote shell stands between parent and agent: the link is its standard input and output, and
//! the parent's child is the remote shell. An agent on another host has the remote shell's pipes as
//! its link; whatever ends the remote shell, there or here, ends them.
//!
//! # Who dies with whom
//! * An agent that dies by whatever cause closes its links and the guard's pipe: the guard kills
//!   the node's process group, child agents see their link end, kill theirs and exit, the parent
//!   reports the loss.
//! * Agents and the launcher are sub-reapers, so no descendant, not even one that made its own
//!   session, escapes to init while any of them lives; at the end each kills and reaps what is left.
//!   On another host a warden (warden.rs) is above the agent for that.
//! * If all of these are killed at once, the guard ends what it can find (sweep.rs).
//! * Where there may be a control group of a node (cgroup.rs), whoever ends the node ends that.

mod address;
mod agent;
mod cgroup;
mod group;
mod launcher;
mod link;
mod memory;
mod node;
mod parts;
mod pmix;
mod reap;
mod shell;
mod store;
mod sweep;
mod template;
mod warden;

use std::os::fd::AsFd;
use std::time::Duration;

pub(crate) use agent::run_remote;
pub(crate) use launcher::{Lost, Outer, put, run, write_reports};
pub(crate) use pmix::serve as serve_pmix;

/// Says something where nobody can wait until it is read: what does not fit is not said.
fn log_without_waiting(text: std::fmt::Arguments<'_>) {
    if crate::sys::poll_writable(std::io::stderr().as_fd(), Duration::ZERO) {
        crate::log!("{text}");
    }
}

/// Standard input and output of an agent are /dev/null.
const NULL_FD: std::os::fd::RawFd = 0;

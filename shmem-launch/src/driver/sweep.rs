//! What is left of a node when an agent and all above it were killed at once (`pkill -9 shmrun`).
//!
//! The guard ends the node's process group. Who has left that, by a session of its own, becomes a child of the
//! nearest sub-reaper: an agent, a warden or the launcher, which end it. If they are gone, too, nobody knows
//! of it any more, and it is found by the name of the job in its environment. A process that has thrown
//! that away as well stays. What its PMIx server had on disk is found by its lock.

use std::fs;
use std::os::unix::process::parent_id;
use std::time::Duration;

use super::cgroup::Cgroup;
use super::pmix;
use crate::sys::{self, monotonic_ns};

/// How long those above may take to follow the agent.
const FOLLOW: Duration = Duration::from_millis(100);

/// Between two looks, and how long all of them may take.
const PAUSE: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(5);

/// Ends a process group and a control group, then whoever else has `mark`, a variable with its value, in its environment. For a
/// child of the group's leader that has left the group.
pub(super) fn sweep(group: i32, cgroup: Option<&Cgroup>, mark: &[u8]) {
    sys::kill(-group, libc::SIGKILL);
    if let Some(cgroup) = cgroup {
        cgroup.end();
    }
    std::thread::sleep(FOLLOW);
    pmix::remove_abandoned();
    let name = fs::read_to_string(format!("/proc/{}/comm", parent_id()));
    if name.is_ok_and(|name| name.starts_with("shmrun")) {
        return;
    }
    let end = monotonic_ns() + LIMIT.as_nanos() as u64;
    while end_marked(mark) && monotonic_ns() < end {
        // Who was killed may have started others before.
        std::thread::sleep(PAUSE);
    }
}

/// Whether there was anybody to end.
fn end_marked(mark: &[u8]) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return false;
    };
    let mut any = false;
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        // The number may be another process's by the time of the signal; this stays that of the one that is looked at.
        let held = sys::Held::of(pid);
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        if pid > 1 && environment.split(|&b| b == 0).any(|one| one == mark) {
            held.kill();
            any = true;
        }
    }
    any
}

//! A control group around the PEs of a node and all that they start, where one can be had: what is in it is
//! ended as a whole, also who has left the process group and thrown away its environment.
//!
//! Only of version 2, with `cgroup.kill` (Linux 5.14), below the one in which this agent runs. An ordinary
//! user may make one where a batch system or `systemd-run --user --scope -p Delegate=yes` has given it that; root
//! could anywhere, and keeps out of those that are systemd's. No controller is switched on: limits and
//! accounting stay as they are.
//!
//! Where a machine plays many nodes there is none: each would cost as much as the rest of a node.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys;

/// How long what was killed may take to be gone.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

/// The group, as its directory.
#[derive(Debug, Clone)]
pub(super) struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Makes one with this name; `None` where there can be none.
    pub(super) fn make(name: &str) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let (own, is_top) = place(&own, &mounts)?;
        if sys::user() == 0 && !is_top {
            return None;
        }
        let made = Self {
            dir: own.join(name),
        };
        fs::create_dir(&made.dir).ok()?;
        // Whether processes may enter it shows only by trying, which is what the template does.
        if made.dir.join("cgroup.kill").exists() && made.door().is_ok() {
            return Some(made);
        }
        made.remove();
        None
    }

    /// The descriptor by which a process enters it.
    pub(super) fn door(&self) -> io::Result<OwnedFd> {
        let door = fs::File::options()
            .write(true)
            .open(self.dir.join("cgroup.procs"))?;
        Ok(door.into())
    }

    /// Kills whoever is in it.
    pub(super) fn kill(&self) {
        let _ = fs::write(self.dir.join("cgroup.kill"), "1");
    }

    /// Kills whoever is in it, and removes it.
    pub(super) fn end(&self) {
        let end = sys::monotonic_ns() + PATIENCE.as_nanos() as u64;
        self.kill();
        while !self.remove() && sys::monotonic_ns() < end {
            std::thread::sleep(PAUSE);
            self.kill();
        }
    }

    /// Removes it if nobody is in it.
    fn remove(&self) -> bool {
        remove(&self.dir)
    }
}

/// Removes a group with those that were made in it.
fn remove(dir: &Path) -> bool {
    for inner in fs::read_dir(dir).into_iter().flatten().flatten() {
        if inner.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&inner.path());
        }
    }
    match fs::remove_dir(dir) {
        Ok(()) => true,
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    }
}

/// Has this process enter a group; for a forked child. One that may not stays where it is.
pub(super) fn enter(door: &OwnedFd) {
    let _ = rustix::io::write(door, b"0");
}

/// The directory of the group in which a process is that has these files in /proc, and whether there is none
/// above it.
fn place(cgroup: &str, mountinfo: &str) -> Option<(PathBuf, bool)> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    mountinfo.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        back.starts_with("cgroup2 ").then_some(())?;
        let mut fields = front.split(' ').skip(3);
        let (root, mounted_at) = (fields.next()?, fields.next()?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        Some((
            Path::new(mounted_at).join(below),
            below.as_os_str().is_empty(),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        24 1 0:22 / /sys rw - sysfs sysfs rw\n\
        31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_own_group_is_found_below_the_mount() {
        let own = "0::/user.slice/run-1.scope\n";
        let dir = PathBuf::from("/sys/fs/cgroup/user.slice/run-1.scope");
        assert_eq!(place(own, MOUNTS), Some((dir, false)));
        let hybrid = "4:memory:/a\n0::/\n";
        let top = (PathBuf::from("/sys/fs/cgroup"), true);
        assert_eq!(place(hybrid, MOUNTS), Some(top));
        assert_eq!(place("4:memory:/a\n", MOUNTS), None);
        assert_eq!(
            place(hybrid, "24 1 0:22 / /sys rw - sysfs sysfs rw\n"),
            None
        );
        // What is mounted is a part in which this process is not.
        let part = MOUNTS.replace("0:27 / ", "0:27 /other ");
        assert_eq!(place(own, &part), None);
    }
}

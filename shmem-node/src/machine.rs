//! How much memory this machine has and how much is left, with the limits of control groups.

use std::path::{Path, PathBuf};

/// What the machine has, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Installed memory.
    pub total: u64,
    /// Memory that can be had without swapping.
    pub available: u64,
    /// Swap space in all.
    pub swap_total: u64,
    /// Free swap space.
    pub swap_free: u64,
    /// What the control group still allows, if it limits memory.
    pub group_left: Option<u64>,
    /// The control group's limit.
    pub group_limit: Option<u64>,
}

/// Bytes as people read them.
#[derive(Debug, Clone, Copy)]
pub struct Size(pub u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (scale, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << scale {
                return write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << scale) as f64);
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

/// Reads /proc/meminfo.
fn parse_meminfo(text: &str) -> Option<Machine> {
    let field = |name: &str| {
        let line = text
            .lines()
            .find(|l| l.strip_prefix(name).is_some_and(|r| r.starts_with(':')))?;
        line.split_whitespace()
            .nth(1)?
            .parse::<u64>()
            .ok()?
            .checked_mul(1024)
    };
    let total = field("MemTotal")?;
    Some(Machine {
        total,
        available: field("MemAvailable").or_else(|| field("MemFree"))?,
        swap_total: field("SwapTotal").unwrap_or(0),
        swap_free: field("SwapFree").unwrap_or(0),
        group_left: None,
        group_limit: None,
    })
}

/// The directories of the groups that limit this process's memory, from the inside out, with the
/// names of their files: (directory, limit file, usage file).
fn group_dirs(proc_self_cgroup: &str) -> Vec<(PathBuf, &'static str, &'static str)> {
    let mut out = Vec::new();
    for line in proc_self_cgroup.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(kinds), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (roots, limit, usage): (&[&str], _, _) = if id == "0" && kinds.is_empty() {
            (
                &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
                "memory.max",
                "memory.current",
            )
        } else if kinds.split(',').any(|k| k == "memory") {
            (
                &["/sys/fs/cgroup/memory"],
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            )
        } else {
            continue;
        };
        for root in roots {
            let inner = Path::new(path.trim_start_matches('/'));
            out.extend(
                inner
                    .ancestors()
                    .map(|dir| (Path::new(root).join(dir), limit, usage)),
            );
        }
    }
    out
}

/// What a group with this limit, usage and memory.stat can still have. Its usage counts the files
/// that it has read, which the kernel drops when the memory is needed: where they are left in,
/// nothing seems to be left of a container that has lived for a while.
fn group_left(limit: u64, usage: u64, stat: &str) -> u64 {
    let field = |name: &str| {
        let line = stat
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    };
    // Version 1 has these names for the group alone, and others for all below it.
    let files = |name: &str| field(&format!("total_{name}")).or_else(|| field(name));
    let files = ["inactive_file", "active_file"].map(|name| files(name).unwrap_or(0));
    let dropped = files[0].saturating_add(files[1]);
    limit.saturating_sub(usage.saturating_sub(dropped))
}

impl Machine {
    /// What this machine has now; `None` where /proc does not tell.
    pub fn read() -> Option<Self> {
        let mut machine = parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        for (dir, limit, usage) in group_dirs(&groups) {
            let number = |file: &str| -> Option<u64> {
                std::fs::read_to_string(dir.join(file))
                    .ok()?
                    .trim()
                    .parse()
                    .ok()
            };
            // "max", and version 1's huge number, are no limits.
            let Some(limit) = number(limit).filter(|&l| l < machine.total) else {
                continue;
            };
            let stat = std::fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
            let left = group_left(limit, number(usage).unwrap_or(0), &stat);
            machine.group_limit = Some(machine.group_limit.map_or(limit, |g| g.min(limit)));
            machine.group_left = Some(machine.group_left.map_or(left, |g| g.min(left)));
        }
        Some(machine)
    }
}

/// How many processes the kernel has killed because memory had run out: in this process's control group, or on the
/// machine where the group does not tell.
pub fn killed_for_memory() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let dirs = group_dirs(&groups);
    // The innermost group is first. In version 2 it counts for all groups below it.
    let of_group = dirs.iter().find_map(|(dir, limit, _)| {
        let file = match *limit {
            "memory.max" => "memory.events",
            _ => "memory.oom_control",
        };
        kills(&std::fs::read_to_string(dir.join(file)).ok()?)
    });
    of_group.or_else(|| kills(&std::fs::read_to_string("/proc/vmstat").ok()?))
}

/// The count of kills among the kernel's counters, one a line.
fn kills(counters: &str) -> Option<u64> {
    let mut lines = counters.lines();
    lines.find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Whether the kernel promises no more memory than it has (`vm.overcommit_memory` is 2), so that touching a page may
/// fail.
pub fn promises_no_more_memory() -> bool {
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    mode.is_ok_and(|mode| mode.trim() == "2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_parsed() {
        let text = "MemTotal: 1000 kB\nMemFree:  5 kB\nMemAvailable: 600 kB\nSwapTotal: 7 kB\nSwapFree: 6 kB\n";
        let m = parse_meminfo(text).unwrap();
        assert_eq!(
            (m.total, m.available, m.swap_total, m.swap_free),
            (1_024_000, 614_400, 7168, 6144)
        );
        assert_eq!(parse_meminfo("nothing"), None);
        assert!(Machine::read().is_some());
    }

    #[test]
    fn groups_of_both_versions_are_found() {
        let dirs = group_dirs("9:pids:/p\n4:memory:/a/b\n0::/c\ngarbage");
        let at = |p: &str| dirs.iter().any(|(d, ..)| d == Path::new(p));
        for p in [
            "/sys/fs/cgroup/memory/a/b",
            "/sys/fs/cgroup/memory/a",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/c",
            "/sys/fs/cgroup",
        ] {
            assert!(at(p), "{p} in {dirs:?}");
        }
        assert!(!at("/sys/fs/cgroup/memory/p"));
    }

    #[test]
    fn files_that_a_group_has_read_are_not_in_use() {
        let v2 = "anon 300\ninactive_file 200\nactive_file 100\nworkingset_x 7\n";
        assert_eq!(group_left(1000, 900, v2), 400);
        let v1 = "inactive_file 1\nactive_file 1\ntotal_inactive_file 50\ntotal_active_file 25\n";
        assert_eq!(group_left(1000, 900, v1), 175);
        assert_eq!(group_left(1000, 900, ""), 100);
        assert_eq!(group_left(1000, 2000, "inactive_file x\n"), 0);
        assert_eq!(group_left(1000, 100, v2), 1000);
    }

    #[test]
    fn kills_for_want_of_memory_are_counted() {
        assert_eq!(
            kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            Some(3)
        );
        assert_eq!(
            kills("low 0\noom 9\noom_kill 7\noom_group_kill 1\n"),
            Some(7)
        );
        assert_eq!(kills("low 0\n"), None);
        // A container may hide this file, and older kernels do not count there.
        let machine = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
        assert!(kills(&machine).is_none() || killed_for_memory().is_some());
    }
}

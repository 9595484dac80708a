//! Processes of this machine, as `/proc` shows them.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

/// What is known of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its name, of at most 15 bytes.
    pub name: String,
    /// What it does: `R`uns, `S`leeps, is s`T`opped, has ended and was not waited for (`Z`).
    pub state: char,
    /// Its parent's number.
    pub parent: i32,
}

impl Process {
    /// The process with this number, if it lives.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(place(pid, "stat")).ok()?;
        Self::parse(pid, &stat)
    }

    /// From a line of `/proc/PID/stat`. The name in brackets may hold anything.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let (front, back) = stat.rsplit_once(')')?;
        let (_, name) = front.split_once('(')?;
        let mut fields = back.split_whitespace();
        Some(Self {
            pid,
            name: name.to_owned(),
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
        })
    }
}

fn place(pid: i32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// All processes that have `mark` in their environment. Who has ended and was not waited for has no memory,
/// hence no environment; nor has anybody whose environment this user may not read.
///
/// # Panics
/// If there is no `/proc`.
pub fn with_mark(mark: &str) -> Vec<Process> {
    let marked = |pid: i32| {
        let environ = std::fs::read(place(pid, "environ")).unwrap_or_default();
        environ.windows(mark.len()).any(|w| w == mark.as_bytes())
    };
    std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| marked(*pid))
        .filter_map(Process::of)
        .collect()
}

/// How many threads a process has; 0 if it has ended.
pub fn threads(pid: i32) -> usize {
    std::fs::read_dir(place(pid, "task")).map_or(0, Iterator::count)
}

/// A figure in KiB of `/proc/PID/status`, such as `VmHWM`, of a process that lives.
pub fn status_kib(pid: i32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(place(pid, "status")).ok()?;
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Sends a signal to a process, which may have ended.
///
/// # Panics
/// If that is no process's number, or no signal's.
pub fn kill(pid: i32, signal: i32) {
    let pid = Pid::from_raw(pid).filter(|_| pid > 1);
    let pid = pid.expect("the number of a process");
    let signal = Signal::from_named_raw(signal).expect("a signal");
    let _ = kill_process(pid, signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_names_are_read() {
        let process = Process::parse(12, "12 (a) S 3) R 7 12 12 0").unwrap();
        assert_eq!((&process.name[..], process.parent), ("a) S 3", 7));
        assert_eq!(process.state, 'R');
        assert_eq!(Process::parse(1, ""), None);
    }

    #[test]
    fn this_process_is_there() {
        let own = std::process::id() as i32;
        let found = Process::of(own).unwrap();
        assert!(found.state == 'R' || found.state == 'S', "{found:?}");
        assert!(threads(own) >= 1);
        assert!(status_kib(own, "VmHWM") > Some(0));
        assert_eq!(status_kib(own, "Vm"), None);
    }
}

//! Processes of this machine, as `/proc` shows them.
//!
//! [`Marked`] finds the processes of a job. Three other ways were rejected:
//!
//! * Descent, through `/proc/PID/task/TID/children`: many kernels are built without these files, and a
//!   process whose parent has died has left the tree.
//! * A sub-reaper: tests of one program share a process. A zombie has no environment, so an orphan that
//!   died unseen looks like a child for which a [`std::process::Command`] of another test still waits.
//!   And jobs would behave otherwise than under the `init` that users have.
//! * Control groups: they take rights that a test may not have.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::unix::fs::DirEntryExt;
use std::path::PathBuf;
use std::sync::Mutex;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

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
    /// When it started, in ticks since the machine did. No two processes have this and a number in
    /// common.
    pub started: u64,
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
            // Field 22 of the line; the parent is field 4.
            started: fields.nth(17)?.parse().ok()?,
        })
    }

    /// Whether this very process has not ended. Another one may have its number by now.
    pub fn lives(&self) -> bool {
        let now = Self::of(self.pid).filter(|now| now.started == self.started);
        now.is_some_and(|now| !now.has_ended())
    }

    /// Whether nobody but its parent can see it any more.
    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// The value that a variable had when the process began its program, if its environment may be read.
    pub fn variable(&self, name: &str) -> Option<String> {
        let environ = environment(self.pid).ok()?;
        let mut variables = environ.split(|&byte| byte == 0);
        variables.find_map(|variable| {
            let value = str::from_utf8(variable).ok()?.strip_prefix(name)?;
            value.strip_prefix('=').map(str::to_owned)
        })
    }

    /// Sends this very process a signal, and nobody that has got its number since. Returns whether it was
    /// there to be reached.
    ///
    /// # Panics
    /// If that is no signal's number.
    pub fn kill(&self, signal: i32) -> bool {
        let signal = Signal::from_named_raw(signal).expect("a signal");
        let pid = Pid::from_raw(self.pid).filter(|_| self.pid > 1);
        let pid = pid.expect("the number of a process");
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        // If the number is still this process's, then it was when the descriptor was made.
        self.lives() && pidfd_send_signal(held, signal).is_ok()
    }
}

fn place(pid: i32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// The environment of a process. One that executes a program at this moment has none for a while, and its parent goes on
/// before it has: waits for that.
fn environment(pid: i32) -> std::io::Result<Vec<u8>> {
    // An empty environment counts only if an earlier look found that the process does not execute a program: it may have
    // finished that after its environment was read.
    let mut settled = false;
    // A process that was stopped at that moment counts as one without a mark.
    for _ in 0..10_000 {
        match std::fs::read(place(pid, "environ")) {
            Ok(environ) if !environ.is_empty() || settled => return Ok(environ),
            Ok(_) => settled = !executes(pid),
            // The kernel refuses it, too, as long as it does not know whether the program may be looked at.
            Err(e) if e.kind() != ErrorKind::PermissionDenied || !is_child(pid) => return Err(e),
            Err(_) => {}
        }
        std::thread::yield_now();
    }
    Ok(Vec::new())
}

/// Whether a process is a child of this one.
fn is_child(pid: i32) -> bool {
    Process::of(pid).is_some_and(|process| process.parent == std::process::id() as i32)
}

/// Whether a process lives, has memory, and has no place for its environment yet.
fn executes(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(place(pid, "stat")) else {
        return false;
    };
    // The fields from the state on: `proc(5)` counts the state as the third.
    let back = stat.rsplit_once(')').map_or("", |(_, back)| back);
    let fields: Vec<&str> = back.split_whitespace().collect();
    let of = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
    let (state, virtual_size, environment_ends) = (of(3), of(23), of(51));
    !matches!(state, "Z" | "X") && virtual_size != "0" && environment_ends == "0"
}

/// Numbers of all processes, each with the inode of its folder: a process that gets a number again has
/// another one.
///
/// # Panics
/// If there is no `/proc`.
fn everybody() -> impl Iterator<Item = (i32, u64)> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.ino())))
}

/// The processes that have a mark in their environment, wherever they are in the tree of processes. Processes
/// that have ended and wait to be reaped do not count.
///
/// A look reads the environment of each process that is younger than this object. So a look costs little
/// beside jobs that were there before, and something beside jobs that began later: [`crate::wait_until`]
/// waits for longer between looks that cost more.
#[derive(Debug)]
pub struct Marked {
    mark: String,
    /// Processes that were there before the mark was, which cannot have it.
    strangers: HashSet<(i32, u64)>,
    /// What the last look has found.
    found: Mutex<Vec<Process>>,
}

impl Marked {
    /// The processes that will have a mark. No process has it yet.
    ///
    /// # Panics
    /// If there is no `/proc`.
    pub fn new(mark: String) -> Self {
        Self {
            mark,
            strangers: everybody().collect(),
            found: Mutex::default(),
        }
    }

    /// All processes with the mark, and children of such processes whose environment this user may not
    /// read, as of programs that changed their user.
    ///
    /// # Panics
    /// If there is no `/proc`.
    pub fn all(&self) -> Vec<Process> {
        let mut found = Vec::new();
        let mut hidden = Vec::new();
        let mark = self.mark.as_bytes();
        for (pid, inode) in everybody() {
            if self.strangers.contains(&(pid, inode)) {
                continue;
            }
            match environment(pid) {
                Ok(environ) if environ.windows(mark.len()).any(|w| w == mark) => {
                    found.extend(Process::of(pid));
                }
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                    hidden.extend(Process::of(pid));
                }
                _ => {}
            }
        }
        let mut from = 0;
        while from < found.len() {
            let parents: HashSet<i32> = found[from..].iter().map(|p| p.pid).collect();
            from = found.len();
            found.extend(hidden.extract_if(.., |p| parents.contains(&p.parent)));
        }
        found.retain(|p| !p.has_ended());
        self.found.lock().expect("no panic").clone_from(&found);
        found
    }

    /// Whether there is any. As long as one lives that an earlier look has found, this takes no look.
    pub fn any(&self) -> bool {
        let one_lives = self
            .found
            .lock()
            .expect("no panic")
            .iter()
            .any(Process::lives);
        one_lives || !self.all().is_empty()
    }
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

/// Sends a signal to a process, which may have ended. If nobody keeps its number from being used again, use
/// [`Process::kill`].
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
        let process = Process::parse(
            12,
            "12 (a) S 3) R 7 12 12 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 345 6",
        )
        .unwrap();
        assert_eq!((&process.name[..], process.parent), ("a) S 3", 7));
        assert_eq!((process.state, process.started), ('R', 345));
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

    #[test]
    fn a_process_that_got_a_number_again_is_not_killed() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let process = Process::of(child.id() as i32).unwrap();
        let before = Process {
            started: process.started - 1,
            ..process.clone()
        };
        assert!(!before.lives() && !before.kill(9));
        assert!(process.lives() && process.kill(9));
        child.wait().unwrap();
        assert!(!process.lives() && !process.kill(9));
    }

    /// A parent goes on when its child begins to execute, which is before the child has an environment.
    #[test]
    fn marked_processes_are_found_as_soon_as_their_parent_goes_on() {
        let (name, value) = ("TESTKIT_AT_ONCE", format!("{}-marked", std::process::id()));
        for _ in 0..200 {
            let marked = Marked::new(format!("{name}={value}"));
            let mut command = std::process::Command::new("sleep");
            let mut child = command.arg("1000").env(name, &value).spawn().unwrap();
            assert_eq!(marked.all().len(), 1);
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn marked_processes_are_found_as_long_as_they_live() {
        let (name, value) = ("TESTKIT_MARKED", format!("{}-marked", std::process::id()));
        let marked = Marked::new(format!("{name}={value}"));
        assert!(!marked.any());
        let mut command = std::process::Command::new("sleep");
        let mut child = command.arg("1000").env(name, &value).spawn().unwrap();
        let found = marked.all();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].pid, found[0].name.as_str()),
            (child.id() as i32, "sleep")
        );
        assert!(marked.any());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!marked.any());
        // What lived before cannot have the mark, and is not asked.
        let mut child = command.spawn().unwrap();
        assert!(marked.any());
        assert!(!Marked::new(format!("{name}={value}")).any());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

//! Runs a whole job from outside: to its end or to a time limit, and leaves nothing of it behind.
//!
//! Launchers of other libraries sometimes hang, and processes of theirs outlive them. What still
//! runs would spoil every later measurement, so the caller adopts orphans and kills them.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time for a launcher to end by itself after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited(ExitStatus),
    /// It was ended at the time limit.
    TimedOut,
}

/// Path of a program that is built with the calling one: `shmrun`, `examples/ring`.
///
/// # Errors
/// If it has not been built.
pub fn built(name: &str) -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "{} is missing: cargo build --release --workspace --bins --examples",
            path.display()
        ),
    ))
}

/// Runs `command` for at most `limit`, then ends it and kills what is left of it.
///
/// One job at a time, and in a process that has no other children: all descendants of this process
/// count as the job's.
///
/// # Errors
/// If the command cannot be started or waited for.
pub fn run(command: &mut Command, limit: Duration) -> io::Result<End> {
    // SAFETY: sets a flag of this process and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let start = Instant::now();
    let mut child = command.spawn()?;
    let end = loop {
        if let Some(status) = child.try_wait()? {
            break End::Exited(status);
        }
        if start.elapsed() >= limit {
            end_child(&mut child)?;
            break End::TimedOut;
        }
        sleep(Duration::from_millis(2));
    };
    kill_descendants()?;
    Ok(end)
}

/// What `command` prints, if it ends well within `limit`; see [`run`].
///
/// # Errors
/// As [`run`]; or it fails, or does not end by itself.
pub fn output(command: &mut Command, limit: Duration) -> io::Result<String> {
    let path = std::env::temp_dir().join(format!("shmem-benches.{}", std::process::id()));
    command.stdout(fs::File::create(&path)?);
    let end = run(command, limit);
    let text = fs::read_to_string(&path);
    fs::remove_file(&path)?;
    match end? {
        End::Exited(status) if status.success() => text,
        End::Exited(status) => Err(io::Error::other(format!("the job failed: {status}"))),
        End::TimedOut => Err(io::Error::other(format!("no end within {limit:?}"))),
    }
}

/// Asks a launcher to end, so that it removes its files, and kills it if it does not.
fn end_child(child: &mut Child) -> io::Result<()> {
    // SAFETY: the child has not been waited for, so the number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let start = Instant::now();
    while start.elapsed() < GRACE {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait().map(drop)
}

/// Kills until nobody is left: a process may start another one before it dies.
fn kill_descendants() -> io::Result<()> {
    loop {
        let left = descendants()?;
        if left.is_empty() {
            return Ok(());
        }
        for pid in left {
            // SAFETY: kills a descendant; its number cannot be taken by a stranger, because this
            // process or one below it has not waited for it yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        // SAFETY: no status is asked for.
        while unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) } > 0 {}
        sleep(Duration::from_millis(1));
    }
}

/// Descendants of this process, zombies among them.
fn descendants() -> io::Result<Vec<i32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        // A process that has ended meanwhile is no descendant any more.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some(parent) = parent_of(&stat) {
            parents.push((pid, parent));
        }
    }
    let mut family = vec![std::process::id() as i32];
    let mut at = 0;
    while at < family.len() {
        let parent = family[at];
        family.extend(parents.iter().filter(|p| p.1 == parent).map(|p| p.0));
        at += 1;
    }
    family.remove(0);
    Ok(family)
}

/// The parent in a line of `/proc/PID/stat`. The name in brackets may hold anything.
fn parent_of(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_past_strange_names() {
        assert_eq!(parent_of("12 (a) S 3) R 7 12 12 0"), Some(7));
        assert_eq!(parent_of(""), None);
    }
}

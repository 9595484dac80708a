//! Processes: forked, executed, waited for, ended.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::AssertUnwindSafe;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group,
    pidfd_open, pidfd_send_signal, set_child_subreaper, set_parent_process_death_signal, setpgid,
    setsid, waitid, waitpid,
};

use super::limits::restore_limits;
use super::{arrange_fds, naming, reset_signals, returned};
use crate::report::Used;

/// Runs `child` in a copy of this process and gives the copy's process id. The copy ends when
/// `child` returns, with that as its exit status, and runs nothing of what the original would have
/// run later (destructors, exit handlers). A panic ends it with status 101.
///
/// # Safety
/// This process has a single thread: in the copy, locks of other threads would stay held forever.
pub(crate) unsafe fn fork(child: impl FnOnce() -> u8) -> io::Result<i32> {
    // SAFETY: one thread, as promised by the caller.
    match returned(unsafe { libc::fork() })? {
        0 => {
            let status = std::panic::catch_unwind(AssertUnwindSafe(child)).unwrap_or(101);
            exit_now(status)
        }
        pid => Ok(pid),
    }
}

/// Why a child did not become the program that it was to execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotExecuted {
    /// What failed before; `None` if it was the execution.
    pub(crate) before: Option<&'static str>,
    pub(crate) errno: i32,
}

impl NotExecuted {
    /// What failed before the execution.
    pub(crate) fn before(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |e| Self {
            before: Some(what),
            errno: e.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

impl std::fmt::Display for NotExecuted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(what) = self.before {
            write!(f, "{what}: ")?;
        }
        io::Error::from_raw_os_error(self.errno).fmt(f)
    }
}

impl From<NotExecuted> for io::Error {
    fn from(e: NotExecuted) -> Self {
        match e.before {
            None => Self::from_raw_os_error(e.errno),
            Some(what) => naming(what)(Self::from_raw_os_error(e.errno)),
        }
    }
}

/// Runs `child`, which is to execute a program, in a new process that has its own descriptors,
/// signal settings and process group, but uses this process's memory until then. Nothing is copied,
/// which makes it several times cheaper than [`fork`]. This process waits meanwhile. Should `child`
/// return, its process has ended and is reaped, and what it returned is the error; a panic ends it with status 101.
///
/// # Safety
/// `child` leaves the memory as the threads of this process may find it, also if it is killed at any moment:
/// it drops no descriptor, whose owner is still in use here, and takes no lock and allocates nothing.
pub(crate) unsafe fn fork_to_exec<F: Fn() -> NotExecuted>(child: F) -> Result<i32, NotExecuted> {
    const STACK: usize = 64 << 10;
    struct Shared<F> {
        child: F,
        failed: Cell<Option<NotExecuted>>,
    }
    extern "C" fn enter<F: Fn() -> NotExecuted>(shared: *mut libc::c_void) -> libc::c_int {
        // SAFETY: points at the object below, which outlives this call: its owner is waiting.
        let shared = unsafe { &*shared.cast::<Shared<F>>() };
        match std::panic::catch_unwind(AssertUnwindSafe(&shared.child)) {
            Ok(failed) => {
                shared.failed.set(Some(failed));
                crate::exit::NOT_EXECUTABLE.into()
            }
            Err(_) => 101,
        }
    }
    let shared = Shared {
        child,
        failed: Cell::new(None),
    };
    // Pages that are not touched cost nothing.
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    // SAFETY: the stack, which grows down from its aligned end, and the closure live until the
    // process is another program or has ended, since CLONE_VFORK makes us wait for that. The rest
    // is promised by the caller.
    let pid = unsafe {
        libc::clone(
            enter::<F>,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw const shared).cast_mut().cast(),
        )
    };
    let pid = returned(pid).map_err(NotExecuted::before("clone"))?;
    match shared.failed.get() {
        None => Ok(pid),
        Some(failed) => {
            let _ = wait_for(pid);
            Err(failed)
        }
    }
}

/// Ends the process without exit handlers.
pub(crate) fn exit_now(status: u8) -> ! {
    shmem_node::sys::end_at_once(status.into())
}

/// A program with its arguments and environment, ready to be executed by a child that may not allocate.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    path: &'a CStr,
    /// Pointers to strings that live for `'a`, and a null pointer.
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
}

impl<'a> Image<'a> {
    pub(crate) fn new(path: &'a CStr, argv: &'a [CString], env: &'a [CString]) -> Self {
        let list = |strings: &'a [CString]| {
            let pointers = strings.iter().map(|s| s.as_ptr());
            pointers.chain([std::ptr::null()]).collect()
        };
        Self {
            path,
            argv: list(argv),
            env: list(env),
        }
    }

    /// Replaces the program of this process, which gets the limits that this one began with. Returns only
    /// on failure.
    pub(crate) fn exec(&self) -> NotExecuted {
        restore_limits();
        // SAFETY: the strings and the NULL-terminated lists of them outlive the call.
        unsafe { libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
        NotExecuted {
            before: None,
            errno: std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        }
    }

    /// The same in a session of its own, with these descriptors alone and the default effects of signals: away
    /// from the terminal.
    pub(crate) fn exec_alone<const N: usize>(
        &self,
        placed: &[(RawFd, RawFd, bool); N],
    ) -> NotExecuted {
        let prepared = new_session()
            .map_err(NotExecuted::before("setsid"))
            .and_then(|()| arrange_fds(placed).map_err(NotExecuted::before("its descriptors")));
        if let Err(e) = prepared {
            return e;
        }
        reset_signals(0);
        self.exec()
    }
}

/// What waiting for a child found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// This child ended, with this status word.
    Child(i32, i32),
    /// The children in question live.
    NotYet,
    /// There are no such children.
    NoChild,
}

/// Reaps a child (`-1`: any) that has ended, without waiting.
pub(crate) fn wait(pid: i32) -> Waited {
    wait_used(pid).0
}

/// The same, with what a child that has ended took.
pub(crate) fn wait_used(pid: i32) -> (Waited, Used) {
    loop {
        let mut status = 0;
        // SAFETY: numbers, for which zeros are values.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both outlive the call, which writes them.
        let found = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut used) };
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
        let waited = match returned(found) {
            Ok(0) => Waited::NotYet,
            Ok(pid) => Waited::Child(pid, status),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => Waited::NoChild,
        };
        let used = Used {
            user_ns: ns(used.ru_utime),
            system_ns: ns(used.ru_stime),
            // In KiB.
            peak: used.ru_maxrss as u64 * 1024,
        };
        return (waited, used);
    }
}

/// Whether a child has ended that nobody has reaped yet.
pub(crate) fn has_ended(pid: i32) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let child = Pid::from_raw(pid).map(|pid| waitid(WaitId::Pid(pid), options));
    matches!(child, Some(Ok(Some(_))))
}

/// Waits until a child has ended, and reaps it.
pub(crate) fn wait_for(pid: i32) -> io::Result<i32> {
    loop {
        match waitpid(Pid::from_raw(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(status.as_raw()),
            Ok(None) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Sends a signal to a process, or with a negative number to a group. A target that is gone is
/// no error.
pub(crate) fn kill(pid: i32, signal: i32) {
    // 0, 1 and -1 would reach processes that are none of ours.
    assert!(
        !(-1..=1).contains(&pid),
        "signal {signal} for process {pid}"
    );
    let (target, signal) = (Pid::from_raw(pid.abs()), Signal::from_named_raw(signal));
    if let (Some(target), Some(signal)) = (target, signal) {
        let _ = match pid < 0 {
            true => kill_process_group(target, signal),
            false => kill_process(target, signal),
        };
    }
}

/// A process, whatever becomes of its number.
pub(crate) struct Held {
    pid: i32,
    /// None on kernels that have no such descriptors.
    descriptor: Option<OwnedFd>,
}

impl Held {
    pub(crate) fn of(pid: i32) -> Self {
        let process = Pid::from_raw(pid).filter(|_| pid > 0);
        let descriptor = process.and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        Self { pid, descriptor }
    }

    /// Kills it, unless it has ended.
    pub(crate) fn kill(&self) {
        let sent = self
            .descriptor
            .as_ref()
            .map(|process| pidfd_send_signal(process, Signal::KILL));
        if !matches!(sent, Some(Ok(()) | Err(Errno::SRCH))) {
            kill(self.pid, libc::SIGKILL);
        }
    }
}

/// Moves a process (0: this one) into a process group (0: a new one of its own).
pub(crate) fn set_group(pid: i32, group: i32) -> io::Result<()> {
    Ok(setpgid(Pid::from_raw(pid), Pid::from_raw(group))?)
}

/// Makes this process the leader of a session of its own, away from any terminal.
pub(crate) fn new_session() -> io::Result<()> {
    setsid()?;
    Ok(())
}

/// From now on orphaned descendants become children of this process.
pub(crate) fn become_subreaper() -> io::Result<()> {
    let this = rustix::process::getpid();
    set_child_subreaper(Some(this)).map_err(naming("prctl(PR_SET_CHILD_SUBREAPER)"))
}

/// From now on the end of the parent sends this process SIGTERM.
pub(crate) fn end_with_parent() {
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
}

/// From now on the end of the parent continues this process, should somebody have stopped it.
pub(crate) fn go_on_without_parent() {
    let _ = set_parent_process_death_signal(Some(Signal::CONT));
}

/// Names this process in listings.
pub(crate) fn set_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Waits until a child has ended, or the other end of what `link` reads from. True if that was first.
pub(crate) fn wait_for_end(pid: i32, link: BorrowedFd<'_>) -> bool {
    let child = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let Some(Ok(child)) = child else {
        // Without a descriptor of it the kernel tells of its end alone.
        return false;
    };
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(child.as_fd(), PollFlags::IN),
            // Only that it has ended.
            PollFd::from_borrowed_fd(link, PollFlags::empty()),
        ];
        match poll(&mut fds, None) {
            Err(Errno::INTR) | Ok(0) => {}
            Err(_) => return false,
            Ok(_) => return fds[0].revents().is_empty(),
        }
    }
}

/// What a process does, as /proc shows it: `T` and `t` if it was stopped, by a signal or by a debugger.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process exists and was stopped.
pub(crate) fn is_stopped(pid: i32) -> bool {
    matches!(state(pid), Some('T' | 't'))
}

/// Whether a process exists and has not ended.
pub(crate) fn is_running(pid: i32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// The children of this (single-threaded) process.
pub(crate) fn children() -> Vec<i32> {
    let Ok(text) = std::fs::read_to_string("/proc/thread-self/children") else {
        // A kernel without CONFIG_PROC_CHILDREN has no such list.
        return children_of(rustix::process::getpid().as_raw_pid());
    };
    text.split_whitespace()
        .filter_map(|p| p.parse().ok())
        .collect()
}

/// The processes that say that `parent` is theirs.
fn children_of(parent: i32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|p| p.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| parent_of(pid) == Some(parent)).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything, and the state.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_by_their_parent() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let this = rustix::process::getpid().as_raw_pid();
        assert_eq!(parent_of(pid), Some(this));
        assert!(children_of(this).contains(&pid));
        assert_eq!(children_of(pid), []);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parent_of(pid), None);
    }
}

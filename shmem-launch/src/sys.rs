//! The system calls of the launcher and its agents that std does not offer: fork, process groups,
//! signals as descriptors, epoll, waiting without blocking, limits. The unsafe code of this crate is
//! here; the drivers only add the promise that whoever forks has a single thread.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

pub(crate) use shmem_node::sys::{cerr, monotonic_ns, process_cpu_ns, random};

/// The owner of a descriptor.
///
/// # Safety
/// `fd` is open and nobody else owns it: it was just returned by the kernel, or just put at a
/// number of our choice in a forked child.
pub(crate) unsafe fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: as promised by the caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Runs `child` in a copy of this process and gives the copy's process id. The copy ends when
/// `child` returns, with that as its exit status, and runs nothing of what the original would have
/// run later (destructors, exit handlers). A panic ends it with status 101.
///
/// # Safety
/// This process has a single thread: in the copy, locks of other threads would stay held forever.
pub(crate) unsafe fn fork(child: impl FnOnce() -> u8) -> io::Result<i32> {
    // SAFETY: one thread, as promised by the caller.
    match cerr(unsafe { libc::fork() })? {
        0 => {
            let status = std::panic::catch_unwind(AssertUnwindSafe(child)).unwrap_or(101);
            exit_now(status)
        }
        pid => Ok(pid),
    }
}

/// Runs `child`, which is to execute a program, in a new process that has its own descriptors,
/// signal settings and process group, but uses this process's memory until then. Nothing is copied,
/// which makes it several times cheaper than [`fork`]. This process waits meanwhile. Should `child`
/// return, that is the exit status; a panic ends it with status 101.
///
/// # Safety
/// This process has a single thread. `child` leaves its memory as that thread may find it: above
/// all it drops no descriptor, whose owner is still in use here.
pub(crate) unsafe fn fork_to_exec<F: Fn() -> u8>(child: F) -> io::Result<i32> {
    const STACK: usize = 64 << 10;
    extern "C" fn enter<F: Fn() -> u8>(child: *mut libc::c_void) -> libc::c_int {
        // SAFETY: points at the closure below, which outlives this call: its owner is waiting.
        let child = unsafe { &*child.cast::<F>() };
        std::panic::catch_unwind(AssertUnwindSafe(child))
            .unwrap_or(101)
            .into()
    }
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
            (&raw const child).cast_mut().cast(),
        )
    };
    cerr(pid)
}

/// Ends the process without exit handlers.
pub(crate) fn exit_now(status: u8) -> ! {
    // SAFETY: always allowed.
    unsafe { libc::_exit(status.into()) }
}

/// Replaces the program of this process, which gets the limits that this one began with. Returns only
/// on failure.
pub(crate) fn exec(path: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let list = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings
            .iter()
            .map(|s| s.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (argv, env) = (list(argv), list(env));
    restore_limits();
    // SAFETY: the strings and the NULL-terminated lists of them outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Two connected sockets, close-on-exec. `kind` is SOCK_STREAM or SOCK_SEQPACKET.
pub(crate) fn socketpair(kind: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors.
    cerr(unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            kind | libc::SOCK_CLOEXEC,
            0,
            fds.as_mut_ptr(),
        )
    })?;
    // SAFETY: both are new.
    Ok(unsafe { (own(fds[0]), own(fds[1])) })
}

/// A pipe, close-on-exec: read end, write end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors.
    cerr(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both are new.
    Ok(unsafe { (own(fds[0]), own(fds[1])) })
}

/// A counter that wakes an epoll.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: plain system call; the descriptor is new.
    unsafe {
        Ok(own(cerr(libc::eventfd(
            0,
            libc::EFD_CLOEXEC | libc::EFD_NONBLOCK,
        ))?))
    }
}

/// Makes operations on this open file non-blocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain system calls.
    unsafe {
        let flags = cerr(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))?;
        cerr(libc::fcntl(
            fd.as_raw_fd(),
            libc::F_SETFL,
            flags | libc::O_NONBLOCK,
        ))
        .map(drop)
    }
}

/// Puts descriptors at fixed numbers and closes all others from `first_closed` on. `placed` holds
/// (descriptor, number, close-on-exec). For a forked child that owns its descriptor table.
pub(crate) fn arrange_fds(placed: &[(RawFd, RawFd, bool)], first_closed: RawFd) -> io::Result<()> {
    // Out of the way first: a source may lie at the number of another one's target.
    let parked = placed
        .iter()
        // SAFETY: plain system call.
        .map(|&(fd, ..)| cerr(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 64) }))
        .collect::<io::Result<Vec<_>>>()?;
    for (&(_, to, cloexec), &fd) in placed.iter().zip(&parked) {
        let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
        // SAFETY: plain system call. Whatever was at `to` belongs to the parent's objects, which
        // this child never drops.
        cerr(unsafe { libc::dup3(fd, to, flags) })?;
    }
    // SAFETY: as above.
    cerr(unsafe { libc::close_range(first_closed as u32, u32::MAX, 0) }).map(drop)
}

/// Closes all descriptors but those in `keep`, which is sorted. For a forked child that owns its
/// descriptor table.
pub(crate) fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut from = 0;
    for end in keep.iter().map(|&fd| fd as u32).chain([u32::MAX]) {
        if from < end {
            // SAFETY: plain system call. What is closed belongs to the parent's objects, which this
            // child never drops.
            cerr(unsafe { libc::close_range(from, end - 1, 0) })?;
        }
        from = end.saturating_add(1);
    }
    Ok(())
}

/// Opens /dev/null for reading and writing.
pub(crate) fn dev_null() -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?
        .into())
}

/// Takes what is standard input, and leaves /dev/null in its place.
pub(crate) fn take_stdin() -> io::Result<OwnedFd> {
    let null = dev_null()?;
    // SAFETY: plain system calls; the descriptor is new.
    unsafe {
        let taken = own(cerr(libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3))?);
        cerr(libc::dup2(null.as_raw_fd(), 0))?;
        Ok(taken)
    }
}

fn read_result(n: isize) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// read(2).
pub(crate) fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is writable for its length.
    read_result(unsafe { libc::read(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) })
}

/// write(2).
pub(crate) fn write(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: the buffer is readable for its length.
    read_result(unsafe { libc::write(fd.as_raw_fd(), buf.as_ptr().cast(), buf.len()) })
}

/// Receives from a socket without waiting.
pub(crate) fn recv(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is writable for its length.
    read_result(unsafe {
        libc::recv(
            fd.as_raw_fd(),
            buf.as_mut_ptr().cast(),
            buf.len(),
            libc::MSG_DONTWAIT,
        )
    })
}

/// Sends to a socket without waiting and without SIGPIPE.
pub(crate) fn send(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the buffer is readable for its length.
    read_result(unsafe { libc::send(fd.as_raw_fd(), buf.as_ptr().cast(), buf.len(), flags) })
}

/// Sends several runs of bytes to a socket as one, without waiting and without SIGPIPE.
pub(crate) fn send_runs(fd: BorrowedFd<'_>, runs: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    // An `IoSlice` is an iovec, and the kernel only reads.
    msg.msg_iov = runs.as_ptr().cast_mut().cast();
    msg.msg_iovlen = runs.len();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the runs are readable for their lengths and outlive the call.
    read_result(unsafe { libc::sendmsg(fd.as_raw_fd(), &msg, flags) })
}

/// Ends both directions of a socket.
pub(crate) fn shut_down(socket: BorrowedFd<'_>) {
    // SAFETY: plain system call.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Waits until the descriptor can be read (or has ended), at most `max`.
pub(crate) fn poll_readable(fd: BorrowedFd<'_>, max: Duration) -> bool {
    poll(fd, libc::POLLIN, max)
}

/// Waits until the descriptor can be written (or nobody reads), at most `max`.
pub(crate) fn poll_writable(fd: BorrowedFd<'_>, max: Duration) -> bool {
    poll(fd, libc::POLLOUT, max)
}

fn poll(fd: BorrowedFd<'_>, events: libc::c_short, max: Duration) -> bool {
    let mut p = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    let ms = max.as_millis().min(i32::MAX as u128) as i32;
    // SAFETY: `p` is one valid pollfd.
    unsafe { libc::poll(&mut p, 1, ms) > 0 }
}

/// One event of an epoll set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// What the descriptor was registered with.
    pub(crate) token: u64,
    /// EPOLLIN and so on.
    pub(crate) events: u32,
}

impl Ready {
    /// Data, an end or an error can be read.
    pub(crate) fn readable(self) -> bool {
        self.events & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    /// No writer is left.
    pub(crate) fn hangup(self) -> bool {
        self.events & libc::EPOLLHUP as u32 != 0
    }

    /// Bytes can be written, or the reader is gone.
    pub(crate) fn writable(self) -> bool {
        self.events & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }
}

/// Interest of an epoll registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Nothing,
    Read,
    /// As `Read`, told once for each time that something comes.
    Edge,
    Write,
    ReadWrite,
}

impl Interest {
    fn bits(self) -> u32 {
        (match self {
            Self::Nothing => 0,
            Self::Read => libc::EPOLLIN,
            Self::Edge => libc::EPOLLIN | libc::EPOLLET,
            Self::Write => libc::EPOLLOUT,
            Self::ReadWrite => libc::EPOLLIN | libc::EPOLLOUT,
        }) as u32
    }
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain system call; the descriptor is new.
        unsafe { Ok(Self(own(cerr(libc::epoll_create1(libc::EPOLL_CLOEXEC))?))) }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    fn control(&self, op: i32, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest.bits(),
            u64: token,
        };
        // SAFETY: the event outlives the call.
        cerr(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, &mut event) }).map(drop)
    }

    pub(crate) fn add(&self, fd: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), token, interest)
    }

    pub(crate) fn change(
        &self,
        fd: &impl AsRawFd,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd.as_raw_fd(), token, interest)
    }

    pub(crate) fn remove(&self, fd: &impl AsRawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd.as_raw_fd(), 0, Interest::Nothing)
    }

    /// Waits up to `timeout` (`None`: as long as it takes) and fills `ready`.
    pub(crate) fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        const MAX: usize = 256;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MAX];
        // Rounded up: waking early would only mean waiting again.
        let ms = timeout.map_or(-1, |t| t.as_nanos().div_ceil(1_000_000).min(1 << 30) as i32);
        ready.clear();
        // SAFETY: `events` has room for MAX events.
        let n =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), MAX as i32, ms) };
        match cerr(n) {
            Ok(n) => {
                ready.extend(events[..n as usize].iter().map(|e| Ready {
                    token: e.u64,
                    events: e.events,
                }));
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(e),
        }
    }
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set; adding valid signals cannot fail.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &s in signals {
            libc::sigaddset(&mut set, s);
        }
        set
    }
}

/// Blocks exactly `signals` in this thread and those that it starts.
pub(crate) fn set_blocked(signals: &[i32]) {
    let set = signal_set(signals);
    // SAFETY: the set is initialised; the old one is not wanted.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()) };
}

/// Blocks every signal that can be blocked.
pub(crate) fn block_all() {
    // SAFETY: sigfillset initialises the set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}

/// Ignores a signal, or gives it its default effect.
pub(crate) fn set_ignored(signal: i32, ignored: bool) {
    let handler = if ignored {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    };
    // SAFETY: no handler function is involved.
    unsafe { libc::signal(signal, handler) };
}

/// Whether a signal is ignored.
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero sigaction is valid, and the kernel writes a valid one.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Signals that PEs ignore if this process was started so: those that shells and nohup have programs
/// ignore. (The library of Rust programs ignores SIGPIPE on its own account.) Bit n - 1 for signal n.
pub(crate) fn ignored_signals() -> u64 {
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP]
        .into_iter()
        .filter(|&signal| is_ignored(signal))
        .fold(0, |mask, signal| mask | 1 << (signal - 1))
}

/// Stops this process, all of its threads, as SIGTSTP does; returns when it was continued. SIGTSTP is
/// blocked before and after.
pub(crate) fn stop() {
    let set = signal_set(&[libc::SIGTSTP]);
    // SAFETY: the set is initialised. The signal is pending when it is unblocked, so the process
    // stops in the second call.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Default effect for all signals but those that are to be ignored (bit n - 1 for signal n), and none
/// blocked, as a program expects to find them.
pub(crate) fn reset_signals(ignored: u64) {
    for signal in 1..libc::SIGRTMAX() + 1 {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            set_ignored(signal, ignored >> (signal - 1) & 1 == 1);
        }
    }
    set_blocked(&[]);
}

/// A descriptor from which (blocked) signals are read.
pub(crate) fn signalfd(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = signal_set(signals);
    // SAFETY: the set is initialised; the descriptor is new.
    unsafe {
        Ok(own(cerr(libc::signalfd(
            -1,
            &set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))?))
    }
}

/// The next signal, if one is pending.
pub(crate) fn next_signal(fd: BorrowedFd<'_>) -> Option<u8> {
    // SAFETY: an all-zero signalfd_siginfo is valid.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let len = size_of_val(&info);
    // SAFETY: the kernel writes at most `len` bytes of plain data.
    let n = unsafe { libc::read(fd.as_raw_fd(), (&raw mut info).cast(), len) };
    (n == len as isize).then_some(info.ssi_signo as u8)
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
    let mut status = 0;
    loop {
        // SAFETY: `status` is writable.
        match cerr(unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) }) {
            Ok(0) => return Waited::NotYet,
            Ok(pid) => return Waited::Child(pid, status),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Waited::NoChild,
        }
    }
}

/// Waits until a child has ended, and reaps it.
pub(crate) fn wait_for(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is writable.
        match cerr(unsafe { libc::waitpid(pid, &mut status, 0) }) {
            Ok(_) => return Ok(status),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
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
    // SAFETY: plain system call.
    unsafe { libc::kill(pid, signal) };
}

/// Moves a process (0: this one) into a process group (0: a new one of its own).
pub(crate) fn set_group(pid: i32, group: i32) -> io::Result<()> {
    // SAFETY: plain system call.
    cerr(unsafe { libc::setpgid(pid, group) }).map(drop)
}

/// Makes this process the leader of a session of its own, away from any terminal.
pub(crate) fn new_session() -> io::Result<()> {
    // SAFETY: plain system call.
    cerr(unsafe { libc::setsid() }).map(drop)
}

/// From now on orphaned descendants become children of this process.
pub(crate) fn become_subreaper() -> io::Result<()> {
    // SAFETY: plain system call.
    cerr(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// From now on the end of the parent sends this process SIGTERM.
pub(crate) fn end_with_parent() {
    // SAFETY: plain system call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

/// Names this process in listings.
pub(crate) fn set_name(name: &CStr) {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// The children of this (single-threaded) process.
pub(crate) fn children() -> Vec<i32> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    text.split_whitespace()
        .filter_map(|p| p.parse().ok())
        .collect()
}

fn rlimit(which: libc::__rlimit_resource_t) -> Option<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable.
    cerr(unsafe { libc::getrlimit(which, &mut limit) })
        .ok()
        .map(|_| limit)
}

/// The limits with which this process, or the one that it was forked from, began: of descriptors, if it
/// has been raised, and of core files, if there are to be none.
static FIRST_DESCRIPTORS: OnceLock<libc::rlimit> = OnceLock::new();
static FIRST_CORE: OnceLock<libc::rlimit> = OnceLock::new();

/// From now on there is no core file of this process, or of one that is forked from it: its memory
/// has the key of the job in many places.
pub(crate) fn leave_no_core_file() {
    if let Some(old) = rlimit(libc::RLIMIT_CORE) {
        FIRST_CORE.get_or_init(|| old);
        let none = libc::rlimit { rlim_cur: 0, ..old };
        // SAFETY: `none` is readable.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    }
}

/// Raises the limit of descriptors to `need`, as far as this user may; gives what it is then.
pub(crate) fn raise_descriptors(need: u64) -> u64 {
    let Some(old) = rlimit(libc::RLIMIT_NOFILE) else {
        return u64::MAX;
    };
    FIRST_DESCRIPTORS.get_or_init(|| old);
    if old.rlim_cur >= need {
        return old.rlim_cur;
    }
    let attempts = [
        libc::rlimit {
            rlim_cur: need,
            rlim_max: old.rlim_max.max(need),
        },
        libc::rlimit {
            rlim_cur: need.min(old.rlim_max),
            rlim_max: old.rlim_max,
        },
    ];
    for limit in attempts {
        // SAFETY: `limit` is readable.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } == 0 {
            return limit.rlim_cur;
        }
    }
    old.rlim_cur
}

/// Takes [`raise_descriptors`] and [`leave_no_core_file`] back, for programs that a forked child is to
/// execute.
pub(crate) fn restore_limits() {
    let first = [
        (libc::RLIMIT_NOFILE, &FIRST_DESCRIPTORS),
        (libc::RLIMIT_CORE, &FIRST_CORE),
    ];
    for (which, limit) in first {
        if let Some(limit) = limit.get() {
            // SAFETY: `limit` is readable.
            unsafe { libc::setrlimit(which, limit) };
        }
    }
}

/// Most descriptors that a process of this user can get.
pub(crate) fn descriptors_allowed() -> Option<u64> {
    if is_root() {
        return std::fs::read_to_string("/proc/sys/fs/nr_open")
            .ok()?
            .trim()
            .parse()
            .ok();
    }
    rlimit(libc::RLIMIT_NOFILE).map(|l| l.rlim_max)
}

/// Raises the limit of processes as far as this user may; gives it if it binds.
pub(crate) fn processes_allowed() -> Option<u64> {
    if is_root() {
        return None;
    }
    let mut limit = rlimit(libc::RLIMIT_NPROC)?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is readable.
    unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) };
    (limit.rlim_max != libc::RLIM_INFINITY).then_some(limit.rlim_max)
}

/// The real user of this process, for whom the kernel counts processes.
pub(crate) fn user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::getuid() }
}

fn is_root() -> bool {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() == 0 }
}

/// Whether `fd` is a terminal in whose background this process runs.
pub(crate) fn in_background(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: plain system calls; tcgetpgrp fails for what is no terminal of ours.
    unsafe {
        let foreground = libc::tcgetpgrp(fd.as_raw_fd());
        foreground != -1 && foreground != libc::getpgrp()
    }
}

/// Whether nothing can come from this descriptor any more.
pub(crate) fn is_hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut p = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: `p` is one valid pollfd.
    unsafe { libc::poll(&mut p, 1, 0) > 0 && p.revents & libc::POLLHUP != 0 }
}

/// Makes the allocator reuse freed memory rather than give it back. The large buffers of an
/// allgather come and go; as mappings of their own each would have to be faulted in anew.
pub(crate) fn keep_freed_memory() {
    const KEEP: i32 = 64 << 20;
    // SAFETY: sets parameters of the allocator; there is a single thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEEP);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEEP);
        libc::mallopt(libc::M_TOP_PAD, 256 << 10);
    }
}

/// What this machine calls itself.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Changes the working directory.
pub(crate) fn change_dir(path: &Path) -> io::Result<()> {
    std::env::set_current_dir(path)
}

/// Enters the network namespace behind `fd`, for good.
pub(crate) fn enter_network(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain system call on an open descriptor.
    cerr(unsafe { libc::setns(fd.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

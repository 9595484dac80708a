//! The system calls of the launcher and its agents that std does not offer: fork, process groups,
//! signals as descriptors, epoll, waiting without blocking, limits. Most are rustix's; the unsafe code of
//! this crate is here, and is what rustix lacks. The drivers only add the promise that whoever forks has
//! a single thread, and that other threads have nothing to do with what is executed at once.

mod create;
mod descriptors;
mod epoll;
mod limits;
mod process;
mod signals;

use std::io;
use std::os::fd::BorrowedFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub(crate) use create::create;
pub(crate) use descriptors::{
    arrange_fds, bytes_waiting, close_all_but, dev_null, eventfd, is_hung_up, own, pipe,
    poll_readable, poll_writable, set_nonblocking, socketpair, take_stdin, was_closed,
};
pub(crate) use epoll::{Epoll, Interest, Ready};
pub(crate) use limits::{
    adopt_limits, be_undumpable, descriptors_allowed, descriptors_of_programs, leave_no_core_file,
    processes_allowed, raise_descriptors, raise_file_size, raise_stack, restore_limits,
    soft_limits, user, with_first_limits,
};
pub(crate) use process::{
    Held, Image, NotExecuted, Waited, become_subreaper, children, end_with_parent, exit_now, fork,
    fork_to_exec, go_on_without_parent, has_ended, is_running, is_stopped, kill, new_session,
    set_group, set_name, wait, wait_for, wait_for_end, wait_used,
};
pub(crate) use shmem_node::sys::{monotonic_ns, process_cpu_ns, random, recv_now, send_now};
pub(crate) use signals::{
    block_all, ignored_signals, is_ignored, next_signal, reset_signals, set_blocked, set_ignored,
    signalfd, stop,
};

/// Turns a C return value of -1 into the error in `errno`.
fn returned(value: libc::c_int) -> io::Result<libc::c_int> {
    match value {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// An error with the name of what failed, such as a system call that some kernels and containers refuse, and the limit to raise
/// where that is known.
pub(crate) fn naming<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> io::Error {
    move |e| {
        let e = e.into();
        let raise = match e.raw_os_error() {
            Some(libc::EMFILE) => " (ulimit -n)",
            _ => "",
        };
        io::Error::new(e.kind(), format!("{what}: {e}{raise}"))
    }
}

/// Starts a thread; `what` it does completes "the thread that ...".
pub(crate) fn start_thread(what: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let started = std::thread::Builder::new().spawn(work);
    started.map(drop).map_err(|e| {
        let raise = match e.kind() {
            io::ErrorKind::WouldBlock => "; raise ulimit -u, or the control group's pids.max",
            _ => "",
        };
        io::Error::new(
            e.kind(),
            format!("cannot start the thread that {what}: {e}{raise}"),
        )
    })
}

/// Ticks per second of the times of processes.
pub(crate) fn clock_ticks() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// Whether `fd` is a terminal in whose background this process runs.
pub(crate) fn in_background(fd: BorrowedFd<'_>) -> bool {
    let foreground = rustix::termios::tcgetpgrp(fd);
    foreground.is_ok_and(|group| group != rustix::process::getpgrp())
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

/// What new files of this process may not allow; it stays as it is.
pub(crate) fn file_mask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

/// Sets that.
pub(crate) fn set_file_mask(mask: u32) {
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(mask));
}

/// What this machine calls itself.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Enters the network namespace behind `fd`, for good.
pub(crate) fn enter_network(fd: BorrowedFd<'_>) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(fd, kind)?)
}

//! Descriptors: made, and put where forked processes and programs find them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;

use super::{naming, returned};

/// Standard streams that were closed when this program began, bit n for descriptor n.
static CLOSED_AT_START: AtomicU8 = AtomicU8::new(0);

/// Rust's runtime opens /dev/null in place of closed standard streams, so that only a constructor, which runs before
/// it, sees that they were closed.
#[used]
// SAFETY: a constructor. It calls poll alone, and depends on nothing that is set up later.
#[unsafe(link_section = ".init_array")]
static NOTE_CLOSED: extern "C" fn() = note_closed;

extern "C" fn note_closed() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    });
    // One call, as PEs of programs with tests have this constructor, too.
    // SAFETY: a system call that writes to the array alone.
    if unsafe { libc::poll(streams.as_mut_ptr(), streams.len() as libc::nfds_t, 0) } > 0 {
        let closed = streams.iter().filter(|s| s.revents & libc::POLLNVAL != 0);
        let closed = closed.fold(0, |bits, s| bits | 1 << s.fd);
        // ORDERING: there is a single thread.
        CLOSED_AT_START.store(closed, Ordering::Relaxed);
    }
}

/// Whether a standard stream was closed when this program began. What is written there is lost.
pub(crate) fn was_closed(fd: BorrowedFd<'_>) -> bool {
    // ORDERING: written before there were threads.
    let closed = CLOSED_AT_START.load(Ordering::Relaxed);
    (0..3).contains(&fd.as_raw_fd()) && closed >> fd.as_raw_fd() & 1 == 1
}

/// The owner of a descriptor.
///
/// # Safety
/// `fd` is open and nobody else owns it: it was just returned by the kernel, or just put at a
/// number of our choice in a forked child.
pub(crate) unsafe fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: as promised by the caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Two connected Unix sockets, close-on-exec.
pub(crate) fn socketpair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    rustix::net::socketpair(family, kind, flags, None).map_err(naming("socketpair of Unix sockets"))
}

/// A pipe, close-on-exec: read end, write end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(naming("pipe"))
}

/// A counter that wakes an epoll.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    rustix::event::eventfd(0, flags).map_err(naming("eventfd"))
}

/// Makes operations on this open file non-blocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// Puts descriptors at fixed numbers and closes all others. `placed` holds (descriptor, number,
/// close-on-exec). For a forked child that owns its descriptor table; it allocates nothing.
pub(crate) fn arrange_fds<const N: usize>(placed: &[(RawFd, RawFd, bool); N]) -> io::Result<()> {
    // Out of the way first: a source may lie at the number of another one's target.
    let mut parked = [const { None }; N];
    for (at, &(fd, ..)) in parked.iter_mut().zip(placed) {
        *at = Some(park(fd, placed)?);
    }
    for (&(_, to, cloexec), fd) in placed.iter().zip(parked.iter().flatten()) {
        let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
        // SAFETY: plain system call. Whatever was at `to` belongs to the parent's objects, which
        // this child never drops.
        returned(unsafe { libc::dup3(fd.as_raw_fd(), to, flags) })?;
    }
    drop(parked);
    let mut keep = placed.map(|(_, to, _)| to);
    keep.sort_unstable();
    close_all_but(&keep)
}

/// A duplicate whose number is none of those that `placed` names. They may lie where the limit of descriptors ends, so it
/// can lie below or between them.
fn park(fd: RawFd, placed: &[(RawFd, RawFd, bool)]) -> io::Result<OwnedFd> {
    // SAFETY: open, as its user says.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut least = 0;
    loop {
        let parked = rustix::io::fcntl_dupfd_cloexec(fd, least)?;
        least = parked.as_raw_fd() + 1;
        if !placed.iter().any(|&(_, to, _)| to == parked.as_raw_fd()) {
            return Ok(parked);
        }
    }
}

/// Closes all descriptors but those in `keep`, which is sorted. For a forked child that owns its
/// descriptor table.
pub(crate) fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut from = 0;
    for end in keep.iter().copied().chain([RawFd::MAX]) {
        if from < end {
            // SAFETY: what is closed belongs to the parent's objects, which this child never drops.
            unsafe { shmem_node::sys::close_between(from, end - 1)? };
        }
        from = end.saturating_add(1);
    }
    Ok(())
}

/// Opens /dev/null for reading and writing.
pub(crate) fn dev_null() -> io::Result<OwnedFd> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null");
    Ok(file.map_err(naming("/dev/null"))?.into())
}

/// Takes what is standard input, and leaves /dev/null in its place.
pub(crate) fn take_stdin() -> io::Result<OwnedFd> {
    let null = dev_null()?;
    let taken = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    // SAFETY: whoever reads standard input finds it empty from now on.
    unsafe { shmem_node::sys::put(null.as_raw_fd(), 0)? };
    Ok(taken)
}

/// Waits until the descriptor can be read (or has ended), at most `max`.
pub(crate) fn poll_readable(fd: BorrowedFd<'_>, max: Duration) -> bool {
    !poll(fd, PollFlags::IN, max).is_empty()
}

/// Waits until the descriptor can be written (or nobody reads), at most `max`.
pub(crate) fn poll_writable(fd: BorrowedFd<'_>, max: Duration) -> bool {
    !poll(fd, PollFlags::OUT, max).is_empty()
}

/// Bytes of all packets that can be read now.
pub(crate) fn bytes_waiting(socket: BorrowedFd<'_>) -> usize {
    rustix::io::ioctl_fionread(socket).map_or(0, |n| n as usize)
}

/// Whether nothing can come from this descriptor any more.
pub(crate) fn is_hung_up(fd: BorrowedFd<'_>) -> bool {
    poll(fd, PollFlags::empty(), Duration::ZERO).contains(PollFlags::HUP)
}

fn poll(fd: BorrowedFd<'_>, events: PollFlags, max: Duration) -> PollFlags {
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    let max = Timespec::try_from(max).ok();
    match rustix::event::poll(&mut fds, max.as_ref()) {
        Ok(_) => fds[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

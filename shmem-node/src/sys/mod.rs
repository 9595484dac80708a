//! System calls as the rest of the crate wants them: most are rustix's, whose descriptors have owners and
//! whose errors are values. What it does not have (mappings that stay, threads without frills, interfaces)
//! is unsafe code beside them. Everything here returns `io::Error` with the operating system's reason.

mod limits;
mod memory;
mod net;
mod socket;
mod status;
mod stop;
mod thread;

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::{Errno, FdFlags};
use rustix::process::Resource;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

pub use limits::{getrlimit, known_limits};
pub use memory::{
    FileId, Mapping, address_limit, file_id, file_len, file_size_limit, give_back, huge_memfd,
    memfd, page_size, page_up, reserve, seal, secret,
};
pub use net::{interface_addresses, interface_mtu};
pub use socket::{
    MAX_FDS, connect_now, keep_alive, peer_user, recv_now, recv_with_fds, room_for_descriptors,
    send_now, send_with_fds, user, wait_any, wait_hangup, wait_read, wait_readable, wait_writable,
};
pub use status::Status;
pub use stop::{OthersStopped, Undisturbed, stop_others};
pub use thread::{
    barrier_by_others, barrier_everywhere, bind_to, end_at_once, futex_wait, futex_wake, has_ended,
    is_library_thread, register_barrier_everywhere, spawn_thread, thread_id, was_forked,
    watch_forks,
};

/// Takes over a descriptor that this process was started with, such as one that a launcher names in
/// the environment, and keeps it from programs that this one executes. Each number can be taken once.
///
/// # Errors
///
/// `EBADF` if it is closed; `EBUSY` if it has been taken before, or is standard input, output or
/// error.
pub fn inherit(fd: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());
    let mut taken = TAKEN.lock().unwrap_or_else(|e| e.into_inner());
    if (0..3).contains(&fd) || taken.contains(&fd) {
        return Err(Errno::BUSY.into());
    }
    if fd < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: not negative; the call tells whether it is open.
    close_on_exec(unsafe { BorrowedFd::borrow_raw(fd) })?;
    taken.insert(fd);
    // SAFETY: open, left to this process by whoever started it, and given to one owner only.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lends a descriptor that this process was started with, as long as it is open: what has its number need not be what
/// a launcher has left there.
///
/// # Errors
///
/// `EBADF` if it is closed.
pub fn lent(fd: RawFd) -> io::Result<BorrowedFd<'static>> {
    if fd < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: not negative; the call tells whether it is open.
    let open = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_getfd(open)?;
    Ok(open)
}

/// Keeps a descriptor from programs that this one executes.
pub fn close_on_exec(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)?)
}

/// Puts a descriptor at a number, where programs that are executed find it.
///
/// # Safety
/// Nobody in this process owns what has that number.
pub unsafe fn put(fd: RawFd, at: RawFd) -> io::Result<()> {
    // SAFETY: as promised by the caller.
    match unsafe { libc::dup2(fd, at) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Closes all descriptors from `first` to `last`.
///
/// # Safety
/// Nobody in this process uses them, or drops who owns them.
pub unsafe fn close_between(first: RawFd, last: RawFd) -> io::Result<()> {
    // By number, because C libraries before 2.34 have no function for it.
    // SAFETY: as promised by the caller.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return Ok(());
    }
    // Kernels before 5.9 do not have this call, and filters of older containers refuse it.
    // SAFETY: as promised by the caller.
    unsafe { close_each(first, last) };
    Ok(())
}

/// The same one by one. Allocates nothing.
unsafe fn close_each(first: RawFd, last: RawFd) {
    each_open(first, last, |fd| {
        // SAFETY: as promised by the caller. That a number is not open is no error.
        unsafe { libc::close(fd) };
    });
}

/// Keeps all descriptors from `first` to `last` from programs that this process executes.
pub fn close_on_exec_between(first: RawFd, last: RawFd) {
    each_open(first, last, |fd| {
        // SAFETY: the call changes nothing but what an exec does. That a number is not open is no error.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    });
}

/// Calls `each` with the numbers from `first` to `last` that may be open descriptors: without /proc with all that the limit
/// allows. Allocates nothing.
fn each_open(first: RawFd, last: RawFd, mut each: impl FnMut(RawFd)) {
    /// What kernels allow at most by default (`fs.nr_open`). Descriptors beyond stay open where /proc is missing and somebody has
    /// raised that.
    const MOST: u64 = 1 << 20;
    if each_listed(first, last, &mut each).is_ok() {
        return;
    }
    // The hard limit, because the other may have been lowered since the descriptors were opened.
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(MOST);
    (first..=last.min(limit.min(MOST) as RawFd - 1)).for_each(each);
}

/// Numbers from `first` to `last` that are open descriptors.
///
/// # Errors
/// Without /proc.
pub fn listed_descriptors(first: RawFd, last: RawFd) -> io::Result<Vec<RawFd>> {
    let mut open = Vec::new();
    each_listed(first, last, |fd| open.push(fd))?;
    Ok(open)
}

/// Calls `each`, which may close them, with the numbers from `first` to `last` that are open descriptors. Allocates nothing.
fn each_listed(first: RawFd, last: RawFd, mut each: impl FnMut(RawFd)) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?;
    let (own, wanted) = (folder.as_raw_fd(), first..=last);
    let mut room = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(&folder, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        // Closing moves none of those that are still to be listed: /proc goes on behind the last number.
        if let Some(fd) = name.and_then(|name| name.parse().ok())
            && wanted.contains(&fd)
            && fd != own
        {
            each(fd);
        }
    }
    Ok(())
}

/// Calls `each` with every `NAME=value` of the environment, in its order, and copies nothing.
///
/// As with the C library's `getenv`, nobody may change the environment meanwhile.
pub fn each_variable(mut each: impl FnMut(&[u8])) {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: the C library keeps an array of pointers to strings there, which a null pointer ends, or
    // nothing at all. That nobody changes it, every caller of `getenv` assumes.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            each(std::ffi::CStr::from_ptr(*at).to_bytes());
            at = at.add(1);
        }
    }
}

/// Fills `buf` with random bytes from the operating system.
pub fn random(buf: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match getrandom(&mut buf[done..], GetRandomFlags::empty()) {
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// The same clock as it was at the last tick of the kernel's timer, some milliseconds ago at most. Reading it
/// takes a fraction of the time.
pub fn monotonic_tick_ns() -> u64 {
    clock_ns(ClockId::MonotonicCoarse)
}

/// Nanoseconds of CPU time that this process has used, all threads together.
pub fn process_cpu_ns() -> u64 {
    clock_ns(ClockId::ProcessCPUTime)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

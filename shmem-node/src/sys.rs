//! The system calls that std does not offer: memfd, seals, shared mappings, futex, descriptor
//! passing. Everything here returns `io::Error` with the operating system's reason.

mod net;
mod peer;

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub use net::{interface_addresses, interface_mtu};
pub use peer::{
    connect_now, end_at_once, peer_user, user, wait_hangup, wait_readable, wait_writable,
};

/// Turns a C return value of -1 into the error in `errno`.
pub fn cerr(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret)
    }
}

/// A new anonymous memory file of `len` bytes, not backed by pages until touched.
pub fn memfd(name: &CStr, len: u64) -> io::Result<OwnedFd> {
    memfd_of(name, len, 0)
}

/// The same of the machine's default huge pages, of which `len` must be a multiple.
pub fn huge_memfd(name: &CStr, len: u64) -> io::Result<OwnedFd> {
    memfd_of(name, len, libc::MFD_HUGETLB)
}

fn memfd_of(name: &CStr, len: u64, pages: libc::c_uint) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | pages;
    // SAFETY: `name` is a NUL-terminated string.
    let fd = cerr(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
    // SAFETY: the descriptor was just returned to us and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: plain system call on a descriptor that we own.
    cerr(unsafe { libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) })?;
    Ok(fd)
}

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
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: plain system call; it also tells whether the descriptor is open.
    cerr(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    taken.insert(fd);
    // SAFETY: open, left to this process by whoever started it, and given to one owner only.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Receives what a socket has now, without waiting: an error of the kind `WouldBlock` if that is
/// nothing; 0 at its end.
pub fn recv_now(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is writable for its length.
    let n = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            buf.as_mut_ptr().cast(),
            buf.len(),
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Sends what a socket takes now, without waiting and without SIGPIPE: an error of the kind `WouldBlock`
/// if that is nothing.
pub fn send_now(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the buffer is readable for its length.
    let n = unsafe {
        libc::send(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            flags,
        )
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Length of a memory file in bytes.
pub fn file_len(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: an all-zero stat is valid, and the call fills it in.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        cerr(libc::fstat(fd.as_raw_fd(), &mut stat))?;
        stat
    };
    Ok(stat.st_size as u64)
}

/// Forbids resizing the memory file and, when `readonly`, any further writable mapping of it.
pub fn seal(fd: BorrowedFd<'_>, readonly: bool) -> io::Result<()> {
    let mut seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    if readonly {
        seals |= libc::F_SEAL_FUTURE_WRITE;
    }
    // SAFETY: plain system call.
    cerr(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }).map(drop)
}

/// Backs `len` bytes from `offset` with pages now, so that a full machine is an error here and
/// not a SIGBUS later.
pub fn reserve(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: plain system call.
    let rc = unsafe { libc::fallocate(fd.as_raw_fd(), 0, offset as i64, len as i64) };
    cerr(rc).map(drop)
}

/// A shared mapping of a whole memory file. It is never unmapped: pointers into it stay valid
/// until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: a `Mapping` is an address range; what is done with it is up to the unsafe code that
// dereferences it, which uses atomics or the copies described in the crate's Safety section.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd`, writable or for reading only.
    pub fn new(fd: BorrowedFd<'_>, len: usize, writable: bool) -> io::Result<Self> {
        Self::with(fd, len, writable, libc::MAP_NORESERVE)
    }

    /// Maps `len` bytes of a file of huge pages and sets them aside for it, for as long as the file
    /// exists: an error of the kind `OutOfMemory` if there are too few.
    pub fn reserving(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::with(fd, len, true, 0)
    }

    /// Maps `len` bytes of `fd` for writing, at an address that is a multiple of `align`, which is one
    /// of the page size.
    pub fn aligned(fd: BorrowedFd<'_>, len: usize, align: usize) -> io::Result<Self> {
        let room = len
            .checked_add(align)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let taken = unsafe {
            libc::mmap(
                ptr::null_mut(),
                room,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if taken == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let from = taken as usize;
        let (start, end) = (from.next_multiple_of(align), from + room);
        // SAFETY: all of this lies in the mapping that was just made and is nobody's yet.
        unsafe {
            if start > from {
                libc::munmap(taken, start - from);
            }
            let kept_to = (start + len).next_multiple_of(align.min(crate::layout::PAGE));
            if end > kept_to {
                libc::munmap(kept_to as *mut _, end - kept_to);
            }
        }
        let base = start as *mut u8;
        let flags = libc::MAP_NORESERVE | libc::MAP_FIXED;
        Self::at_address(base, fd, len, true, flags).inspect_err(|_| {
            // SAFETY: as above.
            unsafe { libc::munmap(base.cast(), len) };
        })
    }

    fn with(
        fd: BorrowedFd<'_>,
        len: usize,
        writable: bool,
        flags: libc::c_int,
    ) -> io::Result<Self> {
        Self::at_address(ptr::null_mut(), fd, len, writable, flags)
    }

    /// With `MAP_FIXED` among the flags, `at` is an address range of the caller's own.
    fn at_address(
        at: *mut u8,
        fd: BorrowedFd<'_>,
        len: usize,
        writable: bool,
        flags: libc::c_int,
    ) -> io::Result<Self> {
        let prot = if writable {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing, and one at a
        // fixed address only what is the caller's own.
        let base = unsafe {
            libc::mmap(
                at.cast(),
                len,
                prot,
                libc::MAP_SHARED | flags,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base: base.cast(),
            len,
        })
    }

    /// First byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of `offset`, which must leave room for `len` more bytes.
    pub fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "offset {offset} + {len} lies outside a mapping of {} bytes",
            self.len
        );
        // SAFETY: the assertion keeps the address inside the mapping.
        unsafe { self.base.add(offset) }
    }

    /// Gives pages to a range that is about to be written, all at once. Where the kernel does not
    /// know how (before 5.14) or has none left, writing does it.
    pub fn populate(&self, offset: usize, len: usize) {
        // SAFETY: pure arithmetic on the result of a system call.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let start = offset / page * page;
        let at = self.at(start, offset - start + len);
        // SAFETY: the range lies in the mapping by `at`; the pages keep their contents.
        unsafe { libc::madvise(at.cast(), offset - start + len, libc::MADV_POPULATE_WRITE) };
    }

    /// Asks for huge pages when this process touches the mapping. A kernel without them does not mind.
    pub fn prefer_huge_pages(&self) {
        // SAFETY: the range is this mapping; only the size of pages to come changes.
        unsafe { libc::madvise(self.base.cast(), self.len, libc::MADV_HUGEPAGE) };
    }

    /// Leaves the mapping out of core files. The kernel would write all of it, also what nobody has
    /// touched, which takes memory then.
    pub fn keep_from_cores(&self) {
        // SAFETY: the range is this mapping, whose contents stay as they are.
        unsafe { libc::madvise(self.base.cast(), self.len, libc::MADV_DONTDUMP) };
    }

    /// Takes [`keep_from_cores`](Self::keep_from_cores) back for a range that begins with a page.
    pub fn let_into_cores(&self, offset: usize, len: usize) {
        let at = self.at(offset, len);
        // SAFETY: as above; the range lies in the mapping by `at`.
        unsafe { libc::madvise(at.cast(), len, libc::MADV_DODUMP) };
    }

    /// A shared object at `offset`.
    ///
    /// # Safety
    /// `T` consists of atomics, or of plain data that no process writes after this call; every bit
    /// pattern is a valid `T`; `offset` is aligned for it.
    pub unsafe fn get<T>(&self, offset: usize) -> &'static T {
        let at = self.at(offset, size_of::<T>());
        debug_assert_eq!(at as usize % align_of::<T>(), 0);
        // SAFETY: in bounds by `at`, aligned and valid by the caller, never unmapped.
        unsafe { &*at.cast::<T>() }
    }

    /// A shared array of `n` objects at `offset`.
    ///
    /// # Safety
    /// As for [`Mapping::get`].
    pub unsafe fn slice<T>(&self, offset: usize, n: usize) -> &'static [T] {
        let at = self.at(offset, size_of::<T>() * n);
        debug_assert_eq!(at as usize % align_of::<T>(), 0);
        // SAFETY: in bounds by `at`, aligned and valid by the caller, never unmapped.
        unsafe { std::slice::from_raw_parts(at.cast::<T>(), n) }
    }
}

/// Memory of this process's own for a secret, which no core file holds. It stays until the process ends.
///
/// # Errors
/// When there is no memory.
pub fn secret<const N: usize>(secret: &[u8; N]) -> io::Result<&'static [u8; N]> {
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let base = unsafe { libc::mmap(ptr::null_mut(), N, access, kind, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is new, ours alone, large enough, and never unmapped.
    unsafe {
        libc::madvise(base, N, libc::MADV_DONTDUMP);
        ptr::copy_nonoverlapping(secret.as_ptr(), base.cast(), N);
        Ok(&*base.cast())
    }
}

/// Gives the pages of a shared mapping back, also to the file behind it: they are zero afterwards.
/// Whole pages from `at`, which is the start of one. False, and nothing has changed, where the
/// kernel does not do that.
///
/// # Safety
/// The range is mapped, and nobody needs what it holds.
pub unsafe fn give_back(at: *mut u8, len: usize) -> bool {
    // SAFETY: by the caller.
    len == 0 || unsafe { libc::madvise(at.cast(), len, libc::MADV_REMOVE) } == 0
}

/// Whether there is no process with this number.
pub fn has_ended(pid: u32) -> bool {
    // SAFETY: plain system call; signal 0 is none.
    let rc = unsafe { libc::kill(pid as libc::pid_t, 0) };
    pid > 0 && rc == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Sleeps while `*word == expected`, at most `max`. Returns early at a wake, a signal, or for no
/// reason at all: callers re-check their condition. Works across processes and on mappings that
/// this process may only read. Returns whether `max` has passed.
pub fn futex_wait(word: &AtomicU32, expected: u32, max: Option<Duration>) -> bool {
    let timeout = max.map(|d| libc::timespec {
        tv_sec: d.as_secs() as libc::time_t,
        tv_nsec: d.subsec_nanos() as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word outlives the call; the kernel only reads it.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            timeout,
        )
    };
    rc == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT)
}

/// Wakes up to `n` sleepers on `word`.
pub fn futex_wake(word: &AtomicU32, n: u32) {
    // SAFETY: the word outlives the call; the kernel only uses its address.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            n.min(i32::MAX as u32),
        );
    }
}

/// Lets [`barrier_everywhere`] reach this process. Cheap only while it has one thread; forked
/// children inherit it. Says whether the kernel can do it.
pub fn register_barrier_everywhere() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
}

/// The cheap half of a barrier whose other half is [`barrier_everywhere`]: not even the compiler
/// moves accesses across it, and the processor's part is done by the other side. Together they
/// order as two sequentially consistent fences do (asymmetric fences, C++ P1202).
#[inline]
pub fn barrier_by_others() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

/// A full memory barrier on every processor that runs a thread of a registered process.
pub fn barrier_everywhere() -> bool {
    membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: plain system call without pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Starts a detached thread with a stack of `stack` bytes.
///
/// `std::thread` gives each thread a name, a signal stack and a heap arena, which together cost
/// more than the thread; a PE's start-up is short enough to notice.
///
/// # Errors
/// When the limit of processes or memory does not allow another thread.
pub fn spawn_thread(stack: usize, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    extern "C" fn enter<F: FnOnce()>(run: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the pointer came from `Box::into_raw` of this very type, and comes only once.
        let run = unsafe { Box::from_raw(run.cast::<F>()) };
        run();
        ptr::null_mut()
    }
    fn enter_of<F: FnOnce()>(_: &F) -> extern "C" fn(*mut libc::c_void) -> *mut libc::c_void {
        enter::<F>
    }
    let enter = enter_of(&run);
    let run = Box::into_raw(Box::new(run));
    // SAFETY: the attribute object is initialised, used and destroyed here; the new thread owns
    // the box, or nobody does if there is no thread.
    let errno = unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread: libc::pthread_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attr);
        libc::pthread_attr_setstacksize(&mut attr, stack);
        libc::pthread_attr_setdetachstate(&mut attr, libc::PTHREAD_CREATE_DETACHED);
        let errno = libc::pthread_create(&mut thread, &attr, enter, run.cast());
        libc::pthread_attr_destroy(&mut attr);
        errno
    };
    if errno != 0 {
        // SAFETY: no thread took the box.
        drop(unsafe { Box::from_raw(run) });
        return Err(io::Error::from_raw_os_error(errno));
    }
    Ok(())
}

/// Fills `buf` with random bytes from the operating system.
pub fn random(buf: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let rest = &mut buf[done..];
        // SAFETY: the buffer is writable for its length.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if n < 0 {
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        } else {
            done += n as usize;
        }
    }
    Ok(())
}

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of CPU time that this process has used, all threads together.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is writable; these clocks always exist on Linux.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// How many descriptors one message may carry (the kernel's SCM_MAX_FD).
pub const MAX_FDS: usize = 253;
const CONTROL_LEN: usize = 1088;

/// Aligned room for control messages.
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// Sends one message with descriptors over a Unix socket.
pub fn send_with_fds(sock: BorrowedFd<'_>, data: &[u8], fds: &[RawFd]) -> io::Result<usize> {
    assert!(
        fds.len() <= MAX_FDS,
        "{} descriptors in one message",
        fds.len()
    );
    let mut iov = libc::iovec {
        iov_base: data.as_ptr() as *mut _,
        iov_len: data.len(),
    };
    let mut control = Control([0; CONTROL_LEN]);
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    if !fds.is_empty() {
        let bytes = size_of_val(fds);
        msg.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: pure arithmetic on a small length; the buffer holds MAX_FDS descriptors.
        unsafe {
            msg.msg_controllen = libc::CMSG_SPACE(bytes as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&msg);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes as u32) as usize;
            ptr::copy_nonoverlapping(fds.as_ptr().cast(), libc::CMSG_DATA(header), bytes);
        }
    }
    loop {
        // SAFETY: `msg` points at live buffers of the stated lengths.
        let n = unsafe { libc::sendmsg(sock.as_raw_fd(), &msg, libc::MSG_NOSIGNAL) };
        if n >= 0 {
            return Ok(n as usize);
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// Receives one message and the descriptors with it. `Ok((0, _))` is the end of the stream.
/// A message longer than `data` or with more descriptors than fit is an error.
pub fn recv_with_fds(sock: BorrowedFd<'_>, data: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut iov = libc::iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: data.len(),
    };
    let mut control = Control([0; CONTROL_LEN]);
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.0.as_mut_ptr().cast();
    msg.msg_controllen = CONTROL_LEN;
    let n = loop {
        // SAFETY: `msg` points at live buffers of the stated lengths.
        let n = unsafe { libc::recvmsg(sock.as_raw_fd(), &mut msg, libc::MSG_CMSG_CLOEXEC) };
        if n >= 0 {
            break n as usize;
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel filled in the control buffer; the CMSG macros walk it within its length.
    // Each received descriptor is new and ours alone.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&msg);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let len = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                let first = libc::CMSG_DATA(header).cast::<RawFd>();
                for i in 0..len / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(first.add(i).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&msg, header);
        }
    }
    if msg.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message was truncated",
        ));
    }
    Ok((n, fds))
}

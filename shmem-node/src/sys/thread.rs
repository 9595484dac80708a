//! Sleeping and waking, barriers between processors, threads, and ends of processes.

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::thread::futex::{self, Flags};
use rustix::thread::{MembarrierCommand, gettid, membarrier};

use super::page_up;
use crate::cpus::Cpus;

/// Sleeps while `*word == expected`, at most `max`. Returns early at a wake, a signal, or for no
/// reason at all: callers re-check their condition. Works across processes and on mappings that
/// this process may only read. Returns whether `max` has passed.
pub fn futex_wait(word: &AtomicU32, expected: u32, max: Option<Duration>) -> bool {
    // What is too long for the kernel has no end.
    let max = max.and_then(|max| max.try_into().ok());
    futex::wait(word, Flags::empty(), expected, max.as_ref()) == Err(Errno::TIMEDOUT)
}

/// Wakes up to `n` sleepers on `word`.
pub fn futex_wake(word: &AtomicU32, n: u32) {
    let _ = futex::wake(word, Flags::empty(), n.min(i32::MAX as u32));
}

/// Lets [`barrier_everywhere`] reach this process. Cheap only while it has one thread; forked
/// children inherit it. Says whether the kernel can do it.
pub fn register_barrier_everywhere() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// The cheap half of a barrier whose other half is [`barrier_everywhere`]: not even the compiler
/// moves accesses across it, and the processor's part is done by the other side. Together they
/// order as two sequentially consistent fences do (asymmetric fences, C++ P1202).
#[inline]
pub fn barrier_by_others() {
    compiler_fence(Ordering::SeqCst);
}

/// A full memory barrier on every processor that runs a thread of a registered process.
pub fn barrier_everywhere() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// From now on this thread, and those that it starts, run on these processors alone.
///
/// # Errors
/// Where the kernel's reason is: none of them is online or allowed.
pub fn bind_to(cpus: &Cpus) -> io::Result<()> {
    let mask = cpus.mask();
    // SAFETY: as many bytes as the mask has; rustix's sets have an end that large machines are beyond.
    match unsafe { libc::sched_setaffinity(0, size_of_val(mask), mask.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether there is no process with this number.
pub fn has_ended(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Ends this process at once: no exit handler runs, and no stream is flushed.
pub fn end_at_once(status: i32) -> ! {
    // SAFETY: always allowed.
    unsafe { libc::_exit(status) }
}

/// Whether this process is a child that was forked since [`watch_forks`].
#[inline]
pub fn was_forked() -> bool {
    FORKED
        .get()
        .is_some_and(|forked| forked.load(Ordering::Relaxed))
}

/// Not in static data, which a program may share with others, and a child shares with its parent for a moment.
static FORKED: OnceLock<&AtomicBool> = OnceLock::new();

/// From now on children that this process forks know that they are children. What `vfork` and `posix_spawn` make does not.
pub fn watch_forks() {
    extern "C" fn in_child() {
        if let Some(forked) = FORKED.get() {
            forked.store(true, Ordering::Relaxed);
        }
    }
    FORKED.get_or_init(|| {
        // SAFETY: the handler stores to one word alone.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        Box::leak(Box::default())
    });
}

/// Ids of the threads that [`spawn_thread`] has started and that run, as far as there is room for them; else 0. Not in
/// static data for the same reason: such a thread may begin while that moves.
static OWN_THREADS: OnceLock<Box<[AtomicU32; 32]>> = OnceLock::new();

/// A thread's entry among [`OWN_THREADS`], until this is dropped.
struct Registered(Option<&'static AtomicU32>);

impl Registered {
    fn this_thread() -> Self {
        let id = thread_id();
        let takes = |entry: &&AtomicU32| {
            let taken = entry.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok()
        };
        Self(OWN_THREADS.get().and_then(|all| all.iter().find(takes)))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(entry) = self.0 {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether the thread with this id is one that [`spawn_thread`] has started and that has begun.
pub(super) fn is_own_thread(id: u32) -> bool {
    let is_it = |entry: &AtomicU32| entry.load(Ordering::Relaxed) == id;
    OWN_THREADS.get().is_some_and(|all| all.iter().any(is_it))
}

thread_local! {
    static OF_LIBRARY: Cell<bool> = const { Cell::new(false) };
}

/// Whether [`spawn_thread`] has started this thread.
pub fn is_library_thread() -> bool {
    OF_LIBRARY.get()
}

/// The kernel's id of the calling thread.
pub fn thread_id() -> u32 {
    gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Starts a detached thread that blocks the program's signals. Its stack has `stack` bytes in addition to the program's thread-local
/// data, which the C library keeps there.
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
        OF_LIBRARY.set(true);
        let _registered = Registered::this_thread();
        run();
        ptr::null_mut()
    }
    fn enter_of<F: FnOnce()>(_: &F) -> extern "C" fn(*mut libc::c_void) -> *mut libc::c_void {
        enter::<F>
    }
    OWN_THREADS.get_or_init(Box::default);
    let enter = enter_of(&run);
    let run = Box::into_raw(Box::new(run));
    // SAFETY: the attribute object is initialised, used and destroyed here; the new thread owns
    // the box, or nobody does if there is no thread.
    let errno = unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread: libc::pthread_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attr);
        libc::pthread_attr_setstacksize(&mut attr, page_up(stack + thread_local_bytes()));
        libc::pthread_attr_setdetachstate(&mut attr, libc::PTHREAD_CREATE_DETACHED);
        // A thread begins with the mask of the one that starts it.
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, &signals_to_block(), &mut mask);
        let errno = libc::pthread_create(&mut thread, &attr, enter, run.cast());
        libc::pthread_sigmask(libc::SIG_SETMASK, &mask, ptr::null_mut());
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

/// All signals that another thread can take instead. What a thread's own mistake raises stays with it, so that debuggers and
/// core files show the place.
fn signals_to_block() -> libc::sigset_t {
    const OF_THE_THREAD: [i32; 6] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
    ];
    // SAFETY: sigfillset initialises the set; taking valid signals out cannot fail.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for signal in OF_THE_THREAD {
            libc::sigdelset(&mut set, signal);
        }
        set
    }
}

/// What the thread-local data of the program and its libraries takes of each thread's stack, at most.
fn thread_local_bytes() -> usize {
    /// The C library's own, and what it keeps free for libraries that are loaded later.
    const OF_THE_C_LIBRARY: usize = 16 << 10;
    extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, sum: *mut libc::c_void) -> i32 {
        // SAFETY: the C library passes a description that it fills in, and `sum` as below.
        let (info, sum) = unsafe { (&*info, &mut *sum.cast::<usize>()) };
        // SAFETY: so many headers lie there.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let local = headers.iter().filter(|h| h.p_type == libc::PT_TLS);
        *sum += local
            .map(|h| (h.p_memsz + h.p_align) as usize)
            .sum::<usize>();
        0
    }
    let mut sum = OF_THE_C_LIBRARY;
    // SAFETY: `add` takes what it is called with, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut sum).cast()) };
    sum
}

//! Stopping all other threads of this process for a moment, wherever they are.
//!
//! The thread that stops the others sends each one a signal, whose handler waits. A thread whose handler runs does not
//! write memory, and neither does the kernel in a system call of it. Each thread gets a signal that it does not block.
//! Threads that block all signals that could be used go on: nothing but a debugger stops them. This library's own threads
//! do, and are known, so nobody waits to see whether they open their masks.
//!
//! A stopped thread may hold any lock, the allocator's among them. So nothing here allocates once the first signal is
//! sent.

use std::ffi::CStr;
use std::io::{self, Write};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, RawDir, open, stat};
use rustix::io::{Errno, read};

use super::thread::is_own_thread;
use super::{Status, futex_wait, futex_wake, thread_id};

/// Threads at most: so much is set aside beforehand.
const MOST: usize = 4096;
/// How long a thread may take to stop. One that is in the kernel stops as soon as the kernel lets it.
const LIMIT: Duration = Duration::from_secs(5);
/// How long threads may block the signals while they sleep, and while they run. A thread that blocks them for longer
/// is taken for one that always does. The C library blocks them for a moment in each new thread, which may wait for a
/// processor.
const BLOCKED_ASLEEP: Duration = Duration::from_millis(20);
const BLOCKED_RUNNING: Duration = Duration::from_secs(2);
/// Time between two looks at threads that have not stopped.
const LOOK: Duration = Duration::from_millis(1);

/// States of a thread.
const LISTED: u32 = 0;
const ASKED: u32 = 1;
const STOPPED: u32 = 2;
const GONE_ON: u32 = 3;
/// The thread has ended, or blocks all signals that could be used.
const LEFT_ALONE: u32 = 4;

/// Sets the signals of [`queue`] apart from those that the program queues.
const MARK: i32 = 0x53_74_6f_70;

/// Lines of `/proc/self/task/ID/status`.
const STATUS: [&str; 2] = ["State:", "SigBlk:"];
const LATE: &str = "a thread does not stop";
const UNREADABLE: &str = "the state of a thread cannot be read";

/// A thread of this process that is to stop. Its handler knows the address.
#[derive(Debug)]
struct Thread {
    id: libc::pid_t,
    state: AtomicU32,
    /// Not 0 once threads may go on.
    over: &'static AtomicU32,
}

/// All signals are blocked in this thread.
#[derive(Debug)]
pub struct Undisturbed {
    before: libc::sigset_t,
}

impl Undisturbed {
    /// Blocks them until the result is dropped. Handlers run then.
    pub fn begin() -> Self {
        // SAFETY: sets that the calls fill in or read; this thread's mask alone changes.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Self { before }
        }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // SAFETY: the set of before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

/// The other threads of this process, stopped until this is dropped. The thread that has it must allocate nothing and
/// take no lock of the process.
#[derive(Debug)]
pub struct OthersStopped {
    signals: Signals,
    over: &'static AtomicU32,
    /// Without room for more than [`MOST`]: no thread ever moves.
    threads: ManuallyDrop<Vec<Thread>>,
}

/// Stops the other threads, if there are any. The caller is [`Undisturbed`], and one thread at a time calls this.
///
/// # Errors
/// If they are too many, if no signal is free, or if one of them does not stop. They go on then.
pub fn stop_others(_: &Undisturbed) -> io::Result<Option<OthersStopped>> {
    // Of a directory the kernel counts two more. Without /proc nothing is known of other threads.
    if stat(c"/proc/self/task").map_or(true, |tasks| tasks.st_nlink <= 3) {
        return Ok(None);
    }
    let signals = Signals::find();
    if signals.free == 0 {
        let none = "no real-time signal is free to stop threads with";
        return Err(io::Error::other(none));
    }
    // All that is allocated. It is given back when all threads have gone on.
    let over = Box::leak(Box::new(AtomicU32::new(0)));
    let threads = ManuallyDrop::new(Vec::with_capacity(MOST));
    let mut others = OthersStopped {
        signals,
        over,
        threads,
    };
    match others.stop_all() {
        Ok(()) => Ok(Some(others)),
        Err(what) => {
            drop(others);
            Err(io::Error::other(what))
        }
    }
}

/// A set of one signal, as the kernel has sets.
fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The signals that stop threads.
#[derive(Debug)]
struct Signals {
    /// Those that nothing in this process used.
    free: u64,
    /// Those of them that have the handler now.
    used: u64,
}

impl Signals {
    fn find() -> Self {
        let is_free = |&signal: &i32| {
            // SAFETY: the call fills the structure in or fails.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, ptr::null(), &mut action) == 0
                    && action.sa_sigaction == libc::SIG_DFL
            }
        };
        let free = (libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(is_free);
        Self {
            free: free.fold(0, |all, signal| all | bit(signal)),
            used: 0,
        }
    }

    /// Lets the signal run the handler.
    fn use_one(&mut self, signal: i32) -> Result<(), &'static str> {
        if self.used & bit(signal) != 0 {
            return Ok(());
        }
        // SAFETY: the handler calls nothing that handlers may not; the default action is put back later.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let run: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = handler;
            action.sa_sigaction = run as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
            libc::sigfillset(&mut action.sa_mask);
            if libc::sigaction(signal, &action, ptr::null_mut()) != 0 {
                return Err("a signal takes no handler");
            }
        }
        self.used |= bit(signal);
        Ok(())
    }

    /// Gives the signals their default action again.
    fn put_back(&mut self) {
        for signal in (1..=64).filter(|&signal| self.used & bit(signal) != 0) {
            // SAFETY: zeros are the default action, which the signal had before.
            unsafe { libc::sigaction(signal, &std::mem::zeroed(), ptr::null_mut()) };
        }
        self.used = 0;
    }
}

extern "C" fn handler(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over what is valid. With this code, mark and process id the signal is from `queue`. Its
    // value is a thread that stays until this one has said that
    // it goes on.
    unsafe {
        if (*info).si_code != libc::SI_QUEUE
            || (*info).si_errno != MARK
            || (*info).si_pid() != libc::getpid()
        {
            return;
        }
        let errno = *libc::__errno_location();
        let thread = &*(*info).si_value().sival_ptr.cast::<Thread>();
        // ORDERING(stop): what this thread has written comes before; the partner is `settle`.
        thread.state.store(STOPPED, Ordering::Release);
        // ORDERING(stop): what the one that stops has written comes before; the partner is `drop`.
        while thread.over.load(Ordering::Acquire) == 0 {
            futex_wait(thread.over, 0, None);
        }
        *libc::__errno_location() = errno;
        thread.state.store(GONE_ON, Ordering::Release);
    }
}

/// Queues the signal for a thread. False if that has ended.
fn queue(signal: i32, thread: &Thread) -> Result<bool, &'static str> {
    /// As the kernel lays out what is queued.
    #[repr(C)]
    struct Queued {
        signal: i32,
        errno: i32,
        code: i32,
        padding: i32,
        pid: libc::pid_t,
        user: libc::uid_t,
        value: *const Thread,
        rest: [u64; 12],
    }
    const { assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>()) };
    // SAFETY: plain system calls; what is queued outlives the call.
    unsafe {
        let pid = libc::getpid();
        let queued = Queued {
            signal,
            errno: MARK,
            code: libc::SI_QUEUE,
            padding: 0,
            pid,
            user: libc::getuid(),
            value: thread,
            rest: [0; 12],
        };
        match libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            pid,
            thread.id,
            signal,
            &raw const queued,
        ) {
            0 => Ok(true),
            _ if *libc::__errno_location() == libc::ESRCH => Ok(false),
            _ => Err("the kernel queues no signal for a thread (ulimit -i)"),
        }
    }
}

/// Whether a thread of this process is there.
fn lives(id: libc::pid_t) -> bool {
    // SAFETY: plain system call, which sends nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, 0) == 0 }
}

/// What can be seen of a thread that is to get a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// The thread does not block this signal, the highest free one.
    Takes(i32),
    /// The thread blocks all signals that are free, and runs or is about to. A new thread does so until the C library
    /// opens its mask.
    BlockedRunning,
    /// The thread blocks all signals that are free, and sleeps.
    BlockedAsleep,
    /// The thread is this library's. It blocks all signals.
    Own,
    Ended,
}

/// What the status of a thread shows. `awaited` returns the signals for which a sleeping thread waits, or `None` if it
/// has just stopped to sleep.
fn sight(
    status: &Status<2>,
    free: u64,
    awaited: impl FnOnce() -> Option<u64>,
) -> Result<Sight, &'static str> {
    let state = status.value(0).and_then(|state| state.bytes().next());
    let blocked = status
        .value(1)
        .and_then(|m| u64::from_str_radix(m, 16).ok());
    let (state, blocked) = state.zip(blocked).ok_or(UNREADABLE)?;
    // `sigwait` opens the mask for the signals that it takes. They do not run handlers.
    let (blocked, asleep) = match state {
        b'Z' | b'X' => return Ok(Sight::Ended),
        b'R' | b'D' => (blocked, false),
        _ => match awaited() {
            Some(awaited) => (blocked | awaited, true),
            None => return Ok(Sight::BlockedRunning),
        },
    };
    Ok(match free & !blocked {
        0 if asleep => Sight::BlockedAsleep,
        0 => Sight::BlockedRunning,
        open => Sight::Takes(64 - open.leading_zeros() as i32),
    })
}

/// The path of a thread's file.
fn path_of<'a>(room: &'a mut [u8; 64], id: libc::pid_t, file: &str) -> &'a CStr {
    // There is room for any number.
    let _ = write!(&mut room[..63], "/proc/self/task/{id}/{file}");
    CStr::from_bytes_until_nul(room).unwrap_or_default()
}

/// Whether a thread ended before its file was read.
fn has_ended(why: Errno) -> bool {
    matches!(why, Errno::NOENT | Errno::SRCH)
}

/// Looks at a thread. Allocates nothing.
fn look_at(id: libc::pid_t, free: u64) -> Result<Sight, &'static str> {
    if is_own_thread(id.cast_unsigned()) {
        return Ok(Sight::Own);
    }
    match Status::read(path_of(&mut [0; 64], id, "status"), STATUS) {
        Ok(status) => sight(&status, free, || awaited_by(id)),
        Err(why) if has_ended(why) => Ok(Sight::Ended),
        Err(_) => Err(UNREADABLE),
    }
}

/// The signals for which a thread waits in `sigwait` or its like: none if the kernel does not show system calls, all if
/// it does not let the set be read. `None` if the thread runs.
fn awaited_by(id: libc::pid_t) -> Option<u64> {
    let mut room = [MaybeUninit::uninit(); 256];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = open(path_of(&mut [0; 64], id, "syscall"), flags, Mode::empty());
    let Ok(file) = file else { return Some(0) };
    let text = read(&file, &mut room).map_or(&[][..], |(text, _)| text);
    let waits = waits_in(text)?;
    let Some(address) = waits else { return Some(0) };
    let mut set = u64::MAX;
    let one = |at: *mut libc::c_void| libc::iovec {
        iov_base: at,
        iov_len: size_of::<u64>(),
    };
    let (to, from) = (
        one((&raw mut set).cast()),
        one(ptr::without_provenance_mut(address)),
    );
    // SAFETY: the kernel copies to `set` what it finds at the address, and fails if there is nothing.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    Some(if copied == 8 { set } else { u64::MAX })
}

/// Where the set of signals lies for which a thread waits, as `/proc/self/task/ID/syscall` shows its system call: the
/// number and the arguments. `None` if the thread runs, `Some(None)` if it sleeps elsewhere.
fn waits_in(text: &[u8]) -> Option<Option<usize>> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    let number = words.next().unwrap_or_default();
    if number == "running" {
        return None;
    }
    let waits = number.parse() == Ok(libc::SYS_rt_sigtimedwait);
    let set = words.next().and_then(|word| word.strip_prefix("0x"));
    let set = set.and_then(|digits| usize::from_str_radix(digits, 16).ok());
    Some(set.filter(|_| waits))
}

/// What asking needs from the kernel. Tests simulate it.
trait Kernel {
    fn now(&self) -> Instant;
    fn pause(&mut self);
    fn look(&mut self, id: libc::pid_t) -> Result<Sight, &'static str>;
    /// Sends a signal. Returns false if the thread has ended.
    fn send(&mut self, signal: i32, thread: &Thread) -> Result<bool, &'static str>;
}

impl Kernel for Signals {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn pause(&mut self) {
        std::thread::sleep(LOOK);
    }

    fn look(&mut self, id: libc::pid_t) -> Result<Sight, &'static str> {
        look_at(id, self.free)
    }

    fn send(&mut self, signal: i32, thread: &Thread) -> Result<bool, &'static str> {
        self.use_one(signal)?;
        queue(signal, thread)
    }
}

/// Asks all listed threads to stop. Those that block the signals share one time in which they may open their masks.
fn ask(
    threads: &[Thread],
    deadline: Instant,
    kernel: &mut impl Kernel,
) -> Result<(), &'static str> {
    let began = kernel.now();
    loop {
        let now = kernel.now();
        let mut more = false;
        for thread in threads {
            if thread.state.load(Ordering::Relaxed) != LISTED {
                continue;
            }
            let patience = match kernel.look(thread.id)? {
                Sight::Takes(signal) => {
                    thread.state.store(ASKED, Ordering::Relaxed);
                    let sent = kernel.send(signal, thread);
                    if sent != Ok(true) {
                        thread.state.store(LEFT_ALONE, Ordering::Relaxed);
                    }
                    sent?;
                    continue;
                }
                Sight::Own | Sight::Ended => Duration::ZERO,
                Sight::BlockedRunning => BLOCKED_RUNNING,
                Sight::BlockedAsleep => BLOCKED_ASLEEP,
            };
            if now.duration_since(began) >= patience {
                thread.state.store(LEFT_ALONE, Ordering::Relaxed);
            } else {
                more = true;
            }
        }
        if !more {
            return Ok(());
        }
        if now >= deadline {
            return Err(LATE);
        }
        kernel.pause();
    }
}

impl OthersStopped {
    /// Stops threads until there is none that runs: those that do may start more.
    fn stop_all(&mut self) -> Result<(), &'static str> {
        let deadline = Instant::now() + LIMIT;
        while self.list_more()? {
            ask(&self.threads, deadline, &mut self.signals)?;
            self.settle(STOPPED, deadline)?;
        }
        Ok(())
    }

    /// Lists threads that were not known before. Returns whether there were any.
    fn list_more(&mut self) -> Result<bool, &'static str> {
        let own = thread_id().cast_signed();
        let unlisted = "the threads of the process cannot be listed";
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(c"/proc/self/task", flags, Mode::empty()).map_err(|_| unlisted)?;
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(&folder, &mut room);
        let mut found = false;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|_| unlisted)?;
            let id = entry
                .file_name()
                .to_str()
                .ok()
                .and_then(|name| name.parse().ok());
            let Some(id) = id.filter(|&id| id != own && self.threads.iter().all(|t| t.id != id))
            else {
                continue;
            };
            found = true;
            if self.threads.len() == MOST {
                return Err("the process has too many threads");
            }
            // Within the room: nothing is allocated, and no thread moves.
            self.threads.push(Thread {
                id,
                state: AtomicU32::new(LISTED),
                over: self.over,
            });
        }
        Ok(found)
    }

    /// Waits until all threads that were asked are in this state or have ended.
    fn settle(&self, state: u32, deadline: Instant) -> Result<(), &'static str> {
        for thread in self.threads.iter() {
            loop {
                // ORDERING(stop): the partners are in `handler`.
                let now = thread.state.load(Ordering::Acquire);
                if [state, LISTED, LEFT_ALONE].contains(&now) {
                    break;
                }
                if !lives(thread.id) {
                    thread.state.store(LEFT_ALONE, Ordering::Relaxed);
                    break;
                }
                if Instant::now() >= deadline {
                    return Err(LATE);
                }
                std::thread::sleep(LOOK / 10);
            }
        }
        Ok(())
    }
}

impl Drop for OthersStopped {
    fn drop(&mut self) {
        // ORDERING(stop): what this thread has done meanwhile comes before; the partner is in `handler`.
        self.over.store(1, Ordering::Release);
        futex_wake(self.over, u32::MAX);
        if self.settle(GONE_ON, Instant::now() + LIMIT).is_err() {
            // The signal of a thread may still come: it must find the handler, and what that reads.
            return;
        }
        self.signals.put_back();
        // SAFETY: no signal is on its way, no handler runs, and nobody else has these.
        unsafe {
            ManuallyDrop::drop(&mut self.threads);
            drop(Box::from_raw(ptr::from_ref(self.over).cast_mut()));
        }
    }
}

#[cfg(test)]
mod tests;

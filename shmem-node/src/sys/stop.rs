//! Stopping all other threads of this process for a moment, wherever they are.
//!
//! The thread that stops the others sends each one a signal, whose handler waits. A thread whose handler runs does not
//! write memory, and neither does the kernel in a system call of it. Threads that block all signals that could be used
//! go on: nothing but a debugger stops them.
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

use super::{futex_wait, futex_wake};

/// Threads at most: so much is set aside beforehand.
const MOST: usize = 4096;
/// How long a thread may take to stop. One that is in the kernel stops as soon as the kernel lets it.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a thread may block signals that sleeps meanwhile, and one that wants to run, before it counts as one that
/// always does. The C library blocks them for a moment where it starts a thread, which may take long to get a processor.
const BLOCKED_ASLEEP: Duration = Duration::from_millis(20);
const BLOCKED_RUNNING: Duration = Duration::from_secs(2);
/// Time between two looks at threads that have not stopped.
const LOOK: Duration = Duration::from_millis(1);

/// States of a thread.
const ASKED: u32 = 0;
const STOPPED: u32 = 1;
const GONE_ON: u32 = 2;
/// It has ended, or it blocks the signal.
const LEFT_ALONE: u32 = 3;

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
    signal: i32,
    before: libc::sigaction,
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
    let free = free_signal();
    let signal =
        free.ok_or_else(|| io::Error::other("no real-time signal is free to stop threads with"))?;
    // All that is allocated. It is given back when all threads have gone on.
    let over = Box::leak(Box::new(AtomicU32::new(0)));
    let threads = ManuallyDrop::new(Vec::with_capacity(MOST));
    // SAFETY: the handler calls nothing that handlers may not; the action of before is put back later.
    let before = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        let run: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = handler;
        action.sa_sigaction = run as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&mut action.sa_mask);
        if libc::sigaction(signal, &action, &mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        before
    };
    let mut others = OthersStopped {
        signal,
        before,
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

/// A signal that nothing in this process uses.
fn free_signal() -> Option<i32> {
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|&signal| {
        // SAFETY: the call fills the structure in or fails.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, ptr::null(), &mut action) == 0
                && action.sa_sigaction == libc::SIG_DFL
        }
    })
}

extern "C" fn handler(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over what is valid. With this code and process id the signal is from `queue`: nothing else
    // of this process queues it while the handler is there. Its value is a thread that stays until this one has said that
    // it goes on.
    unsafe {
        if (*info).si_code != libc::SI_QUEUE || (*info).si_pid() != libc::getpid() {
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
            errno: 0,
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
    /// It takes the signal.
    Open,
    /// It blocks the signal, and runs or is about to: a thread begins like that, until the C library opens its mask.
    BlockedRunning,
    /// It blocks the signal and sleeps.
    BlockedAsleep,
    /// It has ended.
    Ended,
}

/// What `/proc/self/task/ID/status` shows.
fn sight(status: &[u8], signal: i32) -> Sight {
    let field = |name: &[u8]| {
        let mut lines = status.split(|&b| b == b'\n');
        lines.find_map(|line| line.strip_prefix(name))
    };
    let mask = field(b"SigBlk:\t").and_then(|digits| std::str::from_utf8(digits).ok());
    let mask = mask.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match field(b"State:\t").and_then(|state| state.first()) {
        Some(b'Z' | b'X') => Sight::Ended,
        _ if mask.unwrap_or(0) & 1 << (signal - 1) == 0 => Sight::Open,
        Some(b'R' | b'D') => Sight::BlockedRunning,
        _ => Sight::BlockedAsleep,
    }
}

/// Looks at a thread. Allocates nothing.
fn look_at(id: libc::pid_t, signal: i32) -> Sight {
    let mut path = [0; 64];
    let mut text = [MaybeUninit::uninit(); 4096];
    // There is room for any number.
    let _ = write!(&mut path[..63], "/proc/self/task/{id}/status");
    let path = CStr::from_bytes_until_nul(&path).unwrap_or_default();
    let status = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    match status.and_then(|file| {
        rustix::io::read(&file, &mut text).map(|(status, _)| sight(status, signal))
    }) {
        Ok(sight) => sight,
        Err(_) => Sight::Ended,
    }
}

impl OthersStopped {
    /// Stops threads until there is none that runs: those that do may start more.
    fn stop_all(&mut self) -> Result<(), &'static str> {
        let deadline = Instant::now() + LIMIT;
        while self.ask_more()? {
            self.settle(STOPPED, deadline)?;
        }
        Ok(())
    }

    /// Asks threads that were not known before. Whether there were any.
    fn ask_more(&mut self) -> Result<bool, &'static str> {
        // SAFETY: plain system call.
        let own = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
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
            let began = Instant::now();
            let blocked = loop {
                let patience = match look_at(id, self.signal) {
                    Sight::Open => break false,
                    Sight::Ended => break true,
                    Sight::BlockedRunning => BLOCKED_RUNNING,
                    Sight::BlockedAsleep => BLOCKED_ASLEEP,
                };
                if began.elapsed() >= patience {
                    break true;
                }
                std::thread::sleep(LOOK);
            };
            // Within the room: nothing is allocated, and no thread moves.
            self.threads.push(Thread {
                id,
                state: AtomicU32::new(if blocked { LEFT_ALONE } else { ASKED }),
                over: self.over,
            });
            let thread = &self.threads[self.threads.len() - 1];
            if !blocked && !queue(self.signal, thread)? {
                thread.state.store(LEFT_ALONE, Ordering::Relaxed);
            }
        }
        Ok(found)
    }

    /// Waits until all threads that were asked are in this state or have ended.
    fn settle(&self, state: u32, deadline: Instant) -> Result<(), &'static str> {
        for thread in self.threads.iter() {
            loop {
                // ORDERING(stop): the partners are in `handler`.
                let now = thread.state.load(Ordering::Acquire);
                if now == state || now == LEFT_ALONE {
                    break;
                }
                if !lives(thread.id) {
                    thread.state.store(LEFT_ALONE, Ordering::Relaxed);
                    break;
                }
                if Instant::now() >= deadline {
                    return Err("a thread does not stop");
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
        // SAFETY: no signal is on its way, no handler runs, and nobody else has these. The action is that of before.
        unsafe {
            libc::sigaction(self.signal, &self.before, ptr::null_mut());
            ManuallyDrop::drop(&mut self.threads);
            drop(Box::from_raw(ptr::from_ref(self.over).cast_mut()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// What a test runs with: the others of this process are stopped, too, one test at a time.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn other_threads_stand_still_and_go_on() {
        let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        let (count, end) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let counting: Vec<_> = (0..3)
            .map(|_| {
                let (count, end) = (Arc::clone(&count), Arc::clone(&end));
                std::thread::spawn(move || {
                    while !end.load(Ordering::Relaxed) {
                        count.fetch_add(1, Ordering::Relaxed);
                        // Holds the allocator's lock now and then.
                        drop(std::hint::black_box(vec![0u8; 100]));
                    }
                })
            })
            .collect();
        // One in the kernel, which has to leave it.
        let (end_reading, reader) = {
            let (read, write) = std::io::pipe().unwrap();
            let reader = std::thread::spawn(move || {
                let mut byte = [0];
                std::io::Read::read(&mut { read }, &mut byte)
            });
            (write, reader)
        };
        for _ in 0..20 {
            let now = || count.load(Ordering::Relaxed);
            let before = now();
            while now() == before {
                std::thread::yield_now();
            }
            let undisturbed = Undisturbed::begin();
            let stopped = stop_others(&undisturbed)
                .unwrap()
                .expect("there are others");
            let (first, began) = (now(), Instant::now());
            while began.elapsed() < LOOK {}
            let second = now();
            drop(stopped);
            drop(undisturbed);
            assert_eq!(first, second);
        }
        end.store(true, Ordering::Relaxed);
        counting
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        drop(end_reading);
        assert_eq!(reader.join().unwrap().unwrap(), 0);
    }

    #[test]
    fn the_status_of_a_thread_tells_whether_it_takes_a_signal() {
        let sight = |state: &str, mask: &str| {
            let text = format!("Name:\tx\nState:\t{state}\nSigPnd:\t0\nSigBlk:\t{mask}\n");
            super::sight(text.as_bytes(), 64)
        };
        assert_eq!(sight("R (running)", "0000000000000000"), Sight::Open);
        assert_eq!(
            sight("R (running)", "ffffffffffffffff"),
            Sight::BlockedRunning
        );
        assert_eq!(
            sight("S (sleeping)", "8000000000000000"),
            Sight::BlockedAsleep
        );
        assert_eq!(sight("S (sleeping)", "7fffffffffffffff"), Sight::Open);
        assert_eq!(sight("Z (zombie)", "ffffffffffffffff"), Sight::Ended);
    }

    #[test]
    fn a_thread_that_blocks_all_signals_is_left_alone() {
        let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        let (blocked, end) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (its_blocked, its_end) = (Arc::clone(&blocked), Arc::clone(&end));
        let thread = std::thread::spawn(move || {
            let _undisturbed = Undisturbed::begin();
            its_blocked.store(true, Ordering::Release);
            while !its_end.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
        });
        while !blocked.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let undisturbed = Undisturbed::begin();
        let stopped = stop_others(&undisturbed)
            .unwrap()
            .expect("there are others");
        let left_alone = stopped
            .threads
            .iter()
            .filter(|t| t.state.load(Ordering::Relaxed) == LEFT_ALONE)
            .count();
        drop(stopped);
        drop(undisturbed);
        end.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        assert!(left_alone >= 1);
    }
}

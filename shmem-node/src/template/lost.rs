//! What has happened in a process that a fork of it loses.
//!
//! Constructors of shared libraries run before the one that serves as a template, and may start threads, set timers
//! or open files. A forked PE would have none of them, so a template looks, and executes its PEs if there is anything.
//!
//! What cannot be seen from here: record locks on descriptors that the launch agent gave, undo values of System V
//! semaphores, numbers that a library has remembered, such as the process id, and timers of `timer_create` where the
//! kernel has no `/proc/self/timers`.

use std::fmt;
use std::fs;
use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr;

use libc::STDERR_FILENO;

use serde::{Deserialize, Serialize};

use crate::sys::{self, Status};

/// Lines of `/proc/self/status`.
const STATUS: [&str; 2] = ["Threads:", "VmLck:"];

/// What a fork loses, of what a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lost(u32);

impl Lost {
    /// There are other threads.
    pub const THREADS: Self = Self(1);
    /// A timer is set that sends signals.
    pub const TIMER: Self = Self(2);
    /// Ends of child processes are ignored or handled, so the launch agent would miss those of PEs.
    pub const CHILD_SIGNAL: Self = Self(4);
    /// There are descriptors that the launch agent has not given. PEs close them: most are of other PEs.
    pub const DESCRIPTORS: Self = Self(8);
    /// Memory is locked.
    pub const LOCKED_MEMORY: Self = Self(16);

    const WORDS: [(Self, &str); 5] = [
        (Self::THREADS, "started threads"),
        (Self::TIMER, "set a timer"),
        (Self::CHILD_SIGNAL, "changed what SIGCHLD does"),
        (Self::DESCRIPTORS, "opened files"),
        (Self::LOCKED_MEMORY, "locked memory"),
    ];

    /// As a number.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// From a number; what means nothing is left out.
    pub fn from_bits(bits: u32) -> Self {
        let known = Self::WORDS.iter().fold(0, |all, (one, _)| all | one.0);
        Self(bits & known)
    }

    /// Whether a fork loses nothing.
    pub const fn is_nothing(self) -> bool {
        self.0 == 0
    }

    /// This and that.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn when(self, found: bool) -> Self {
        if found { self } else { Self::default() }
    }

    /// Looks at this process, which was executed with standard streams and the descriptors `given`. What a kernel or a
    /// container does not show is taken for absent.
    pub fn look(given: Range<RawFd>) -> Self {
        let status = Status::read(c"/proc/self/status", STATUS);
        let of_status = status.map_or(Self::default(), |status| Self::of_status(&status));
        of_status
            .and(Self::TIMER.when(has_timer()))
            .and(Self::CHILD_SIGNAL.when(!ends_of_children_are_kept()))
            .and(Self::DESCRIPTORS.when(has_descriptor_beside(given)))
    }

    /// What `/proc/self/status` shows.
    fn of_status(status: &Status<2>) -> Self {
        let number = |index| -> u64 {
            let digits = status.value(index).and_then(|v| v.split(' ').next());
            digits.map_or(0, |digits| digits.parse().unwrap_or(0))
        };
        Self::THREADS
            .when(number(0) > 1)
            .and(Self::LOCKED_MEMORY.when(number(1) > 0))
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Self::WORDS.iter().filter(|(one, _)| self.0 & one.0 != 0);
        for (at, (_, word)) in words.enumerate() {
            let and = if at == 0 { "" } else { " and " };
            write!(f, "{and}{word}")?;
        }
        Ok(())
    }
}

/// Whether a timer of `setitimer` or `timer_create` is there. Profilers set one before `main`.
fn has_timer() -> bool {
    let runs = |which| {
        // SAFETY: numbers, for which zeros are values; the call fills them in or fails.
        unsafe {
            let mut timer: libc::itimerval = std::mem::zeroed();
            let known = libc::getitimer(which, &mut timer) == 0;
            known && (timer.it_value.tv_sec, timer.it_value.tv_usec) != (0, 0)
        }
    };
    [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF]
        .into_iter()
        .any(runs)
        || fs::read("/proc/self/timers").is_ok_and(|timers| !timers.is_empty())
}

/// Whether the statuses of children are kept until a process asks for them, in the end the launch agent.
fn ends_of_children_are_kept() -> bool {
    // SAFETY: a structure for which zeros are a value; the call fills it in or fails.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGCHLD, ptr::null(), &mut action) != 0
            || action.sa_sigaction == libc::SIG_DFL && action.sa_flags & libc::SA_NOCLDWAIT == 0
    }
}

fn has_descriptor_beside(given: Range<RawFd>) -> bool {
    let open = sys::listed_descriptors(STDERR_FILENO + 1, RawFd::MAX);
    open.is_ok_and(|open| open.iter().any(|fd| !given.contains(fd)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_all_that_was_found() {
        assert_eq!(Lost::default().to_string(), "");
        let two = Lost::TIMER.and(Lost::THREADS);
        assert_eq!(two.to_string(), "started threads and set a timer");
        assert_eq!(Lost::from_bits(two.bits() | 1 << 31), two);
    }

    #[test]
    fn the_status_of_a_process_tells_threads_and_locked_memory() {
        let status = |threads, locked| {
            let text =
                format!("Name:\tx\nVmLck:\t{locked:>8} kB\nThreads:\t{threads}\nSigQ:\t0/1\n");
            Lost::of_status(&Status::of(text.as_bytes(), STATUS))
        };
        assert_eq!(status(1, 0), Lost::default());
        assert_eq!(status(2, 0), Lost::THREADS);
        assert_eq!(status(1, 4), Lost::LOCKED_MEMORY);
        let nothing = Status::of(b"", STATUS);
        assert_eq!(Lost::of_status(&nothing), Lost::default());
    }

    /// The first of two numbers that a child may have been given.
    const GIVEN: RawFd = 100;

    /// Runs in a child, which has one thread, and returns what it finds after `act`.
    fn found_after(act: impl FnOnce()) -> Lost {
        // SAFETY: the child calls nothing that other threads could have locked but the allocator, which the C
        // library keeps usable.
        match unsafe { libc::fork() } {
            -1 => panic!("{}", std::io::Error::last_os_error()),
            0 => {
                // SAFETY: nothing of this process is used any more.
                let closed = unsafe { sys::close_between(3, RawFd::MAX) };
                act();
                let found = closed.map_or(255, |()| Lost::look(GIVEN..GIVEN + 2).bits());
                sys::end_at_once(found as i32)
            }
            child => {
                let mut status = 0;
                // SAFETY: `status` outlives the call.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert!(libc::WIFEXITED(status), "{status:#x}");
                Lost(libc::WEXITSTATUS(status) as u32)
            }
        }
    }

    #[test]
    fn a_process_that_has_done_nothing_loses_nothing() {
        assert_eq!(found_after(|| ()), Lost::default());
    }

    #[test]
    fn everything_that_a_fork_loses_is_found() {
        let timer = |which| {
            move || {
                let second = libc::timeval {
                    tv_sec: 1000,
                    tv_usec: 0,
                };
                let value = libc::itimerval {
                    it_interval: second,
                    it_value: second,
                };
                // SAFETY: it outlives the call.
                unsafe { libc::setitimer(which, &value, ptr::null_mut()) };
            }
        };
        for which in [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF] {
            assert_eq!(found_after(timer(which)), Lost::TIMER, "{which}");
        }
        // SAFETY: changes the child alone.
        let ignore = || unsafe {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        };
        assert_eq!(found_after(ignore), Lost::CHILD_SIGNAL);
        // SAFETY: as above.
        let open = || unsafe {
            libc::dup(0);
        };
        assert_eq!(found_after(open), Lost::DESCRIPTORS);
        for (at, found) in [
            (GIVEN, Lost::default()),
            (GIVEN + 1, Lost::default()),
            (GIVEN + 2, Lost::DESCRIPTORS),
        ] {
            // SAFETY: as above.
            let open = || unsafe {
                libc::dup2(0, at);
            };
            assert_eq!(found_after(open), found, "{at}");
        }
        let thread = || {
            drop(sys::spawn_thread(1 << 16, || {
                loop {
                    std::thread::park();
                }
            }))
        };
        assert_eq!(found_after(thread), Lost::THREADS);
    }
}

//! Signals: blocked, ignored, and read from descriptors. What is left of libc here rustix does not have,
//! since the C library has a say in it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::{naming, own, returned};

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
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let fd = returned(libc::signalfd(-1, &set, flags)).map_err(naming("signalfd"))?;
        Ok(own(fd))
    }
}

/// The next signal, if one is pending.
pub(crate) fn next_signal(fd: BorrowedFd<'_>) -> Option<u8> {
    let mut info = [0; size_of::<libc::signalfd_siginfo>()];
    let n = rustix::io::read(fd, &mut info).ok()?;
    // Its first word is the number.
    let (number, _) = info.split_first_chunk()?;
    (n == info.len()).then_some(u32::from_ne_bytes(*number) as u8)
}

//! System calls that the standard library has no functions for.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

/// A result of a system call.
fn done(result: i32, what: &str) -> i32 {
    assert!(result >= 0, "{what}: {}", io::Error::last_os_error());
    result
}

pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> OwnedFd {
    // SAFETY: the call has no memory for arguments, and what it returns is nobody else's.
    unsafe { OwnedFd::from_raw_fd(done(libc::socket(family, kind, protocol), "socket")) }
}

/// Changes how many connections of a listener can wait.
pub(crate) fn listen(listener: &UnixListener, backlog: i32) {
    // SAFETY: the call has no memory for arguments.
    done(
        unsafe { libc::listen(listener.as_raw_fd(), backlog) },
        "listen",
    );
}

/// Becomes another user, for good.
pub(crate) fn become_user(user: &str) {
    let user = user.parse().expect("the number of a user");
    // SAFETY: the calls change numbers of this process, which has no other thread.
    unsafe {
        done(libc::setgroups(0, std::ptr::null()), "setgroups");
        done(libc::setresgid(user, user, user), "setresgid");
        done(libc::setresuid(user, user, user), "setresuid");
    }
}

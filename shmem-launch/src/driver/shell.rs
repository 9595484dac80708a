//! Remote shells as processes: how one is started, and what it inherits.
//!
//! Its standard input and output are one end of the link, its standard error a pipe that whoever
//! started it reads. It is in a session of its own: signals of the terminal are for shmrun alone, and
//! without a terminal it cannot ask for a password and wait forever.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::net::SocketType;

use crate::program;
use crate::remote::RemoteShell;
use crate::sys::{self, Image};

/// A started remote shell.
#[derive(Debug)]
pub(super) struct Shell {
    pub(super) pid: i32,
    /// Our end of the link.
    pub(super) link: OwnedFd,
    /// What it writes to standard error.
    pub(super) said: OwnedFd,
}

/// Starts the remote shell that starts an agent on `host`, which it calls `target`.
///
/// # Errors
/// What to tell the user.
///
/// # Safety
/// As of [`sys::fork_to_exec`].
pub(super) unsafe fn start(shell: &RemoteShell, host: &str, target: &str) -> Result<Shell, String> {
    let failed = |e: &dyn std::fmt::Display| {
        format!(
            "cannot start the remote shell to host {host}: {}: {e}",
            shell.shown(target)
        )
    };
    // SAFETY: as promised by the caller.
    unsafe { spawn(shell, target) }.map_err(|e| failed(&e))
}

/// # Safety
/// As of [`sys::fork_to_exec`].
unsafe fn spawn(shell: &RemoteShell, target: &str) -> io::Result<Shell> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let text = |bytes: &[u8]| {
        CString::new(bytes).map_err(|_| invalid("an argument has a NUL byte".into()))
    };
    let name = shell.words.first().map_or("", String::as_str);
    let found = program::find(OsStr::new(name), std::env::var_os("PATH"))
        .map_err(|e| invalid(e.to_string()))?;
    let path = text(found.as_os_str().as_bytes())?;
    let argv = shell.argv(target);
    let argv = argv
        .iter()
        .map(|a| text(a))
        .collect::<io::Result<Vec<_>>>()?;
    let own = |name: &OsStr| shell.without.iter().all(|w| OsStr::new(w) != name);
    let env = std::env::vars_os()
        .filter(|(name, _)| own(name))
        .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect::<io::Result<Vec<_>>>()?;
    let (ours, theirs) = sys::socketpair(SocketType::STREAM)?;
    let (said, say) = sys::pipe()?;
    sys::set_nonblocking(said.as_fd())?;
    let placed = [
        (theirs.as_raw_fd(), 0, false),
        (theirs.as_raw_fd(), 1, false),
        (say.as_raw_fd(), 2, false),
    ];
    let image = Image::new(&path, &argv, &env);
    // SAFETY: what other threads do is for the caller; the child changes nothing that we own.
    let pid = unsafe { sys::fork_to_exec(|| image.exec_alone(&placed)) }
        .map_err(|e| program::not_started(&found, e))?;
    Ok(Shell {
        pid,
        link: ours,
        said,
    })
}

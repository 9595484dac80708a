//! System calls about the process at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::cerr;

/// The user that this process acts as.
pub fn user() -> u32 {
    // SAFETY: plain system call.
    unsafe { libc::geteuid() }
}

/// The user as which the other end of a connected Unix socket was opened.
///
/// # Errors
/// The socket is of another kind.
pub fn peer_user(sock: BorrowedFd<'_>) -> io::Result<u32> {
    let mut cred = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `cred`.
    cerr(unsafe {
        libc::getsockopt(
            sock.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &mut len,
        )
    })?;
    Ok(cred.uid)
}

/// Connects to the socket of this name in the abstract namespace, without waiting: an error of the kind
/// `WouldBlock` if too many others wait there to be accepted.
///
/// # Errors
/// As those of connect(2); `InvalidInput` for a name that is too long.
pub fn connect_now(name: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero address is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte stays 0, which makes the name abstract.
    let Some(room) = address.sun_path[1..].get_mut(..name.len()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    for (to, &byte) in room.iter_mut().zip(name) {
        *to = byte as libc::c_char;
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the descriptor is new and ours alone; the address is readable for its length.
    unsafe {
        let socket = OwnedFd::from_raw_fd(cerr(libc::socket(libc::AF_UNIX, kind, 0))?);
        let (at, len) = ((&raw const address).cast(), len as libc::socklen_t);
        cerr(libc::connect(socket.as_raw_fd(), at, len))?;
        Ok(socket)
    }
}

/// Sleeps until the descriptor is readable or `max` has passed, or a signal comes.
///
/// # Errors
/// The descriptor is none.
pub fn wait_readable(fd: BorrowedFd<'_>, max: Duration) -> io::Result<()> {
    wait_for(fd, libc::POLLIN, Some(max))
}

/// Sleeps until the descriptor is writable, or also when it is readable, or `max` has passed, if there
/// is one, or a signal comes.
///
/// # Errors
/// The descriptor is none.
pub fn wait_writable(
    fd: BorrowedFd<'_>,
    or_readable: bool,
    max: Option<Duration>,
) -> io::Result<()> {
    let read = if or_readable { libc::POLLIN } else { 0 };
    wait_for(fd, libc::POLLOUT | read, max)
}

fn wait_for(fd: BorrowedFd<'_>, events: libc::c_short, max: Option<Duration>) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    // Rounded up: with 0 the caller would spin through the last millisecond.
    let ms = max.map_or(-1, |max| {
        max.as_millis().saturating_add(1).min(i32::MAX as u128) as i32
    });
    // SAFETY: one pollfd, writable.
    match cerr(unsafe { libc::poll(&mut poll, 1, ms) }) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}

/// Sleeps until the other side of a stream socket is closed. What can be read is left alone.
///
/// # Errors
/// The descriptor is none.
pub fn wait_hangup(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLRDHUP,
        revents: 0,
    };
    loop {
        // SAFETY: one pollfd, writable.
        match cerr(unsafe { libc::poll(&mut poll, 1, -1) }) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
            Ok(_) if poll.revents & libc::POLLNVAL != 0 => {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            Ok(_) => return Ok(()),
        }
    }
}

/// Ends this process at once: no exit handler runs, and no stream is flushed.
pub fn end_at_once(status: i32) -> ! {
    // SAFETY: plain system call.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_hangup_is_noticed_behind_unread_bytes() {
        let (a, mut b) = UnixStream::pair().unwrap();
        b.write_all(b"x").unwrap();
        let waiting = std::thread::spawn(move || {
            wait_hangup(a.as_fd()).unwrap();
            a
        });
        drop(b);
        let mut a = waiting.join().unwrap();
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut a, &mut rest).unwrap();
        assert_eq!(rest, "x");
    }

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (a, mut b) = UnixStream::pair().unwrap();
        assert_eq!(peer_user(a.as_fd()).unwrap(), user());
        wait_readable(a.as_fd(), Duration::from_millis(1)).unwrap();
        b.write_all(b"x").unwrap();
        wait_readable(a.as_fd(), Duration::from_secs(60)).unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(peer_user(file.as_fd()).is_err());
    }
}

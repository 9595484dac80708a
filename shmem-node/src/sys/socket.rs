//! Unix sockets: messages with descriptors, the process at the other end, and waiting for either.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Resource, setrlimit};

use super::getrlimit;

/// Receives what a socket has now, without waiting: an error of the kind `WouldBlock` if that is
/// nothing; 0 at its end.
pub fn recv_now(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(socket, buf, RecvFlags::DONTWAIT)?.0)
}

/// Sends what a socket takes now, without waiting and without SIGPIPE: an error of the kind `WouldBlock`
/// if that is nothing.
pub fn send_now(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(rustix::net::send(socket, bytes, flags)?)
}

/// How many descriptors one message may carry (the kernel's SCM_MAX_FD).
pub const MAX_FDS: usize = 253;

/// Room for that many.
const CONTROL_LEN: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

/// Sends one message with descriptors over a Unix socket.
///
/// # Panics
/// If there are more than [`MAX_FDS`].
pub fn send_with_fds(
    sock: BorrowedFd<'_>,
    data: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let fits = fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds));
    assert!(fits, "{} descriptors in one message", fds.len());
    let data = [IoSlice::new(data)];
    let send = || rustix::net::sendmsg(sock, &data, &mut control, SendFlags::NOSIGNAL);
    Ok(retry_on_intr(send)?)
}

/// Receives one message and the descriptors with it. `Ok((0, _))` is the end of the stream.
/// A message longer than `data` or with more descriptors than fit is an error.
pub fn recv_with_fds(sock: BorrowedFd<'_>, data: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut data = [IoSliceMut::new(data)];
    let got = retry_on_intr(|| {
        rustix::net::recvmsg(sock, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    if got.flags.intersects(cut) {
        let what = "a message was truncated";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok((got.bytes, fds))
}

/// The user that this process acts as.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The user as which the other end of a connected Unix socket was opened.
///
/// # Errors
/// The socket is of another kind; or the user may be anybody. In a user namespace the kernel gives one number, the overflow user's,
/// for all that have none there: if this process itself has that number, it tells nothing.
pub fn peer_user(sock: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // Not by rustix: its process ids are never 0, as that of a peer in another PID namespace is.
    // SAFETY: the kernel writes at most `len` bytes of plain numbers to `peer`.
    let rc = unsafe {
        libc::getsockopt(
            sock.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    match rc {
        0 if peer.uid == user() && peer.uid == overflow_user() && !maps_all_users() => {
            Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "any user of this machine may have the number {}, since this user namespace does not map all of them \
                     (/proc/self/uid_map); run as a user that it maps",
                    peer.uid
                ),
            ))
        }
        0 => Ok(peer.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number by which the kernel calls users that a namespace does not map.
fn overflow_user() -> u32 {
    let set = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    set.ok()
        .and_then(|n| n.trim().parse().ok())
        .unwrap_or(65534)
}

/// Whether every user has a number of their own in this process's user namespace.
fn maps_all_users() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_all(&map))
}

fn maps_all(uid_map: &str) -> bool {
    // Lines of the first number here, the first outside, and how many. The last number of all is none.
    let counts = uid_map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() >= u64::from(u32::MAX)
}

/// Connects to the socket of this name in the abstract namespace, without waiting: an error of the kind
/// `WouldBlock` if too many others wait there to be accepted.
///
/// # Errors
/// As those of connect(2); `InvalidInput` for a name that is too long.
pub fn connect_now(name: &[u8]) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new_abstract_name(name)
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Sleeps until the descriptor is readable or `max` has passed, or a signal comes.
///
/// # Errors
/// The descriptor is none.
pub fn wait_readable(fd: BorrowedFd<'_>, max: Duration) -> io::Result<()> {
    wait_for(fd, PollFlags::IN, Some(max))
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
    let mut events = PollFlags::OUT;
    events.set(PollFlags::IN, or_readable);
    wait_for(fd, events, max)
}

/// Sleeps until the other end of a Unix socket has read all that was sent from this one, or `max` has passed.
/// Returns whether it has.
///
/// # Errors
/// The descriptor is none of a socket.
pub fn wait_read(socket: BorrowedFd<'_>, max: Duration) -> io::Result<bool> {
    const LONGEST: Duration = Duration::from_millis(2);
    let began = Instant::now();
    let mut nap = Duration::from_micros(50);
    loop {
        let mut unread: libc::c_int = 0;
        // SAFETY: the request writes one int.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if unread == 0 || began.elapsed() >= max {
            return Ok(unread == 0);
        }
        // Nothing else tells of it.
        std::thread::sleep(nap);
        nap = LONGEST.min(2 * nap);
    }
}

fn wait_for(fd: BorrowedFd<'_>, events: PollFlags, max: Option<Duration>) -> io::Result<()> {
    // What is too long for the kernel has no end.
    let max = max.and_then(|max| max.try_into().ok());
    match poll(&mut [PollFd::from_borrowed_fd(fd, events)], max.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Sleeps until one of the descriptors is readable, or also writable where that is wanted, or `max` has passed,
/// if there is one, or a signal comes. Gives for each whether there is something to do.
///
/// # Errors
/// A descriptor is none, or there are too many.
pub fn wait_any<'f>(
    fds: impl IntoIterator<Item = (BorrowedFd<'f>, bool)>,
    max: Option<Duration>,
) -> io::Result<Vec<bool>> {
    let watch = |(fd, writes)| {
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, writes);
        PollFd::from_borrowed_fd(fd, events)
    };
    let mut fds: Vec<PollFd<'f>> = fds.into_iter().map(watch).collect();
    let max = max.and_then(|max| max.try_into().ok());
    match poll(&mut fds, max.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(e) => Err(e.into()),
    }
}

/// Has the kernel find out whether the other end of a TCP connection on which nothing is said is still there:
/// asked after `idle` for the first time, it counts as gone after about twice that.
///
/// # Errors
/// The socket is of another kind.
pub fn keep_alive(socket: BorrowedFd<'_>, idle: Duration) -> io::Result<()> {
    const ASKED: u32 = 4;
    let every = (idle / ASKED).max(Duration::from_secs(1));
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, every)?;
    sockopt::set_tcp_keepcnt(socket, ASKED)?;
    // The same for what was sent and is not acknowledged.
    let all = u32::try_from((idle * 2).as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(socket, all)?)
}

/// Raises the number of descriptors that this process may have open to `wanted`, as far as it may. Gives how many
/// it may have then.
pub fn room_for_descriptors(wanted: u64) -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let now = limit.current.unwrap_or(u64::MAX);
    if now >= wanted {
        return now;
    }
    let most = limit.maximum.unwrap_or(u64::MAX);
    let raised = wanted.min(most);
    limit.current = Some(raised);
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => raised,
        Err(_) => now,
    }
}

/// Sleeps until the other side of a stream socket is closed. What can be read is left alone.
///
/// # Errors
/// The descriptor is none.
pub fn wait_hangup(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::RDHUP)];
    retry_on_intr(|| poll(&mut fds, None))?;
    match fds[0].revents().contains(PollFlags::NVAL) {
        true => Err(Errno::BADF.into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use shmem_testkit::needs::skipped;

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

    const IN_A_NAMESPACE: &str = "SHMEM_TEST_IN_A_NAMESPACE";

    /// Runs a test again in namespaces that `unshare` makes with these options, with one end of a pair as standard input.
    fn again_in(options: &[&str], test: &str) {
        let (end, _other) = UnixStream::pair().unwrap();
        let unshare = || {
            let mut command = std::process::Command::new("unshare");
            command.args(options).arg("--");
            command
        };
        if !unshare().arg("true").status().is_ok_and(|s| s.success()) {
            return skipped("hosts", format!("unshare {options:?} makes no namespace"));
        }
        let said = unshare()
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &format!("sys::socket::tests::{test}")])
            .env(IN_A_NAMESPACE, "1")
            .stdin(OwnedFd::from(end))
            .output()
            .unwrap();
        assert!(said.status.success(), "{said:?}");
        assert!(String::from_utf8_lossy(&said.stdout).contains("1 passed"));
    }

    #[test]
    fn the_peer_may_be_in_another_pid_namespace() {
        if std::env::var_os(IN_A_NAMESPACE).is_some() {
            return assert_eq!(peer_user(std::io::stdin().as_fd()).unwrap(), user());
        }
        again_in(
            &["--user", "--map-root-user", "--pid", "--fork"],
            "the_peer_may_be_in_another_pid_namespace",
        );
    }

    /// There everybody has the number of the overflow user, this process included.
    #[test]
    fn a_peer_that_may_be_anybody_is_not_taken_for_the_own_user() {
        if std::env::var_os(IN_A_NAMESPACE).is_some() {
            assert_eq!(user(), overflow_user());
            let error = peer_user(std::io::stdin().as_fd()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            return assert!(error.to_string().contains("uid_map"), "{error}");
        }
        again_in(
            &["--user"],
            "a_peer_that_may_be_anybody_is_not_taken_for_the_own_user",
        );
    }

    #[test]
    fn a_namespace_maps_all_users_or_some() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(maps_all("0 0 65534\n65534 65534 4294901761\n"));
        assert!(!maps_all("0 1000 1\n1 100000 65536\n"));
        assert!(!maps_all(""));
    }
}

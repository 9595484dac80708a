//! Moving bytes between a link and the buffers of the pure machines.
//!
//! A link is a socket, whose other end a forked agent or a remote shell has. Only an agent that a
//! remote shell started has something else: two pipes, or whatever the shell's server gave it as
//! standard input and output.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::frame::{FRAME_MAX, OutBuf};
use crate::sys;

/// Runs of bytes that are sent by one call.
const RUNS: usize = 32;

/// What reading a link found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Got {
    /// This many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The other end is gone.
    End,
}

/// Receives what is there, at most a buffer full.
pub(super) fn receive(socket: &OwnedFd, buf: &mut [u8]) -> Got {
    loop {
        return match sys::recv(socket.as_fd(), buf) {
            Ok(0) => Got::End,
            Ok(n) => Got::Bytes(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Got::Nothing,
            // A reset link is as ended as a closed one.
            Err(_) => Got::End,
        };
    }
}

/// Sends what the socket takes. True if everything went out (or never will: a link that is gone
/// shows when it is read).
pub(super) fn flush(socket: &OwnedFd, out: &mut OutBuf) -> bool {
    match flush_by(|runs| sys::send_runs(socket.as_fd(), runs), out) {
        Flushed::All => true,
        Flushed::Blocked => false,
        Flushed::Broken => {
            // The other end would take what comes next for the rest of a frame.
            sys::shut_down(socket.as_fd());
            true
        }
    }
}

/// Writes by `send` until that refuses, and forgets the rest if it will never take it.
fn flush_by(
    mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    out: &mut OutBuf,
) -> Flushed {
    while !out.is_empty() {
        let mut runs = [IoSlice::new(&[]); RUNS];
        let n = out.runs(&mut runs);
        match send(&runs[..n]) {
            Ok(n) => out.consume(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if may_be_taken_later(&e) => return Flushed::Blocked,
            Err(_) => {
                out.clear();
                return Flushed::Broken;
            }
        }
    }
    Flushed::All
}

/// Whether a write failed for want of room: in the socket, or of memory for what is written.
fn may_be_taken_later(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock
        || matches!(e.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

/// The link of an agent to its parent.
#[derive(Debug)]
pub(super) enum Uplink {
    /// To the parent that forked it.
    Socket(OwnedFd),
    /// To the parent that started it by a remote shell.
    Pipes {
        /// What the parent sends.
        input: OwnedFd,
        /// What it gets.
        output: OwnedFd,
    },
}

/// What became of bytes to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    /// All went out.
    All,
    /// Some wait for room.
    Blocked,
    /// Nobody will read them.
    Broken,
}

impl Uplink {
    /// The descriptor that is read.
    pub(super) fn input(&self) -> &OwnedFd {
        match self {
            Self::Socket(socket) => socket,
            Self::Pipes { input, .. } => input,
        }
    }

    /// The descriptor that is written, if that is another one.
    pub(super) fn output(&self) -> Option<&OwnedFd> {
        match self {
            Self::Socket(_) => None,
            Self::Pipes { output, .. } => Some(output),
        }
    }

    /// Makes reading and writing return at once, as they do on a socket anyway.
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Socket(_) => Ok(()),
            Self::Pipes { input, output } => {
                sys::set_nonblocking(input.as_fd())?;
                sys::set_nonblocking(output.as_fd())
            }
        }
    }

    /// As [`receive`].
    pub(super) fn receive(&self, buf: &mut [u8]) -> Got {
        let input = match self {
            Self::Socket(socket) => return receive(socket, buf),
            Self::Pipes { input, .. } => input,
        };
        loop {
            return match sys::read(input.as_fd(), buf) {
                Ok(0) => Got::End,
                Ok(n) => Got::Bytes(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Got::Nothing,
                Err(_) => Got::End,
            };
        }
    }

    /// Sends what the link takes.
    pub(super) fn flush(&self, out: &mut OutBuf) -> Flushed {
        let output = match self {
            // A socket that is gone shows when it is read.
            Self::Socket(socket) => {
                return match flush(socket, out) {
                    true => Flushed::All,
                    false => Flushed::Blocked,
                };
            }
            Self::Pipes { output, .. } => output,
        };
        flush_by(|runs| sys::write(output.as_fd(), &runs[0]), out)
    }

    /// As [`send_all`].
    pub(super) fn send_all(&self, out: &mut OutBuf) {
        send_all(self.output().unwrap_or_else(|| self.input()), out);
    }
}

/// How long memory may take to come back, where nothing else tells.
const SHORT_OF_MEMORY: Duration = Duration::from_millis(1);

/// Longest sleep in a wait for a descriptor, after which the call is tried again.
const NAP: Duration = Duration::from_secs(60);

/// Waits for exactly one frame and gives its content; nothing after it is taken from the socket.
///
/// # Errors
/// When the link ends or fails first.
pub(super) fn read_one_frame(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    read_exact(socket, &mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > FRAME_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a frame of {len} bytes"),
        ));
    }
    let mut content = vec![0; len];
    read_exact(socket, &mut content)?;
    Ok(content)
}

fn read_exact(socket: &OwnedFd, mut buf: &mut [u8]) -> io::Result<()> {
    while !buf.is_empty() {
        match sys::read(socket.as_fd(), buf) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => buf = &mut buf[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                sys::poll_readable(socket.as_fd(), NAP);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Sends everything, waiting as long as it takes. Failures show when the link is read.
pub(super) fn send_all(socket: &OwnedFd, out: &mut OutBuf) {
    while !out.is_empty() {
        match sys::write(socket.as_fd(), out.pending()) {
            Ok(n) => out.consume(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                sys::poll_writable(socket.as_fd(), NAP);
            }
            Err(e) if may_be_taken_later(&e) => std::thread::sleep(SHORT_OF_MEMORY),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    /// What arrives when every other write fails with `errno` after one that took a part of a frame.
    fn arrives(errno: i32) -> (Flushed, usize, Vec<u8>) {
        let (mut out, mut seen, mut calls) = (OutBuf::default(), Vec::new(), 0);
        for n in 0..4 {
            out.send(&Frame::Credit(n));
        }
        let flushed = flush_by(
            |runs| {
                calls += 1;
                if calls % 2 == 0 {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                let n = runs[0].len().min(7);
                seen.extend_from_slice(&runs[0][..n]);
                Ok(n)
            },
            &mut out,
        );
        (flushed, out.pending().len(), seen)
    }

    #[test]
    fn want_of_memory_loses_nothing() {
        let mut all = Vec::new();
        for n in 0..4 {
            Frame::Credit(n).encode(&mut all);
        }
        for errno in [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM] {
            let (flushed, left, seen) = arrives(errno);
            assert_eq!(
                (flushed, left),
                (Flushed::Blocked, all.len() - 7),
                "{errno}"
            );
            assert_eq!(seen, all[..7]);
        }
        let (flushed, left, _) = arrives(libc::EPIPE);
        assert_eq!((flushed, left), (Flushed::Broken, 0));
    }

    #[test]
    fn a_link_that_fails_in_a_frame_carries_nothing_more() {
        let (ours, theirs) = sys::socketpair(libc::SOCK_STREAM).unwrap();
        // Nothing can be written to this one; that it is shut in the other direction, too, is `flush`'s work.
        let theirs = UnixStream::from(theirs);
        theirs.shutdown(Shutdown::Read).unwrap();
        let mut out = OutBuf::default();
        out.send(&Frame::Credit(1));
        assert!(flush(&ours, &mut out) && out.is_empty());
        assert_eq!(receive(&ours, &mut [0; 8]), Got::End);
    }
}

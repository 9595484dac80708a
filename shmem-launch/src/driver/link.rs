//! Moving bytes between a link and the buffers of the pure machines.
//!
//! A link is a socket, whose other end a forked agent or a remote shell has. Only an agent that a
//! remote shell started has something else: two pipes, or whatever the shell's server gave it as
//! standard input and output.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};

use crate::frame::{FRAME_MAX, OutBuf};
use crate::sys::{self, Epoll, Interest};

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

/// What one read found.
fn got(mut read: impl FnMut() -> io::Result<usize>) -> Got {
    loop {
        return match read() {
            Ok(0) => Got::End,
            Ok(n) => Got::Bytes(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Got::Nothing,
            // A reset link is as ended as a closed one.
            Err(_) => Got::End,
        };
    }
}

/// Receives what a socket has, at most a buffer full.
pub(super) fn receive(socket: &OwnedFd, buf: &mut [u8]) -> Got {
    got(|| sys::recv_now(socket.as_fd(), buf))
}

/// Reads what a pipe has that does not block, at most a buffer full. One that has ended is closed.
pub(super) fn read(pipe: &mut Option<OwnedFd>, buf: &mut [u8]) -> Got {
    let Some(fd) = pipe else { return Got::Nothing };
    let got = got(|| Ok(rustix::io::read(&*fd, &mut *buf)?));
    if got == Got::End {
        *pipe = None;
    }
    got
}

/// Sends what a socket takes.
fn flush(socket: &OwnedFd, out: &mut OutBuf) -> Flushed {
    let flushed = flush_by(|runs| send_runs(socket, runs), out);
    if flushed == Flushed::Broken {
        // The other end would take what comes next for the rest of a frame.
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
    }
    flushed
}

/// Sends several runs of bytes to a socket as one, without waiting and without SIGPIPE.
fn send_runs(socket: &OwnedFd, runs: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut nothing = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(socket, runs, &mut nothing, flags)?)
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

/// What became of bytes to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flushed {
    /// All went out.
    All,
    /// Some wait for room.
    Blocked,
    /// Nobody will read them.
    Broken,
}

#[derive(Debug, Default)]
enum Channel {
    #[default]
    Closed,
    Socket(OwnedFd),
    /// Of an agent to the parent that started it by a remote shell.
    Pipes {
        input: OwnedFd,
        output: OwnedFd,
    },
}

/// A link as a process has it that serves several: what it reads and writes, under which token an epoll
/// set knows it, and whether bytes wait for room.
#[derive(Debug, Default)]
pub(super) struct LinkIo {
    channel: Channel,
    token: u64,
    blocked: bool,
}

impl LinkIo {
    /// A link that is a socket.
    pub(super) fn socket(socket: OwnedFd, token: u64) -> Self {
        Self {
            channel: Channel::Socket(socket),
            token,
            blocked: false,
        }
    }

    /// A link of two pipes, or of whatever has their places.
    pub(super) fn pipes(input: OwnedFd, output: OwnedFd, token: u64) -> Self {
        Self {
            channel: Channel::Pipes { input, output },
            token,
            blocked: false,
        }
    }

    /// Whether it has not ended.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.channel, Channel::Closed)
    }

    /// Whether a remote shell is between this process and its parent.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self.channel, Channel::Pipes { .. })
    }

    /// Ends it.
    pub(super) fn close(&mut self) {
        self.channel = Channel::Closed;
        self.blocked = false;
    }

    fn input(&self) -> io::Result<&OwnedFd> {
        match &self.channel {
            Channel::Closed => Err(io::ErrorKind::NotConnected.into()),
            Channel::Socket(socket) => Ok(socket),
            Channel::Pipes { input, .. } => Ok(input),
        }
    }

    fn output(&self) -> io::Result<&OwnedFd> {
        match &self.channel {
            Channel::Pipes { output, .. } => Ok(output),
            _ => self.input(),
        }
    }

    /// Has an epoll set tell when there is something to read.
    pub(super) fn watch(&self, epoll: &Epoll) -> io::Result<()> {
        match self.input() {
            Ok(input) => epoll.add(input, self.token, Interest::Read),
            Err(_) => Ok(()),
        }
    }

    /// Makes reading and writing return at once, as they do on a socket anyway.
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        if let Channel::Pipes { input, output } = &self.channel {
            sys::set_nonblocking(input.as_fd())?;
            sys::set_nonblocking(output.as_fd())?;
        }
        Ok(())
    }

    /// Receives what is there, at most a buffer full. A link that has ended is closed.
    pub(super) fn receive(&mut self, buf: &mut [u8]) -> Got {
        let got = match &self.channel {
            Channel::Closed => return Got::Nothing,
            Channel::Socket(socket) => receive(socket, buf),
            Channel::Pipes { input, .. } => got(|| Ok(rustix::io::read(input, &mut *buf)?)),
        };
        if got == Got::End {
            self.close();
        }
        got
    }

    /// Sends what the link takes, and has the epoll set tell when it takes more. What is for a link that
    /// has ended is forgotten. That a socket is broken shows when it is read.
    ///
    /// # Errors
    /// When nothing can be sent any more and reading does not tell.
    pub(super) fn flush(&mut self, out: &mut OutBuf, epoll: &Epoll) -> io::Result<()> {
        // Room that came is noticed only by trying.
        if out.is_empty() && !self.blocked {
            return Ok(());
        }
        let flushed = match &self.channel {
            Channel::Closed => {
                out.clear();
                return Ok(());
            }
            Channel::Socket(socket) => flush(socket, out),
            Channel::Pipes { output, .. } => {
                flush_by(|runs| Ok(rustix::io::write(output, &runs[0])?), out)
            }
        };
        if flushed == Flushed::Broken && self.is_remote() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let blocked = flushed == Flushed::Blocked;
        if std::mem::replace(&mut self.blocked, blocked) == blocked {
            return Ok(());
        }
        match (&self.channel, blocked) {
            // What is written is another descriptor, and is of interest only while it is full.
            (Channel::Pipes { output, .. }, true) => epoll.add(output, self.token, Interest::Write),
            (Channel::Pipes { output, .. }, false) => epoll.remove(output),
            (_, true) => epoll.change(self.input()?, self.token, Interest::ReadWrite),
            (_, false) => epoll.change(self.input()?, self.token, Interest::Read),
        }
    }

    /// Sends what a socket takes at once. Failures show when the link is read.
    pub(super) fn send_some(&self, out: &mut OutBuf) {
        if let Channel::Socket(socket) = &self.channel {
            flush(socket, out);
        }
    }

    /// Sends everything, waiting as long as it takes. Failures show when the link is read.
    pub(super) fn send_all(&self, out: &mut OutBuf) {
        let Ok(output) = self.output() else {
            return out.clear();
        };
        while !out.is_empty() {
            match rustix::io::write(output, out.pending()).map_err(io::Error::from) {
                Ok(n) => out.consume(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    sys::poll_writable(output.as_fd(), NAP);
                }
                Err(e) if may_be_taken_later(&e) => std::thread::sleep(SHORT_OF_MEMORY),
                Err(_) => return,
            }
        }
    }

    /// Waits for exactly one frame, at most so long, and gives its content; nothing after it is taken from
    /// the link.
    ///
    /// # Errors
    /// When the link ends or fails first.
    pub(super) fn read_one_frame(&self, patience: Duration) -> io::Result<Vec<u8>> {
        let (input, end) = (
            self.input()?,
            sys::monotonic_ns() + patience.as_nanos() as u64,
        );
        let mut len = [0; 4];
        read_exact(input, &mut len, end)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > FRAME_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a frame of {len} bytes"),
            ));
        }
        let mut content = vec![0; len];
        read_exact(input, &mut content, end)?;
        Ok(content)
    }
}

/// How long memory may take to come back, where nothing else tells.
const SHORT_OF_MEMORY: Duration = Duration::from_millis(1);

/// Longest sleep in a wait for a descriptor, after which the call is tried again.
const NAP: Duration = Duration::from_secs(60);

fn read_exact(socket: &OwnedFd, mut buf: &mut [u8], end: u64) -> io::Result<()> {
    while !buf.is_empty() {
        let left = Duration::from_nanos(end.saturating_sub(sys::monotonic_ns()));
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if !sys::poll_readable(socket.as_fd(), left) {
            continue;
        }
        match rustix::io::read(socket, &mut *buf).map_err(io::Error::from) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => buf = &mut buf[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use rustix::net::SocketType;
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
        let (ours, theirs) = sys::socketpair(SocketType::STREAM).unwrap();
        // Nothing can be written to this one; that it is shut in the other direction, too, is `flush`'s work.
        let theirs = UnixStream::from(theirs);
        theirs.shutdown(std::net::Shutdown::Read).unwrap();
        let mut out = OutBuf::default();
        out.send(&Frame::Credit(1));
        assert!(flush(&ours, &mut out) == Flushed::Broken && out.is_empty());
        assert_eq!(receive(&ours, &mut [0; 8]), Got::End);
    }
}

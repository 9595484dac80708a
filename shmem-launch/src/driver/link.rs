//! Moving bytes between a link's socket and the buffers of the pure machines.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

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
    while !out.is_empty() {
        let mut runs = [IoSlice::new(&[]); RUNS];
        let n = out.runs(&mut runs);
        match sys::send_runs(socket.as_fd(), &runs[..n]) {
            Ok(n) => out.consume(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => out.clear(),
        }
    }
    true
}

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
            Err(_) => return,
        }
    }
}

//! The launch agent's end of the template protocol.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use super::message::{MAX_BATCH, MAX_MESSAGE, PeSpec, Request, Spawned};
use crate::sys;

/// What came from the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The answer to one spawn request.
    Spawned(Spawned),
    /// The template has gone.
    Closed,
    /// Nothing yet (non-blocking socket).
    NotYet,
}

/// A connected SOCK_SEQPACKET socket whose other end is a template or a spawner.
#[derive(Debug)]
pub struct NlaSide(OwnedFd);

impl NlaSide {
    /// Wraps the NLA's end of the pair.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Asks for up to [`MAX_BATCH`] PEs. `fds` holds, for each PE in turn, stdout, stderr, the PMI
    /// socket, and standard input where the PE has one; the caller may close them afterwards.
    ///
    /// # Errors
    /// `WouldBlock` when the socket is full; any other error means that the template is gone.
    ///
    /// # Panics
    /// If there are too many PEs or the descriptors do not match them.
    pub fn spawn(&self, pes: &[PeSpec], fds: &[RawFd]) -> io::Result<()> {
        assert!(pes.len() <= MAX_BATCH);
        assert_eq!(fds.len(), pes.iter().map(PeSpec::fd_count).sum::<usize>());
        let message = Request::Spawn(pes.to_vec()).encode();
        sys::send_with_fds(self.0.as_fd(), &message, fds).map(drop)
    }

    /// Lets the template exit; its PEs become children of the sub-reaper.
    ///
    /// # Errors
    /// As for [`NlaSide::spawn`].
    pub fn finish(&self) -> io::Result<()> {
        sys::send_with_fds(self.0.as_fd(), &Request::Finish.encode(), &[]).map(drop)
    }

    /// Takes the next reply.
    ///
    /// # Errors
    /// When the socket fails or the reply is malformed.
    pub fn receive(&self) -> io::Result<Reply> {
        let mut buf = [0; MAX_MESSAGE];
        match sys::recv_with_fds(self.0.as_fd(), &mut buf) {
            Ok((0, _)) => Ok(Reply::Closed),
            Ok((n, _)) => Spawned::decode(&buf[..n])
                .map(Reply::Spawned)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Reply::NotYet),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(Reply::Closed),
            Err(e) => Err(e),
        }
    }
}

impl AsFd for NlaSide {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

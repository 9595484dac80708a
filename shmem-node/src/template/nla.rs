//! The launch agent's end of the template protocol.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::Shutdown;
use zerocopy::IntoBytes;

use super::message::{MAX_BATCH, MAX_MESSAGE, PeSpec, Started};
use crate::sys;

/// What came from the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The answer to one spawn request.
    Started(Started),
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
    pub fn spawn(&self, pes: &[PeSpec], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        assert!(pes.len() <= MAX_BATCH);
        assert_eq!(fds.len(), pes.iter().map(PeSpec::fd_count).sum::<usize>());
        sys::send_with_fds(self.0.as_fd(), pes.as_bytes(), fds).map(drop)
    }

    /// Lets the template exit; its PEs become children of the sub-reaper.
    ///
    /// # Errors
    /// As for [`NlaSide::spawn`].
    pub fn finish(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.0, Shutdown::Write)?)
    }

    /// Takes the next reply.
    ///
    /// # Errors
    /// When the socket fails or the reply is malformed.
    pub fn receive(&self) -> io::Result<Reply> {
        let mut buf = [0; MAX_MESSAGE];
        match sys::recv_with_fds(self.0.as_fd(), &mut buf) {
            Ok((0, _)) => Ok(Reply::Closed),
            Ok((n, _)) => Started::decode(&buf[..n])
                .map(Reply::Started)
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

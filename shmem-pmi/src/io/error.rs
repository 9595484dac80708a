//! What goes wrong with a connection: for one call, or for all that follow.

use std::io;
use std::time::Duration;

use crate::client::{ClientError, Refusal};

/// Why a call over a [`super::Connection`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The socket failed.
    #[error("PMI socket: {0}")]
    Socket(#[from] io::Error),
    /// The server has closed the connection.
    #[error("PMI server closed the connection; the job is probably being terminated")]
    Closed,
    /// The reply did not come in time.
    #[error("no reply from the PMI server within {0:?}")]
    Timeout(Duration),
    /// The call cannot be made, or the server's bytes make no sense.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server refused the request, or the operation failed.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Why the connection is of no use any more; the same for all threads.
#[derive(Debug)]
pub(super) enum Broken {
    Closed,
    Socket(io::Error),
    Nonsense(ClientError),
}

impl Broken {
    pub(super) fn of(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Socket(error),
        }
    }

    pub(super) fn error(&self) -> ConnectionError {
        match self {
            Self::Closed => ConnectionError::Closed,
            Self::Socket(error) => io::Error::new(error.kind(), error.to_string()).into(),
            Self::Nonsense(error) => error.clone().into(),
        }
    }
}

/// Interrupted, or the socket's own timeout: the deadline decides, not the socket.
pub(super) fn would_retry(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

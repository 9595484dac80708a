//! Why a call cannot be made, or was made in vain.

use std::fmt;

use crate::wire::{MAX_ALLGATHER_VALUE, WireError};

/// Number of a collective operation, the same on all PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A request that failed, in the words of the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PMI server refused `{command}` (rc={rc}): {message}")]
pub struct Refusal {
    /// The command.
    pub command: String,
    /// Return code, never 0.
    pub rc: i32,
    /// Reason; may be empty.
    pub message: String,
}

/// A call that cannot be made, or bytes from the server that make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A call before [`super::calls::Initialise`], a second one of it, or a call after finalize.
    #[error("`{command}` cannot be called {state}")]
    WrongState {
        /// The command.
        command: &'static str,
        /// Where the client stands.
        state: &'static str,
    },
    /// The operation needs a server with extensions.
    #[error("`{command}` needs a launcher that offers PMI extensions; use put, ifence and get")]
    NoExtensions {
        /// The command.
        command: &'static str,
    },
    /// A key or value that not every server can carry.
    #[error("{what} `{text}` cannot be sent: {rule}")]
    BadText {
        /// Key or value.
        what: &'static str,
        /// Beginning of the key or value.
        text: String,
        /// What is allowed.
        rule: String,
    },
    /// The version of PMI has no such command.
    #[error("{version} has no `{command}`")]
    Unsupported {
        /// The command.
        command: &'static str,
        /// The version.
        version: &'static str,
    },
    /// An allgather value that is empty or too long.
    #[error("allgather value of {len} bytes; 1 to {MAX_ALLGATHER_VALUE} are possible")]
    ValueLength {
        /// Length of the value in bytes.
        len: usize,
    },
    /// More bytes than an operation with data takes.
    #[error("NLA {operation}: {len} bytes; at most {max} are possible")]
    TooMuch {
        /// What was called.
        operation: &'static str,
        /// Number of bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// [`super::calls::Wait`] for an operation that was not started.
    #[error("request {request} was not started; {started} have been")]
    UnknownRequest {
        /// The number asked for.
        request: RequestId,
        /// Number of operations started.
        started: u64,
    },
    /// The server does not serve the version.
    #[error(
        "PMI server refuses version {wanted} (rc={rc}); it offers {}",
        offered(*version, *subversion)
    )]
    Version {
        /// The version that was asked for.
        wanted: &'static str,
        /// Major version of the server.
        version: u32,
        /// Minor version of the server.
        subversion: u32,
        /// Return code of the server.
        rc: i32,
    },
    /// The server's bytes do not follow the protocol.
    #[error("PMI server sent nonsense: {0}")]
    Wire(#[from] WireError),
    /// A reply to nothing that was asked.
    #[error("PMI server sent a reply to `{command}` that nobody asked for")]
    Unexpected {
        /// The command.
        command: String,
    },
    /// Client and server count collective operations differently.
    #[error("PMI server counts this operation as {theirs}, this PE as {ours}")]
    OutOfStep {
        /// The server's number.
        theirs: u64,
        /// The number that this PE has.
        ours: u64,
    },
}

fn offered(version: u32, subversion: u32) -> String {
    match version {
        0 => "another, without saying which".to_owned(),
        _ => format!("{version}.{subversion}"),
    }
}

//! What a client tells its caller: the names of calls, their outcomes, and errors.

use std::fmt;

use crate::wire::{MAX_ALLGATHER_VALUE, WireError};

/// Names one call of a [`super::Client`]; its event carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// Number of a collective operation, the same on all PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A non-blocking operation that has been queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Names the call; its event is [`Event::RequestStarted`].
    pub ticket: Ticket,
    /// Number of the operation, for [`super::Client::wait`]. Known before the server answers.
    pub request: RequestId,
}

/// The facts that come with the reply to init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initialised {
    /// Rank of this PE.
    pub rank: u32,
    /// Number of PEs.
    pub size: u32,
    /// Number of the program in the job; -1 if not said.
    pub appnum: i32,
    /// The job that spawned this one.
    pub spawner: Option<String>,
    /// How often this PE's process has been started again after it died.
    pub restarts: u32,
    /// Number of this PE's next collective operation: its former processes joined all before it.
    pub first_request: RequestId,
}

/// A PE's place in a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbours {
    /// Rank in the ring, from 0.
    pub rank: u32,
    /// Number of PEs in it, if the server tells.
    pub size: Option<u32>,
    /// The value of the PE before, cyclically.
    pub left: Vec<u8>,
    /// The value of the PE behind, cyclically.
    pub right: Vec<u8>,
}

/// A job that was started on behalf of this PE.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spawned {
    /// Its id, if the server tells.
    pub job_id: Option<String>,
    /// For each of its processes 0 or an error; empty stands for zeros.
    pub errcodes: Vec<i32>,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The server has accepted this PE.
    Initialised(Initialised),
    /// The job's id.
    JobId(String),
    /// Value of a job attribute, if there is one.
    JobAttr(Option<Vec<u8>>),
    /// A node attribute has been put.
    NodeAttrPut,
    /// Value of a node attribute, if there is one.
    NodeAttr(Option<Vec<u8>>),
    /// A pair has been put.
    Put,
    /// Value of a key, if there is one.
    Got(Option<Vec<u8>>),
    /// The fence is complete.
    FenceDone,
    /// The server has taken up a non-blocking operation.
    RequestStarted(RequestId),
    /// The operation is complete; the result of an allgather has been published.
    RequestDone(RequestId),
    /// A message to another PE has been taken.
    Sent,
    /// What an operation of the NLA layer gives to this PE, or a message from another.
    Received(Vec<u8>),
    /// The service name is known to other jobs.
    Published,
    /// Where the service is to be found.
    LookedUp(Vec<u8>),
    /// The service name is forgotten.
    Unpublished,
    /// Another job runs.
    Spawned(Spawned),
    /// The ring is closed.
    Ring(Neighbours),
    /// The server has let this PE go.
    Finalized,
    /// The server refused the request, or the operation failed.
    Error(Refusal),
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
    /// A call before [`super::Client::initialise`], a second one of it, or a call after finalize.
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
        /// Its beginning.
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
        /// Its length in bytes.
        len: usize,
    },
    /// More bytes than the NLA layer takes.
    #[error("NLA {operation}: {len} bytes; at most {max} are possible")]
    TooMuch {
        /// What was called.
        operation: &'static str,
        /// Number of bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// [`super::Client::wait`] for an operation that was not started.
    #[error("request {request} was not started; {started} have been")]
    UnknownRequest {
        /// The number asked for.
        request: RequestId,
        /// Number of operations started.
        started: u64,
    },
    /// The server does not serve the version.
    #[error("PMI server refuses version {wanted} (it has {version}.{subversion}, rc={rc})")]
    Version {
        /// The version that was asked for.
        wanted: &'static str,
        /// Its major version.
        version: u32,
        /// Its minor version.
        subversion: u32,
        /// Its return code.
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
        /// Ours.
        ours: u64,
    },
}

//! Kinds of servers.

use std::fmt;

/// The kind of PMI server that a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Server {
    /// `shmrun`, with extensions and memory that the processes of a node share.
    Shmrun,
    /// PMI-1.1 over an inherited socket.
    Pmi1,
    /// PMI-1.1 over TCP.
    Pmi1Port,
    /// PMI-2.0 over an inherited socket.
    Pmi2,
    /// PMIx, through libpmix.
    Pmix,
    /// None: the processes find each other by messages of MPI.
    Mpi,
    /// A thread of one of the job's processes, which share an id.
    Id,
    /// None: a job of one process.
    Alone,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shmrun => "shmrun",
            Self::Pmi1 => "PMI-1 server",
            Self::Pmi1Port => "PMI-1 server at PMI_PORT",
            Self::Pmi2 => "PMI-2 server",
            Self::Pmix => "PMIx server",
            Self::Mpi => "exchange over MPI",
            Self::Id => "job without a launcher",
            Self::Alone => "no PMI server",
        })
    }
}

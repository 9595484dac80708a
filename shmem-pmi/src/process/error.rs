//! Why a call of a [`super::Process`] failed.

use std::fmt;
use std::io;

use shmem_node::contract::{OtherContract, Replaced};
use shmem_node::segment::SegmentError;
use shmem_node::settings::SettingsError;
use shmem_pmix::Status;

use super::server::Server;
use crate::id::JoinError;
use crate::io::ConnectionError;

/// A call that failed: where, which, and why.
#[derive(Debug)]
pub struct ProcessError {
    /// Rank of the process; absent as long as it is not known.
    pub rank: Option<u32>,
    /// The server; absent as long as it is not known.
    pub server: Option<Server>,
    /// Name of the method.
    pub call: &'static str,
    /// The reason.
    pub cause: Box<Cause>,
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank {
            write!(f, "PE {rank}: ")?;
        }
        match self.server {
            Some(server) => write!(f, "PMI {} ({server}): {}", self.call, self.cause),
            None => write!(f, "PMI {}: {}", self.call, self.cause),
        }
    }
}

impl From<shmem_mpi::Error> for Cause {
    fn from(source: shmem_mpi::Error) -> Self {
        Self::Mpi { source }
    }
}

impl std::error::Error for ProcessError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.source()
    }
}

fn hint(error: &shmem_mpi::Error) -> &'static str {
    match error {
        shmem_mpi::Error::Finalized { .. } => ": initialise OpenSHMEM before MPI_Finalize",
        shmem_mpi::Error::Thread { .. } => "; or initialise OpenSHMEM in that thread",
        _ => "",
    }
}

/// A launcher that cannot be talked to has started several processes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refused {
    pub(super) text: String,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The socket, the time, the server's refusal, or a call that cannot be made.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// A variable `SHMEM_*` has an impossible value.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Another variable has an impossible value.
    #[error("{name}={value}: expected {expected}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Value of the variable.
        value: String,
        /// What would do.
        expected: &'static str,
    },
    /// A variable is missing.
    #[error("{given} is set, but {name} is not: the launcher must set both")]
    Absent {
        /// What is missing.
        name: &'static str,
        /// What is there.
        given: &'static str,
    },
    /// A call of libpmix failed.
    #[error("{what}: {status}; the server is PMIx {server}, the library {library}")]
    Pmix {
        /// The call, with key and rank.
        what: String,
        /// What the call answered.
        status: Status,
        /// The server's release.
        server: String,
        /// Release and file of the library.
        library: String,
    },
    /// A call of MPI failed.
    #[error("{source}{}", hint(.source))]
    Mpi {
        /// Which call failed, and how.
        source: shmem_mpi::Error,
    },
    /// The MPI library of this process cannot be used.
    #[error("SHMEM_PMI=mpi: {0}")]
    MpiLibrary(#[from] shmem_mpi::LoadError),
    /// MPI and the launcher have different opinions of the job.
    #[error(
        "MPI says that this process is rank {} of {}, and {server} that it is PE {} of {}: the MPI library ({library}) \
         has not been started by this launcher. Start the program with the launcher of that MPI, or link it with the MPI \
         of this one; SHMEM_PMI=1, 2 or pmix goes on with PEs that are numbered otherwise than ranks", 
        .mpi.0, .mpi.1, .told.0, .told.1
    )]
    OtherRanks {
        /// Rank and size in MPI.
        mpi: (u32, u32),
        /// Rank and size as the launcher says.
        told: (u32, u32),
        /// Who says the latter.
        server: &'static str,
        /// MPI's file.
        library: String,
    },
    /// MPI cannot be initialised after this library.
    #[error(
        "the program has {library}, which cannot be initialised any more once this library has talked to {server}: call \
         MPI_Init before OpenSHMEM is initialised; or set SHMEM_PMI={setting} if the program never calls MPI_Init"
    )]
    MpiFirst {
        /// MPI's file.
        library: String,
        /// Whom it has to talk to first.
        server: &'static str,
        /// What goes on nevertheless.
        setting: &'static str,
    },
    /// MPI has used the descriptor up that the two libraries share.
    #[error(
        "{call}: MPI_Finalize has ended the connection to the launcher, which MPI and this library share: initialise \
         OpenSHMEM before MPI_Finalize"
    )]
    EndedByMpi {
        /// The method.
        call: &'static str,
    },
    /// A launcher that cannot be talked to has started several processes.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A job without a launcher that cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The launcher is of another version.
    #[error(transparent)]
    Contract(#[from] OtherContract),
    /// Something else is where the launcher has left a descriptor.
    #[error("{0}")]
    Replaced(Replaced),
    /// A descriptor that the launcher should have left cannot be used.
    #[error(
        "descriptor {fd} cannot be taken over ({source}): either this process has done so before, \
         or it is not the one that the launcher started"
    )]
    Descriptor {
        /// The descriptor.
        fd: i32,
        /// Why the descriptor cannot be used.
        source: io::Error,
    },
    /// The server cannot be connected to.
    #[error("cannot connect to `{address}`: {source}")]
    Connect {
        /// Address of the server.
        address: String,
        /// Why the server cannot be connected to.
        source: io::Error,
    },
    /// The node's shared memory cannot be mapped.
    #[error(transparent)]
    Tables(#[from] SegmentError),
    /// The server has no such thing, and it cannot be made of what it has.
    #[error("not offered here; {instead}")]
    NotOffered {
        /// What can be done.
        instead: &'static str,
    },
    /// Values of an allgather that are not equally long, or too long.
    #[error("{what} of {len} bytes, expected {expected}")]
    Length {
        /// Whose length is wrong.
        what: String,
        /// The length.
        len: usize,
        /// What the length should be.
        expected: String,
    },
    /// What a PE put for a collective operation is not there, or not as it should be.
    #[error("what PE {rank} has put under `{key}` {fault}")]
    Contribution {
        /// The PE that should have put it.
        rank: u32,
        /// The key.
        key: String,
        /// What is wrong with what the PE has put.
        fault: &'static str,
    },
}

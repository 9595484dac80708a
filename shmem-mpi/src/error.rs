//! What can go wrong: there is no library, or a call fails.

use crate::thread_level::ThreadLevel;

/// Why there is no MPI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library that was named cannot be loaded.
    #[error("the MPI library {path} cannot be loaded: {reason}")]
    Named {
        /// What was named.
        path: String,
        /// The loader's words.
        reason: String,
    },
    /// There is none.
    #[error(
        "no MPI library was found; looked for {looked}. Have LD_LIBRARY_PATH name its directory, or name its file \
         with SHMEM_MPI_LIBRARY=PATH"
    )]
    Nowhere {
        /// For which, and what the loader says of those that it could not load.
        looked: String,
    },
    /// There is one that cannot be used.
    #[error("{path} cannot be used as MPI: {fault}")]
    Unusable {
        /// Its file.
        path: String,
        /// Why not.
        fault: String,
    },
}

/// Why a call has not done what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MPI says so.
    #[error("{call} failed: {text} (error {code})")]
    Mpi {
        /// The function.
        call: &'static str,
        /// Its answer.
        code: i32,
        /// MPI's text for it.
        text: String,
    },
    /// It was called before `MPI_Init`.
    #[error("{call}: MPI is not initialised: call Mpi::init, MPI_Init or MPI_Init_thread first")]
    NotInitialised {
        /// The function.
        call: &'static str,
    },
    /// It was called after `MPI_Finalize`.
    #[error("{call}: MPI is finalized, and cannot be used any more")]
    Finalized {
        /// The function.
        call: &'static str,
    },
    /// MPI is initialised already, which can be done once.
    #[error("MPI_Init_thread: MPI is initialised already")]
    InitialisedBefore,
    /// The thread may not call MPI.
    #[error(
        "{call}: MPI was initialised with thread level {level}, so only the thread that has initialised it may call it; \
         initialise with ThreadLevel::Serialized or Multiple"
    )]
    Thread {
        /// The function.
        call: &'static str,
        /// What MPI gives.
        level: ThreadLevel,
    },
    /// Slices do not fit each other, or the communicator.
    #[error("{call}: {fault}")]
    Argument {
        /// The function.
        call: &'static str,
        /// What does not fit.
        fault: String,
    },
}

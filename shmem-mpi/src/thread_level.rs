//! Thread levels of MPI.

use std::fmt;

/// Which threads may call MPI. Ordered: each allows what those before it do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThreadLevel {
    /// There is one thread.
    Single,
    /// The thread that has initialised MPI.
    Funneled,
    /// Any, one at a time.
    Serialized,
    /// Any.
    Multiple,
}

pub(crate) const LEVELS: [ThreadLevel; 4] = [
    ThreadLevel::Single,
    ThreadLevel::Funneled,
    ThreadLevel::Serialized,
    ThreadLevel::Multiple,
];

impl fmt::Display for ThreadLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "MPI_THREAD_SINGLE",
            Self::Funneled => "MPI_THREAD_FUNNELED",
            Self::Serialized => "MPI_THREAD_SERIALIZED",
            Self::Multiple => "MPI_THREAD_MULTIPLE",
        })
    }
}

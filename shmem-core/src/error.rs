//! What can go wrong, for callers.

use std::panic::Location;

use shmem_node::segment::SegmentError;
use shmem_node::settings::SettingsError;

/// A line of the program, if it is in Rust: an error that comes by `?` is printed where nobody knows where it began.
pub(crate) type Called = Option<&'static Location<'static>>;

fn before(called: Called) -> String {
    called.map_or_else(String::new, |at| format!("{}:{}: ", at.file(), at.line()))
}

/// An error that a program can handle.
///
/// Programmer's errors (a PE out of range, a range past the end of an array, a call before init)
/// panic as an index out of bounds does. A peer that stops answering ends the job with a message,
/// because one-sided programs cannot go on without it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The heap has no free range that is large enough.
    #[error(
        "{}the symmetric heap has no room for {asked} bytes: {used} of {size} bytes are in use and \
         the largest free range has {largest_free}; give more with `shmrun --heap SIZE` or SHMEM_SYMMETRIC_SIZE=SIZE",
        before(*called)
    )]
    HeapExhausted {
        /// Bytes asked for.
        asked: usize,
        /// Bytes of the heap.
        size: usize,
        /// Bytes in use.
        used: usize,
        /// Bytes of the largest free range.
        largest_free: usize,
        /// Where the program called what takes them.
        called: Called,
    },
    /// A handle that is not the start of an allocated array.
    #[error("{}there is no allocated array at symmetric offset {offset:#x}; was it freed before?", before(*called))]
    NotAllocated {
        /// Offset in the segment.
        offset: usize,
        /// Where the program gives it back, or changes its size.
        called: Called,
    },
    /// A context was asked for, and there are as many as there may be.
    #[error(
        "this PE has {most} contexts, the most that there may be, the default one among them; \
         destroy those that are not needed any more"
    )]
    TooManyContexts {
        /// How many there may be, with the default one.
        most: usize,
    },
    /// An alignment larger than that of the PEs' heaps.
    #[error("{}symmetric memory is aligned to {most} bytes at most, not to {asked}", before(*called))]
    Alignment {
        /// Bytes asked for.
        asked: usize,
        /// Largest alignment in bytes.
        most: usize,
        /// Where the program asks for it.
        called: Called,
    },
    /// An address outside of symmetric memory: why.
    #[error("{0}")]
    NotSymmetric(String),
    /// A split that describes no set of different members.
    #[error(
        "{}no team can have {size} members from {start} on, {stride} apart, of a team of {of}: they \
         must exist, and differ",
        before(*called)
    )]
    NoSuchTeam {
        /// The first member asked for.
        start: isize,
        /// The distance between members.
        stride: isize,
        /// Number of members.
        size: isize,
        /// Number of members of the parent team.
        of: usize,
        /// Where the program asks for it.
        called: Called,
    },
    /// A PE can be in no more teams.
    #[error(
        "{}a PE can be in {most} teams at a time, and no place is free on all members; destroy teams \
         that are not used any more",
        before(*called)
    )]
    TooManyTeams {
        /// The limit.
        most: usize,
        /// Where the program asks for one more.
        called: Called,
    },
    /// A setting cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The node's memory cannot be made or mapped.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The launcher's environment contradicts itself, or a job without a launcher does not come about.
    #[error("{0}")]
    Launch(String),
    /// The symmetric heap cannot be registered with the network device.
    #[error("cannot make the symmetric heap accessible to other nodes: {0}")]
    Registration(String),
    /// The network endpoint cannot be made. Which device it is made on is decided by `SHMEM_HCA`;
    /// the program `shmem-info` shows what devices a machine has and what stands against their use.
    #[error("cannot open the network endpoint: {0}")]
    Network(String),
    /// The operating system refused something.
    #[error("cannot {what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// The same text as `Display`: `fn main() -> Result<(), shmem::Error>` prints an error with `{:?}`,
/// and its user wants to read a sentence.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

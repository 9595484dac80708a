//! Why a node segment cannot be made or mapped.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use crate::contract::{Descriptors, Replaced};
use crate::machine::Size;
use crate::pages::PagesError;
use crate::sys;

/// A node segment that cannot be made or mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The sizes do not fit an address space.
    #[error(
        "{n_local} heaps of {heap_size} bytes and room for {statics} bytes of static data each do \
         not fit into an address space{}; lower SHMEM_SYMMETRIC_SIZE or SHMEM_STATICS_SIZE", AddressLimit(*limit)
    )]
    TooLarge {
        /// PEs on the node.
        n_local: usize,
        /// Bytes of each heap.
        heap_size: u64,
        /// Bytes for each PE's static data.
        statics: u64,
        /// Bytes of addresses that a process may have.
        limit: Option<u64>,
    },
    /// A file may not be as long as the node's memory.
    #[error(
        "the node's shared memory is a file of {}, but the limit of file sizes (ulimit -f) is {}; raise it, or lower \
         SHMEM_SYMMETRIC_SIZE or SHMEM_STATICS_SIZE", Size(*bytes), Size(*limit)
    )]
    FileSize {
        /// Bytes of the memory.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// There are not enough huge pages.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// A system call failed.
    #[error("cannot {what} ({bytes} bytes): {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// On how many bytes.
        bytes: u64,
        /// Why it failed.
        source: io::Error,
    },
    /// Another version made the memory, or something else did.
    #[error(
        "the node segment was not made by this version of shmrun; start the program with the \
         shmrun that was built with it"
    )]
    Foreign,
    /// The memory of the heaps is not the one that the tables name.
    #[error("the memory beside the node's tables is not that of its heaps")]
    ForeignHeap,
}

impl SegmentError {
    /// The descriptor whose number something else has taken, if that is why a process that `shmrun` has started
    /// cannot map the memory. Its contract says that the versions agree.
    pub fn replaced(&self, fds: Descriptors) -> Option<Replaced> {
        match self {
            Self::Foreign => Some(Replaced::at(fds.tables())),
            Self::ForeignHeap => Some(Replaced::at(fds.heap())),
            _ => None,
        }
    }
}

/// The limit of a process's addresses, if there is one.
struct AddressLimit(Option<u64>);

impl fmt::Display for AddressLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => write!(f, " of {} (ulimit -v)", Size(limit)),
            None => Ok(()),
        }
    }
}

pub(super) fn os(what: &'static str, bytes: usize) -> impl FnOnce(io::Error) -> SegmentError {
    let bytes = bytes as u64;
    move |source| {
        let refused = |errno| source.raw_os_error() == Some(errno);
        if refused(libc::EFBIG)
            && let Some(limit) = sys::file_size_limit()
        {
            return SegmentError::FileSize { bytes, limit };
        }
        let source = match sys::address_limit() {
            Some(limit) if refused(libc::ENOMEM) => io::Error::new(
                source.kind(),
                format!(
                    "{source}; a process may have {} of addresses (ulimit -v)",
                    Size(limit)
                ),
            ),
            _ => source,
        };
        SegmentError::Os {
            what,
            bytes,
            source,
        }
    }
}

/// Why the tables cannot be mapped: a memory file of this kind can be read.
pub(super) fn of_tables(bytes: usize) -> impl FnOnce(io::Error) -> SegmentError {
    move |source| match source.raw_os_error() {
        Some(libc::EACCES | libc::ENODEV) => SegmentError::Foreign,
        _ => os("map the tables memory", bytes)(source),
    }
}

/// Whether a memory file has `len` bytes. Reading past the end of one that is too short would be a
/// SIGBUS.
pub(super) fn holds(fd: BorrowedFd<'_>, len: usize) -> Result<(), SegmentError> {
    match sys::file_len(fd) {
        Ok(real) if real >= len as u64 => Ok(()),
        Ok(_) => Err(SegmentError::Foreign),
        Err(e) => Err(os("look at the node's memory", len)(e)),
    }
}

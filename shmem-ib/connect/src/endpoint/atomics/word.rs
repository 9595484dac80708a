//! The word that an atomic is for, and what becomes of its old value.

#![forbid(unsafe_code)]

use crate::atomic::{AtomicOp, Width};
use crate::endpoint::error::ConnError;
use crate::endpoint::operations::table::{Fetch, Op};

/// The word of an atomic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) pe: u32,
    pub(crate) segment: u8,
    pub(crate) offset: u64,
    pub(crate) width: Width,
}

impl At {
    /// Atomics need alignment.
    pub(crate) fn check(self, op: AtomicOp) -> Result<(), ConnError> {
        let bytes = self.width.bytes() as u64;
        if self.offset.is_multiple_of(bytes) {
            return Ok(());
        }
        Err(ConnError::Misaligned {
            op: op.name(),
            offset: self.offset,
            bytes,
        })
    }
}

/// What becomes of the old value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Old {
    /// The caller waits for it.
    Returned,
    /// It is of no interest.
    Dropped,
    /// It is stored when the operation is complete.
    Stored(Fetch),
}

impl Old {
    /// Puts it into an operation.
    pub(crate) const fn mark(self, op: Op) -> Op {
        let (waited, fetch) = match self {
            Self::Returned => (true, None),
            Self::Dropped => (false, None),
            Self::Stored(fetch) => (false, Some(fetch)),
        };
        Op {
            waited,
            fetch,
            ..op
        }
    }
}

//! What others are to be told: threads that sleep and tasks, of what has happened; and whoever wants to know, of memory
//! that was written and of the HCA's failure.
//!
//! The models in `tests/loom` compile this file, too.

#![forbid(unsafe_code)]

use std::task::Waker;

use super::error::ConnError;

/// What is due when the endpoint's lock is given up.
#[derive(Default)]
pub(super) struct Notices {
    /// Something has happened that another thread may be waiting for.
    pub(super) happened: bool,
    /// An operation of this endpoint has written local memory.
    pub(super) fetched: bool,
    /// Tasks that are to be polled again when something has happened.
    pub(super) wakers: Vec<Waker>,
    /// Why the HCA has failed, until somebody was told of it together with what has happened.
    pub(super) failure: Option<ConnError>,
}

/// Operations of peers on the memory of this PE.
#[derive(Default)]
pub(super) struct Inbound {
    /// How many there were at the last look.
    seen: u64,
    /// Called when there are more.
    pub(super) tell: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Inbound {
    /// Looks at the HCA's count. `executed` says that this PE has executed some for its peers. Returns whether there are
    /// more than at the last look.
    #[inline]
    pub(super) fn look(&mut self, count: u64, executed: bool) -> bool {
        if count == self.seen && !executed {
            return false;
        }
        self.seen = count;
        if let Some(tell) = &self.tell {
            tell();
        }
        true
    }
}

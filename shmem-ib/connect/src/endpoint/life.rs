//! How far the life of an endpoint has come: which opening it is, whether it is being closed, is closed, or has failed.
//!
//! The models in `tests/loom` compile this file, too.

#![forbid(unsafe_code)]

use super::error::ConnError;

#[derive(Debug, Default)]
pub(super) struct Life {
    /// How often the endpoint was opened before this.
    pub(super) opening: u64,
    /// Nothing may be started any more.
    pub(super) closing: bool,
    /// Queue pairs and registrations are gone.
    pub(super) closed: bool,
    /// Threads that sleep until then.
    pub(super) await_end: u32,
    /// RC packets received when last looked at; only kept while closing.
    pub(super) rc_packets: u64,
    /// The HCA has failed, and why.
    pub(super) failure: Option<ConnError>,
}

impl Life {
    /// That of the next opening, for which threads that wait for the end of this one stay.
    pub(super) fn next(&self) -> Self {
        Self {
            opening: self.opening + 1,
            await_end: self.await_end,
            ..Self::default()
        }
    }

    /// The HCA has failed. The first reason counts, and is returned.
    pub(super) fn fail(&mut self, error: ConnError) -> ConnError {
        self.failure.get_or_insert(error).clone()
    }
}

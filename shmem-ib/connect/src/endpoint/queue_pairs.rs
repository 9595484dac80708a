//! The queue pairs of an endpoint's connections: how many there are, which are in error and why, and whether anything
//! has changed.

#![forbid(unsafe_code)]

use hashbrown::HashMap;

use super::error::ConnError;
use shmem_verbs::Qpn;

#[derive(Debug, Default)]
pub(super) struct QueuePairs {
    /// How many were made.
    pub(super) created: u64,
    /// How many there are.
    pub(super) alive: u32,
    /// Those in error, and why.
    pub(super) broken: HashMap<Qpn, ConnError>,
    /// Counts what happens to connections: as long as it is the same, they are.
    pub(super) changes: u64,
}

impl QueuePairs {
    pub(super) const fn made(&mut self) {
        self.created += 1;
        self.alive += 1;
    }

    /// One is not used any more, and is gone if the device has let it go.
    pub(super) fn destroyed(&mut self, qpn: Qpn, gone: bool) {
        self.broken.remove(&qpn);
        self.alive -= u32::from(gone);
    }
}

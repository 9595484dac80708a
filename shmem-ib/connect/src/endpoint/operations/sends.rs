//! Work requests of all connections that are posted and not completed, and which of them tell of their completion.

#![forbid(unsafe_code)]

use super::held::Held;
use super::silent::Telling;

#[derive(Debug)]
pub(crate) struct Sends {
    /// Work requests posted since the beginning, and those of them that do not tell.
    pub(crate) requests: u64,
    pub(crate) silent: u64,
    /// Those posted and not completed.
    pub(crate) in_flight: u32,
    /// Uses of connections since the beginning: the clock of their last uses.
    uses: u64,
    /// Which work requests tell of their completion.
    pub(crate) telling: Telling,
    /// Those of which the device is not told yet.
    pub(crate) held: Held,
    /// Peers towards which the last ones do not tell.
    pub(crate) uncovered: Vec<u32>,
}

impl Sends {
    pub(crate) const fn new(telling: Telling, held: Held) -> Self {
        Self {
            requests: 0,
            silent: 0,
            in_flight: 0,
            uses: 0,
            telling,
            held,
            uncovered: Vec::new(),
        }
    }

    /// A connection is used: returns the time of that.
    #[inline]
    pub(crate) const fn used(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// A work request was posted.
    #[inline]
    pub(crate) const fn posted(&mut self) {
        self.in_flight += 1;
        self.requests += 1;
    }
}

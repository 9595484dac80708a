//! Leaving: whom this PE has still to tell, and whom it has to stay for.

use std::collections::BTreeSet;

/// This PE is on its way out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leaving {
    /// Peers that have to be told yet, the last first.
    untold: Vec<u32>,
    /// Peers that owe us a word before we may go.
    missing: BTreeSet<u32>,
    /// Last sign of life of one of them.
    heard: u64,
    linger: u64,
    /// The linger time is over.
    over: bool,
}

impl Leaving {
    /// Those who know us are `peers`.
    pub(super) fn new(now: u64, linger: u64, mut peers: Vec<u32>) -> Self {
        peers.sort_unstable_by(|a, b| b.cmp(a)); // reproducible, unlike a hash table's order
        Self {
            untold: peers,
            missing: BTreeSet::new(),
            heard: now,
            linger,
            over: false,
        }
    }

    pub(super) fn next_untold(&mut self) -> Option<u32> {
        self.untold.pop()
    }

    pub(super) fn all_are_told(&self) -> bool {
        self.untold.is_empty()
    }

    pub(super) fn is_missing(&self, pe: u32) -> bool {
        self.missing.contains(&pe)
    }

    /// Whether we have to stay for the sake of `pe`.
    pub(super) fn note(&mut self, pe: u32, missing: bool) {
        if missing {
            self.missing.insert(pe);
        } else {
            self.missing.remove(&pe);
        }
    }

    /// Somebody still needs this PE.
    pub(super) fn heard(&mut self, now: u64) {
        self.heard = now;
    }

    /// When the linger time ends, if it matters.
    pub(super) fn end(&self) -> Option<u64> {
        (!self.missing.is_empty() && !self.over).then(|| self.heard.saturating_add(self.linger))
    }

    /// The linger time is over. Returns how many are given up.
    pub(super) fn give_up(&mut self) -> u64 {
        self.over = true;
        self.missing.len() as u64
    }

    /// Whether nobody whom this PE could know of needs it any more.
    pub(super) fn is_done(&self) -> bool {
        self.untold.is_empty() && (self.missing.is_empty() || self.over)
    }
}

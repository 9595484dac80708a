//! The end of an HCA: what has failed, and for how long it may before that is said.
//!
//! Most of what goes wrong belongs to a work request, and its completion tells. The rest would be silence:
//! a device that has stopped, a completion queue that has lost completions, a way on which nothing can
//! be sent. An HCA keeps the first of these ([`Hca::failure`](super::Hca::failure)), whichever thread meets
//! it, and never takes it back.
//!
//! Some troubles go by: a port that trains its link again, a firewall whose table is full for a moment. Those
//! count once they have lasted ([`LASTING_NS`]).

#![forbid(unsafe_code)]

use hashbrown::HashMap;

use super::AddressVector;

/// Why an HCA serves nobody any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Which HCA: the device and its port, or the address of the software HCA.
    pub device: String,
    /// To whom it cannot send, if not to nobody.
    pub peer: Option<AddressVector>,
    /// What has happened, and what may help.
    pub reason: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has failed: {}", self.device, self.reason)
    }
}

/// After so long without success a trouble is a failure: well below a second, and longer than a queue
/// or a table stays full.
pub const LASTING_NS: u64 = 500_000_000;
/// And not before it was met so often: this process may not have run for a while.
const LEAST_TIMES: u32 = 4;

/// On which ways nothing gets through, since when.
#[derive(Debug)]
pub struct Troubles<K>(HashMap<K, Trouble>);

#[derive(Clone, Copy, Debug)]
struct Trouble {
    since: u64,
    times: u32,
}

impl<K> Default for Troubles<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + std::hash::Hash> Troubles<K> {
    /// Something was refused on `way`; says whether that has lasted too long.
    pub fn met(&mut self, way: K, now: u64) -> bool {
        let new = Trouble {
            since: now,
            times: 0,
        };
        let trouble = self.0.entry(way).or_insert(new);
        trouble.times = trouble.times.saturating_add(1);
        trouble.times >= LEAST_TIMES && now.saturating_sub(trouble.since) >= LASTING_NS
    }

    /// Something got through on `way`.
    #[inline]
    pub fn over(&mut self, way: &K) {
        if !self.0.is_empty() {
            self.0.remove(way);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_a_failure_and_what_goes_by_is_not() {
        let mut troubles = Troubles::default();
        for now in [0, 1, 2, 3, 4, LASTING_NS - 1] {
            assert!(!troubles.met('a', now));
        }
        assert!(!troubles.met('b', LASTING_NS));
        assert!(troubles.met('a', LASTING_NS));
        troubles.over(&'a');
        assert!(!troubles.met('a', LASTING_NS));
    }

    #[test]
    fn a_process_that_did_not_run_has_not_tried_for_long() {
        let mut troubles = Troubles::default();
        assert!(!troubles.met('a', 0));
        assert!(!troubles.met('a', 10 * LASTING_NS));
        assert!(!troubles.met('a', 11 * LASTING_NS));
        assert!(troubles.met('a', 12 * LASTING_NS));
    }
}

//! Work requests that do not tell when they are complete.
//!
//! An entry in the completion queue costs the device a write into memory and the processor a look at it. A
//! queue pair completes in order, so of many requests one behind the other few have to tell: their completions
//! are those of all before them. The first few that are under way all tell, because where few are, somebody
//! waits for each soon; of those that follow, every so many. If the last one was silent when a thread begins to
//! wait (which shows in that it polls), a request of no bytes goes behind it, which tells.
//!
//! Silent are puts and gets of one request that hold no slot and that nobody waits for: what a silent
//! request holds comes back late. A failure is told in any case, by the request itself, and if earlier silent
//! ones of that queue pair have not told of a failure before, they have succeeded.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::accounts::ContextId;
use super::table::{CHUNK, Holds, Op, OpId, OpKind};
use shmem_verbs::{Qpn, Rkey, SrqNum};

/// So many requests towards a peer tell of their completion before the first that does not.
pub(crate) const FIRST: u64 = 4;

/// The silent requests towards a peer.
#[derive(Debug, Default)]
pub(crate) struct Silent {
    /// Their operations, in the order of posting.
    ops: VecDeque<OpId>,
    /// How many there were ever, and how many are complete.
    posted: u64,
    retired: u64,
    /// So many are complete when the last request that tells is.
    covered: u64,
}

impl Silent {
    /// Whether some are behind the last request that tells.
    pub(crate) const fn is_uncovered(&self) -> bool {
        self.posted > self.covered
    }

    /// How many are behind it.
    const fn run(&self) -> u64 {
        self.posted - self.covered
    }

    /// A silent request was posted; returns how many silent ones were before it.
    pub(crate) fn push(&mut self, id: OpId) -> u64 {
        self.ops.push_back(id);
        self.posted += 1;
        self.posted - 1
    }

    /// The last one shall tell after all.
    pub(crate) fn pop(&mut self) {
        if self.ops.pop_back().is_some() {
            self.posted -= 1;
        }
    }

    /// A request that tells was posted; returns how many silent ones are complete when it is.
    pub(crate) const fn cover(&mut self) -> u64 {
        self.covered = self.posted;
        self.posted
    }

    /// The first `upto` of all are complete: those of them that were not before.
    pub(super) fn retire(&mut self, upto: u64) -> SmallVec<[OpId; 16]> {
        let n = upto.saturating_sub(self.retired) as usize;
        self.retired = self.retired.max(upto);
        self.covered = self.covered.max(upto);
        self.ops.drain(..n.min(self.ops.len())).collect()
    }

    /// All are complete.
    pub(super) fn retire_all(&mut self) -> SmallVec<[OpId; 16]> {
        self.retire(self.posted)
    }

    /// The oldest that is not known to be complete has told of its end itself, since it failed.
    pub(super) fn told(&mut self) {
        self.retire(self.retired + 1);
    }

    /// Whether some of the first `upto` are not known to be complete.
    pub(crate) const fn is_behind(&self, upto: u64) -> bool {
        upto > self.retired
    }

    /// Nothing is under way any more.
    pub(crate) fn forget(&mut self) {
        self.ops.clear();
        (self.retired, self.covered) = (self.posted, self.posted);
    }
}

/// How to reach the peer once more, as the last silent request did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub(crate) ctx: ContextId,
    pub(crate) qpn: Qpn,
    pub(crate) srqn: Option<SrqNum>,
    pub(crate) raddr: u64,
    pub(crate) rkey: Rkey,
}

/// Whether an operation may be silent, whatever the queues hold.
pub(crate) fn may_be_silent(op: &Op) -> bool {
    let of_one_request = op.pending == 0 && op.len > 0 && op.len <= CHUNK as u64;
    let plain = matches!(op.kind, OpKind::Put | OpKind::Get) && matches!(op.holds, Holds::Nothing);
    plain && of_one_request && !op.waited
}

/// How requests of an endpoint tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telling {
    /// Of so many one tells.
    every: u64,
    /// All tell where so many are under way towards all peers: the endpoint must not be full of silent ones. (Of
    /// those towards one peer some tell in any case.)
    crowded: u32,
}

impl Telling {
    /// Of `every` one tells, towards peers with so deep a queue each, and with room for so many in all.
    pub(crate) fn new(every: u32, sq_depth: u32, most: u32) -> Self {
        Self {
            every: u64::from(every.clamp(1, (sq_depth / 4).max(1))),
            crowded: most / 2,
        }
    }

    /// Whether the next request is silent, if it may be.
    pub(crate) const fn is_silent(&self, silent: &Silent, under_way: u64, in_all: u32) -> bool {
        under_way >= FIRST && silent.run() + 1 < self.every && in_all < self.crowded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmem_verbs::rng::Rng;

    /// Random requests of a queue pair that completes in order: what counts as complete is so, nothing that
    /// could be heard of is missing, and at no time are there more silent ones than may be.
    #[test]
    fn silent_requests_are_complete_when_a_later_one_tells() {
        for seed in 0..500 {
            let mut rng = Rng::new(seed);
            let every = 1 + rng.below(20) as u32;
            let depth = 1 + rng.below(64) as u32;
            let telling = Telling::new(every, depth, 4096);
            let mut silent = Silent::default();
            // Requests under way, oldest first: what each tells, if it does.
            let mut queue: VecDeque<Option<u64>> = VecDeque::new();
            let (mut posted, mut told) = (0_u64, 0_u64);
            for number in 0..1000 {
                if rng.below(3) > 0 && queue.len() < depth as usize {
                    let may_be = rng.below(8) > 0;
                    if may_be && telling.is_silent(&silent, queue.len() as u64, 0) {
                        assert_eq!(silent.push(OpId::from_bits(posted)), posted);
                        posted += 1;
                        queue.push_back(None);
                    } else {
                        queue.push_back(Some(silent.cover()));
                    }
                    assert!(silent.run() < u64::from(every).max(1), "seed {seed}");
                } else if let Some(end) = queue.iter().position(Option::is_some) {
                    let done: Vec<_> = queue.drain(..=end).collect();
                    let upto = done[end].expect("that is what was looked for");
                    let expected: Vec<_> = (told..told + end as u64).map(OpId::from_bits).collect();
                    assert_eq!(
                        silent.retire(upto)[..],
                        expected[..],
                        "seed {seed}, {number}"
                    );
                    told = upto;
                } else {
                    assert!(
                        queue.len() < depth as usize,
                        "seed {seed}: full, and nobody tells"
                    );
                }
            }
        }
    }

    #[test]
    fn where_little_is_under_way_everything_tells() {
        let telling = Telling::new(16, 256, 4096);
        let silent = Silent::default();
        assert!(!telling.is_silent(&silent, FIRST - 1, 0));
        assert!(telling.is_silent(&silent, FIRST, 0));
        assert!(telling.is_silent(&silent, 255, 255));
        assert!(!telling.is_silent(&silent, FIRST, 2048));
    }
}

//! Somebody asks what the PEs wait for: this node's are counted, and those of the children's subtrees
//! come in; when all have, or time is up, the sum goes up.
//!
//! Each level takes part of the time, so that who is near the root still has some when a subtree is
//! silent: its PEs are then missing from the sum, and the launcher says so.

use super::{Action, Agent};
use crate::census::{Census, Example};
use crate::frame::Frame;

/// A count under way.
#[derive(Debug)]
pub(super) struct Count {
    number: u32,
    sum: Census,
    /// Whether this node's PEs are in it.
    own: bool,
    /// Children whose subtree is not.
    awaited: Vec<usize>,
    deadline: u64,
}

impl Agent {
    /// Begins a count that is to be over in so many milliseconds. One that is under way is forgotten.
    pub(super) fn begin_count(&mut self, number: u32, budget_ms: u32, now: u64) {
        let theirs = budget_ms - budget_ms / 8;
        let mut awaited = Vec::new();
        for (at, child) in self.children.iter_mut().enumerate() {
            if !child.is_closed() && !child.is_lost() && !child.done {
                child.out.send(&Frame::Count {
                    number,
                    budget_ms: theirs,
                });
                awaited.push(at);
            }
        }
        self.gathered.count = Some(Count {
            number,
            sum: Census::default(),
            own: false,
            awaited,
            deadline: now.saturating_add(u64::from(budget_ms) * 1_000_000),
        });
        self.actions.push_back(Action::Count(number));
    }

    /// Looks at the stacks of those PEs that are this node's; the children were told.
    pub(super) fn trace(&mut self, number: u32, pes: Vec<Example>, budget_ms: u32) {
        for pe in pes {
            if pe.node == self.setup.node {
                self.actions.push_back(Action::Trace {
                    number,
                    pe,
                    budget_ms,
                });
            }
        }
    }

    /// What this node's PEs do.
    pub(super) fn counted_own(&mut self, number: u32, census: Census) {
        if let Some(count) = self.gathered.count.as_mut().filter(|c| c.number == number) {
            count.own = true;
            count.sum.merge(census);
        }
    }

    /// What those of a subtree do.
    pub(super) fn counted(&mut self, child: usize, number: u32, census: Census) {
        if let Some(count) = self.gathered.count.as_mut().filter(|c| c.number == number)
            && let Some(at) = count.awaited.iter().position(|&c| c == child)
        {
            count.awaited.swap_remove(at);
            count.sum.merge(census);
        }
    }

    /// Sends the sum up once nothing more is to be waited for.
    pub(super) fn end_count(&mut self, now: u64) {
        let children = &self.children;
        let Some(count) = &mut self.gathered.count else {
            return;
        };
        count
            .awaited
            .retain(|&at| !children[at].is_closed() && !children[at].is_lost());
        if (count.own && count.awaited.is_empty()) || now >= count.deadline {
            let (number, census) = (count.number, Box::new(std::mem::take(&mut count.sum)));
            self.gathered.count = None;
            self.parent.out.send(&Frame::Counted { number, census });
        }
    }

    /// When [`end_count`](Self::end_count) is due.
    pub(super) fn count_deadline(&self) -> Option<u64> {
        self.gathered.count.as_ref().map(|count| count.deadline)
    }
}

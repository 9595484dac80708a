//! The table of timers: when which queue pair wants to be looked at.
//!
//! It is the only one of an engine. What the deadline of a queue pair means, only that queue pair knows (see
//! `rc::requester::retransmission`). Deadlines mostly move on before they are reached, with each
//! acknowledgement; so an entry is left where it is until it is due, and then moves to where the deadline is by
//! then.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::qp::{Qp, QueuePairs};
use shmem_verbs::Qpn;

/// Deadlines, earliest first. Entries that a queue pair has outlived are skipped: see [`Qp::timer_queued`].
#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(u64, Qpn)>>);

impl Timers {
    /// Makes sure that there is an entry no later than the deadline of a queue pair.
    #[inline]
    pub(crate) fn set(&mut self, qp: &mut Qp) {
        if let Some(deadline) = qp.deadline()
            && qp.timer_queued.is_none_or(|at| deadline < at)
        {
            qp.timer_queued = Some(deadline);
            self.0.push(Reverse((deadline, qp.qpn)));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next_timeout(&mut self, qps: &mut QueuePairs) -> Option<u64> {
        while let Some(&Reverse((at, qpn))) = self.0.peek() {
            let live = qps.get_mut(qpn.0).filter(|qp| qp.timer_queued == Some(at));
            let Some(qp) = live else {
                self.0.pop();
                continue;
            };
            match qp.deadline() {
                Some(deadline) if deadline <= at => return Some(at),
                _ => {
                    // It moved on since: the entry goes where it belongs now.
                    self.0.pop();
                    qp.timer_queued = None;
                    self.set(qp);
                }
            }
        }
        None
    }

    /// Takes the entry of a queue pair whose deadline has come.
    pub(crate) fn take_due(&mut self, qps: &mut QueuePairs, now: u64) -> Option<Qpn> {
        self.next_timeout(qps).filter(|at| *at <= now)?;
        let Reverse((_, qpn)) = self.0.pop()?;
        qps.get_mut(qpn.0)?.timer_queued = None;
        Some(qpn)
    }
}

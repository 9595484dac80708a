//! What an endpoint counts of one peer: how far operations towards it have come, and who waits for it. How the
//! connection stands, and what memory the peer has, its state machine knows ([`Route`](crate::Route)).

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use super::atomics::by_owner::books::RequestCount;
use super::error::ConnError;
use super::operations::accounts::Mark;
use super::operations::silent::{Last, Silent};
use crate::UdAddress;

/// What is known about a peer that was in contact.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Threads that wait for the connection.
    pub(super) waiters: u32,
    /// Of those, how many waited when it opened: each may begin one operation even if the
    /// connection is to be drained already, so that opening it was not in vain.
    pub(super) entitled: u32,
    /// Value of the endpoint's count of work requests at the last use.
    pub(super) used: u64,
    /// [`Hca::inbound_mark`](shmem_verbs::Hca::inbound_mark) when last looked at.
    pub(super) inbound: u32,
    /// Work requests posted and completed; they complete in order.
    pub(super) posted: u64,
    pub(super) completed: u64,
    /// Those that do not tell, and the way of the last one.
    pub(super) silent: Silent,
    pub(super) last: Option<Last>,
    /// Atomics that the peer is to execute, and has; they complete in an order of their own.
    pub(super) requests: RequestCount,
    /// Atomics towards it that take several steps, and have not ended.
    pub(super) composed: u32,
    /// How often connecting failed, and how the last time.
    pub(super) failures: u64,
    pub(super) failure: Option<ConnError>,
    /// Where we looked for it.
    pub(super) address: Option<UdAddress>,
}

impl Peer {
    /// Whether no operation towards it is under way.
    pub(super) const fn is_idle(&self) -> bool {
        self.posted == self.completed && self.requests.unanswered() == 0 && self.composed == 0
    }

    /// Whether so many requests are under way as its queue has places for operations.
    pub(super) fn is_full(&self, sq_depth: u32) -> bool {
        self.posted - self.completed >= u64::from(sq_depth)
    }

    /// Everything that was started so far.
    pub(super) const fn mark(&self) -> Mark {
        Mark {
            posted: self.posted,
            asked: self.requests.asked,
        }
    }

    /// How many operations before `mark` have not completed.
    pub(super) const fn left(&self, mark: Mark) -> u64 {
        mark.posted.saturating_sub(self.completed)
            + mark.asked.saturating_sub(self.requests.answered)
    }

    /// Whether everything before `mark` has completed.
    pub(super) const fn has_reached(&self, mark: Mark) -> bool {
        self.completed >= mark.posted && self.requests.answered >= mark.asked
    }
}

/// Peers that are to be connected before they are used.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// With their nodes and addresses; in this order.
    pub(super) waiting: VecDeque<(u32, u32, UdAddress)>,
    /// Those whose handshake this has begun.
    pub(super) under_way: Vec<u32>,
}

impl Ahead {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }
}

//! What an endpoint knows of one peer: its connection, its memory, and how far operations towards it
//! have come.

#![forbid(unsafe_code)]

use super::amo::Asked;
use super::error::ConnError;
use crate::UdAddress;
use crate::message::{Segment, Segments};
use shmem_verbs::{Qpn, SrqNum};

/// A point in the sequence of operations towards a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    posted: u64,
    pub(super) asked: u64,
}

/// What is known about a peer that was in contact.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The queue pair for our operations, if the connection is open.
    pub(super) open: Option<Qpn>,
    /// The peer's memory.
    segments: Segments,
    /// Counts its changes.
    reach: u32,
    /// How requests name the peer on a queue pair that reaches others, too.
    pub(super) srqn: Option<SrqNum>,
    /// Nothing may be begun over the open connection: it makes room for another.
    pub(super) draining: bool,
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
    /// Atomics that the peer is to execute, and has; they complete in an order of their own.
    pub(super) asked: Asked,
    /// Atomics towards it that take several steps, and have not ended.
    pub(super) composed: u32,
    /// How often connecting failed, and how the last time.
    pub(super) failures: u64,
    pub(super) failure: Option<ConnError>,
    /// The connection is beyond repair.
    pub(super) broken: Option<ConnError>,
    /// It has said BYE: nothing may be started over the open connection.
    pub(super) left: bool,
    /// Where we looked for it.
    pub(super) address: Option<UdAddress>,
}

impl Peer {
    /// Whether no operation towards it is under way.
    pub(super) const fn is_idle(&self) -> bool {
        self.posted == self.completed && self.asked.unanswered() == 0 && self.composed == 0
    }

    /// The peer's memory is another from now on.
    pub(super) fn reaches(&mut self, segments: Segments) {
        self.segments = segments;
        self.reach = self.reach.wrapping_add(1);
    }

    /// The memory that it was last known to have under an identifier.
    pub(super) fn segment(&self, id: u8) -> Option<&Segment> {
        self.segments.iter().find(|its| its.id == id)
    }

    /// Addresses and keys of the peer's memory are valid as long as this is the same.
    pub(super) const fn reach(&self) -> u32 {
        self.reach
    }

    /// Everything that was started so far.
    pub(super) const fn mark(&self) -> Mark {
        Mark {
            posted: self.posted,
            asked: self.asked.asked,
        }
    }

    /// Whether everything before `mark` has completed.
    pub(super) const fn has_reached(&self, mark: Mark) -> bool {
        self.completed >= mark.posted && self.asked.answered >= mark.asked
    }
}

//! An open connection, as those see it who post operations to it.

use crate::message::{Segment, Segments};
use shmem_verbs::{Qpn, SrqNum};

/// Where operations towards a peer go. Exists while its connection is open, or while it drains and
/// operations are under way on it. The state machine that owns the connection tells it; whoever posts asks anew each time,
/// and keeps nothing.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// The local queue pair.
    pub qpn: Qpn,
    /// How requests name the peer on a queue pair that reaches others, too.
    pub srqn: Option<SrqNum>,
    /// The memory of the peer.
    pub segments: &'a Segments,
    /// The connection makes room for another: nothing may be begun over it.
    pub draining: bool,
    /// The peer has said BYE: nothing may be started over it.
    pub left: bool,
    /// The queue pair is in error.
    pub broken: bool,
}

impl Route<'_> {
    /// The memory that the peer is known to have under an identifier.
    #[must_use]
    #[inline]
    pub fn segment(&self, id: u8) -> Option<&Segment> {
        self.segments.iter().find(|its| its.id == id)
    }
}

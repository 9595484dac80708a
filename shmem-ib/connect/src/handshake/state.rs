//! What the state machine remembers in each of its states.

use std::hash::{Hash, Hasher};

use super::Local;
use crate::message::{Epoch, Offer, Segments};
use shmem_verbs::{Psn, Qpn};

/// The queue pair on this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) struct Mine {
    pub(super) generation: u32,
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
}

/// The queue pair on the other side.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub(super) struct Peer {
    pub(super) epoch: Epoch,
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
    pub(super) segments: Segments,
    /// Of `segments`.
    pub(super) revision: u32,
    /// The largest revision before which no operation of ours is under way.
    pub(super) applied: u32,
}

/// A connection that the local program waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Want {
    pub(super) started: u64,
    /// Time of the last sign of life, or of the first OFFER.
    pub(super) heard: u64,
    /// When to send the next OFFER; `None` if none was sent for the present QP.
    pub(super) resend: Option<u64>,
    pub(super) interval: u64,
    pub(super) sent: u32,
    /// Place in the line for queue pairs; kept until the connection is open.
    pub(super) ticket: u64,
}

impl Hash for Want {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // Without `sent`, which only error messages tell: who explores all states knows them by
        // their hashes, and a count would make them infinitely many.
        (self.started, self.heard, self.resend, self.interval).hash(hasher);
        self.ticket.hash(hasher);
    }
}

impl Want {
    pub(super) const fn new(now: u64, ticket: u64) -> Self {
        Self {
            started: now,
            heard: now,
            resend: None,
            interval: 0,
            sent: 0,
            ticket,
        }
    }

    /// The same wish when its queue pair was given up: everything is to be sent anew.
    pub(super) const fn again(self) -> Self {
        Self {
            resend: None,
            interval: 0,
            sent: 0,
            ..self
        }
    }
}

/// An OFFER that could not be handled yet.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub(super) struct Deferred {
    pub(super) epoch: Epoch,
    pub(super) echo: Option<Epoch>,
    pub(super) want_reply: bool,
    pub(super) ticket: u64,
    pub(super) offer: Offer,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Preparing {
    pub(super) creating: bool,
    pub(super) want: Option<Want>,
    pub(super) offer: Option<Deferred>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Offered {
    pub(super) mine: Mine,
    pub(super) want: Option<Want>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Answered {
    pub(super) mine: Mine,
    pub(super) peer: Peer,
    pub(super) want: Option<Want>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Open {
    pub(super) mine: Mine,
    pub(super) peer: Peer,
}

/// The connection makes room for another: nothing is posted on it any more.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Draining {
    pub(super) mine: Mine,
    pub(super) peer: Peer,
    /// None of our operations is under way.
    pub(super) idle: bool,
    /// The peer has said the same of its own.
    pub(super) peer_idle: bool,
    /// The local program wants the peer again.
    pub(super) want: Option<Want>,
    pub(super) began: u64,
    /// Time of the last sign of life, or of the first DRAIN.
    pub(super) heard: u64,
    /// When to send the next DRAIN.
    pub(super) resend: u64,
    pub(super) interval: u64,
}

/// Changed segments are to be told to the peer until it acknowledges them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Push {
    pub(super) began: u64,
    pub(super) resend: u64,
    pub(super) interval: u64,
}

/// Our BYE was sent, the peer's has not come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Parting {
    pub(super) mine: Mine,
    pub(super) peer: Peer,
    /// When the last BYE was sent.
    pub(super) said: u64,
    /// When to send the next.
    pub(super) resend: u64,
    pub(super) interval: u64,
}

/// Both BYEs were sent, and the peer's has come. The queue pair is there for the sake of
/// duplicates until the endpoint ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Parted {
    pub(super) mine: Mine,
    pub(super) peer: Peer,
    /// When the last BYE was sent.
    pub(super) said: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum State {
    Idle,
    Preparing(Preparing),
    Offered(Offered),
    Answered(Answered),
    Open(Open),
    Draining(Draining),
    Parting(Parting),
    Parted(Parted),
}

impl State {
    /// The local queue pair, if there is one.
    pub(super) const fn mine(&self) -> Option<Mine> {
        match self {
            Self::Idle | Self::Preparing(_) => None,
            Self::Offered(Offered { mine, .. })
            | Self::Answered(Answered { mine, .. })
            | Self::Open(Open { mine, .. })
            | Self::Draining(Draining { mine, .. })
            | Self::Parting(Parting { mine, .. })
            | Self::Parted(Parted { mine, .. }) => Some(*mine),
        }
    }

    /// The queue pair to which the local one is linked.
    pub(super) const fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Idle | Self::Preparing(_) | Self::Offered(_) => None,
            Self::Answered(Answered { peer, .. })
            | Self::Open(Open { peer, .. })
            | Self::Draining(Draining { peer, .. })
            | Self::Parting(Parting { peer, .. })
            | Self::Parted(Parted { peer, .. }) => Some(peer),
        }
    }

    /// As [`peer`](Self::peer), to change what is known of it.
    pub(super) const fn peer_mut(&mut self) -> Option<&mut Peer> {
        match self {
            Self::Idle | Self::Preparing(_) | Self::Offered(_) => None,
            Self::Answered(Answered { peer, .. })
            | Self::Open(Open { peer, .. })
            | Self::Draining(Draining { peer, .. })
            | Self::Parting(Parting { peer, .. })
            | Self::Parted(Parted { peer, .. }) => Some(peer),
        }
    }

    /// The wish of the local program for this peer, if it is not fulfilled.
    pub(super) const fn want(&self) -> Option<&Want> {
        match self {
            Self::Idle | Self::Open(_) | Self::Parting(_) | Self::Parted(_) => None,
            Self::Preparing(Preparing { want, .. })
            | Self::Offered(Offered { want, .. })
            | Self::Answered(Answered { want, .. })
            | Self::Draining(Draining { want, .. }) => want.as_ref(),
        }
    }
}

pub(super) const fn epoch_of(local: &Local, mine: Mine) -> Epoch {
    Epoch {
        incarnation: local.incarnation,
        generation: mine.generation,
    }
}

//! What the state machine remembers in each of its states.

use crate::message::{Generation, Memory, Offer};
use crate::retry::Repeater;
use shmem_verbs::{Psn, Qpn};

/// The queue pair on this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) struct Mine {
    pub(super) generation: Generation,
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
}

/// The queue pair on the other side.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub(super) struct Theirs {
    pub(super) generation: Generation,
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
    pub(super) memory: Memory,
}

/// The two queue pairs of a connection. Ours is linked to theirs; whether theirs is to ours depends on
/// the state.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub(super) struct Pair {
    pub(super) mine: Mine,
    pub(super) theirs: Theirs,
}

/// That the local program waits for the connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Want {
    pub(super) since: u64,
    /// Place in the line for queue pairs; kept until the connection is open.
    pub(super) ticket: u64,
    /// The OFFER that asks for an answer, if it was sent for the present queue pair.
    pub(super) request: Option<Repeater>,
}

/// An OFFER and what stands around it.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub(super) struct PeerOffer {
    pub(super) generation: Generation,
    pub(super) echo: Option<Generation>,
    pub(super) want_reply: bool,
    pub(super) ticket: u64,
    pub(super) offer: Offer,
}

/// A connection that makes room for another: nothing is begun on it any more.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Drain {
    pub(super) began: u64,
    /// None of our operations is under way: the DRAIN that asks the peer to say the same.
    pub(super) idle: Option<Repeater>,
    /// The peer has said the same of its own.
    pub(super) peer_idle: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum State {
    Idle,
    /// Waits for a queue pair, which is being created or not even that, or for local memory.
    Preparing {
        creating: bool,
        offer: Option<PeerOffer>,
    },
    /// In INIT, linked to nothing.
    Offered(Mine),
    /// The peer may use the connection.
    Answered(Pair),
    /// Both may.
    Open(Pair),
    Draining(Pair, Drain),
    /// Our BYE was sent, the peer's has not come.
    Parting(Pair, Repeater),
    /// Both BYEs were sent, and the peer's has come. The queue pair is there for the sake of
    /// duplicates until the endpoint ends.
    Parted(Pair, Repeater),
}

impl State {
    /// The local queue pair, if there is one.
    pub(super) const fn mine(&self) -> Option<Mine> {
        match self {
            Self::Offered(mine) => Some(*mine),
            _ => match self.pair() {
                Some(pair) => Some(pair.mine),
                None => None,
            },
        }
    }

    pub(super) const fn pair(&self) -> Option<&Pair> {
        match self {
            Self::Idle | Self::Preparing { .. } | Self::Offered(_) => None,
            Self::Answered(pair)
            | Self::Open(pair)
            | Self::Draining(pair, _)
            | Self::Parting(pair, _)
            | Self::Parted(pair, _) => Some(pair),
        }
    }

    /// The queue pair to which the local one is linked.
    pub(super) fn theirs(&self) -> Option<Generation> {
        self.pair().map(|pair| pair.theirs.generation)
    }

    /// As [`pair`](Self::pair), to change what is known of the peer.
    pub(super) const fn pair_mut(&mut self) -> Option<&mut Pair> {
        match self {
            Self::Idle | Self::Preparing { .. } | Self::Offered(_) => None,
            Self::Answered(pair)
            | Self::Open(pair)
            | Self::Draining(pair, _)
            | Self::Parting(pair, _)
            | Self::Parted(pair, _) => Some(pair),
        }
    }
}

//! What is remembered of nodes and of their PEs.

use std::collections::BTreeSet;

use crate::UdAddress;
use crate::message::{Generation, Memory, Offer};
use crate::retry::Repeater;
use shmem_verbs::{Psn, Qpn};

/// An initiator QP of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Initiator {
    pub(super) generation: Generation,
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
    /// The PE that has its target.
    pub(super) direct: u32,
    /// It is in error.
    pub(super) broken: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum NodeState {
    #[default]
    Idle,
    /// Waits for the local queue pair.
    Preparing { direct: u32 },
    /// Has asked for the target.
    Offered(Initiator, Repeater),
    /// Operations to these peers may be begun.
    Open(Initiator, BTreeSet<u32>),
    /// Nothing is begun any more; these peers have operations under way.
    Draining(Initiator, BTreeSet<u32>),
}

impl NodeState {
    /// The initiator QP, if there is one.
    pub(super) const fn mine(&self) -> Option<Initiator> {
        match self {
            Self::Idle | Self::Preparing { .. } => None,
            Self::Offered(mine, _) | Self::Open(mine, _) | Self::Draining(mine, _) => Some(*mine),
        }
    }
}

/// The connection to one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Node {
    pub(super) state: NodeState,
    /// PEs of it that were ever wanted.
    pub(super) members: BTreeSet<u32>,
}

/// What an initiator has of us.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum Served {
    #[default]
    None,
    /// Waits for our memory.
    Pending(Generation, Offer),
    /// Waits for the queue pair, which is made for `asked`.
    Creating {
        asked: Generation,
        /// The newest OFFER; `None` if the initiator is gone meanwhile.
        newest: Option<(Generation, Offer)>,
    },
    Serving(Target),
    /// This one and all before are over.
    Closed(Generation),
}

/// A target QP of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Target {
    /// Of the initiator QP.
    pub(super) generation: Generation,
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
    /// We leave: the BYE that asks for the end of the initiator.
    pub(super) bye: Option<Repeater>,
}

/// A question for the memory of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Asks {
    /// How many were begun; numbers them.
    pub(super) number: Generation,
    /// When the last one began.
    pub(super) began: u64,
    /// The one that is under way.
    pub(super) now: Option<Repeater>,
}

/// What is known of one peer.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Peer {
    /// Where its UD endpoint is.
    pub(super) ud: Option<UdAddress>,
    /// It has said so itself.
    pub(super) spoke: bool,
    /// Its node, if it was ever wanted.
    pub(super) node: Option<u32>,
    /// It has left or leaves.
    pub(super) left: bool,
    /// Since when the program waits for it.
    pub(super) want: Option<u64>,
    pub(super) memory: Option<Memory>,
    pub(super) asks: Asks,
    /// How often it did not answer as the direct peer, while others of its node did.
    pub(super) snubs: u8,
    /// Its ASK, to be answered when our memory is registered.
    pub(super) owes: Option<Generation>,
    /// An initiator QP of ours towards it that is gone, until it knows: the DRAIN that tells.
    pub(super) gone: Option<(Generation, Repeater)>,
    pub(super) served: Served,
}

//! What the XRC machine remembers of nodes and peers.

use std::collections::BTreeSet;

use super::message::{Memory, Open};
use crate::UdAddress;
use crate::handshake::RetryPolicy;
use crate::message::Epoch;
use shmem_verbs::rng::Rng;
use shmem_verbs::{Psn, Qpn};

/// A question that is repeated until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Request {
    /// Time of the last sign of life, or of the beginning.
    pub(super) heard: u64,
    /// When to send it again.
    pub(super) resend: u64,
    interval: u64,
    pub(super) sent: u32,
}

impl Request {
    pub(super) const fn new(heard: u64) -> Self {
        Self {
            heard,
            resend: heard,
            interval: 0,
            sent: 0,
        }
    }

    /// It is sent now.
    pub(super) fn mark_sent(&mut self, now: u64, retry: &RetryPolicy, rng: &mut Rng) {
        self.interval = match self.interval {
            0 => retry.initial,
            interval => interval.saturating_mul(2).min(retry.max),
        };
        self.sent = self.sent.saturating_add(1);
        self.resend = now + jittered(rng, self.interval);
    }

    /// The peer lives but cannot answer yet; it will by itself, and asking only covers a loss.
    pub(super) fn be_patient(&mut self, now: u64, retry: &RetryPolicy, rng: &mut Rng) {
        self.heard = now;
        self.interval = retry.max;
        self.resend = now + jittered(rng, self.interval);
    }

    /// When something has to be done about it.
    pub(super) fn due(&self, retry: &RetryPolicy) -> u64 {
        self.resend.min(self.heard.saturating_add(retry.silence))
    }
}

/// Something said that is repeated until it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Repeated {
    pub(super) since: u64,
    pub(super) said: u64,
    pub(super) resend: u64,
    interval: u64,
}

impl Repeated {
    pub(super) fn new(now: u64, retry: &RetryPolicy, rng: &mut Rng) -> Self {
        Self {
            since: now,
            said: now,
            resend: now + jittered(rng, retry.bye),
            interval: retry.bye,
        }
    }

    pub(super) fn again(&mut self, now: u64, retry: &RetryPolicy, rng: &mut Rng) {
        self.interval = self.interval.saturating_mul(2).min(retry.longest_bye());
        self.said = now;
        self.resend = now + jittered(rng, self.interval);
    }
}

/// `interval` changed by up to a quarter in either direction, so that PEs which started
/// together do not keep colliding.
const fn jittered(rng: &mut Rng, interval: u64) -> u64 {
    if interval == 0 {
        0
    } else {
        interval - interval / 4 + rng.below(interval / 2 + 1)
    }
}

/// An initiator QP of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ini {
    pub(super) generation: u32,
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Asking {
    pub(super) direct: u32,
    pub(super) mine: Ini,
    pub(super) request: Request,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Linked {
    pub(super) direct: u32,
    pub(super) mine: Ini,
    /// The INI QP is in error.
    pub(super) broken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum NodeState {
    #[default]
    Idle,
    Preparing {
        direct: u32,
    },
    Asking(Asking),
    Open(Linked),
    Draining(Linked),
}

impl NodeState {
    /// The INI QP, if there is one, and who has its other end.
    pub(super) const fn ini(&self) -> Option<(Ini, u32)> {
        match self {
            Self::Idle | Self::Preparing { .. } => None,
            Self::Asking(s) => Some((s.mine, s.direct)),
            Self::Open(s) | Self::Draining(s) => Some((s.mine, s.direct)),
        }
    }

    pub(super) const fn direct(&self) -> Option<u32> {
        match self {
            Self::Idle => None,
            Self::Preparing { direct } => Some(*direct),
            Self::Asking(s) => Some(s.direct),
            Self::Open(s) | Self::Draining(s) => Some(s.direct),
        }
    }
}

/// The connection to one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Node {
    pub(super) state: NodeState,
    /// PEs of it that the program waits for.
    pub(super) waiting: BTreeSet<u32>,
}

/// A BYE that is not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Farewell {
    pub(super) generation: u32,
    pub(super) repeated: Repeated,
}

/// A TGT QP of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Serving {
    /// Of the initiator QP.
    pub(super) epoch: Epoch,
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
    /// We leave, and ask for the BYE.
    pub(super) solicit: Option<Repeated>,
}

/// What an initiator has of us.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum Served {
    #[default]
    None,
    /// Waits for our memory.
    Pending((Epoch, Open)),
    /// Waits for the queue pair, which is made for `asked`.
    Creating {
        asked: Epoch,
        /// The newest OPEN; `None` if the initiator is gone meanwhile.
        newest: Option<(Epoch, Open)>,
    },
    Serving(Serving),
    Closed(Epoch),
}

/// What is known of one peer.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Peer {
    /// Where its UD endpoint is.
    pub(super) ud: Option<UdAddress>,
    /// Its node, if it was ever wanted.
    pub(super) node: Option<u32>,
    /// Largest incarnation heard.
    pub(super) floor: Option<u64>,
    /// The incarnation that has left or leaves.
    pub(super) left: Option<u64>,
    /// Since when the program waits for it.
    pub(super) wish: Option<u64>,
    pub(super) memory: Option<Memory>,
    /// The ASK that is under way.
    pub(super) ask: Option<Request>,
    /// ASKs begun; numbers them.
    pub(super) asks: u32,
    /// When the last one began.
    pub(super) asked_at: u64,
    /// How often it did not answer as the direct peer, while others of its node did.
    pub(super) snubs: u8,
    /// Its ASK, to be answered when our memory is registered.
    pub(super) owes: Option<Epoch>,
    pub(super) farewell: Option<Farewell>,
    pub(super) served: Served,
    /// The timer that is set for it.
    pub(super) armed: Option<u64>,
}

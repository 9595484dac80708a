//! What the state machines of connections are told, and what they ask for: the same for connections to
//! peers ([`handshake`](crate::handshake)) and to nodes ([`xrc`](crate::xrc)).

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use crate::message::{Body, Generation, Memory, Message, Offer};
use crate::retry::RetryPolicy;
use crate::{ConnectStats, UdAddress};
use shmem_verbs::rng::Rng;
use shmem_verbs::{AddressVector, Mtu, Psn, Qpn};

/// What this PE brings to every connection.
#[derive(Clone, Debug)]
pub struct Local {
    /// Number of this PE, or of a [branch](crate::admission::number_of) of it.
    pub pe: u32,
    /// Where it takes connection messages.
    pub ud: UdAddress,
    /// Largest packet payload of its port.
    pub mtu: Mtu,
    /// Most READs and atomics that it answers, or has outstanding, at a time.
    pub max_rd_atomic: u8,
    /// Its memory; `None` until it is registered, and requests are answered with WAIT meanwhile.
    pub memory: Option<Memory>,
    /// Most RC queue pairs at a time; 0 is no limit.
    pub max_qps: u32,
    /// This PE leaves: it makes no more connections.
    pub leaving: bool,
    /// Timing.
    pub retry: RetryPolicy,
}

impl Local {
    /// How many segments its memory has.
    pub(crate) fn segments(&self) -> usize {
        self.memory
            .as_ref()
            .map_or(0, |memory| memory.segments.len())
    }
}

/// What the event handlers may use: the clock reading, the randomness, and where results go.
#[derive(Debug)]
pub struct EventContext<'a> {
    /// Nanoseconds from any origin; must not go backwards.
    pub now: u64,
    /// This PE.
    pub local: &'a Local,
    /// For PSNs and jitter.
    pub rng: &'a mut Rng,
    /// Filled with what is to be done, in this order.
    pub actions: &'a mut Actions,
    /// Counters to keep.
    pub stats: &'a mut ConnectStats,
    /// Logical time: above every ticket given or seen so far.
    pub clock: &'a mut u64,
    /// Whether a queue pair may be made now; if not, the machine waits in line
    /// ([`waiting`](crate::handshake::Handshake::waiting)) for
    /// [`ready`](crate::handshake::Handshake::ready).
    pub may_create: bool,
}

impl EventContext<'_> {
    pub(crate) fn act(&mut self, pe: u32, action: Action) {
        self.actions.push_back((pe, action));
    }

    /// A PSN to start with.
    pub(crate) const fn random_psn(&mut self) -> Psn {
        Psn::new(self.rng.next_u32())
    }

    /// Sends a message that is no place in any line.
    pub(crate) fn send(&mut self, pe: u32, to: UdAddress, message: Outgoing) {
        let ticket = *self.clock;
        self.send_with(pe, to, ticket, message);
    }

    pub(crate) fn send_with(&mut self, pe: u32, to: UdAddress, ticket: u64, message: Outgoing) {
        let Outgoing {
            generation,
            echo,
            want_reply,
            body,
        } = message;
        let message = Message {
            src_pe: self.local.pe,
            dst_pe: pe,
            generation,
            echo,
            want_reply,
            ticket,
            body,
        };
        self.act(pe, Action::Send { to, message });
    }

    /// A wanted connection has opened, `since` it was asked for.
    pub(crate) fn note_opened(&mut self, since: Option<u64>) {
        self.stats.opened += 1;
        if let Some(since) = since {
            let took = self.now.saturating_sub(since);
            self.stats.first_contact.record(took);
        }
    }

    /// A wanted connection does not come to be.
    pub(crate) fn fail(&mut self, pe: u32, failure: Failure) {
        self.stats.failed += 1;
        self.act(pe, Action::Failed(failure));
    }
}

/// A message without what follows from sender and receiver.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) generation: Generation,
    pub(crate) echo: Option<Generation>,
    pub(crate) want_reply: bool,
    pub(crate) body: Body,
}

/// Actions, each with the peer that it is for.
pub type Actions = VecDeque<(u32, Action)>;

/// What the driver has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send a datagram. If it cannot be sent now it may be dropped: it will be repeated.
    Send {
        /// Where to.
        to: UdAddress,
        /// What.
        message: Message,
    },
    /// Create a queue pair in INIT, of RC for this peer or an XRC initiator for its node, then call
    /// [`qp_created`](crate::manager::Manager::qp_created) or
    /// [`qp_failed`](crate::manager::Manager::qp_failed).
    CreateQp,
    /// Create an XRC target QP and move it to RTR, then call
    /// [`target_created`](crate::manager::Manager::target_created).
    CreateTarget(Link),
    /// Move a queue pair from INIT over RTR to RTS.
    LinkQp {
        /// The local queue pair.
        qpn: Qpn,
        /// PSN of the first request sent.
        sq_psn: Psn,
        /// The other end.
        link: Link,
    },
    /// Move a queue pair back to INIT; it keeps its number. Nothing was sent on it.
    ResetQp(Qpn),
    /// Destroy a queue pair. If it was open, for this peer or for several, its unfinished operations have
    /// failed; after a drain there are none.
    DestroyQp(Qpn),
    /// Destroy an XRC target QP.
    DestroyTarget(Qpn),
    /// Begin no operation on this queue pair any more, and call
    /// [`drained`](crate::manager::Manager::drained) when those under way have completed. If that
    /// takes time and the peer waits for it, call [`busy`](crate::manager::Manager::busy).
    Drain(Qpn),
    /// The open connection reaches more memory of the peer now:
    /// [`route`](crate::manager::Manager::route) tells.
    SegmentsAdded,
    /// Operations for this peer may be posted now: [`route`](crate::manager::Manager::route) tells where.
    Opened {
        /// Since when they were wanted, if they were.
        since: Option<u64>,
    },
    /// The wanted connection did not come to be; a later `connect` starts anew.
    Failed(Failure),
    /// The peer has nothing under way towards us, and starts nothing any more; nothing may be
    /// started towards it. Comes with each of its BYEs until we leave, too.
    PeerLeft {
        /// It waits for our BYE: if operations towards it are unfinished, call
        /// [`busy`](crate::manager::Manager::busy).
        waits: bool,
    },
}

/// The other end of a connection, for RTR and RTS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Link {
    /// Port of the peer.
    pub av: AddressVector,
    /// Queue pair of the peer.
    pub qpn: Qpn,
    /// PSN of the first request that the peer sends.
    pub psn: Psn,
    /// The smaller MTU of the two ports.
    pub mtu: Mtu,
    /// READs and atomics that we answer at a time.
    pub max_dest_rd_atomic: u8,
    /// READs and atomics that we may have outstanding: what both sides can do.
    pub max_rd_atomic: u8,
}

impl Link {
    /// What `local` and the peer that has sent this can do together.
    pub(crate) fn new(local: &Local, offer: &Offer) -> Self {
        Self {
            av: offer.ud.av(),
            qpn: offer.qpn,
            psn: offer.psn,
            mtu: offer.mtu.min(local.mtu),
            max_dest_rd_atomic: local.max_rd_atomic,
            max_rd_atomic: offer.max_rd_atomic.min(local.max_rd_atomic),
        }
    }
}

/// Why a connection failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// No sign of life for `nanos`, after `sent` requests.
    Silence {
        /// How long the peer was silent.
        nanos: u64,
        /// Requests sent to it.
        sent: u32,
    },
    /// The local queue pair could not be created; the text is the device's answer.
    QueuePair(String),
    /// The peer has left in order, or is leaving.
    PeerLeft,
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It told something new.
    Accepted,
    /// It told nothing new (and was answered if it asked for that).
    Duplicate,
    /// It is about an earlier queue pair.
    Stale,
}

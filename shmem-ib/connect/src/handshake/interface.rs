//! What the state machine is told, and what it asks for.

use smallvec::SmallVec;

use crate::message::{Message, Segments};
use crate::{ConnectStats, UdAddress};
use shmem_verbs::rng::Rng;
use shmem_verbs::{AddressVector, Mtu, Psn, Qpn};

/// When to send again, and when to give up. All in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryPolicy {
    /// From the first OFFER to the second; doubles with each.
    pub initial: u64,
    /// Longest interval. Each interval is changed by up to a quarter in either direction.
    pub max: u64,
    /// A peer that gives no sign of life for so long makes a wanted connection fail.
    pub silence: u64,
    /// From the first BYE to the second; doubles with each, up to [`Self::longest_bye`].
    pub bye: u64,
}

impl RetryPolicy {
    /// Longest interval between two BYEs: so short that some of them must be lost in a row before who
    /// lingers takes a peer for gone.
    pub const fn longest_bye(&self) -> u64 {
        4 * self.bye
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial: 1_000_000,
            max: 250_000_000,
            silence: 60_000_000_000,
            bye: 20_000_000,
        }
    }
}

/// What this PE brings to every connection.
#[derive(Clone, Debug)]
pub struct Local {
    /// Number of this PE.
    pub pe: u32,
    /// Of this process; a restarted one must have a larger number.
    pub incarnation: u64,
    /// Where it takes connection messages.
    pub ud: UdAddress,
    /// Largest packet payload of its port.
    pub mtu: Mtu,
    /// Most READs and atomics that it answers at a time.
    pub max_rd_atomic: u8,
    /// Its memory; `None` until it is registered, and OFFERs are answered with WAIT meanwhile.
    pub segments: Option<Segments>,
    /// Counts the changes of `segments`; 0 while there are none.
    pub revision: u32,
    /// Most RC queue pairs at a time; 0 is no limit.
    pub max_qps: u32,
    /// This PE leaves: it makes no more connections.
    pub leaving: bool,
    /// Timing.
    pub retry: RetryPolicy,
}

/// What the event handlers may use: the clock reading, the randomness, and where results go.
#[derive(Debug)]
pub struct Context<'a> {
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
    /// ([`waiting`](super::Handshake::waiting)) for [`ready`](super::Handshake::ready).
    pub may_create: bool,
}

/// A short list of actions.
pub type Actions = SmallVec<[Action; 2]>;

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
    /// Create an RC queue pair in INIT for this peer, then call
    /// [`qp_created`](super::Handshake::qp_created) or
    /// [`qp_failed`](super::Handshake::qp_failed).
    CreateQp,
    /// Move a queue pair from INIT over RTR to RTS.
    LinkQp(Link),
    /// Move a queue pair back to INIT; it keeps its number. Nothing was sent on it.
    ResetQp(Qpn),
    /// Destroy a queue pair. If it was open, its unfinished operations have failed; after a
    /// drain there are none.
    DestroyQp(Qpn),
    /// Begin no operation on this queue pair any more, and call
    /// [`drained`](super::Handshake::drained) when those under way have completed. If that takes
    /// time and the peer waits for it, call [`busy`](super::Handshake::busy).
    Drain(Qpn),
    /// The open connection reaches other memory of the peer now. Call
    /// [`segments_applied`](super::Handshake::segments_applied) when no operation that was begun
    /// before is under way.
    SegmentsChanged {
        /// All there are.
        segments: Segments,
        /// To be passed on.
        revision: u32,
    },
    /// RC operations may be posted to this queue pair now.
    Opened {
        /// The local queue pair.
        qpn: Qpn,
        /// The memory of the peer.
        segments: Segments,
    },
    /// The wanted connection did not come to be; a later `connect` starts anew.
    Failed(Failure),
    /// The peer has a new incarnation: what its predecessor's memory held is lost.
    PeerRestarted {
        /// Of the new process.
        incarnation: u64,
    },
    /// The peer has nothing under way towards us, and starts nothing any more; nothing may be
    /// started towards it. Comes with each of its BYEs until we leave, too.
    PeerLeft {
        /// It waits for our BYE: if operations towards it are unfinished, call
        /// [`busy`](super::Handshake::busy).
        waits: bool,
    },
}

/// The attributes of an RC connection, for RTR and RTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The local queue pair.
    pub qpn: Qpn,
    /// PSN of the first request sent.
    pub sq_psn: Psn,
    /// Port of the peer.
    pub peer_av: AddressVector,
    /// Queue pair of the peer.
    pub peer_qpn: Qpn,
    /// PSN of the first request that the peer sends.
    pub rq_psn: Psn,
    /// The smaller MTU of the two ports.
    pub mtu: Mtu,
    /// READs and atomics that we answer at a time.
    pub max_dest_rd_atomic: u8,
    /// READs and atomics that we may have outstanding: what both sides can do.
    pub max_rd_atomic: u8,
}

/// Why a connection failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// No sign of life for `nanos`, after `sent` OFFERs.
    Silence {
        /// How long the peer was silent.
        nanos: u64,
        /// OFFERs sent to it.
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
    /// It is from an earlier incarnation or an earlier queue pair of the peer.
    Stale,
}

/// What a connection means to who looks for a queue pair that can be spared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It has no queue pair.
    Without,
    /// Nobody can be using its queue pair.
    Unused,
    /// In use by either side, as far as can be known here.
    InUse,
    /// Somebody waits for it to open.
    Wanted {
        /// Ticket of the local program.
        own: Option<u64>,
        /// Ticket of the peer, and when it last asked.
        asked: Option<(u64, u64)>,
    },
    /// It is being closed to make room, since that time.
    Going(u64),
    /// It stays: its queue pair is just being made, or this PE leaves.
    Fixed,
}

/// Where a connection stands, for those who only want to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No queue pair.
    Idle,
    /// Waits for the local queue pair or the local memory.
    Preparing,
    /// The peer has not been heard.
    Offered,
    /// The peer may use the connection; we may not yet.
    Answered,
    /// Both may.
    Open,
    /// It is being closed to make room for another.
    Draining,
    /// We have said BYE, and wait for the peer's.
    Parting,
    /// Both have said BYE.
    Parted,
}

//! What the XRC machine is told, and what it asks for.

use super::message::Memory;
use crate::UdAddress;
use crate::handshake::{Failure, RetryPolicy};
use crate::message::Message;
use shmem_verbs::{AddressVector, Mtu, Psn, Qpn};

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
    /// Most READs and atomics that it answers, or has outstanding, at a time.
    pub max_rd_atomic: u8,
    /// How it is addressed; `None` until its memory is registered.
    pub memory: Option<Memory>,
    /// Timing.
    pub retry: RetryPolicy,
}

/// The other end of a connection, for RTR and RTS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// Its port.
    pub av: AddressVector,
    /// Its queue pair.
    pub qpn: Qpn,
    /// PSN of the first request that it sends.
    pub psn: Psn,
    /// The smaller MTU of the two ports.
    pub mtu: Mtu,
    /// READs and atomics under way at a time that both sides can do.
    pub rd_atomic: u8,
}

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
    /// Create an initiator QP for this node, in INIT, then call
    /// [`ini_created`](super::Machine::ini_created) or
    /// [`ini_failed`](super::Machine::ini_failed).
    CreateIni {
        /// Which node.
        node: u32,
    },
    /// Move an initiator QP from INIT over RTR to RTS. Operations may be posted to it then, for
    /// all peers of the node that are [known](Self::Known).
    Opened {
        /// Which node.
        node: u32,
        /// The initiator QP.
        qpn: Qpn,
        /// PSN of its first request.
        sq_psn: Psn,
        /// The target QP.
        remote: Remote,
        /// The PE that has it.
        direct: u32,
    },
    /// Post nothing more to the initiator QP of this node; call
    /// [`drained`](super::Machine::drained) when nothing is under way.
    Drain {
        /// Which node.
        node: u32,
    },
    /// Destroy an initiator QP. If it was open, its unfinished operations have failed.
    DestroyIni {
        /// Which node.
        node: u32,
        /// The queue pair.
        qpn: Qpn,
    },
    /// The peer can be addressed so.
    Known {
        /// Which peer.
        pe: u32,
        /// On which node it is.
        node: u32,
        /// Its SRQ and segments.
        memory: Memory,
    },
    /// Create a target QP and move it to RTR, then call
    /// [`tgt_created`](super::Machine::tgt_created) or
    /// [`tgt_failed`](super::Machine::tgt_failed).
    CreateTgt {
        /// The initiator.
        pe: u32,
        /// The initiator QP.
        remote: Remote,
    },
    /// Destroy a target QP.
    DestroyTgt {
        /// The initiator.
        pe: u32,
        /// The queue pair.
        qpn: Qpn,
    },
    /// The peer did not become reachable; a later `connect` starts anew.
    Failed {
        /// Which peer.
        pe: u32,
        /// Why.
        failure: Failure,
    },
    /// The peer has a new incarnation: its memory is not [known](Self::Known) any more.
    PeerRestarted {
        /// Which peer.
        pe: u32,
        /// Of the new process.
        incarnation: u64,
    },
    /// The peer leaves the job: nothing may be started towards it.
    PeerLeft {
        /// Which peer.
        pe: u32,
    },
}

//! What can go wrong between PEs, told so that a user can act on it.

use std::sync::Arc;
use std::time::Duration;

use super::atomics::by_owner::message::Refusal;
use shmem_verbs::{Failure, Lane, VerbsError, WcStatus};

/// Why an operation on an endpoint failed. `peer` fields hold the directory's description.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnError {
    /// The device refused something.
    #[error("cannot {what}: {source}")]
    Verbs {
        /// What was to be done.
        what: &'static str,
        /// The device's answer.
        source: Arc<VerbsError>,
    },
    /// There is no such PE, or it is this one.
    #[error("PE {pe} is no peer: this is PE {me} of {n_pes}")]
    NoSuchPeer {
        /// The number given.
        pe: u32,
        /// This PE.
        me: u32,
        /// PEs in the job.
        n_pes: u32,
    },
    /// `set_directory` was not called.
    #[error("PE {pe} cannot be reached: the endpoint has no directory of addresses yet")]
    NoDirectory {
        /// The peer.
        pe: u32,
    },
    /// The directory cannot tell the address.
    #[error("the address of {peer} is not known: {why}")]
    AddressUnknown {
        /// The peer.
        peer: String,
        /// The directory's reason.
        why: String,
    },
    /// The directory did not learn the address in time.
    #[error(
        "the address of {peer} did not arrive within {waited:?}: has that PE reached its \
         initialisation, and is its node still there?"
    )]
    AddressLate {
        /// The peer.
        peer: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The peer does not answer connection messages.
    #[error(
        "{peer} at {address} does not answer: {sent} connection requests in {silent:?} brought \
         no sign of life. It has died, its node is unreachable (firewall? routing?), it runs another \
         job, or something on the way drops what is marked as these are ({lane})"
    )]
    Unreachable {
        /// The peer.
        peer: String,
        /// Where it was looked for.
        address: String,
        /// Requests sent.
        sent: u32,
        /// For how long.
        silent: Duration,
        /// How the requests were marked.
        lane: Lane,
    },
    /// The peer has closed its endpoint in order.
    #[error(
        "{peer} has left the job: it has finalized, so its memory is gone. Reach it only before \
         the last barrier"
    )]
    PeerLeft {
        /// The peer.
        peer: String,
    },
    /// No queue pair could be made for a peer.
    #[error("no queue pair for {peer}: {why}")]
    QueuePair {
        /// The peer.
        peer: String,
        /// The device's answer.
        why: String,
    },
    /// The peer has no memory under this identifier.
    #[error(
        "{peer} has no segment {segment}: it did not register one within {waited:?}, or has \
         withdrawn it"
    )]
    NoSegment {
        /// The peer.
        peer: String,
        /// The identifier.
        segment: u8,
        /// How long it was waited for.
        waited: Duration,
    },
    /// More segments than a connection message can carry.
    #[error("segment {id} is one too many: a PE can have at most {most} at a time")]
    TooManySegments {
        /// The identifier.
        id: u8,
        /// The limit.
        most: usize,
    },
    /// The range is not inside the peer's segment.
    #[error(
        "{op} of {len} bytes at offset {offset} is outside the segment of {peer}, which has \
         {size} bytes"
    )]
    OutOfRange {
        /// The operation.
        op: &'static str,
        /// The peer.
        peer: String,
        /// First byte, relative to the segment.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Size of the segment.
        size: u64,
    },
    /// Atomics need alignment.
    #[error(
        "{op} at offset {offset}: such atomics work on words whose address is a multiple of {bytes}"
    )]
    Misaligned {
        /// The operation.
        op: &'static str,
        /// The offset given.
        offset: u64,
        /// The alignment needed.
        bytes: u64,
    },
    /// The owner of a word did not execute an atomic; nothing has changed.
    #[error("{op} of {len} bytes at offset {offset} was refused by {peer}: {why}")]
    Refused {
        /// The operation.
        op: &'static str,
        /// The peer.
        peer: String,
        /// First byte, relative to the segment.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The reason.
        why: Refusal,
    },
    /// Atomics that owners execute cannot go over this kind of connection.
    #[error(
        "atomics executed by the owner of the memory need a connection per pair of PEs (RC): over \
         XRC, messages do not reach every process of a node. Use RC, or, if the HCA's atomics are \
         coherent with the processor's, those"
    )]
    OwnerOverXrc,
    /// The messages of a peer do not keep to the protocol, or it does not take ours.
    #[error("the connection to {peer} was given up: {why}")]
    Conversation {
        /// The peer.
        peer: String,
        /// What was wrong.
        why: String,
    },
    /// An operation ended with an error; its connection cannot be used any more.
    #[error("{op} of {len} bytes at offset {offset} of {peer} failed with {status:?}: {hint}")]
    Operation {
        /// The operation.
        op: &'static str,
        /// The peer.
        peer: String,
        /// First byte, relative to the segment.
        offset: u64,
        /// Bytes.
        len: u64,
        /// What the HCA said.
        status: WcStatus,
        /// What that usually means.
        hint: &'static str,
    },
    /// The peer started anew while the operation was under way.
    #[error(
        "{op} of {len} bytes at offset {offset} of {peer} was lost: that PE has restarted, or \
         has replaced its side of the connection"
    )]
    ConnectionLost {
        /// The operation.
        op: &'static str,
        /// The peer.
        peer: String,
        /// First byte, relative to the segment.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// `register` was called twice.
    #[error("segment {id} is registered already")]
    AlreadyRegistered {
        /// Which one.
        id: u8,
    },
    /// The network device has failed: nothing can be started, and what was under way is lost.
    #[error("{device} has failed{}: {reason}", towards(.peer.as_deref()))]
    Device {
        /// The device.
        device: String,
        /// The peer that it cannot send to, if it can send to others.
        peer: Option<String>,
        /// What has happened, and what may help.
        reason: String,
    },
    /// The endpoint was closed.
    #[error("the endpoint is closed")]
    Closed,
    /// A setting is out of range.
    #[error("setting {what} = {value} is not allowed: {allowed}")]
    Config {
        /// Name of the field.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What would be allowed.
        allowed: &'static str,
    },
}

impl ConnError {
    pub(super) fn device(failure: &Failure, peer: Option<String>) -> Self {
        Self::Device {
            device: failure.device.clone(),
            peer,
            reason: failure.reason.clone(),
        }
    }

    pub(super) fn verbs(what: &'static str) -> impl FnOnce(VerbsError) -> Self {
        move |source| Self::Verbs {
            what,
            source: Arc::new(source),
        }
    }
}

fn towards(peer: Option<&str>) -> String {
    peer.map_or_else(String::new, |peer| format!(" on the way to {peer}"))
}

/// What the status of a failed completion usually means for a user.
pub(super) const fn hint(status: WcStatus) -> &'static str {
    match status {
        WcStatus::RetryExcErr => {
            "no acknowledgement within the retry budget: the PE has died or was killed, or its \
             node is unreachable. If short messages get through, the network takes no packets of this length: \
             SHMEM_SOFT_MTU=1024 for the whole job, or less"
        }
        WcStatus::RnrRetryExcErr => {
            "the peer had no receive for it each time it was repeated: its progress thread does not run"
        }
        WcStatus::RemAccessErr => {
            "the peer refused the access: its segment was deregistered (has it finalized?), or \
             the range is not inside it"
        }
        WcStatus::RemInvReqErr => "the peer's queue pair does not take this operation",
        WcStatus::RemOpErr => "the peer's HCA could not execute it",
        WcStatus::LocProtErr => {
            "the local buffer was freed or unmapped before the operation completed"
        }
        WcStatus::WrFlushErr => "an earlier operation on this connection had failed",
        _ => "the connection has failed",
    }
}

//! What verbs can answer besides success.

use super::{Access, Cq, QpState, QpType, Qpn, Srq, Xrcd};

/// Why a verb was refused. Nothing has happened when a verb returns an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The queue holds its maximum of requests that have not completed: poll the CQ, try again.
    #[error("{queue} queue of QP {qpn} is full ({depth} requests): poll its CQ and post again")]
    QueueFull {
        /// The queue pair.
        qpn: Qpn,
        /// "send" or "receive".
        queue: &'static str,
        /// How many requests the queue holds at most.
        depth: u32,
    },
    /// The transition table has no such transition.
    #[error("QP {qpn} ({ty:?}) cannot go from {from:?} to {to:?}: {hint}")]
    Transition {
        /// The queue pair.
        qpn: Qpn,
        /// Its type.
        ty: QpType,
        /// Its present state.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// What to do instead.
        hint: String,
    },
    /// An attribute or limit is missing, superfluous or out of range.
    #[error("{what} = {value} is not allowed: {allowed}")]
    InvalidAttr {
        /// Name of the attribute.
        what: &'static str,
        /// The value given.
        value: u64,
        /// What would be allowed.
        allowed: &'static str,
    },
    /// The queue pair is not in a state in which this may be posted.
    #[error("cannot post {what} to QP {qpn} in state {state:?}: {hint}")]
    WrongState {
        /// The queue pair.
        qpn: Qpn,
        /// The work request.
        what: &'static str,
        /// Its state.
        state: QpState,
        /// What to do first.
        hint: &'static str,
    },
    /// This type of queue pair does not have that operation.
    #[error("QP {qpn} is of type {ty:?}, which has no {what}")]
    WrongType {
        /// The queue pair.
        qpn: Qpn,
        /// Its type.
        ty: QpType,
        /// The operation.
        what: &'static str,
    },
    /// No such queue pair (or it was destroyed).
    #[error("there is no QP {0}: it was never created here, or it was destroyed")]
    NoSuchQp(Qpn),
    /// No such completion queue.
    #[error("there is no CQ {0:?} on this HCA")]
    NoSuchCq(Cq),
    /// No such memory region.
    #[error("memory region {0} is not registered (deregistered twice?)")]
    NoSuchMr(u32),
    /// No such shared receive queue.
    #[error("there is no shared receive queue {0}: it was never created here, or it was destroyed")]
    NoSuchSrq(Srq),
    /// No such XRC domain.
    #[error("there is no XRC domain {0}: it was never opened here, or it was closed")]
    NoSuchXrcd(Xrcd),
    /// Others still use the object, so that it cannot go.
    #[error("{what} is still in use: destroy what uses it first")]
    Busy {
        /// The object.
        what: &'static str,
    },
    /// This implementation does not have that.
    #[error("{what}: not supported by this HCA")]
    Unsupported {
        /// The object or operation.
        what: &'static str,
    },
    /// The work request lists more local buffers than its queue was created for.
    #[error("{count} local buffers are too many: the queue was created for {max}")]
    TooManySges {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: u32,
    },
    /// The queue pair takes its receives from a shared receive queue.
    #[error("QP {qpn} has no receives of its own: post to its shared receive queue {srq}")]
    SharedReceives {
        /// The queue pair.
        qpn: Qpn,
        /// Where its receives come from.
        srq: Srq,
    },
    /// The range or the rights asked for cannot be registered.
    #[error("cannot register {len} bytes at {addr:#x} with rights {access:?}: {why}")]
    BadRegistration {
        /// First byte.
        addr: u64,
        /// Bytes.
        len: u64,
        /// Rights asked for.
        access: Access,
        /// The rule that is violated.
        why: &'static str,
    },
    /// The message is longer than the operation, the inline limit, or the path MTU allows.
    #[error("{what} of {len} bytes is longer than the limit of {max} bytes")]
    TooLong {
        /// The work request.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// The device has no more of these.
    #[error("no more {what} left: the limit is {limit}")]
    Exhausted {
        /// The kind of object.
        what: &'static str,
        /// How many there can be.
        limit: u32,
    },
    /// The system refused what the device needs.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The answer of the system.
        source: std::io::Error,
    },
}

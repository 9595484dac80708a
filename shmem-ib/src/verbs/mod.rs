//! The verbs that this project uses, as one trait.
//!
//! [`Hca`] is the least common denominator of InfiniBand, RoCE and the software HCA: one port,
//! registered memory, completion queues, RC and UD queue pairs. Names and rules are those of
//! the InfiniBand specification; where an implementation could be more lenient than hardware
//! (state transitions, access rights, queue depths) it must not be.
//!
//! # Thread safety
//! Every method may be called from any thread. Completions of one CQ are handed out once, in
//! order; two threads that poll the same CQ share them.
//!
//! # Buffers
//! Posting is `unsafe`: the memory that a work request names belongs to the HCA until the
//! completion of that request, or of a later signaled request of the same queue, was polled.

mod error;
pub mod qp_table;
mod types;
mod wr;

use std::time::Duration;

pub use error::VerbsError;
pub use types::{
    Access, AddressVector, Counters, Cq, Gid, Lkey, Mr, MrHandle, Mtu, PortInfo, Psn, Qkey,
    QpState, QpType, Qpn, Rkey, SrqNum, Wake,
};
pub use wr::{Completion, QpAttr, QpInit, RcDest, RecvWr, SendOp, SendWr, Sge, WcOpcode, WcStatus};

/// Bytes at the front of a UD receive buffer that the HCA keeps for the global routing header.
///
/// The payload begins behind them, and [`Completion::byte_len`] counts them.
pub const GRH_LEN: usize = 40;

/// One port of a host channel adapter.
pub trait Hca: Send + Sync + 'static {
    /// Where this port is, and its limits.
    fn port(&self) -> PortInfo;

    /// Registers `len` bytes at `addr` for local use and, as far as `access` says, for peers.
    ///
    /// # Errors
    /// The range wraps the address space, is empty, or asks for remote writes or atomics
    /// without [`Access::LOCAL_WRITE`].
    ///
    /// # Safety
    /// The memory must stay mapped, and writable if `access` has any write right, until
    /// [`Hca::dereg_mr`] returns. While it is registered, peers read and write it at any time:
    /// local code must access it through raw pointers or atomics only.
    unsafe fn reg_mr(&self, addr: *mut u8, len: usize, access: Access) -> Result<Mr, VerbsError>;

    /// Ends a registration. Peers which still use its rkey get a remote access error.
    ///
    /// # Errors
    /// The handle is not registered.
    fn dereg_mr(&self, mr: &Mr) -> Result<(), VerbsError>;

    /// Creates a completion queue that holds up to `depth` unpolled completions.
    ///
    /// # Errors
    /// `depth` is zero or above the limit of the device.
    fn create_cq(&self, depth: u32) -> Result<Cq, VerbsError>;

    /// Creates a queue pair in state [`QpState::Reset`].
    ///
    /// # Errors
    /// A CQ does not exist, or a limit is above what [`PortInfo`] allows.
    fn create_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError>;

    /// Moves a queue pair to another state.
    ///
    /// # Errors
    /// [`VerbsError::Transition`] if [`qp_table`] has no such transition, with both states and
    /// what is missing; [`VerbsError::InvalidAttr`] if an attribute is out of range.
    fn modify_qp(&self, qp: Qpn, attr: &QpAttr) -> Result<(), VerbsError>;

    /// The present state of a queue pair.
    ///
    /// # Errors
    /// The queue pair does not exist.
    fn query_qp(&self, qp: Qpn) -> Result<QpState, VerbsError>;

    /// Destroys a queue pair; its unfinished work requests vanish without completion.
    ///
    /// # Errors
    /// The queue pair does not exist.
    fn destroy_qp(&self, qp: Qpn) -> Result<(), VerbsError>;

    /// Appends a work request to the send queue.
    ///
    /// # Errors
    /// [`VerbsError::QueueFull`] if the send queue holds its maximum (poll the CQ and try
    /// again), a wrong state or operation for this QP, a length out of range. A local buffer that
    /// its lkey does not cover gives a completion with [`WcStatus::LocProtErr`] instead.
    ///
    /// # Safety
    /// The local buffer stays valid until the completion of this request or of a later one of
    /// the same queue pair; a buffer that a READ or atomic writes must not be borrowed meanwhile.
    unsafe fn post_send(&self, qp: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError>;

    /// Appends a receive buffer to the receive queue.
    ///
    /// # Errors
    /// As [`Hca::post_send`].
    ///
    /// # Safety
    /// The buffer stays valid and is not borrowed until its completion was polled or the queue
    /// pair was destroyed.
    unsafe fn post_recv(&self, qp: Qpn, wr: &RecvWr) -> Result<(), VerbsError>;

    /// Takes completions without blocking; returns how many entries of `out` were filled.
    ///
    /// On the software HCA this also moves the wire: packets are received, timers fire, and
    /// what is due is sent.
    fn poll_cq(&self, cq: Cq, out: &mut [Completion]) -> usize;

    /// Sleeps without using the CPU until there is something to do or `max` has passed, and
    /// handles the packets and timers it woke for.
    fn wait(&self, max: Duration) -> Wake;

    /// Makes a sleeping [`Hca::wait`] return; if none sleeps, the next one returns at once.
    fn wake(&self);

    /// What this port has done so far.
    fn counters(&self) -> Counters;
}

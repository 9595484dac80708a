//! The verbs that this project uses, as one trait.
//!
//! [`Hca`] is the least common denominator of InfiniBand, RoCE and the software HCA: one port,
//! registered memory, completion queues, RC, UD and XRC queue pairs, shared receive queues. There
//! is one protection domain, which everything belongs to. Names and rules are those of
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

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
compile_error!(
    "shmem is for Linux with glibc: other C libraries, musl among them, lack functions and layouts that it needs"
);

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "shmem is for 64-bit little-endian targets: offsets in symmetric memory are 64 bits wide, and nodes exchange them as they lie in memory"
);

mod error;
mod failure;
mod lane;
pub mod memory;
pub mod provider;
pub mod rng;
mod sync;
pub mod timeouts;
pub mod transitions;
mod types;
pub mod usage;
mod wr;

use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use error::VerbsError;
pub use failure::Failure;
pub use lane::{Lane, Pkey};
pub use types::{
    Access, AddressVector, Counters, Cq, Fabric, Gid, Lkey, Mr, MrHandle, Mtu, PortInfo, Psn, Qkey,
    QpState, QpType, Qpn, Rkey, Srq, SrqNum, Wake, Xrcd,
};
pub use wr::{
    Completion, QpAttr, QpInit, RcDest, RcStart, RecvWr, SendOp, SendWr, Sge, SrqInit, SrqKind,
    WcOpcode, WcStatus,
};

/// Bytes at the front of a UD receive buffer that the HCA keeps for the global routing header.
///
/// The payload begins behind them, and [`Completion::byte_len`] counts them.
pub const GRH_LEN: usize = 40;

/// One port of a host channel adapter.
pub trait Hca: Send + Sync + 'static {
    /// Where this port is, and its limits.
    fn port(&self) -> PortInfo;

    /// What carries its packets.
    fn fabric(&self) -> Fabric {
        Fabric::Soft
    }

    /// Queue pairs that are connected from now on take packets only of peers that have this key, where the HCA can check that.
    /// It cannot on RDMA devices, where nobody sends packets of another queue pair without the right to.
    fn set_key(&self, key: [u8; 16]) {
        let _ = key;
    }

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

    /// Whether work requests of this HCA may name memory that `other` has registered: both are of one protection
    /// domain.
    fn shares_memory(&self, other: &Self) -> bool
    where
        Self: Sized,
    {
        let _ = other;
        false
    }

    /// Creates a completion queue that holds up to `depth` unpolled completions.
    ///
    /// A completion that finds the queue full is lost, and the HCA has failed
    /// ([`Hca::failure`]). A queue as deep as all queues together that report to it never does.
    ///
    /// # Errors
    /// `depth` is zero or above the limit of the device.
    fn create_cq(&self, depth: u32) -> Result<Cq, VerbsError>;

    /// Destroys a completion queue; what was not polled is lost.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while a queue pair or shared receive queue reports to it.
    fn destroy_cq(&self, cq: Cq) -> Result<(), VerbsError>;

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// A limit is above what [`PortInfo`] allows, or the domain or CQ of an XRC queue does not
    /// exist.
    fn create_srq(&self, init: &SrqInit) -> Result<Srq, VerbsError>;

    /// The number by which XRC initiators name the queue.
    ///
    /// # Errors
    /// There is no such queue.
    fn srq_num(&self, srq: Srq) -> Result<SrqNum, VerbsError>;

    /// Destroys a shared receive queue; its receives vanish without completion.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while a queue pair uses it.
    fn destroy_srq(&self, srq: Srq) -> Result<(), VerbsError>;

    /// Appends a receive to a shared receive queue.
    ///
    /// # Errors
    /// [`VerbsError::Exhausted`] if it holds its maximum, or there is no such queue.
    ///
    /// # Safety
    /// The buffers stay valid and are not borrowed until their completion was polled or the
    /// queue was destroyed.
    unsafe fn post_srq_recv(&self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), VerbsError>;

    /// Opens an XRC domain. Processes that give the same file share the domain; `None` makes a
    /// private one.
    ///
    /// # Errors
    /// This HCA has no XRC, or the file cannot be used.
    fn open_xrcd(&self, domain: Option<BorrowedFd<'_>>) -> Result<Xrcd, VerbsError>;

    /// Closes an XRC domain.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while targets or receive queues of this process are in it.
    fn close_xrcd(&self, xrcd: Xrcd) -> Result<(), VerbsError>;

    /// Creates a queue pair in state [`QpState::Reset`].
    ///
    /// # Errors
    /// A CQ does not exist, or a limit is above what [`PortInfo`] allows.
    fn create_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError>;

    /// Moves a queue pair to another state.
    ///
    /// # Errors
    /// [`VerbsError::Transition`] if [`transitions`] has no such transition, with both states and
    /// what is missing; [`VerbsError::InvalidAttr`] if an attribute is out of range.
    fn modify_qp(&self, qp: Qpn, attr: &QpAttr) -> Result<(), VerbsError>;

    /// Destroys a queue pair; its unfinished work requests vanish without completion, and so do
    /// its completions that were not polled.
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

    /// Appends work requests to the send queue, in order, and has the device look at them once.
    ///
    /// # Errors
    /// As [`Hca::post_send`], of the first one that fails, and how many were appended before it.
    ///
    /// # Safety
    /// As [`Hca::post_send`], of each.
    unsafe fn post_send_list(
        &self,
        qp: Qpn,
        wrs: &[SendWr<'_>],
    ) -> Result<(), (usize, VerbsError)> {
        for (i, wr) in wrs.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { self.post_send(qp, wr) }.map_err(|error| (i, error))?;
        }
        Ok(())
    }

    /// Appends a receive buffer to the receive queue.
    ///
    /// # Errors
    /// As [`Hca::post_send`].
    ///
    /// # Safety
    /// The buffer stays valid and is not borrowed until its completion was polled or the queue
    /// pair was destroyed.
    unsafe fn post_recv(&self, qp: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError>;

    /// Takes completions without blocking; returns how many entries of `out` were filled.
    ///
    /// On the software HCA this also moves the wire: packets are received, timers fire, and
    /// what is due is sent.
    fn poll_cq(&self, cq: Cq, out: &mut [Completion]) -> usize;

    /// Why this HCA serves nobody any more, if that is so: completions are missing that would never
    /// come, and nothing may arrive any more. It costs next to nothing to ask, never changes back, and is
    /// found out by whichever call meets it: [`Hca::poll_cq`], [`Hca::post_send`], and [`Hca::wait`],
    /// which returns then.
    fn failure(&self) -> Option<&Failure> {
        None
    }

    /// Sleeps without using the CPU until there is something to do or `max` has passed, and
    /// handles the packets and timers it woke for.
    fn wait(&self, max: Duration) -> Wake;

    /// Sets the time after which [`Hca::wait`] returns, besides its own reasons, with
    /// [`Wake::Work`]; `None`: there is none. It counts for threads that sleep already, too. There is
    /// one alarm for the whole HCA, and it stays: once its time is over every wait returns at once, until
    /// another is set.
    fn set_alarm(&self, after: Option<Duration>);

    /// Makes every sleeping [`Hca::wait`] return; if none sleeps, the next one returns at once.
    fn wake(&self);

    /// How often [`Hca::wake`] was called, for [`Hca::wait_since`].
    fn wakes(&self) -> u64;

    /// As [`Hca::wait`], but returns at once if `wake` was called more than `wakes` times. With
    /// the number from before its last look at what it waits for, a thread misses no `wake` that
    /// came between the two, whichever other threads have returned for that already.
    fn wait_since(&self, wakes: u64, max: Duration) -> Wake;

    /// A number that changes whenever an RC queue pair has taken in a request of its peer; `None`
    /// if the device cannot tell, or the queue pair is not ready to receive.
    fn inbound_mark(&self, qp: Qpn) -> Option<u32> {
        let _ = qp;
        None
    }

    /// What this port has done so far.
    fn counters(&self) -> Counters;

    /// [`Counters::rdma_inbound`] alone: whoever polls wants to know often whether peers were here.
    fn inbound(&self) -> u64 {
        self.counters().rdma_inbound
    }
}

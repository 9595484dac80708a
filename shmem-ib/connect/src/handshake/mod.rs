//! The connection state machine towards one peer.
//!
//! Pure: `(event, now) -> actions`. Time is given in nanoseconds, randomness comes from a
//! generator that is passed in, and whoever drives the machine executes the actions in order.
//!
//! # How two PEs connect
//! ```text
//!   A (wants to put)                              B (computes)
//!   CreateQp                                           |
//!     |------- OFFER(a, echo none, WANT_REPLY) ------->|  CreateQp, LinkQp(b -> a)
//!     |<------ OFFER(b, echo a) -----------------------|  B answers A's RDMA from here on
//!   LinkQp(a -> b), Opened                             |
//!     |======= RDMA ==================================>|
//! ```
//! If both want, both OFFERs ask for a reply, both are answered, and both sides open: there is
//! one queue pair per side whoever spoke first, so nobody has to lose. If B wants later, it
//! sends its OFFER again with WANT_REPLY, and A's reply tells B that A is ready for b.
//!
//! # Why the echo
//! A packet to a queue pair that is not yet ready to receive is dropped without a NAK, and the
//! sender learns of it only after its retry timeout. Therefore a side may send RC traffic only
//! when an OFFER that echoes its own [`Generation`] proves that the peer has linked its queue
//! pair to ours. Only that makes a connection *open*.
//!
//! # States and events
//! *mine*: the generation of the present local QP. *newer*: a generation above that of the linked QP.
//! *elsewhere*: the echo names another QP than mine, so the peer's QP belongs to a
//! connection that is no more. WR: the OFFER has WANT_REPLY. "answer": send OFFER without WR.
//!
//! | state | `connect` | OFFER, echo none or mine | OFFER, echo elsewhere | timeout |
//! |---|---|---|---|---|
//! | Idle: no QP | CreateQp → Preparing | WR: CreateQp → Preparing, else ignore | the same | – |
//! | Preparing: waits for the local QP or segments | remember | remember; WR and no segments: WAIT | the same | – |
//! | Offered: QP in INIT | send OFFER+WR | link → Answered, or Open if echo is mine; answer if WR | answer if WR | send OFFER+WR again |
//! | Answered: linked, the peer may not know | send OFFER+WR | echo mine → Open; newer: relink; answer if WR | newer: unlink → Offered; answer if WR | send OFFER+WR again |
//! | Open | already open | newer: close, CreateQp → Preparing if WR else Idle; answer if WR | the same | – |
//!
//! In every state a generation below the largest heard is ignored, and after `silence` without a sign
//! of life a wanted connection fails. WAIT is a sign of life.
//!
//! # How two PEs part
//! A side that leaves has no operation under way and will start none. It says so with a BYE,
//! and stays until the peer has said the same: only then is nobody left who waits for an
//! acknowledgement of ours.
//! ```text
//!   A leaves                                       B has a write towards A under way
//!     |------- BYE(a, echo b, WANT_REPLY) ------------>|  new operations to A fail
//!   Parting                                            |
//!     |<====== the write again, its ACK was lost ======|
//!     |======= ACK ===================================>|  nothing is under way: B leaves
//!     |<------ BYE(b, echo a) -------------------------|
//!   Parted                                           Parted
//! ```
//! WANT_REPLY in a BYE says that the sender has not heard the BYE of the receiver. It is
//! repeated until that comes, and how long it pays to wait is up to the
//! [manager](super::manager). A BYE names both queue pairs; one for another pair is ignored.
//!
//! | state | `leave` | BYE of the linked QP | BYE of a newer QP, or of none (generation 0) |
//! |---|---|---|---|
//! | Idle, Preparing | refuse OFFERs from now on | ignore | ignore |
//! | Offered | the same | – | BYE if WR; close → Idle, a wanted connection fails |
//! | Answered, Open | send BYE → Parting, or Parted if the peer has left | the peer has left: a wanted connection fails | as in Offered |
//! | Parting: sends BYE+WR again at a timeout | – | BYE if WR → Parted | the same |
//! | Parted | – | BYE if WR | the same |
//!
//! To refuse an OFFER with WR is to answer it with a BYE, of generation 0 if there is no QP for
//! it. A BYE that is asked for is not sent if the last one left less than half a repetition
//! interval ago: then the two have crossed. A side that has not called `leave` but has operations
//! under way answers a BYE+WR with WAIT, see [`Handshake::busy`].
//!
//! # How a connection makes room for another
//! An operation that was posted and not acknowledged may have been executed. Posting it again
//! over another queue pair would execute an atomic twice, forgetting it would lose it. Hence
//! a queue pair goes only when nothing is under way on it in either direction, and both sides know
//! that:
//! ```text
//!   A needs a queue pair                           B
//!   Drain: A posts nothing more,                   |
//!   and waits for its completions                  |
//!     |------- DRAIN(a, echo b, WANT_REPLY) ------>|  Drain: B posts nothing more, and
//!     |<------ WAIT ------------------------------ |  waits for its completions; A answers
//!     |<====== what B had under way ==============>|
//!     |<------ DRAIN(b, echo a) -------------------|  DestroyQp(b)
//!   DestroyQp(a)
//! ```
//! The decision is never taken back, so the two cannot disagree on what it was. A DRAIN+WR is
//! repeated until the answer comes. It is answered for every queue pair that is no more, too,
//! whatever was made since: that answer cannot become wrong. Both DRAINs may cross; each then is
//! taken for both request and confirmation.
//!
//! | state | `evict` | DRAIN+WR of the linked QP, or a newer one | DRAIN without WR |
//! |---|---|---|---|
//! | Idle, Preparing | – | (names a QP that is gone) DRAIN | ignore |
//! | Offered, unwanted | DestroyQp → Idle | DestroyQp, DRAIN → Idle | ignore |
//! | Offered, wanted | DestroyQp → Preparing | OFFER+WR: the peer is ready, be connected first | ignore |
//! | Answered, unwanted | DRAIN+WR → Draining | DestroyQp, DRAIN → Idle | ignore |
//! | Answered, wanted | DRAIN+WR → Draining | → Open, then as there | ignore |
//! | Open | Drain → Draining | Drain → Draining | ignore |
//! | Draining, busy | – | WAIT; DRAIN and DestroyQp as soon as it is idle | ignore |
//! | Draining, idle: sends DRAIN+WR again at a timeout | – | DestroyQp, DRAIN | DestroyQp |
//! | Parting, Parted | – | DestroyQp, DRAIN → Idle | DestroyQp → Idle |
//!
//! After DestroyQp a wanted connection goes to Preparing and opens anew. While Draining, OFFERs
//! of the linked QP are answered as ever: a peer that wants the connection opens it, completes
//! what it wants, and confirms then. So a request that was accepted once is served, however soon
//! the accepting side needs the queue pair for another.
//!
//! A peer that gives no sign of life for the silence time is taken for dead, and its queue pair
//! destroyed without its word; if it lives its operations fail, and are not lost silently.
//!
//! # Generations
//! A QP that was only Answered may be reset and linked to another QP of the peer, keeping its
//! number and PSN: nothing was ever sent on it. One that was Open may not, it is replaced by the
//! next generation. Hence generations grow only after a connection that both sides had
//! agreed on, or when a QP made room, and two sides cannot drive each other's generation up for
//! ever.

#![forbid(unsafe_code)]

mod on_call;
mod on_message;
mod room;
mod route;
mod segments;
mod send;
mod state;

pub use room::Standing;

use self::state::{State, Want};
use super::UdAddress;
use super::message::Generation;
use super::retry::Repeater;
use shmem_verbs::{Psn, Qpn};

/// The connection towards one peer.
///
/// Inputs are [`connect`](Self::connect), [`handle_message`](Self::handle_message),
/// [`handle_timeout`](Self::handle_timeout), [`ready`](Self::ready),
/// [`qp_created`](Self::qp_created), [`qp_failed`](Self::qp_failed),
/// [`segments_added`](Self::segments_added), [`evict`](Self::evict), [`drained`](Self::drained),
/// [`leave`](Self::leave) and [`busy`](Self::busy); outputs are the actions in the
/// [`EventContext`](super::interface::EventContext) and [`next_timeout`](Self::next_timeout). Any input is allowed
/// at any time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Handshake {
    pe: u32,
    state: State,
    /// The local program waits for the connection.
    want: Option<Want>,
    /// Address of the peer's UD endpoint, as soon as it is known.
    ud: Option<UdAddress>,
    /// Largest generation heard of the peer.
    floor: Generation,
    /// Of the newest local QP.
    generation: Generation,
    /// The peer has said BYE.
    left: bool,
    /// How many of our segments were in the first OFFER of the present QP: whoever is linked to it
    /// knows at least these. 0 before.
    offered: usize,
    /// How many of them the peer has said that it knows, over the present connection.
    known: u32,
    /// SEGMENTS that are not acknowledged.
    push: Option<Repeater>,
    /// The present queue pair is in error.
    broken: bool,
    /// The last connection was closed to make room.
    evicted: bool,
    /// Ticket of the peer's last request since the present QP was made, and when it came.
    asked: Option<(u64, u64)>,
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

impl Handshake {
    /// The machine for peer `pe`, with no connection.
    #[must_use]
    pub const fn new(pe: u32) -> Self {
        Self {
            pe,
            state: State::Idle,
            want: None,
            ud: None,
            floor: Generation::NONE,
            generation: Generation::NONE,
            left: false,
            offered: 0,
            known: 0,
            push: None,
            broken: false,
            evicted: false,
            asked: None,
        }
    }

    /// Where the connection stands.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.state {
            State::Idle => Phase::Idle,
            State::Preparing { .. } => Phase::Preparing,
            State::Offered(_) => Phase::Offered,
            State::Answered(_) => Phase::Answered,
            State::Open(_) => Phase::Open,
            State::Draining(..) => Phase::Draining,
            State::Parting(..) => Phase::Parting,
            State::Parted(..) => Phase::Parted,
        }
    }

    /// Whether the local program waits for this connection.
    #[must_use]
    pub const fn is_wanted(&self) -> bool {
        self.want.is_some()
    }

    /// The local queue pair and its starting PSN, if there is one.
    #[must_use]
    pub const fn local_qp(&self) -> Option<(Qpn, Psn)> {
        match self.state.mine() {
            Some(mine) => Some((mine.qpn, mine.psn)),
            None => None,
        }
    }

    /// The peer's queue pair to which the local one is linked, and its starting PSN.
    #[must_use]
    pub const fn linked_to(&self) -> Option<(Qpn, Psn)> {
        match self.state.pair() {
            Some(pair) => Some((pair.theirs.qpn, pair.theirs.psn)),
            None => None,
        }
    }
}

#[cfg(test)]
mod drain_tests;
#[cfg(test)]
mod leave_tests;
#[cfg(test)]
mod tests;

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
//! when an OFFER that echoes its own [`Epoch`] proves that the peer has linked its queue
//! pair to ours. Only that makes a connection *open*.
//!
//! # States and events
//! *mine*: the epoch of the present local QP. *newer*: an epoch above every one heard of this
//! peer. *elsewhere*: the echo names another QP than mine, so the peer's QP belongs to a
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
//! In every state an epoch below the largest heard is ignored, a larger incarnation is
//! reported as `PeerRestarted`, and after `silence` without a sign of life a wanted connection
//! fails. WAIT is a sign of life. [`Handshake::rc_traffic_seen`] moves Answered to Open: who
//! sends RC traffic to my QP has linked to it.
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
//! How a connection makes room for another is told in `drain.rs`, how changed segments reach
//! peers in `segments.rs`.
//!
//! A QP that was only Answered may be reset and linked to another QP of the peer, keeping its
//! number and PSN: nothing was ever sent on it. One that was Open may not, it is replaced by the
//! next generation. Hence generations grow only after a connection that both sides had
//! agreed on, or when a QP made room, and two sides cannot drive each other's generation up for
//! ever.

#![forbid(unsafe_code)]

mod drain;
mod interface;
mod leave;
mod offer;
mod segments;
mod state;
mod way;

pub use interface::{
    Action, Actions, Context, Failure, Link, Local, Phase, RetryPolicy, Standing, Verdict,
};

use self::state::{
    Answered, Deferred, Mine, Offered, Open, Peer, Preparing, Push, State, Want, epoch_of,
};
use super::UdAddress;
use super::message::{Body, Epoch, Message, Offer};
use shmem_verbs::rng::Rng;
use shmem_verbs::{Psn, Qpn};

/// The connection towards one peer.
///
/// Inputs are [`connect`](Self::connect), [`handle_message`](Self::handle_message),
/// [`handle_timeout`](Self::handle_timeout), [`ready`](Self::ready),
/// [`qp_created`](Self::qp_created), [`qp_failed`](Self::qp_failed),
/// [`rc_traffic_seen`](Self::rc_traffic_seen), [`leave`](Self::leave) and
/// [`busy`](Self::busy); outputs are the actions in the [`Context`] and
/// [`next_timeout`](Self::next_timeout). Any input is allowed at any time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Handshake {
    pe: u32,
    state: State,
    /// Address of the peer's UD endpoint, as soon as it is known.
    ud: Option<UdAddress>,
    /// Largest epoch heard of the peer.
    floor: Option<Epoch>,
    /// Generation of the newest local QP.
    generation: u32,
    /// The incarnation of the peer that has said BYE.
    left: Option<u64>,
    /// The revision of our segments in the first OFFER of the present QP: whoever is linked to it
    /// knows at least this one. 0 before.
    offered: u32,
    /// The revision that the peer has acknowledged over the present connection.
    acked: u32,
    push: Option<Push>,
    /// The present queue pair is in error.
    broken: bool,
    /// The last connection was closed to make room.
    evicted: bool,
    /// Ticket of the peer's last request since the present QP was made, and when it came.
    asked: Option<(u64, u64)>,
}

impl Handshake {
    /// The machine for peer `pe`, with no connection.
    #[must_use]
    pub const fn new(pe: u32) -> Self {
        Self {
            pe,
            state: State::Idle,
            ud: None,
            floor: None,
            generation: 0,
            left: None,
            offered: 0,
            acked: 0,
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
            State::Preparing(_) => Phase::Preparing,
            State::Offered(_) => Phase::Offered,
            State::Answered(_) => Phase::Answered,
            State::Open(_) => Phase::Open,
            State::Draining(_) => Phase::Draining,
            State::Parting(_) => Phase::Parting,
            State::Parted(_) => Phase::Parted,
        }
    }

    /// Whether the local program waits for this connection.
    #[must_use]
    pub const fn is_wanted(&self) -> bool {
        self.state.want().is_some()
    }

    /// The local queue pair and its starting PSN, if there is one.
    #[must_use]
    pub const fn local_qp(&self) -> Option<(Qpn, Psn)> {
        match self.state.mine() {
            Some(mine) => Some((mine.qpn, mine.psn)),
            None => None,
        }
    }

    /// The peer's queue pair to which the local one is linked: incarnation of the peer, number
    /// and starting PSN.
    #[must_use]
    pub const fn linked_to(&self) -> Option<(u64, Qpn, Psn)> {
        match self.state.peer() {
            Some(peer) => Some((peer.epoch.incarnation, peer.qpn, peer.psn)),
            None => None,
        }
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self, retry: &RetryPolicy) -> Option<u64> {
        let push = self.push.map(|push| push.resend);
        let other = match &self.state {
            State::Offered(_) | State::Answered(_) => self.state.want().map(|want| {
                let give_up = want.heard.saturating_add(retry.silence);
                want.resend.map_or(give_up, |at| at.min(give_up))
            }),
            State::Draining(s) if s.idle => {
                Some(s.resend.min(s.heard.saturating_add(retry.silence)))
            }
            State::Parting(parting) => Some(parting.resend),
            _ => None,
        };
        push.into_iter().chain(other).min()
    }

    /// The local program wants to reach the peer, whose UD endpoint is at `ud`. Idempotent.
    ///
    /// A peer that has said BYE fails at once, unless `ud` is another address than it had: that
    /// is its successor's. A side that leaves itself does nothing.
    pub fn connect(&mut self, cx: &mut Context<'_>, ud: UdAddress) {
        if cx.local.leaving {
            return;
        }
        if self.left.is_some() {
            if self.ud == Some(ud) || !matches!(self.state, State::Idle) {
                cx.stats.failed += 1;
                cx.actions.push(Action::Failed(Failure::PeerLeft));
                return;
            }
            self.left = None;
            self.ud = Some(ud);
        }
        if self.floor.is_none() {
            // Once the peer has spoken, its own word counts.
            self.ud = Some(ud);
        }
        match &mut self.state {
            State::Open(_) | State::Parting(_) | State::Parted(_) => {}
            State::Idle => {
                let want = new_want(cx);
                self.prepare(cx, Some(want), None);
            }
            State::Preparing(Preparing { want, .. })
            | State::Draining(state::Draining { want, .. }) => {
                if want.is_none() {
                    *want = Some(new_want(cx));
                }
            }
            State::Offered(Offered { want, .. }) | State::Answered(Answered { want, .. }) => {
                if want.is_none() {
                    *want = Some(new_want(cx));
                    self.send_request(cx);
                }
            }
        }
    }

    /// The local memory is registered (`cx.local.segments` is set), or a queue pair may be made
    /// now: deferred work goes on.
    pub fn ready(&mut self, cx: &mut Context<'_>) {
        if let State::Preparing(preparing) = &mut self.state
            && !preparing.creating
            && cx.local.segments.is_some()
            && cx.may_create
        {
            preparing.creating = true;
            cx.actions.push(Action::CreateQp);
        }
    }

    /// The queue pair asked for by [`Action::CreateQp`] exists and is in INIT.
    pub fn qp_created(&mut self, cx: &mut Context<'_>, qpn: Qpn) {
        let State::Preparing(preparing) = std::mem::replace(&mut self.state, State::Idle) else {
            debug_assert!(false, "a queue pair was created that nobody asked for");
            return;
        };
        self.generation += 1;
        self.broken = false;
        (self.offered, self.acked, self.asked) = (0, 0, None);
        let psn = Psn::new(cx.rng.next_u32());
        let mine = Mine {
            generation: self.generation,
            qpn,
            psn,
        };
        if cx.local.leaving {
            cx.actions.push(Action::DestroyQp(qpn));
            return;
        }
        self.state = State::Offered(Offered {
            mine,
            want: preparing.want,
        });
        if let Some(deferred) = preparing.offer {
            self.handle_offer(cx, deferred);
        }
        if self.unasked() {
            self.send_request(cx);
        }
    }

    /// The queue pair asked for by [`Action::CreateQp`] cannot be created.
    pub fn qp_failed(&mut self, cx: &mut Context<'_>, why: String) {
        if matches!(self.state, State::Preparing(_)) {
            self.state = State::Idle;
            cx.stats.failed += 1;
            cx.actions.push(Action::Failed(Failure::QueuePair(why)));
        }
    }

    /// An RC request of the peer has arrived at the local queue pair `qpn`.
    pub fn rc_traffic_seen(&mut self, cx: &mut Context<'_>, qpn: Qpn) {
        if let State::Answered(answered) = &self.state
            && answered.mine.qpn == qpn
        {
            self.open(cx);
        }
    }

    /// The peer has sent `message`; the caller has checked job, source and destination.
    pub fn handle_message(&mut self, cx: &mut Context<'_>, message: Message) -> Verdict {
        *cx.clock = (*cx.clock).max(message.ticket);
        match message.body {
            Body::Wait => self.handle_wait(cx, message.epoch, message.echo),
            Body::Bye => self.handle_bye(cx, &message),
            Body::Drain(ud) => self.handle_drain(cx, &message, ud),
            Body::Xrc(_) => Verdict::Stale,
            Body::Segments { .. } | Body::SegmentsAck { .. } => self.handle_segments(cx, message),
            Body::Offer(offer) => {
                let epoch = message.epoch;
                if self.floor.is_some_and(|floor| epoch < floor) {
                    return Verdict::Stale;
                }
                let newer = self.floor != Some(epoch);
                self.heard_of(cx, epoch);
                self.ud = Some(offer.ud);
                let before = self.phase();
                self.handle_offer(
                    cx,
                    Deferred {
                        epoch,
                        echo: message.echo,
                        want_reply: message.want_reply,
                        ticket: message.ticket,
                        offer,
                    },
                );
                if newer || self.phase() != before {
                    Verdict::Accepted
                } else {
                    Verdict::Duplicate
                }
            }
        }
    }

    /// An authentic message of `epoch`, which is not below the floor, has come.
    fn heard_of(&mut self, cx: &mut Context<'_>, epoch: Epoch) {
        let incarnation = epoch.incarnation;
        if self.floor.is_some_and(|f| incarnation > f.incarnation) {
            cx.stats.peer_restarts += 1;
            cx.actions.push(Action::PeerRestarted { incarnation });
        }
        if self.left.is_some_and(|left| incarnation > left) {
            self.left = None;
        }
        self.floor = self.floor.max(Some(epoch));
    }

    /// Time has passed: sends again, or gives up. Does nothing if nothing is due.
    pub fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.push_again(cx);
        self.drain_again(cx);
        if let State::Parting(parting) = &self.state {
            if cx.now >= parting.resend {
                cx.stats.byes_repeated += 1;
                self.say_bye(cx);
            }
            return;
        }
        let (mine, want) = match &mut self.state {
            State::Offered(s) => (s.mine, &mut s.want),
            State::Answered(s) => (s.mine, &mut s.want),
            _ => return,
        };
        let Some(w) = want else { return };
        let silent = cx.now.saturating_sub(w.heard);
        if silent >= cx.local.retry.silence {
            let failure = Failure::Silence {
                nanos: silent,
                sent: w.sent,
            };
            *want = None;
            if matches!(self.state, State::Offered(_)) {
                // An Answered queue pair stays: the peer may be using it.
                self.state = State::Idle;
                cx.actions.push(Action::DestroyQp(mine.qpn));
            }
            cx.stats.failed += 1;
            cx.actions.push(Action::Failed(failure));
        } else if w.resend.is_some_and(|at| cx.now >= at) {
            cx.stats.retransmissions += 1;
            self.send_request(cx);
        }
    }

    fn handle_wait(&mut self, cx: &mut Context<'_>, from: Epoch, echo: Option<Epoch>) -> Verdict {
        if self
            .floor
            .is_some_and(|floor| from.incarnation < floor.incarnation)
        {
            return Verdict::Stale;
        }
        let (mine, want) = match &mut self.state {
            State::Offered(s) => (s.mine, &mut s.want),
            State::Answered(s) => (s.mine, &mut s.want),
            // A sign of life, which the manager counts.
            State::Parting(s) => (s.mine, &mut None),
            State::Draining(s) => {
                if echo != Some(epoch_of(cx.local, s.mine)) {
                    return Verdict::Stale;
                }
                s.heard = cx.now;
                return Verdict::Accepted;
            }
            _ => return Verdict::Duplicate,
        };
        if echo != Some(epoch_of(cx.local, mine)) {
            return Verdict::Stale;
        }
        if let Some(want) = want {
            // The answer will come by itself; asking again only covers its loss.
            want.heard = cx.now;
            want.interval = cx.local.retry.max;
            want.resend = Some(cx.now + jittered(cx.rng, want.interval));
        }
        Verdict::Accepted
    }

    fn handle_offer(&mut self, cx: &mut Context<'_>, d: Deferred) {
        if cx.local.leaving {
            self.refuse(cx, &d);
            return;
        }
        if d.want_reply {
            self.asked = Some((d.ticket, cx.now));
        }
        let state = std::mem::replace(&mut self.state, State::Idle);
        match state {
            State::Idle => {
                // Without WANT_REPLY it is a late answer to a connect that has failed.
                if d.want_reply {
                    self.accept_later(cx, None, d, false);
                }
            }
            State::Preparing(Preparing {
                creating,
                want,
                offer,
            }) => {
                let asked = offer.as_ref().filter(|o| o.want_reply);
                let d = Deferred {
                    want_reply: d.want_reply || asked.is_some(),
                    ticket: match asked {
                        Some(o) if !d.want_reply => o.ticket,
                        _ => d.ticket,
                    },
                    ..d
                };
                self.accept_later(cx, want, d, creating);
            }
            State::Offered(Offered { mine, want }) => self.offered(cx, mine, want, d),
            State::Answered(Answered { mine, peer, want }) => {
                if d.epoch > peer.epoch {
                    cx.actions.push(Action::ResetQp(mine.qpn));
                    self.offered(cx, mine, want, d);
                    return;
                }
                let confirmed = d.echo == Some(epoch_of(cx.local, mine));
                self.state = State::Answered(Answered { mine, peer, want });
                self.learn(cx, &d);
                if confirmed {
                    self.open(cx);
                }
                if d.want_reply {
                    self.answer(cx);
                }
            }
            State::Draining(s) => self.offer_while_draining(cx, s, d),
            State::Open(Open { mine, peer }) => {
                if d.epoch > peer.epoch {
                    cx.actions.push(Action::DestroyQp(mine.qpn));
                    cx.stats.replaced += 1;
                    if d.want_reply {
                        self.accept_later(cx, None, d, false);
                    }
                    return;
                }
                self.state = State::Open(Open { mine, peer });
                self.learn(cx, &d);
                if d.want_reply {
                    self.answer(cx);
                }
            }
            // Only who leaves is there, and has refused.
            State::Parting(_) | State::Parted(_) => self.state = state,
        }
    }

    /// An OFFER while the local queue pair is in INIT and linked to nothing.
    fn offered(&mut self, cx: &mut Context<'_>, mine: Mine, want: Option<Want>, d: Deferred) {
        let confirmed = d.echo == Some(epoch_of(cx.local, mine));
        if d.echo.is_some() && !confirmed {
            // The peer's QP is bound to another one than mine. It will bind it, or a new one,
            // to mine when it learns of mine, and then offer again.
            self.state = State::Offered(Offered { mine, want });
            if d.want_reply {
                self.answer(cx);
            }
            return;
        }
        let asked = want.is_some_and(|w| w.resend.is_some());
        if asked && d.echo.is_none() && d.want_reply {
            cx.stats.simultaneous += 1;
        }
        if want.is_none() {
            cx.stats.accepted += 1;
        }
        let Offer {
            ud,
            qpn,
            psn,
            mtu,
            max_rd_atomic,
            revision,
            heard,
            segments,
        } = d.offer;
        cx.actions.push(Action::LinkQp(Link {
            qpn: mine.qpn,
            sq_psn: mine.psn,
            peer_av: ud.av(),
            peer_qpn: qpn,
            rq_psn: psn,
            mtu: mtu.min(cx.local.mtu),
            max_dest_rd_atomic: cx.local.max_rd_atomic,
            max_rd_atomic: max_rd_atomic.min(cx.local.max_rd_atomic),
        }));
        let peer = Peer {
            epoch: d.epoch,
            qpn,
            psn,
            segments,
            revision,
            applied: revision,
        };
        self.acked = if confirmed { heard } else { 0 };
        self.state = State::Answered(Answered { mine, peer, want });
        if confirmed {
            self.open(cx);
        }
        if d.want_reply {
            self.answer(cx);
        } else {
            // An answer that did not know our QP: tell the peer, at once if we wait for it.
            self.send_request(cx);
        }
        self.push_if_needed(cx);
    }

    /// Remembers an OFFER until the local queue pair and memory exist.
    fn accept_later(
        &mut self,
        cx: &mut Context<'_>,
        want: Option<Want>,
        d: Deferred,
        creating: bool,
    ) {
        let able = cx.local.segments.is_some() && (creating || cx.may_create);
        if !able && d.want_reply {
            cx.stats.requests_queued += u64::from(!cx.may_create);
            self.send_wait(cx, d.offer.ud, d.epoch);
        }
        if creating {
            self.state = State::Preparing(Preparing {
                creating,
                want,
                offer: Some(d),
            });
        } else {
            self.prepare(cx, want, Some(d));
        }
    }

    fn prepare(&mut self, cx: &mut Context<'_>, want: Option<Want>, offer: Option<Deferred>) {
        let creating = cx.local.segments.is_some() && cx.may_create;
        if creating {
            cx.actions.push(Action::CreateQp);
        }
        self.state = State::Preparing(Preparing {
            creating,
            want,
            offer,
        });
    }

    /// Answered becomes Open.
    fn open(&mut self, cx: &mut Context<'_>) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Answered(Answered { mine, peer, want }) => {
                cx.stats.opened += 1;
                cx.stats.reconnects += u64::from(std::mem::take(&mut self.evicted));
                cx.stats.last_opened = cx.now;
                if cx.stats.first_opened == 0 {
                    cx.stats.first_opened = cx.now;
                }
                if let Some(want) = want {
                    cx.stats
                        .first_contact
                        .record(cx.now.saturating_sub(want.started));
                }
                let segments = peer.segments.clone();
                cx.actions.push(Action::Opened {
                    qpn: mine.qpn,
                    segments,
                });
                self.state = State::Open(Open { mine, peer });
            }
            other => self.state = other,
        }
    }
}

/// A wish that begins now, at the end of the line.
fn new_want(cx: &mut Context<'_>) -> Want {
    cx.stats.started += 1;
    *cx.clock += 1;
    Want::new(cx.now, *cx.clock)
}

/// `interval` changed by up to a quarter in either direction, so that peers which started
/// together do not keep colliding.
const fn jittered(rng: &mut Rng, interval: u64) -> u64 {
    if interval == 0 {
        0
    } else {
        interval - interval / 4 + rng.below(interval / 2 + 1)
    }
}

#[cfg(test)]
mod drain_tests;
#[cfg(test)]
mod leave_tests;
#[cfg(test)]
mod tests;

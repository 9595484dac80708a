//! How a connection makes room for another, so that no operation is lost or executed twice.
//!
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

use super::state::{Answered, Deferred, Draining, Offered, Open, Preparing, State, epoch_of};
use super::{Action, Context, Handshake, Standing, Verdict, jittered};
use crate::UdAddress;
use crate::message::{Body, Epoch, Message};
use shmem_verbs::Qpn;

impl Handshake {
    /// Makes room: destroys the queue pair as soon as nothing is under way on it.
    pub fn evict(&mut self, cx: &mut Context<'_>) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Offered(Offered { mine, want }) => {
                // The peer may be linked to it, but cannot have sent anything.
                cx.actions.push(Action::DestroyQp(mine.qpn));
                if let Some(want) = want {
                    cx.stats.yields += 1;
                    self.state = State::Preparing(Preparing {
                        creating: false,
                        want: Some(want.again()),
                        offer: None,
                    });
                }
            }
            State::Answered(Answered { mine, peer, want }) => {
                cx.stats.evictions += 1;
                cx.stats.yields += u64::from(want.is_some());
                self.begin_drain(cx, Open { mine, peer }, true, false);
                if let State::Draining(s) = &mut self.state {
                    s.want = want.map(|want| want.again());
                }
                self.send_drain(cx);
            }
            State::Open(open) => {
                cx.stats.evictions += 1;
                self.begin_drain(cx, open, false, false);
            }
            other => self.state = other,
        }
    }

    /// Nothing that was posted to queue pair `qpn` is under way any more, see [`Action::Drain`].
    pub fn drained(&mut self, cx: &mut Context<'_>, qpn: Qpn) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Draining(s) if s.mine.qpn == qpn && !s.idle => {
                if s.peer_idle {
                    self.finish_drain(cx, s, true);
                } else {
                    self.state = State::Draining(Draining {
                        idle: true,
                        heard: cx.now,
                        ..s
                    });
                    self.send_drain(cx);
                }
            }
            other => self.state = other,
        }
    }

    /// What this connection means to who looks for a queue pair.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        match &self.state {
            State::Idle => Standing::Without,
            State::Preparing(s) if s.creating => Standing::Fixed,
            State::Preparing(_) => Standing::Without,
            State::Offered(_) | State::Answered(_) => {
                let own = match self.state.want() {
                    Some(want) => Some(want.ticket),
                    None => None,
                };
                match (&self.state, own, self.asked) {
                    (State::Offered(_), None, None) => Standing::Unused,
                    // A peer that is still to open it does so while it drains.
                    (State::Answered(_), None, _) => Standing::InUse,
                    (_, own, asked) => Standing::Wanted { own, asked },
                }
            }
            State::Open(_) => Standing::InUse,
            State::Draining(s) => Standing::Going(s.began),
            State::Parting(_) | State::Parted(_) => Standing::Fixed,
        }
    }

    /// If all that is missing is a queue pair ([`Context::may_create`]): the place in the line, as
    /// ticket and PE that asks.
    #[must_use]
    pub fn waiting(&self, me: u32) -> Option<(u64, u32)> {
        let State::Preparing(Preparing {
            creating: false,
            want,
            offer,
        }) = &self.state
        else {
            return None;
        };
        let mine = want.map(|want| (want.ticket, me));
        let asked = offer.as_ref().filter(|offer| offer.want_reply);
        let its = asked.map(|offer| (offer.ticket, self.pe));
        mine.into_iter().chain(its).min()
    }

    fn begin_drain(&mut self, cx: &mut Context<'_>, open: Open, idle: bool, peer_idle: bool) {
        let Open { mine, peer } = open;
        self.push = None;
        self.state = State::Draining(Draining {
            mine,
            peer,
            idle,
            peer_idle,
            want: None,
            began: cx.now,
            heard: cx.now,
            resend: cx.now,
            interval: 0,
        });
        if !idle {
            cx.actions.push(Action::Drain(mine.qpn));
        }
    }

    /// Both sides are idle, or the peer is no more.
    pub(super) fn finish_drain(&mut self, cx: &mut Context<'_>, s: Draining, confirm: bool) {
        cx.actions.push(Action::DestroyQp(s.mine.qpn));
        cx.stats.drain_time.record(cx.now.saturating_sub(s.began));
        self.evicted = true;
        self.forget_epoch(s.peer.epoch);
        if let Some(to) = self.ud.filter(|_| confirm) {
            self.send_drain_message(cx, to, epoch_of(cx.local, s.mine), s.peer.epoch, false);
        }
        self.state = State::Idle;
        if s.want.is_some() && !cx.local.leaving {
            self.prepare(cx, s.want, None);
        }
    }

    /// The peer's queue pair `epoch` is gone, or will be: late OFFERs of it mean nothing.
    fn forget_epoch(&mut self, epoch: Epoch) {
        let next = Epoch {
            generation: epoch.generation.saturating_add(1),
            ..epoch
        };
        self.floor = self.floor.max(Some(next));
    }

    pub(super) fn handle_drain(
        &mut self,
        cx: &mut Context<'_>,
        m: &Message,
        ud: UdAddress,
    ) -> Verdict {
        if m.want_reply && self.tell_if_gone(cx, ud, m) {
            return Verdict::Duplicate;
        }
        let mine = self
            .state
            .mine()
            .filter(|mine| Some(epoch_of(cx.local, *mine)) == m.echo);
        let (Some(mine), false) = (mine, self.floor.is_some_and(|floor| m.epoch < floor)) else {
            return Verdict::Stale;
        };
        if !m.want_reply {
            return self.drain_confirmed(cx, m.epoch);
        }
        self.heard_of(cx, m.epoch);
        self.ud = Some(ud);
        let linked = self.state.peer().map(|peer| peer.epoch) == Some(m.epoch);
        if let (State::Answered(s), true) = (&self.state, linked)
            && s.want.is_some()
        {
            // Its DRAIN names our queue pair, so it is linked to it.
            self.open(cx);
        }
        match std::mem::replace(&mut self.state, State::Idle) {
            mut state @ (State::Offered(_) | State::Answered(_)) if state.want().is_some() => {
                if let State::Offered(Offered { want: Some(w), .. })
                | State::Answered(Answered { want: Some(w), .. }) = &mut state
                {
                    w.heard = cx.now;
                }
                self.state = state;
                self.send_request(cx);
            }
            State::Open(open) if linked => {
                cx.stats.evictions_by_peer += 1;
                self.begin_drain(cx, open, false, true);
            }
            State::Draining(mut s) if linked => {
                s.heard = cx.now;
                let first = !std::mem::replace(&mut s.peer_idle, true);
                if s.idle {
                    self.finish_drain(cx, s, true);
                } else {
                    self.state = State::Draining(s);
                    self.busy(cx);
                    return if first {
                        Verdict::Accepted
                    } else {
                        Verdict::Duplicate
                    };
                }
            }
            State::Draining(s) => self.finish_drain(cx, s, true),
            state => {
                // Nothing of ours is under way on it, or its other end is no more.
                cx.actions.push(Action::DestroyQp(mine.qpn));
                match state {
                    State::Open(_) => cx.stats.replaced += 1,
                    State::Answered(_) => cx.stats.evictions_by_peer += 1,
                    _ => {}
                }
                self.push = None;
                self.evicted = true;
                self.forget_epoch(m.epoch);
                self.send_drain_message(cx, ud, epoch_of(cx.local, mine), m.epoch, false);
            }
        }
        Verdict::Accepted
    }

    /// The peer's queue pair `epoch` was idle, and is gone.
    fn drain_confirmed(&mut self, cx: &mut Context<'_>, epoch: Epoch) -> Verdict {
        let ours = |peer: Epoch| peer == epoch || peer.incarnation < epoch.incarnation;
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Draining(s) if s.idle && ours(s.peer.epoch) => {
                self.heard_of(cx, epoch);
                self.finish_drain(cx, s, false);
                Verdict::Accepted
            }
            State::Parting(super::state::Parting { mine, peer, .. })
            | State::Parted(super::state::Parted { mine, peer, .. })
                if ours(peer.epoch) =>
            {
                cx.actions.push(Action::DestroyQp(mine.qpn));
                Verdict::Accepted
            }
            other => {
                self.state = other;
                Verdict::Stale
            }
        }
    }

    /// If `m` names a queue pair of ours that is no more: says so. Nothing of ours is under way on
    /// it, and never will be.
    pub(super) fn tell_if_gone(&self, cx: &mut Context<'_>, to: UdAddress, m: &Message) -> bool {
        let Some(echo) = m.echo else { return false };
        let current = self.state.mine().map(|mine| epoch_of(cx.local, mine));
        let gone = echo.incarnation < cx.local.incarnation
            || echo.incarnation == cx.local.incarnation
                && echo.generation <= self.generation
                && Some(echo) != current;
        if gone {
            let ours = if echo.incarnation == cx.local.incarnation {
                echo
            } else {
                Epoch {
                    incarnation: cx.local.incarnation,
                    generation: 0,
                }
            };
            self.send_drain_message(cx, to, ours, m.epoch, false);
        }
        gone
    }

    /// An OFFER while the connection makes room.
    pub(super) fn offer_while_draining(&mut self, cx: &mut Context<'_>, s: Draining, d: Deferred) {
        if d.epoch > s.peer.epoch {
            // The peer has destroyed its end, and its word of that was lost; or it has restarted.
            cx.actions.push(Action::DestroyQp(s.mine.qpn));
            cx.stats.drain_time.record(cx.now.saturating_sub(s.began));
            self.evicted = true;
            if d.want_reply || s.want.is_some() {
                self.accept_later(cx, s.want, d, false);
            }
            return;
        }
        self.state = State::Draining(Draining { heard: cx.now, ..s });
        if d.want_reply {
            self.answer(cx);
            // It will open the connection now, and be able to answer a DRAIN soon.
            if let State::Draining(s) = &mut self.state {
                s.interval = cx.local.retry.initial;
                s.resend = cx.now + jittered(cx.rng, s.interval);
            }
        }
    }

    /// Time has passed.
    pub(super) fn drain_again(&mut self, cx: &mut Context<'_>) {
        let State::Draining(s) = &self.state else {
            return;
        };
        if !s.idle {
            return;
        }
        if cx.now.saturating_sub(s.heard) >= cx.local.retry.silence {
            cx.stats.drains_abandoned += 1;
            if let State::Draining(s) = std::mem::replace(&mut self.state, State::Idle) {
                // If the peer lives after all, OFFERs of its queue pair must not be stale.
                let floor = self.floor;
                self.finish_drain(cx, s, false);
                self.floor = floor;
            }
        } else if cx.now >= s.resend {
            self.send_drain(cx);
        }
    }

    /// Sends a DRAIN that asks for its like, and sets the time of the next.
    fn send_drain(&mut self, cx: &mut Context<'_>) {
        let State::Draining(s) = &mut self.state else {
            return;
        };
        let retry = &cx.local.retry;
        s.interval = match s.interval {
            0 => retry.initial,
            interval => interval.saturating_mul(2).min(retry.max),
        };
        s.resend = cx.now + jittered(cx.rng, s.interval);
        let (mine, peer) = (epoch_of(cx.local, s.mine), s.peer.epoch);
        if let Some(to) = self.ud {
            self.send_drain_message(cx, to, mine, peer, true);
        }
    }

    fn send_drain_message(
        &self,
        cx: &mut Context<'_>,
        to: UdAddress,
        epoch: Epoch,
        echo: Epoch,
        want_reply: bool,
    ) {
        cx.stats.drains_sent += 1;
        let message = Message {
            src_pe: cx.local.pe,
            dst_pe: self.pe,
            epoch,
            echo: Some(echo),
            want_reply,
            ticket: *cx.clock,
            body: Body::Drain(cx.local.ud),
        };
        cx.actions.push(Action::Send { to, message });
    }
}

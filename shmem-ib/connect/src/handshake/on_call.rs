//! What the local program, the driver and the clock do in each state.

use std::mem;

use super::Handshake;
use super::state::{Drain, Mine, Pair, State, Want};
use crate::UdAddress;
use crate::interface::{Action, EventContext, Failure};
use crate::message::Generation;
use crate::retry::Repeater;
use shmem_verbs::Qpn;

impl Handshake {
    /// The local program wants to reach the peer, whose UD endpoint is at `ud`. Idempotent.
    ///
    /// A peer that has said BYE fails at once. A side that leaves itself does nothing.
    pub fn connect(&mut self, cx: &mut EventContext<'_>, ud: UdAddress) {
        if cx.local.leaving {
            return;
        }
        if self.left {
            return cx.fail(self.pe, Failure::PeerLeft);
        }
        if self.floor == Generation::NONE {
            // Once the peer has spoken, its own word counts.
            self.ud = Some(ud);
        }
        let open = matches!(
            self.state,
            State::Open(_) | State::Parting(..) | State::Parted(..)
        );
        if open || self.want.is_some() {
            return;
        }
        cx.stats.started += 1;
        *cx.clock += 1;
        self.want = Some(Want {
            since: cx.now,
            ticket: *cx.clock,
            request: None,
        });
        match &self.state {
            State::Idle => self.prepare(cx, false, None),
            _ => self.send_request(cx),
        }
    }

    /// The local memory is registered (`cx.local.memory` is set), or a queue pair may be made
    /// now: deferred work goes on.
    pub fn ready(&mut self, cx: &mut EventContext<'_>) {
        if let State::Preparing { creating, .. } = &mut self.state
            && !*creating
            && cx.local.memory.is_some()
            && cx.may_create
        {
            *creating = true;
            cx.act(self.pe, Action::CreateQp);
        }
    }

    /// The queue pair asked for by [`Action::CreateQp`] exists and is in INIT.
    pub fn qp_created(&mut self, cx: &mut EventContext<'_>, qpn: Qpn) {
        let State::Preparing { offer, .. } = mem::replace(&mut self.state, State::Idle) else {
            debug_assert!(false, "a queue pair was created that nobody asked for");
            return;
        };
        self.generation = self.generation.next();
        (self.offered, self.known, self.broken) = (0, 0, false);
        let asks = offer.as_ref().filter(|asked| asked.want_reply);
        self.asked = asks.map(|asked| (asked.ticket, cx.now));
        let psn = cx.random_psn();
        if cx.local.leaving {
            cx.act(self.pe, Action::DestroyQp(qpn));
            return;
        }
        let mine = Mine {
            generation: self.generation,
            qpn,
            psn,
        };
        self.state = State::Offered(mine);
        if let Some(asked) = offer {
            self.offer_in_init(cx, mine, asked);
        }
        if self.is_unasked() {
            self.send_request(cx);
        }
    }

    /// The queue pair asked for by [`Action::CreateQp`] cannot be created.
    pub fn qp_failed(&mut self, cx: &mut EventContext<'_>, why: String) {
        if matches!(self.state, State::Preparing { .. }) {
            self.state = State::Idle;
            self.want = None;
            cx.fail(self.pe, Failure::QueuePair(why));
        }
    }

    /// Makes room: destroys the queue pair as soon as nothing is under way on it.
    pub fn evict(&mut self, cx: &mut EventContext<'_>) {
        match mem::replace(&mut self.state, State::Idle) {
            State::Offered(mine) => {
                // The peer may be linked to it, but cannot have sent anything.
                cx.act(self.pe, Action::DestroyQp(mine.qpn));
                if let Some(want) = &mut self.want {
                    cx.stats.yields += 1;
                    want.request = None;
                    self.state = State::Preparing {
                        creating: false,
                        offer: None,
                    };
                }
            }
            State::Answered(pair) => {
                cx.stats.evictions += 1;
                if let Some(want) = &mut self.want {
                    cx.stats.yields += 1;
                    want.request = None;
                }
                let asks = Repeater::start(cx.now, cx.local.retry.request(), cx.rng);
                let drain = Drain {
                    began: cx.now,
                    idle: Some(asks),
                    peer_idle: false,
                };
                self.push = None;
                self.send_drain(cx, pair.mine.generation, pair.theirs.generation, true);
                self.state = State::Draining(pair, drain);
            }
            State::Open(pair) => {
                cx.stats.evictions += 1;
                self.state = State::Open(pair);
                self.begin_drain(cx, false);
            }
            other => self.state = other,
        }
    }

    /// Open becomes Draining.
    pub(super) fn begin_drain(&mut self, cx: &mut EventContext<'_>, peer_idle: bool) {
        match mem::replace(&mut self.state, State::Idle) {
            State::Open(pair) => {
                self.push = None;
                cx.act(self.pe, Action::Drain(pair.mine.qpn));
                let drain = Drain {
                    began: cx.now,
                    idle: None,
                    peer_idle,
                };
                self.state = State::Draining(pair, drain);
            }
            other => self.state = other,
        }
    }

    /// Nothing that was posted to queue pair `qpn` is under way any more, see [`Action::Drain`].
    pub fn drained(&mut self, cx: &mut EventContext<'_>, qpn: Qpn) {
        match mem::replace(&mut self.state, State::Idle) {
            State::Draining(pair, mut drain) if pair.mine.qpn == qpn && drain.idle.is_none() => {
                if drain.peer_idle {
                    self.finish_drain(cx, &pair, drain.began, true);
                } else {
                    let asks = Repeater::start(cx.now, cx.local.retry.request(), cx.rng);
                    drain.idle = Some(asks);
                    self.send_drain(cx, pair.mine.generation, pair.theirs.generation, true);
                    self.state = State::Draining(pair, drain);
                }
            }
            other => self.state = other,
        }
    }

    /// Both sides are idle, or the peer is no more; with `confirm` it is told.
    pub(super) fn finish_drain(
        &mut self,
        cx: &mut EventContext<'_>,
        pair: &Pair,
        began: u64,
        confirm: bool,
    ) {
        self.evicted = true;
        cx.stats.drain_time.record(cx.now.saturating_sub(began));
        self.end_linked(cx, pair.mine, pair.theirs.generation, confirm);
        if self.want.is_some() && !cx.local.leaving {
            self.prepare(cx, false, None);
        }
    }

    /// Our queue pair goes, and so does or did the peer's `theirs`, of which late OFFERs mean nothing.
    pub(super) fn end_linked(
        &mut self,
        cx: &mut EventContext<'_>,
        mine: Mine,
        theirs: Generation,
        confirm: bool,
    ) {
        cx.act(self.pe, Action::DestroyQp(mine.qpn));
        self.push = None;
        self.floor = self.floor.max(theirs.next());
        if confirm {
            self.send_drain(cx, mine.generation, theirs, false);
        }
    }

    /// Operations towards a peer that has left ([`Action::PeerLeft`]), or that waits for a drain
    /// ([`Action::Drain`]), are unfinished: asks it to wait.
    pub fn busy(&mut self, cx: &mut EventContext<'_>) {
        let pair = match &self.state {
            State::Answered(pair) | State::Open(pair) => pair,
            State::Draining(pair, drain) => {
                if drain.idle.is_some() || !drain.peer_idle {
                    return;
                }
                cx.stats.drains_deferred += 1;
                pair
            }
            _ => return,
        };
        if let Some(to) = self.ud {
            self.send_wait(cx, to, pair.theirs.generation);
        }
    }

    /// No operation towards the peer is under way, and none will be started; `cx.local.leaving`
    /// is set. Says BYE if there is a connection. Idempotent.
    pub fn leave(&mut self, cx: &mut EventContext<'_>) {
        self.push = None;
        match mem::replace(&mut self.state, State::Idle) {
            State::Idle => {}
            State::Preparing { creating, offer } => {
                if let Some(asked) = offer.filter(|asked| asked.want_reply) {
                    self.send_bye(cx, None, asked.generation, false);
                }
                if creating {
                    // The queue pair is destroyed as soon as it exists.
                    let offer = None;
                    self.state = State::Preparing { creating, offer };
                }
            }
            // The peer may have linked to this queue pair without our knowledge. It waits for
            // our answer to its BYE then, so the name of the queue pair is kept.
            State::Offered(mine) => self.state = State::Offered(mine),
            // The peer waits for this queue pair to go, and for nothing else.
            State::Draining(pair, drain) if drain.peer_idle => {
                self.finish_drain(cx, &pair, drain.began, true);
            }
            State::Answered(pair) | State::Open(pair) | State::Draining(pair, _) => {
                let bye = Repeater::start(cx.now, cx.local.retry.farewell(), cx.rng);
                self.send_bye(cx, Some(pair.mine), pair.theirs.generation, !self.left);
                self.state = if self.left {
                    State::Parted(pair, bye)
                } else {
                    State::Parting(pair, bye)
                };
            }
            parted @ (State::Parting(..) | State::Parted(..)) => self.state = parted,
        }
        self.want = None;
    }

    /// When [`Self::handle_timeout`] is due, if no sign of life comes that puts it off.
    #[must_use]
    pub fn next_timeout(&self, silence: u64) -> Option<u64> {
        let push = self.push.map(|push| push.next);
        let other = match &self.state {
            State::Offered(_) | State::Answered(_) => self
                .want
                .and_then(|want| Some(want.request?.deadline(silence))),
            State::Draining(_, drain) => drain.idle.map(|asks| asks.deadline(silence)),
            State::Parting(_, bye) => Some(bye.next),
            _ => None,
        };
        push.into_iter().chain(other).min()
    }

    /// Time has passed: sends again, or gives up. Does nothing if nothing is due.
    pub fn handle_timeout(&mut self, cx: &mut EventContext<'_>) {
        self.tell_segments_again(cx);
        match mem::replace(&mut self.state, State::Idle) {
            State::Draining(pair, drain) => self.drain_timeout(cx, pair, drain),
            state @ (State::Offered(_) | State::Answered(_)) => {
                self.state = state;
                self.request_timeout(cx);
            }
            State::Parting(pair, bye) => {
                let due = cx.now >= bye.next;
                self.state = State::Parting(pair, bye);
                if due {
                    cx.stats.byes_repeated += 1;
                    self.repeat_bye(cx);
                }
            }
            other => self.state = other,
        }
    }

    fn request_timeout(&mut self, cx: &mut EventContext<'_>) {
        let Some(request) = self.want.and_then(|want| want.request) else {
            return;
        };
        if let Some(nanos) = request.given_up(cx.now, cx.local.retry.silence) {
            self.want = None;
            if let State::Offered(mine) = self.state {
                // An Answered queue pair stays: the peer may be using it.
                self.state = State::Idle;
                cx.act(self.pe, Action::DestroyQp(mine.qpn));
            }
            let sent = request.sent;
            cx.fail(self.pe, Failure::Silence { nanos, sent });
        } else if cx.now >= request.next {
            cx.stats.retransmissions += 1;
            self.send_request(cx);
        }
    }

    fn drain_timeout(&mut self, cx: &mut EventContext<'_>, pair: Pair, mut drain: Drain) {
        if let Some(asks) = &mut drain.idle {
            let silence = cx.local.retry.silence;
            if asks.given_up(cx.now, silence).is_some() {
                cx.stats.drains_abandoned += 1;
                // If the peer lives after all, OFFERs of its queue pair must not be stale.
                let floor = self.floor;
                self.finish_drain(cx, &pair, drain.began, false);
                self.floor = floor;
                return;
            }
            if cx.now >= asks.next {
                asks.again(cx.now, cx.local.retry.request(), cx.rng);
                self.send_drain(cx, pair.mine.generation, pair.theirs.generation, true);
            }
        }
        self.state = State::Draining(pair, drain);
    }
}

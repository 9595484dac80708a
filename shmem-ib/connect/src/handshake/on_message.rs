//! What each message does in each state. The functions are in the order of the states, and each is a
//! row of the [tables](super).

use std::mem;

use super::Handshake;
use super::state::{Drain, Mine, Pair, PeerOffer, State, Theirs};
use crate::interface::{Action, EventContext, Failure, Link, Verdict};
use crate::message::{Body, Generation, Message};
use crate::retry::Repeater;

/// A message that is not stale.
enum Heard {
    Offer(PeerOffer),
    Wait,
    Bye { from: Generation, asks: bool },
    Drain { from: Generation, asks: bool },
}

impl Handshake {
    /// The peer has sent `message`; the caller has checked job, source and destination.
    pub fn handle_message(&mut self, cx: &mut EventContext<'_>, message: Message) -> Verdict {
        *cx.clock = (*cx.clock).max(message.ticket);
        if self.tell_if_gone(cx, &message) && matches!(message.body, Body::Drain(_)) {
            return Verdict::Duplicate;
        }
        if self.is_stale(&message) {
            return Verdict::Stale;
        }
        let (from, asks) = (message.generation, message.want_reply);
        let before = (self.floor, self.left, self.phase());
        let heard = match message.body {
            Body::Segments(memory) => return self.hear_segments(cx, &memory),
            Body::SegmentsAck(known) => return self.hear_ack(cx, known),
            Body::Offer(offer) => {
                self.floor = self.floor.max(from);
                self.ud = Some(offer.ud);
                Heard::Offer(PeerOffer {
                    generation: from,
                    echo: message.echo,
                    want_reply: asks,
                    ticket: message.ticket,
                    offer,
                })
            }
            Body::Wait => Heard::Wait,
            Body::Bye => {
                self.floor = self.floor.max(from);
                self.left = true;
                Heard::Bye { from, asks }
            }
            Body::Drain(ud) => {
                self.floor = self.floor.max(from);
                self.ud = Some(ud);
                Heard::Drain { from, asks }
            }
            Body::Ask(_) => return Verdict::Stale,
        };
        let told = matches!(heard, Heard::Wait) && self.state.mine().is_some();
        if let Heard::Offer(asked) = &heard
            && asked.want_reply
            && !cx.local.leaving
        {
            self.asked = Some((asked.ticket, cx.now));
        }
        match mem::replace(&mut self.state, State::Idle) {
            State::Idle => self.in_idle(cx, heard),
            State::Preparing { creating, offer } => self.in_preparing(cx, creating, offer, heard),
            State::Offered(mine) => self.in_offered(cx, mine, heard),
            State::Answered(pair) => self.in_answered(cx, pair, heard),
            State::Open(pair) => self.in_open(cx, pair, heard),
            State::Draining(pair, drain) => self.in_draining(cx, pair, drain, heard),
            State::Parting(pair, bye) => self.in_parting(cx, pair, bye, heard),
            State::Parted(pair, bye) => self.in_parted(cx, pair, bye, heard),
        }
        if told || before != (self.floor, self.left, self.phase()) {
            Verdict::Accepted
        } else {
            Verdict::Duplicate
        }
    }

    /// Whether a message is about queue pairs that are no more, or never were.
    fn is_stale(&self, m: &Message) -> bool {
        let mine = self.state.mine().map(|mine| mine.generation);
        let old = m.generation < self.floor;
        let linked = self.state.theirs() == Some(m.generation);
        let without_qp = m.generation == Generation::NONE;
        match m.body {
            Body::Offer(_) => old,
            Body::Wait => mine.is_some() && m.echo != mine,
            // Who was open had a queue pair, and gives none up while we keep ours.
            Body::Bye if without_qp => m.echo != mine || matches!(self.state, State::Open(_)),
            Body::Bye => m.echo != mine || old,
            Body::Drain(_) if m.echo.is_none() => true,
            Body::Drain(_) if m.want_reply => m.echo != mine || old,
            Body::Drain(_) => {
                let awaited = match &self.state {
                    State::Draining(_, drain) => drain.idle.is_some(),
                    State::Parting(..) | State::Parted(..) => true,
                    _ => false,
                };
                m.echo != mine || !linked || !awaited
            }
            Body::Segments(_) | Body::SegmentsAck(_) => m.echo != mine || !linked,
            Body::Ask(_) => true,
        }
    }

    /// No queue pair, and nobody here wants one.
    fn in_idle(&mut self, cx: &mut EventContext<'_>, heard: Heard) {
        match heard {
            Heard::Offer(asked) if cx.local.leaving => self.refuse(cx, None, &asked),
            Heard::Offer(asked) if asked.want_reply => self.prepare(cx, false, Some(asked)),
            // A late answer to a connect that has failed.
            Heard::Offer(_) => {}
            Heard::Wait | Heard::Bye { .. } | Heard::Drain { .. } => {}
        }
    }

    /// Waits for the local queue pair, or for local memory.
    fn in_preparing(
        &mut self,
        cx: &mut EventContext<'_>,
        creating: bool,
        offer: Option<PeerOffer>,
        heard: Heard,
    ) {
        match heard {
            Heard::Offer(asked) if cx.local.leaving => {
                self.state = State::Preparing { creating, offer };
                self.refuse(cx, None, &asked);
            }
            Heard::Offer(mut asked) => {
                if let Some(earlier) = offer.filter(|o| o.want_reply && !asked.want_reply) {
                    asked.want_reply = true;
                    asked.ticket = earlier.ticket;
                }
                self.prepare(cx, creating, Some(asked));
            }
            Heard::Wait | Heard::Bye { .. } | Heard::Drain { .. } => {
                self.state = State::Preparing { creating, offer };
            }
        }
    }

    /// The local queue pair is in INIT.
    fn in_offered(&mut self, cx: &mut EventContext<'_>, mine: Mine, heard: Heard) {
        match heard {
            Heard::Offer(asked) => self.offer_in_init(cx, mine, asked),
            Heard::Wait => {
                self.state = State::Offered(mine);
                self.rest(cx);
            }
            // We have sent nothing that its queue pair could wait for.
            Heard::Bye { from, asks } => self.part_at_once(cx, mine, from, asks),
            Heard::Drain { .. } if self.want.is_some() => {
                self.state = State::Offered(mine);
                self.insist(cx);
            }
            Heard::Drain { from, .. } => self.give_way(cx, mine, from),
        }
    }

    /// An OFFER while the local queue pair is in INIT.
    pub(super) fn offer_in_init(
        &mut self,
        cx: &mut EventContext<'_>,
        mine: Mine,
        asked: PeerOffer,
    ) {
        self.state = State::Offered(mine);
        let names_me = asked.echo == Some(mine.generation);
        if cx.local.leaving {
            if names_me || asked.want_reply {
                self.send_bye(cx, Some(mine), asked.generation, false);
            }
        } else if asked.echo.is_none() || names_me {
            self.link(cx, mine, asked);
        } else if asked.want_reply {
            // The peer's queue pair is bound to another one than mine. It will bind it, or a new one, to
            // mine when it learns of mine, and then offer again.
            self.answer(cx);
        }
    }

    /// Linked to the peer's queue pair; the peer may not know.
    fn in_answered(&mut self, cx: &mut EventContext<'_>, pair: Pair, heard: Heard) {
        let (mine, linked) = (pair.mine, pair.theirs.generation);
        match heard {
            Heard::Offer(asked) if asked.generation > linked => {
                if cx.local.leaving {
                    self.refuse_anew(cx, mine, &asked);
                } else {
                    cx.act(self.pe, Action::ResetQp(mine.qpn));
                    self.offer_in_init(cx, mine, asked);
                }
            }
            Heard::Offer(asked) => {
                self.state = State::Answered(pair);
                if !cx.local.leaving {
                    self.learn(cx, &asked);
                    if asked.echo == Some(mine.generation) {
                        self.open(cx);
                    }
                }
                if asked.want_reply {
                    self.answer(cx);
                }
            }
            Heard::Wait => {
                self.state = State::Answered(pair);
                self.rest(cx);
            }
            Heard::Bye { from, asks } if from == linked => {
                self.state = State::Answered(pair);
                self.fail_if_wanted(cx);
                cx.act(self.pe, Action::PeerLeft { waits: asks });
            }
            Heard::Bye { from, asks } => self.part_at_once(cx, mine, from, asks),
            Heard::Drain { from, .. } if self.want.is_some() => {
                self.state = State::Answered(pair);
                if from == linked {
                    // It names our queue pair, so the peer is linked to it.
                    self.open(cx);
                    self.drain_for_peer(cx);
                } else {
                    self.insist(cx);
                }
            }
            Heard::Drain { from, .. } => {
                cx.stats.evictions_by_peer += 1;
                self.give_way(cx, mine, from);
            }
        }
    }

    /// Both sides are linked.
    fn in_open(&mut self, cx: &mut EventContext<'_>, pair: Pair, heard: Heard) {
        let (mine, linked) = (pair.mine, pair.theirs.generation);
        match heard {
            Heard::Offer(asked) if asked.generation > linked => {
                if cx.local.leaving {
                    self.refuse_anew(cx, mine, &asked);
                } else {
                    cx.stats.replaced += 1;
                    cx.act(self.pe, Action::DestroyQp(mine.qpn));
                    if asked.want_reply {
                        self.prepare(cx, false, Some(asked));
                    }
                }
            }
            Heard::Offer(asked) => {
                self.state = State::Open(pair);
                if !cx.local.leaving {
                    self.learn(cx, &asked);
                }
                if asked.want_reply {
                    self.answer(cx);
                }
            }
            Heard::Wait => self.state = State::Open(pair),
            Heard::Bye { from, asks } if from == linked => {
                self.state = State::Open(pair);
                cx.act(self.pe, Action::PeerLeft { waits: asks });
            }
            Heard::Bye { from, asks } => self.part_at_once(cx, mine, from, asks),
            Heard::Drain { from, .. } if from == linked => {
                self.state = State::Open(pair);
                self.drain_for_peer(cx);
            }
            Heard::Drain { from, .. } => {
                cx.stats.replaced += 1;
                self.give_way(cx, mine, from);
            }
        }
    }

    /// Makes room for another connection.
    fn in_draining(
        &mut self,
        cx: &mut EventContext<'_>,
        pair: Pair,
        mut drain: Drain,
        heard: Heard,
    ) {
        let (mine, linked) = (pair.mine, pair.theirs.generation);
        match heard {
            Heard::Offer(asked) if asked.generation > linked => {
                if cx.local.leaving {
                    return self.refuse_anew(cx, mine, &asked);
                }
                // The peer has destroyed its end, and its word of that was lost.
                cx.act(self.pe, Action::DestroyQp(mine.qpn));
                cx.stats
                    .drain_time
                    .record(cx.now.saturating_sub(drain.began));
                self.evicted = true;
                if asked.want_reply || self.want.is_some() {
                    self.prepare(cx, false, Some(asked));
                }
            }
            Heard::Offer(asked) => {
                if let Some(repeater) = &mut drain.idle {
                    repeater.heard = cx.now;
                    if asked.want_reply {
                        // It will open the connection now, and be able to answer a DRAIN soon.
                        repeater.hurry(cx.now, cx.local.retry.request(), cx.rng);
                    }
                }
                self.state = State::Draining(pair, drain);
                if asked.want_reply {
                    self.answer(cx);
                }
            }
            Heard::Wait => {
                if let Some(repeater) = &mut drain.idle {
                    repeater.heard = cx.now;
                }
                self.state = State::Draining(pair, drain);
            }
            Heard::Bye { from, asks } if from == linked && drain.idle.is_none() => {
                drain.peer_idle = true;
                self.state = State::Draining(pair, drain);
                self.fail_if_wanted(cx);
                cx.act(self.pe, Action::PeerLeft { waits: asks });
            }
            Heard::Bye { from, asks } => {
                cx.stats
                    .drain_time
                    .record(cx.now.saturating_sub(drain.began));
                self.part_at_once(cx, mine, from, asks);
            }
            Heard::Drain { from, asks: true } if from == linked && drain.idle.is_none() => {
                drain.peer_idle = true;
                self.state = State::Draining(pair, drain);
                self.busy(cx);
            }
            Heard::Drain { asks, .. } => self.finish_drain(cx, &pair, drain.began, asks),
        }
    }

    /// We have said BYE, and wait for the peer's.
    fn in_parting(&mut self, cx: &mut EventContext<'_>, pair: Pair, bye: Repeater, heard: Heard) {
        match heard {
            Heard::Bye { asks, .. } => {
                self.state = State::Parted(pair, bye);
                self.bye_again(cx, asks);
            }
            Heard::Wait => self.state = State::Parting(pair, bye),
            Heard::Offer(asked) if asked.generation <= pair.theirs.generation => {
                self.state = State::Parting(pair, bye);
                self.bye_again(cx, asked.want_reply);
            }
            Heard::Offer(asked) => self.refuse_anew(cx, pair.mine, &asked),
            Heard::Drain { from, asks } => self.end_linked(cx, pair.mine, from, asks),
        }
    }

    /// Both have said BYE.
    fn in_parted(&mut self, cx: &mut EventContext<'_>, pair: Pair, bye: Repeater, heard: Heard) {
        let asks = match heard {
            Heard::Bye { asks, .. } => asks,
            Heard::Wait => false,
            Heard::Offer(asked) if asked.generation <= pair.theirs.generation => asked.want_reply,
            Heard::Offer(asked) => return self.refuse_anew(cx, pair.mine, &asked),
            Heard::Drain { from, asks } => return self.end_linked(cx, pair.mine, from, asks),
        };
        self.state = State::Parted(pair, bye);
        self.bye_again(cx, asks);
    }

    /// Offered becomes Answered, or Open.
    fn link(&mut self, cx: &mut EventContext<'_>, mine: Mine, asked: PeerOffer) {
        let confirmed = asked.echo == Some(mine.generation);
        let requested = self.want.is_some_and(|want| want.request.is_some());
        if requested && !confirmed && asked.want_reply {
            cx.stats.simultaneous += 1;
        }
        if self.want.is_none() {
            cx.stats.accepted += 1;
        }
        let link = Action::LinkQp {
            qpn: mine.qpn,
            sq_psn: mine.psn,
            link: Link::new(cx.local, &asked.offer),
        };
        cx.act(self.pe, link);
        self.known = if confirmed { asked.offer.heard } else { 0 };
        let theirs = Theirs {
            generation: asked.generation,
            qpn: asked.offer.qpn,
            psn: asked.offer.psn,
            memory: asked.offer.memory,
        };
        self.state = State::Answered(Pair { mine, theirs });
        if confirmed {
            self.open(cx);
        }
        if asked.want_reply {
            self.answer(cx);
        } else {
            // An answer that did not know our queue pair: tell the peer, at once if we wait for it.
            self.send_request(cx);
        }
        self.tell_segments(cx);
    }

    /// Answered becomes Open.
    fn open(&mut self, cx: &mut EventContext<'_>) {
        match mem::replace(&mut self.state, State::Idle) {
            State::Answered(pair) => {
                cx.stats.reconnects += u64::from(mem::take(&mut self.evicted));
                let since = self.want.take().map(|want| want.since);
                cx.note_opened(since);
                cx.act(self.pe, Action::Opened { since });
                self.state = State::Open(pair);
            }
            other => self.state = other,
        }
    }

    /// WAIT: the answer will come by itself.
    fn rest(&mut self, cx: &mut EventContext<'_>) {
        if let Some(want) = &mut self.want
            && let Some(request) = &mut want.request
        {
            request.rest(cx.now, cx.local.retry.request(), cx.rng);
        }
    }

    /// The peer would make room, and the program here wants the connection: it is ready for it.
    fn insist(&mut self, cx: &mut EventContext<'_>) {
        if let Some(want) = &mut self.want
            && let Some(request) = &mut want.request
        {
            request.heard = cx.now;
        }
        self.send_request(cx);
    }

    /// The peer makes room: Open becomes Draining.
    fn drain_for_peer(&mut self, cx: &mut EventContext<'_>) {
        cx.stats.evictions_by_peer += 1;
        self.begin_drain(cx, true);
    }

    /// The peer makes room, and nothing of ours is under way on its queue pair, or that is no more.
    fn give_way(&mut self, cx: &mut EventContext<'_>, mine: Mine, from: Generation) {
        self.evicted = true;
        self.end_linked(cx, mine, from, true);
    }

    /// The peer leaves, and nothing of ours is under way to it.
    fn part_at_once(
        &mut self,
        cx: &mut EventContext<'_>,
        mine: Mine,
        from: Generation,
        asks: bool,
    ) {
        if asks {
            self.send_bye(cx, Some(mine), from, false);
        }
        cx.act(self.pe, Action::DestroyQp(mine.qpn));
        self.fail_if_wanted(cx);
        cx.act(self.pe, Action::PeerLeft { waits: false });
    }

    /// We leave: no new connection comes of an OFFER, and who asks for one is told.
    fn refuse(&self, cx: &mut EventContext<'_>, mine: Option<Mine>, asked: &PeerOffer) {
        if asked.want_reply {
            self.send_bye(cx, mine, asked.generation, false);
        }
    }

    /// We leave, and the peer has a new queue pair: ours serves nobody any more.
    fn refuse_anew(&mut self, cx: &mut EventContext<'_>, mine: Mine, asked: &PeerOffer) {
        cx.act(self.pe, Action::DestroyQp(mine.qpn));
        cx.stats.replaced += 1;
        self.refuse(cx, None, asked);
    }

    /// Says BYE again if it is asked for and the last one can have been lost.
    fn bye_again(&mut self, cx: &mut EventContext<'_>, asked: bool) {
        let (State::Parting(_, bye) | State::Parted(_, bye)) = &self.state else {
            return;
        };
        if asked && cx.now.saturating_sub(bye.said) >= cx.local.retry.bye / 2 {
            self.repeat_bye(cx);
        }
    }

    fn fail_if_wanted(&mut self, cx: &mut EventContext<'_>) {
        if self.want.take().is_some() {
            cx.fail(self.pe, Failure::PeerLeft);
        }
    }

    /// If `m` asks for the end of a queue pair of ours that is no more: says so. Nothing of ours is under
    /// way on it, and never will be.
    fn tell_if_gone(&self, cx: &mut EventContext<'_>, m: &Message) -> bool {
        let to = match m.body {
            Body::Drain(ud) => Some(ud),
            Body::Bye => self.ud,
            _ => None,
        };
        let (Some(to), Some(echo), true) = (to, m.echo, m.want_reply) else {
            return false;
        };
        let current = self.state.mine().map(|mine| mine.generation);
        let gone = echo <= self.generation && Some(echo) != current;
        if gone {
            self.send_drain_to(cx, to, echo, m.generation, false);
        }
        gone
    }
}

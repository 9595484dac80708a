//! Telling peers over an existing connection that there is more local memory now.
//!
//! Every OFFER carries all segments. Segments are only ever added, so how many a side knows of the other
//! says which. A peer that was told fewer gets SEGMENTS, again and again until it has said that it knows
//! all, by SEGMENTS-ACK or in an OFFER.

use super::Handshake;
use super::state::{PeerOffer, State};
use crate::interface::{Action, EventContext, Outgoing, Verdict};
use crate::message::{Body, Memory};
use crate::retry::Repeater;

impl Handshake {
    /// There are more in `cx.local.memory` than before.
    pub fn segments_added(&mut self, cx: &mut EventContext<'_>) {
        self.push = None;
        self.tell_segments(cx);
    }

    /// Whether a peer that was told of our memory may know fewer of our segments than there are.
    #[must_use]
    pub fn may_be_behind(&self, segments: usize) -> bool {
        self.state.mine().is_some()
            && self.offered > 0
            && (self.known as usize).max(self.offered) < segments
    }

    pub(super) fn hear_segments(&mut self, cx: &mut EventContext<'_>, memory: &Memory) -> Verdict {
        cx.stats.segments_received += 1;
        let news = self.learn_segments(cx, memory);
        self.acknowledge(cx);
        if news {
            Verdict::Accepted
        } else {
            Verdict::Duplicate
        }
    }

    pub(super) fn hear_ack(&mut self, cx: &EventContext<'_>, known: u32) -> Verdict {
        let news = known > self.known;
        self.note_known(cx, known);
        if news {
            Verdict::Accepted
        } else {
            Verdict::Duplicate
        }
    }

    /// What another OFFER of the linked queue pair says about segments, ours and the peer's.
    pub(super) fn learn(&mut self, cx: &mut EventContext<'_>, asked: &PeerOffer) {
        let mine = self.state.mine().map(|mine| mine.generation);
        if mine.is_some() && asked.echo == mine {
            self.note_known(cx, asked.offer.heard);
        }
        if self.learn_segments(cx, &asked.offer.memory) {
            self.acknowledge(cx);
        }
    }

    fn note_known(&mut self, cx: &EventContext<'_>, known: u32) {
        self.known = self.known.max(known);
        if self.known as usize >= cx.local.segments() {
            self.push = None;
        }
    }

    /// Remembers the peer's segments if there are more than before.
    fn learn_segments(&mut self, cx: &mut EventContext<'_>, memory: &Memory) -> bool {
        let usable = self.route().is_some();
        let Some(pair) = self.state.pair_mut() else {
            return false;
        };
        if memory.segments.len() <= pair.theirs.memory.segments.len() {
            return false;
        }
        pair.theirs.memory = memory.clone();
        if usable {
            cx.act(self.pe, Action::SegmentsAdded);
        }
        true
    }

    /// Begins to tell the peer the present segments if it may not know them.
    pub(super) fn tell_segments(&mut self, cx: &mut EventContext<'_>) {
        let there = cx.local.segments();
        if self.push.is_none()
            && matches!(self.state, State::Answered(_) | State::Open(_))
            && self.may_be_behind(there)
        {
            let push = Repeater::start(cx.now, cx.local.retry.request(), cx.rng);
            self.push = Some(push);
            self.send_segments(cx);
        }
    }

    /// Time has passed.
    pub(super) fn tell_segments_again(&mut self, cx: &mut EventContext<'_>) {
        let Some(push) = self.push.as_mut().filter(|push| cx.now >= push.next) else {
            return;
        };
        let told = matches!(self.state, State::Answered(_) | State::Open(_));
        if !told || push.given_up(cx.now, cx.local.retry.silence).is_some() {
            self.push = None;
            return;
        }
        push.again(cx.now, cx.local.retry.request(), cx.rng);
        self.send_segments(cx);
    }

    fn send_segments(&self, cx: &mut EventContext<'_>) {
        if let Some(memory) = cx.local.memory.clone() {
            cx.stats.segments_sent += 1;
            self.send_linked(cx, true, Body::Segments(memory));
        }
    }

    fn acknowledge(&self, cx: &mut EventContext<'_>) {
        if let Some(pair) = self.state.pair() {
            let known = pair.theirs.memory.segments.len() as u32;
            self.send_linked(cx, false, Body::SegmentsAck(known));
        }
    }

    /// Sends a message that concerns the linked queue pairs.
    fn send_linked(&self, cx: &mut EventContext<'_>, want_reply: bool, body: Body) {
        if let (Some(pair), Some(to)) = (self.state.pair(), self.ud) {
            let message = Outgoing {
                generation: pair.mine.generation,
                echo: Some(pair.theirs.generation),
                want_reply,
                body,
            };
            cx.send(self.pe, to, message);
        }
    }
}

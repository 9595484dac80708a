//! What is sent: OFFERs that ask or answer, WAIT, BYE and DRAIN.

use super::Handshake;
use super::state::{Mine, PeerOffer, State};
use crate::UdAddress;
use crate::interface::{Action, EventContext, Outgoing};
use crate::message::{Body, Generation, Offer};
use crate::retry::Repeater;

impl Handshake {
    /// Waits for a queue pair, for the sake of the local program or of an OFFER. It is created at once
    /// if that may be; if not, who has sent the OFFER is told to wait.
    pub(super) fn prepare(
        &mut self,
        cx: &mut EventContext<'_>,
        creating: bool,
        offer: Option<PeerOffer>,
    ) {
        let begin = !creating && cx.local.memory.is_some() && cx.may_create;
        if begin {
            cx.act(self.pe, Action::CreateQp);
        }
        let creating = creating || begin;
        if let Some(asked) = offer.as_ref().filter(|o| o.want_reply && !creating) {
            cx.stats.requests_queued += u64::from(!cx.may_create);
            self.send_wait(cx, asked.offer.ud, asked.generation);
        }
        self.state = State::Preparing { creating, offer };
    }

    /// Whether the local program waits for this connection, and the peer has not been asked
    /// for it since the present queue pair exists.
    pub(super) fn is_unasked(&self) -> bool {
        matches!(self.state, State::Offered(_) | State::Answered(_))
            && self.want.is_some_and(|want| want.request.is_none())
    }

    /// Replies with our OFFER. It asks for a reply itself only if the local program waits for
    /// the connection and no other request of ours is under way.
    pub(super) fn answer(&mut self, cx: &mut EventContext<'_>) {
        if self.is_unasked() {
            self.send_request(cx);
        } else {
            let ticket = *cx.clock;
            self.send_offer(cx, false, ticket);
        }
    }

    /// If the local program waits for this connection: sends an OFFER that asks for a reply,
    /// and sets the time of the next.
    pub(super) fn send_request(&mut self, cx: &mut EventContext<'_>) {
        let (State::Offered(_) | State::Answered(_), Some(want)) = (&self.state, &mut self.want)
        else {
            return;
        };
        let backoff = cx.local.retry.request();
        match &mut want.request {
            Some(request) => request.again(cx.now, backoff, cx.rng),
            None => want.request = Some(Repeater::start(cx.now, backoff, cx.rng)),
        }
        let ticket = want.ticket;
        self.send_offer(cx, true, ticket);
    }

    fn send_offer(&mut self, cx: &mut EventContext<'_>, want_reply: bool, ticket: u64) {
        let (Some(mine), Some(to), Some(memory)) =
            (self.state.mine(), self.ud, cx.local.memory.clone())
        else {
            return;
        };
        if self.offered == 0 {
            self.offered = memory.segments.len();
        }
        let theirs = self.state.pair().map(|pair| &pair.theirs);
        cx.stats.offers_sent += 1;
        let message = Outgoing {
            generation: mine.generation,
            echo: theirs.map(|theirs| theirs.generation),
            want_reply,
            body: Body::Offer(Offer {
                ud: cx.local.ud,
                qpn: mine.qpn,
                psn: mine.psn,
                mtu: cx.local.mtu,
                max_rd_atomic: cx.local.max_rd_atomic,
                heard: theirs.map_or(0, |theirs| theirs.memory.segments.len() as u32),
                memory,
            }),
        };
        cx.send_with(self.pe, to, ticket, message);
    }

    pub(super) fn send_wait(&self, cx: &mut EventContext<'_>, to: UdAddress, echo: Generation) {
        cx.stats.waits_sent += 1;
        let message = Outgoing {
            generation: Generation::NONE,
            echo: Some(echo),
            want_reply: false,
            body: Body::Wait,
        };
        cx.send(self.pe, to, message);
    }

    /// Says BYE for the linked queue pair again; if we have not heard the peer's, sets the time of the
    /// next.
    pub(super) fn repeat_bye(&mut self, cx: &mut EventContext<'_>) {
        let waits = matches!(self.state, State::Parting(..));
        if let State::Parting(pair, bye) | State::Parted(pair, bye) = &mut self.state {
            let (mine, theirs) = (pair.mine, pair.theirs.generation);
            bye.again(cx.now, cx.local.retry.farewell(), cx.rng);
            self.send_bye(cx, Some(mine), theirs, waits);
        }
    }

    pub(super) fn send_bye(
        &self,
        cx: &mut EventContext<'_>,
        mine: Option<Mine>,
        echo: Generation,
        want_reply: bool,
    ) {
        let Some(to) = self.ud else { return };
        cx.stats.byes_sent += 1;
        let message = Outgoing {
            generation: mine.map_or(Generation::NONE, |mine| mine.generation),
            echo: Some(echo),
            want_reply,
            body: Body::Bye,
        };
        cx.send(self.pe, to, message);
    }

    /// Nothing is under way on our queue pair `generation` and the peer's `echo`. With `want_reply` the
    /// peer is to say the same, without ours is gone.
    pub(super) fn send_drain(
        &self,
        cx: &mut EventContext<'_>,
        generation: Generation,
        echo: Generation,
        want_reply: bool,
    ) {
        if let Some(to) = self.ud {
            self.send_drain_to(cx, to, generation, echo, want_reply);
        }
    }

    pub(super) fn send_drain_to(
        &self,
        cx: &mut EventContext<'_>,
        to: UdAddress,
        generation: Generation,
        echo: Generation,
        want_reply: bool,
    ) {
        cx.stats.drains_sent += 1;
        let message = Outgoing {
            generation,
            echo: Some(echo),
            want_reply,
            body: Body::Drain(cx.local.ud),
        };
        cx.send(self.pe, to, message);
    }
}

//! What is sent while a connection is made: OFFERs, that ask or answer, and WAIT.

use super::state::{Answered, Offered, State, epoch_of};
use super::{Action, Context, Handshake, jittered};
use crate::UdAddress;
use crate::message::{Body, Epoch, Message, Offer};

impl Handshake {
    /// Whether the local program waits for this connection, and the peer has not been asked
    /// for it since the present queue pair exists.
    pub(super) fn unasked(&self) -> bool {
        match &self.state {
            State::Offered(Offered { want, .. }) | State::Answered(Answered { want, .. }) => {
                want.is_some_and(|w| w.resend.is_none())
            }
            _ => false,
        }
    }

    /// Replies with our OFFER. It asks for a reply itself only if the local program waits for
    /// the connection and no other request of ours is under way.
    pub(super) fn answer(&mut self, cx: &mut Context<'_>) {
        if self.unasked() {
            self.send_request(cx);
        } else {
            self.send_offer(cx, false);
        }
    }

    /// If the local program waits for this connection: sends an OFFER that asks for a reply,
    /// and sets the time of the next.
    pub(super) fn send_request(&mut self, cx: &mut Context<'_>) {
        let want = match &mut self.state {
            State::Offered(s) => &mut s.want,
            State::Answered(s) => &mut s.want,
            _ => return,
        };
        let Some(want) = want else { return };
        let retry = &cx.local.retry;
        if want.sent == 0 {
            want.heard = cx.now;
        }
        want.interval = match want.interval {
            0 => retry.initial,
            interval => interval.saturating_mul(2).min(retry.max),
        };
        want.sent += 1;
        want.resend = Some(cx.now + jittered(cx.rng, want.interval));
        self.send_offer(cx, true);
    }

    fn send_offer(&mut self, cx: &mut Context<'_>, want_reply: bool) {
        let Some(mine) = self.state.mine() else {
            return;
        };
        let echo = self.state.peer().map(|peer| peer.epoch);
        let (Some(to), Some(segments)) = (self.ud, cx.local.segments.clone()) else {
            return;
        };
        if self.offered == 0 {
            self.offered = cx.local.revision;
        }
        let ticket = match self.state.want() {
            Some(want) if want_reply => want.ticket,
            _ => *cx.clock,
        };
        cx.stats.offers_sent += 1;
        let message = Message {
            src_pe: cx.local.pe,
            dst_pe: self.pe,
            epoch: epoch_of(cx.local, mine),
            echo,
            want_reply,
            ticket,
            body: Body::Offer(Offer {
                ud: cx.local.ud,
                qpn: mine.qpn,
                psn: mine.psn,
                mtu: cx.local.mtu,
                max_rd_atomic: cx.local.max_rd_atomic,
                revision: cx.local.revision,
                heard: self.state.peer().map_or(0, |peer| peer.applied),
                segments,
            }),
        };
        cx.actions.push(Action::Send { to, message });
    }

    pub(super) fn send_wait(&self, cx: &mut Context<'_>, to: UdAddress, echo: Epoch) {
        cx.stats.waits_sent += 1;
        let message = Message {
            src_pe: cx.local.pe,
            dst_pe: self.pe,
            epoch: Epoch {
                incarnation: cx.local.incarnation,
                generation: 0,
            },
            echo: Some(echo),
            want_reply: false,
            ticket: *cx.clock,
            body: Body::Wait,
        };
        cx.actions.push(Action::Send { to, message });
    }
}

//! Leaving: what a side says before its queue pair goes, and what it does about peers that
//! still talk to it.

use super::state::{Deferred, Draining, Mine, Offered, Parted, Parting, State, epoch_of};
use super::{Action, Context, Failure, Handshake, Verdict, jittered};
use crate::UdAddress;
use crate::message::{Body, Epoch, Message};

impl Handshake {
    /// No operation towards the peer is under way, and none will be started; `cx.local.leaving`
    /// is set. Says BYE if there is a connection. Idempotent.
    pub fn leave(&mut self, cx: &mut Context<'_>) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {}
            State::Preparing(mut preparing) => {
                if let Some(d) = preparing.offer.take().filter(|d| d.want_reply) {
                    self.send_bye(cx, d.offer.ud, None, d.epoch, false);
                }
                if preparing.creating {
                    // The queue pair is destroyed as soon as it exists.
                    preparing.want = None;
                    self.state = State::Preparing(preparing);
                }
            }
            // The peer may have linked to this queue pair without our knowledge. It waits for
            // our answer to its BYE then, so the name of the queue pair is kept.
            State::Offered(s) => {
                self.state = State::Offered(Offered { want: None, ..s });
            }
            State::Answered(super::Answered { mine, peer, .. })
            | State::Open(super::Open { mine, peer }) => {
                let said = cx.now;
                self.state = if self.left == Some(peer.epoch.incarnation) {
                    State::Parted(Parted { mine, peer, said })
                } else {
                    State::Parting(Parting {
                        mine,
                        peer,
                        said,
                        resend: said,
                        interval: 0,
                    })
                };
                self.say_bye(cx);
            }
            // The peer waits for this queue pair to go, and for nothing else.
            State::Draining(s) if s.peer_idle => self.finish_drain(cx, s, true),
            State::Draining(Draining { mine, peer, .. }) => {
                let said = cx.now;
                self.state = State::Parting(Parting {
                    mine,
                    peer,
                    said,
                    resend: said,
                    interval: 0,
                });
                self.say_bye(cx);
            }
            other => self.state = other,
        }
        self.push = None;
    }

    /// Operations towards a peer that has left ([`Action::PeerLeft`]), or that waits for a drain
    /// ([`Action::Drain`]), are unfinished: asks it to wait.
    pub fn busy(&mut self, cx: &mut Context<'_>) {
        if let State::Draining(s) = &self.state {
            if s.idle || !s.peer_idle {
                return;
            }
            cx.stats.drains_deferred += 1;
        }
        if let (State::Answered(_) | State::Open(_) | State::Draining(_), Some(peer), Some(to)) =
            (&self.state, self.state.peer(), self.ud)
        {
            self.send_wait(cx, to, peer.epoch);
        }
    }

    pub(super) fn handle_bye(&mut self, cx: &mut Context<'_>, bye: &Message) -> Verdict {
        if let (true, Some(to)) = (bye.want_reply, self.ud) {
            // It may have made room while the peer was leaving.
            self.tell_if_gone(cx, to, bye);
        }
        let Some(mine) = self.state.mine() else {
            return Verdict::Stale;
        };
        let epoch = bye.epoch;
        let without_qp = epoch.generation == 0;
        let outdated = self.floor.is_some_and(|floor| {
            epoch.incarnation < floor.incarnation || (!without_qp && epoch < floor)
        });
        if outdated || bye.echo != Some(epoch_of(cx.local, mine)) {
            return Verdict::Stale;
        }
        let linked = self.state.peer().map(|peer| peer.epoch);
        if without_qp
            && matches!(self.state, State::Open(_))
            && linked.is_some_and(|l| l.incarnation == epoch.incarnation)
        {
            // It had one when the connection opened, and gives none up while we keep ours.
            return Verdict::Stale;
        }
        let before = self.left;
        self.heard_of(cx, epoch);
        self.left = Some(epoch.incarnation);
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Parting(Parting {
                mine, peer, said, ..
            }) => {
                self.state = State::Parted(Parted { mine, peer, said });
                self.reply(cx, bye.want_reply);
                return Verdict::Accepted;
            }
            state @ State::Parted(_) => {
                self.state = state;
                self.reply(cx, bye.want_reply);
            }
            State::Draining(mut s) if linked == Some(epoch) && !s.idle => {
                Self::fail_if(cx, s.want.take().is_some());
                s.peer_idle = true;
                self.state = State::Draining(s);
                let waits = bye.want_reply;
                cx.actions.push(Action::PeerLeft { waits });
            }
            mut state @ (State::Answered(_) | State::Open(_)) if linked == Some(epoch) => {
                if let State::Answered(s) = &mut state {
                    let wanted = s.want.take().is_some();
                    Self::fail_if(cx, wanted);
                }
                self.state = state;
                let waits = bye.want_reply;
                cx.actions.push(Action::PeerLeft { waits });
            }
            state => {
                // We have sent nothing that its queue pair could wait for.
                if let Some(to) = self.ud.filter(|_| bye.want_reply) {
                    self.send_bye(cx, to, Some(mine), epoch, false);
                }
                cx.actions.push(Action::DestroyQp(mine.qpn));
                if let State::Draining(s) = &state {
                    cx.stats.drain_time.record(cx.now.saturating_sub(s.began));
                }
                Self::fail_if(cx, state.want().is_some());
                cx.actions.push(Action::PeerLeft { waits: false });
            }
        }
        if before == self.left {
            Verdict::Duplicate
        } else {
            Verdict::Accepted
        }
    }

    /// An OFFER while we leave. No new connection comes of it, and who asks for one is told.
    pub(super) fn refuse(&mut self, cx: &mut Context<'_>, d: &Deferred) {
        let (mine, linked) = (self.state.mine(), self.state.peer().map(|p| p.epoch));
        let asked = d.want_reply;
        match (mine, linked) {
            (None, _) if asked => self.send_bye(cx, d.offer.ud, None, d.epoch, false),
            (Some(mine), None) if asked || d.echo == Some(epoch_of(cx.local, mine)) => {
                self.send_bye(cx, d.offer.ud, Some(mine), d.epoch, false);
            }
            (Some(mine), Some(linked)) if d.epoch > linked => {
                self.state = State::Idle;
                cx.actions.push(Action::DestroyQp(mine.qpn));
                cx.stats.replaced += 1;
                if asked {
                    self.send_bye(cx, d.offer.ud, None, d.epoch, false);
                }
            }
            (Some(_), Some(_)) if asked => match self.state {
                State::Parting(_) | State::Parted(_) => self.reply(cx, true),
                _ => self.answer(cx),
            },
            _ => {}
        }
    }

    /// Says BYE again if it is asked for and the last one can have been lost.
    fn reply(&mut self, cx: &mut Context<'_>, asked: bool) {
        let (State::Parting(Parting { said, .. }) | State::Parted(Parted { said, .. })) =
            &self.state
        else {
            return;
        };
        if asked && cx.now.saturating_sub(*said) >= cx.local.retry.bye / 2 {
            self.say_bye(cx);
        }
    }

    /// Sends the BYE of the linked queue pair, and sets the time of the next.
    pub(super) fn say_bye(&mut self, cx: &mut Context<'_>) {
        let (mine, peer, waits) = match &mut self.state {
            State::Parting(s) => {
                let retry = &cx.local.retry;
                s.interval = match s.interval {
                    0 => retry.bye,
                    interval => interval.saturating_mul(2).min(retry.longest_bye()),
                };
                s.said = cx.now;
                s.resend = cx.now + jittered(cx.rng, s.interval);
                (s.mine, s.peer.epoch, true)
            }
            State::Parted(s) => {
                s.said = cx.now;
                (s.mine, s.peer.epoch, false)
            }
            _ => return,
        };
        if let Some(to) = self.ud {
            self.send_bye(cx, to, Some(mine), peer, waits);
        }
    }

    fn send_bye(
        &self,
        cx: &mut Context<'_>,
        to: UdAddress,
        mine: Option<Mine>,
        echo: Epoch,
        want_reply: bool,
    ) {
        cx.stats.byes_sent += 1;
        let epoch = Epoch {
            incarnation: cx.local.incarnation,
            generation: mine.map_or(0, |mine| mine.generation),
        };
        let message = Message {
            src_pe: cx.local.pe,
            dst_pe: self.pe,
            epoch,
            echo: Some(echo),
            want_reply,
            ticket: *cx.clock,
            body: Body::Bye,
        };
        cx.actions.push(Action::Send { to, message });
    }

    fn fail_if(cx: &mut Context<'_>, wanted: bool) {
        if wanted {
            cx.stats.failed += 1;
            cx.actions.push(Action::Failed(Failure::PeerLeft));
        }
    }
}

//! Telling peers over an existing connection that the local memory is another now.
//!
//! Every OFFER carries all segments and their revision. A peer that was told an older revision
//! gets SEGMENTS, again and again until it has acknowledged the present one, by SEGMENTS-ACK or
//! in an OFFER. It does so when no operation of its own is under way that knew only older
//! segments: with the acknowledgement of all peers an old registration may end.

use super::state::{Deferred, Push, State, epoch_of};
use super::{Action, Context, Handshake, Verdict, jittered};
use crate::message::{Body, Message, Segments};

impl Handshake {
    /// `cx.local.segments` has changed.
    pub fn segments_changed(&mut self, cx: &mut Context<'_>) {
        self.push = None;
        self.push_if_needed(cx);
    }

    /// Whether the peer may know only segments older than `revision`, or be about to learn them.
    #[must_use]
    pub fn may_be_behind(&self, revision: u32) -> bool {
        self.state.mine().is_some() && self.offered > 0 && self.acked.max(self.offered) < revision
    }

    /// No operation is under way that began before the segments of `revision` were known, see
    /// [`Action::SegmentsChanged`].
    pub fn segments_applied(&mut self, cx: &mut Context<'_>, revision: u32) {
        let Some(peer) = self.state.peer_mut() else {
            return;
        };
        if revision <= peer.revision && revision > peer.applied {
            peer.applied = revision;
            self.acknowledge(cx);
        }
    }

    pub(super) fn handle_segments(&mut self, cx: &mut Context<'_>, m: Message) -> Verdict {
        let mine = self.state.mine().map(|mine| epoch_of(cx.local, mine));
        let linked = self.state.peer().map(|peer| peer.epoch) == Some(m.epoch);
        if !linked || mine.is_none() || mine != m.echo {
            return Verdict::Stale;
        }
        match m.body {
            Body::Segments { revision, segments } => {
                cx.stats.segments_received += 1;
                if self.know(cx, revision, &segments) {
                    return Verdict::Accepted;
                }
                let applied = self.state.peer().is_some_and(|p| p.applied == p.revision);
                if applied {
                    self.acknowledge(cx);
                }
                Verdict::Duplicate
            }
            Body::SegmentsAck { revision } => {
                let news = revision > self.acked;
                self.heard_revision(cx, revision);
                if news {
                    Verdict::Accepted
                } else {
                    Verdict::Duplicate
                }
            }
            _ => Verdict::Stale,
        }
    }

    /// What another OFFER of the linked queue pair says about segments, ours and the peer's.
    pub(super) fn learn(&mut self, cx: &mut Context<'_>, d: &Deferred) {
        let mine = self.state.mine().map(|mine| epoch_of(cx.local, mine));
        if mine.is_some() && d.echo == mine {
            self.heard_revision(cx, d.offer.heard);
        }
        self.know(cx, d.offer.revision, &d.offer.segments);
    }

    fn heard_revision(&mut self, cx: &mut Context<'_>, revision: u32) {
        self.acked = self.acked.max(revision);
        if self.acked >= cx.local.revision {
            self.push = None;
        }
    }

    /// Remembers the peer's segments if they are news.
    fn know(&mut self, cx: &mut Context<'_>, revision: u32, segments: &Segments) -> bool {
        let posted = matches!(self.state, State::Open(_) | State::Draining(_));
        let Some(peer) = self
            .state
            .peer_mut()
            .filter(|peer| revision > peer.revision)
        else {
            return false;
        };
        peer.revision = revision;
        peer.segments = segments.clone();
        if posted {
            let segments = segments.clone();
            cx.actions
                .push(Action::SegmentsChanged { segments, revision });
        } else {
            peer.applied = revision;
            self.acknowledge(cx);
        }
        true
    }

    /// Begins to tell the peer the present segments if it may not know them.
    pub(super) fn push_if_needed(&mut self, cx: &mut Context<'_>) {
        if self.push.is_none()
            && matches!(self.state, State::Answered(_) | State::Open(_))
            && self.may_be_behind(cx.local.revision)
        {
            self.push = Some(Push {
                began: cx.now,
                resend: cx.now,
                interval: 0,
            });
            self.push_again(cx);
        }
    }

    /// Time has passed.
    pub(super) fn push_again(&mut self, cx: &mut Context<'_>) {
        let Some(mut push) = self.push.filter(|push| cx.now >= push.resend) else {
            return;
        };
        let told = matches!(self.state, State::Answered(_) | State::Open(_));
        if !told || cx.now.saturating_sub(push.began) > cx.local.retry.silence {
            self.push = None;
            return;
        }
        let retry = &cx.local.retry;
        push.interval = match push.interval {
            0 => retry.initial,
            interval => interval.saturating_mul(2).min(retry.max),
        };
        push.resend = cx.now + jittered(cx.rng, push.interval);
        self.push = Some(push);
        if let Some(segments) = cx.local.segments.clone() {
            cx.stats.segments_sent += 1;
            let revision = cx.local.revision;
            self.send_linked(cx, true, Body::Segments { revision, segments });
        }
    }

    fn acknowledge(&self, cx: &mut Context<'_>) {
        if let Some(peer) = self.state.peer() {
            let revision = peer.applied;
            self.send_linked(cx, false, Body::SegmentsAck { revision });
        }
    }

    /// Sends a message that concerns the linked queue pairs.
    fn send_linked(&self, cx: &mut Context<'_>, want_reply: bool, body: Body) {
        let (Some(mine), Some(peer), Some(to)) = (self.state.mine(), self.state.peer(), self.ud)
        else {
            return;
        };
        let message = Message {
            src_pe: cx.local.pe,
            dst_pe: self.pe,
            epoch: epoch_of(cx.local, mine),
            echo: Some(peer.epoch),
            want_reply,
            ticket: *cx.clock,
            body,
        };
        cx.actions.push(Action::Send { to, message });
    }
}

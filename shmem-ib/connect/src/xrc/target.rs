//! The target: a queue pair per initiator that chose this PE, and answers to ASKs.

use std::mem;

use super::Nodes;
use super::state::{Served, Target};
use crate::UdAddress;
use crate::interface::{Action, EventContext, Link, Outgoing, Verdict};
use crate::message::{Body, Generation, Offer};
use shmem_verbs::Qpn;

impl Served {
    /// The largest generation of the initiator that was heard in an OFFER or DRAIN.
    fn floor(&self) -> Generation {
        match self {
            Self::None => Generation::NONE,
            Self::Pending(generation, _) | Self::Closed(generation) => *generation,
            Self::Creating { asked, newest } => {
                let newest = newest.as_ref().map(|(generation, _)| *generation);
                newest.map_or(*asked, |newest| newest.max(*asked))
            }
            Self::Serving(target) => target.generation,
        }
    }
}

impl Nodes {
    /// An OFFER that asks for a target QP.
    pub(super) fn handle_request(
        &mut self,
        cx: &mut EventContext<'_>,
        pe: u32,
        from: Generation,
        offer: Offer,
    ) -> Verdict {
        self.found_at(pe, offer.ud);
        let served = mem::take(&mut self.peer(pe).served);
        let floor = served.floor();
        if from <= floor {
            match &served {
                _ if from < floor => {}
                Served::Serving(_) if cx.local.leaving => self.send_bye(cx, pe, from, true),
                Served::Serving(target) => self.send_answer(cx, pe, *target),
                Served::Pending(..) => self.send_wait(cx, pe, Some(from)),
                _ => {}
            }
            self.peer(pe).served = served;
            return if from < floor {
                Verdict::Stale
            } else {
                Verdict::Duplicate
            };
        }
        self.peer(pe).served = match served {
            served if cx.local.leaving => {
                self.send_bye(cx, pe, from, false);
                served
            }
            Served::Creating { asked, .. } => Served::Creating {
                asked,
                newest: Some((from, offer)),
            },
            served => {
                if let Served::Serving(target) = served {
                    cx.act(pe, Action::DestroyTarget(target.qpn));
                }
                Served::Pending(from, offer)
            }
        };
        if matches!(self.peer(pe).served, Served::Pending(..)) && cx.local.memory.is_none() {
            self.send_wait(cx, pe, Some(from));
        } else {
            self.serve_pending(cx, pe);
        }
        Verdict::Accepted
    }

    /// Makes the queue pair for an OFFER that may be answered now.
    pub(super) fn serve_pending(&mut self, cx: &mut EventContext<'_>, pe: u32) {
        let peer = self.peer(pe);
        match mem::take(&mut peer.served) {
            Served::Pending(asked, offer) => {
                cx.act(pe, Action::CreateTarget(Link::new(cx.local, &offer)));
                let newest = Some((asked, offer));
                peer.served = Served::Creating { asked, newest };
            }
            other => peer.served = other,
        }
    }

    /// The queue pair asked for by [`Action::CreateTarget`] exists and is in RTR.
    pub fn target_created(&mut self, cx: &mut EventContext<'_>, pe: u32, qpn: Qpn) {
        let psn = cx.random_psn();
        let Served::Creating { asked, newest } = mem::take(&mut self.peer(pe).served) else {
            debug_assert!(false, "a queue pair was created that nobody asked for");
            return;
        };
        cx.stats.xrc.targets += 1;
        self.peer(pe).served = match newest {
            Some((newest, _)) if newest == asked && !cx.local.leaving => {
                let target = Target {
                    generation: asked,
                    qpn,
                    psn,
                    bye: None,
                };
                cx.stats.accepted += 1;
                self.send_answer(cx, pe, target);
                Served::Serving(target)
            }
            newest => {
                cx.act(pe, Action::DestroyTarget(qpn));
                match newest {
                    Some((newest, _)) if cx.local.leaving => {
                        self.send_bye(cx, pe, newest, false);
                        Served::Closed(newest)
                    }
                    Some((newest, offer)) => Served::Pending(newest, offer),
                    None => Served::Closed(asked),
                }
            }
        };
        self.serve_pending(cx, pe);
    }

    /// The queue pair asked for by [`Action::CreateTarget`] cannot be made. The next OFFER of the
    /// initiator is another try.
    pub fn target_failed(&mut self, pe: u32) {
        let peer = self.peer(pe);
        if let Served::Creating { asked, newest } = &peer.served {
            peer.served = Served::Closed(match newest {
                // Not this generation, so that it may ask again.
                Some((generation, _)) => Generation(generation.0.saturating_sub(1)),
                None => *asked,
            });
        }
    }

    pub(super) fn handle_ask(
        &mut self,
        cx: &mut EventContext<'_>,
        pe: u32,
        question: Generation,
        ud: UdAddress,
    ) -> Verdict {
        self.found_at(pe, ud);
        if cx.local.leaving {
            self.send_bye(cx, pe, question, false);
        } else if cx.local.memory.is_some() {
            self.inform(cx, pe, question);
        } else {
            self.peer(pe).owes = Some(question);
            self.send_wait(cx, pe, Some(question));
        }
        Verdict::Accepted
    }

    /// Answers an ASK.
    pub(super) fn inform(&self, cx: &mut EventContext<'_>, pe: u32, question: Generation) {
        if let Some(memory) = cx.local.memory.clone() {
            cx.stats.segments_sent += 1;
            let message = Outgoing {
                generation: question,
                echo: Some(question),
                want_reply: false,
                body: Body::Segments(memory),
            };
            self.send(cx, pe, message);
        }
    }

    /// The initiator QP `from` of `pe`, and all before, are gone.
    pub(super) fn initiator_gone(
        &mut self,
        cx: &mut EventContext<'_>,
        pe: u32,
        from: Generation,
        ud: UdAddress,
        asks: bool,
    ) -> Verdict {
        self.found_at(pe, ud);
        if asks {
            self.send_drain(cx, pe, from, Some(from), false);
        }
        let served = mem::take(&mut self.peer(pe).served);
        let over = served == Served::Closed(from);
        let (next, verdict) = match served {
            served if served.floor() > from => (served, Verdict::Stale),
            Served::Creating { .. } => {
                let (asked, newest) = (from, None);
                (Served::Creating { asked, newest }, Verdict::Accepted)
            }
            Served::Serving(target) => {
                cx.act(pe, Action::DestroyTarget(target.qpn));
                (Served::Closed(from), Verdict::Accepted)
            }
            _ if over => (Served::Closed(from), Verdict::Duplicate),
            _ => (Served::Closed(from), Verdict::Accepted),
        };
        self.peer(pe).served = next;
        verdict
    }

    fn send_answer(&self, cx: &mut EventContext<'_>, pe: u32, target: Target) {
        let Some(memory) = cx.local.memory.clone() else {
            return;
        };
        cx.stats.offers_sent += 1;
        let message = Outgoing {
            generation: target.generation,
            echo: Some(target.generation),
            want_reply: false,
            body: Body::Offer(Offer {
                ud: cx.local.ud,
                qpn: target.qpn,
                psn: target.psn,
                mtu: cx.local.mtu,
                max_rd_atomic: cx.local.max_rd_atomic,
                heard: 0,
                memory,
            }),
        };
        self.send(cx, pe, message);
    }
}

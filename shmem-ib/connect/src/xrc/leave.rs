//! Parting: BYEs of initiators, and how a PE leaves the job.

use std::collections::BTreeSet;

use super::message::Xrc;
use super::state::{Farewell, NodeState, Repeated, Served};
use super::{Machine, UdAddress, Verdict};
use crate::message::{Body, Epoch};

/// This PE is on its way out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leaving {
    /// Nodes whose direct peers have to be told yet, the last first.
    untold: Vec<u32>,
    /// Peers that owe us a BYE, or the acknowledgement of ours.
    missing: BTreeSet<u32>,
    /// Last sign of life of one of them.
    heard: u64,
    linger: u64,
    /// The linger time is over.
    over: bool,
}

impl Leaving {
    pub(super) fn note(&mut self, now: u64, pe: u32, missing: bool) {
        if missing {
            self.missing.insert(pe);
        } else if self.missing.remove(&pe) {
            self.heard = self.heard.max(now);
        }
    }
}

impl Machine {
    /// Nothing of this PE is under way, and nothing will be started. Follow it by
    /// [`say_bye`](Self::say_bye) until that is done. Those that do not answer are waited for
    /// until nobody has given a sign of life for `linger` nanoseconds. Idempotent.
    pub fn leave(&mut self, now: u64, linger: u64) {
        if self.leaving.is_some() {
            return;
        }
        self.leaving = Some(Leaving {
            untold: self.nodes.keys().rev().copied().collect(),
            missing: BTreeSet::new(),
            heard: now,
            linger,
            over: false,
        });
        for pe in self.peers.keys().copied().collect::<Vec<u32>>() {
            let peer = self.peer(pe);
            (peer.wish, peer.ask) = (None, None);
            let (served, owes) = (peer.served, peer.owes.take());
            if let Some(question) = owes {
                self.send_leave(pe, question, false);
            }
            match served {
                Served::Pending((epoch, _)) => {
                    self.peer(pe).served = Served::Closed(epoch);
                    self.send_leave(pe, epoch, false);
                }
                Served::Serving(mut serving) => {
                    // After the last barrier its BYE comes by itself.
                    let silent = Repeated::new(now, &self.local.retry, &mut self.rng);
                    serving.solicit = Some(silent);
                    self.peer(pe).served = Served::Serving(serving);
                }
                // Refused when the queue pair comes.
                Served::None | Served::Creating { .. } | Served::Closed(_) => {}
            }
        }
        for node in self.nodes.values_mut() {
            node.waiting.clear();
        }
        self.settle(now);
    }

    /// Ends the connections to up to `max` nodes; returns whether there are more. In portions,
    /// since the send queue for datagrams is short.
    pub fn say_bye(&mut self, now: u64, max: usize) -> bool {
        for _ in 0..max {
            let Some(node) = self.leaving.as_mut().and_then(|l| l.untold.pop()) else {
                break;
            };
            let state = self.nodes.get(&node).map(|n| n.state).unwrap_or_default();
            // A queue pair that is being made is destroyed when it comes.
            if !matches!(state, NodeState::Idle | NodeState::Preparing { .. }) {
                self.end_connection(now, node, true);
            }
        }
        self.settle(now);
        self.leaving.as_ref().is_some_and(|l| !l.untold.is_empty())
    }

    /// Packets for our TGT QPs have arrived, so somebody still needs this PE.
    pub fn traffic_seen(&mut self, now: u64) {
        if let Some(leaving) = &mut self.leaving {
            leaving.heard = leaving.heard.max(now);
        }
    }

    /// Whether this PE has left: nobody whom it could know of needs it any more.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.leaving
            .as_ref()
            .is_some_and(|l| l.untold.is_empty() && (l.missing.is_empty() || l.over))
    }

    /// When the linger time ends, if it matters.
    pub(super) fn linger_end(&self) -> Option<u64> {
        let leaving = self.leaving.as_ref()?;
        let waits = !leaving.missing.is_empty() && !leaving.over;
        waits.then(|| leaving.heard.saturating_add(leaving.linger))
    }

    pub(super) fn end_linger(&mut self, now: u64) {
        if self.linger_end().is_some_and(|end| end <= now)
            && let Some(leaving) = &mut self.leaving
        {
            leaving.over = true;
            self.stats.byes_missed += leaving.missing.len() as u64;
        }
    }

    /// Whether `pe` still owes something to a PE that leaves.
    pub(super) fn is_missing(&self, pe: u32) -> bool {
        self.peers
            .get(&pe)
            .is_some_and(|p| p.farewell.is_some() || matches!(p.served, Served::Serving(_)))
    }

    /// Tells `pe`, until it says GONE, that the INI QP of this generation is gone.
    pub(super) fn say_farewell(&mut self, now: u64, pe: u32, generation: u32) {
        let repeated = Repeated::new(now, &self.local.retry, &mut self.rng);
        self.peer(pe).farewell = Some(Farewell {
            generation,
            repeated,
        });
        self.send_bye(pe, generation, true);
    }

    pub(super) fn send_bye(&mut self, pe: u32, generation: u32, asked: bool) {
        self.stats.byes_sent += 1;
        let (epoch, ud) = (self.epoch(generation), self.local.ud);
        self.send(pe, epoch, None, asked, Body::Xrc(Xrc::Bye { ud }));
    }

    /// `pe` leaves and believes that we have an INI QP linked to it, which is not so (any more).
    pub(super) fn send_missing_bye(&mut self, now: u64, pe: u32, echo: Epoch, asked: bool) {
        if !asked {
            return;
        }
        let (retry, me) = (self.local.retry, self.local.incarnation);
        match &mut self.peer(pe).farewell {
            // Unless the two messages have crossed.
            Some(farewell) if now.saturating_sub(farewell.repeated.said) < retry.bye / 2 => {}
            Some(farewell) => {
                farewell.repeated.said = now;
                let generation = farewell.generation;
                self.send_bye(pe, generation, true);
            }
            None if echo.incarnation == me => {
                self.send_bye(pe, echo.generation, false);
            }
            // It was our predecessor's: that we exist says all.
            None => self.send_bye(pe, 0, false),
        }
    }

    pub(super) fn farewell_timeout(&mut self, now: u64, pe: u32) {
        let (retry, leaving) = (self.local.retry, self.leaving.is_some());
        let Some(mut farewell) = self.peer(pe).farewell else {
            return;
        };
        if farewell.repeated.resend > now {
            return;
        }
        if !leaving && now.saturating_sub(farewell.repeated.since) >= retry.silence {
            self.peer(pe).farewell = None;
            self.stats.byes_missed += 1;
            return;
        }
        farewell.repeated.again(now, &retry, &mut self.rng);
        self.stats.byes_repeated += 1;
        self.peer(pe).farewell = Some(farewell);
        self.send_bye(pe, farewell.generation, true);
    }

    pub(super) fn handle_gone(&mut self, pe: u32, echo: Epoch) -> Verdict {
        let me = self.local.incarnation;
        let peer = self.peer(pe);
        match peer.farewell {
            Some(f) if echo.incarnation == me && echo.generation >= f.generation => {
                peer.farewell = None;
                Verdict::Accepted
            }
            _ => Verdict::Duplicate,
        }
    }

    /// `asked` false: refuses the OPEN or ASK `echo`. Else asks for the BYE of the INI QP `echo`.
    pub(super) fn send_leave(&mut self, pe: u32, echo: Epoch, asked: bool) {
        let ud = self.local.ud;
        self.answer(pe, Some(echo), asked, Body::Xrc(Xrc::Leave { ud }));
    }

    /// We leave, and the initiator `pe` has not said BYE: asks for it.
    pub(super) fn solicit_timeout(&mut self, now: u64, pe: u32) {
        let retry = self.local.retry;
        let Served::Serving(mut serving) = self.peer(pe).served else {
            return;
        };
        let Some(solicit) = &mut serving.solicit else {
            return;
        };
        if solicit.resend > now {
            return;
        }
        solicit.again(now, &retry, &mut self.rng);
        self.peer(pe).served = Served::Serving(serving);
        self.send_leave(pe, serving.epoch, true);
    }

    pub(super) fn handle_leave(
        &mut self,
        now: u64,
        pe: u32,
        (incarnation, echo): (u64, Epoch),
        ud: UdAddress,
        asked: bool,
    ) -> Verdict {
        self.moved_to(pe, ud);
        let before = self.peer(pe).left.replace(incarnation);
        self.direct_leaves(now, pe, echo, asked);
        if before == Some(incarnation) {
            Verdict::Duplicate
        } else {
            Verdict::Accepted
        }
    }
}

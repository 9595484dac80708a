//! The initiator: one connection per node, and what is known of its PEs.

use super::interface::{Action, Remote};
use super::message::{Accept, Memory, Open, Xrc};
use super::state::{Asking, Ini, Linked, NodeState, Request};
use super::{Machine, UdAddress, Verdict};
use crate::handshake::Failure;
use crate::message::{Body, Epoch};
use shmem_verbs::Qpn;

impl Machine {
    /// The local program wants to reach `pe`, which is on `node` and whose UD endpoint is at
    /// `ud`. Idempotent.
    ///
    /// A peer that has left fails at once, unless `ud` is another address than it had: that is
    /// its successor's. A PE that leaves itself does nothing.
    pub fn connect(&mut self, now: u64, pe: u32, node: u32, ud: UdAddress) {
        if self.leaving.is_some() {
            return;
        }
        let peer = self.peer(pe);
        if peer.left.is_some() {
            if peer.ud == Some(ud) {
                self.fail(pe, Failure::PeerLeft);
                return;
            }
            peer.left = None;
            peer.memory = None;
            peer.ud = Some(ud);
        }
        if peer.floor.is_none() || peer.ud.is_none() {
            // Once the peer has given its address, its own word counts.
            peer.ud = Some(ud);
        }
        peer.node = Some(node);
        if !self.is_reachable(pe) && !self.is_wanted(pe) {
            self.peer(pe).wish = Some(now);
            self.stats.started += 1;
            self.nodes.entry(node).or_default().waiting.insert(pe);
            self.pursue(now, node);
            self.fulfil(now, pe);
        }
        self.settle(now);
    }

    /// Does what the waiting PEs of `node` need: a connection, and their memories.
    fn pursue(&mut self, now: u64, node: u32) {
        let Some(entry) = self.nodes.get_mut(&node) else {
            return;
        };
        let waiting: Vec<u32> = entry.waiting.iter().copied().collect();
        if matches!(entry.state, NodeState::Idle) {
            // Rather one that has not kept us waiting, rather one that has answered already, else
            // the one that was wanted first.
            let peers = &self.peers;
            let rank = |pe: &u32| {
                let peer = peers.get(pe);
                let known = peer.is_some_and(|p| p.memory.is_some());
                (
                    peer.map(|p| p.snubs),
                    !known,
                    peer.and_then(|p| p.wish),
                    *pe,
                )
            };
            let Some(direct) = waiting.iter().copied().min_by_key(rank) else {
                return;
            };
            entry.state = NodeState::Preparing { direct };
            self.actions.push_back(Action::CreateIni { node });
        }
        let direct = entry.state.direct();
        let opening = matches!(
            entry.state,
            NodeState::Preparing { .. } | NodeState::Asking(_)
        );
        for pe in waiting {
            // The direct peer tells with its ACCEPT.
            if opening && direct == Some(pe) {
                continue;
            }
            let peer = self.peer(pe);
            if peer.memory.is_none() && peer.ask.is_none() {
                self.begin_ask(now, pe, Request::new(now));
                self.send_ask(now, pe);
            }
        }
    }

    fn begin_ask(&mut self, now: u64, pe: u32, request: Request) {
        let peer = self.peer(pe);
        peer.asks = peer.asks.wrapping_add(1).max(1);
        peer.asked_at = now;
        peer.ask = Some(request);
    }

    /// What is known of a reachable peer's memory lacks something: asks again, but not more often
    /// than a request is repeated at most.
    pub fn refresh(&mut self, now: u64, pe: u32) {
        let Some(peer) = self.peers.get(&pe) else {
            return;
        };
        let due = now.saturating_sub(peer.asked_at) >= self.local.retry.max;
        if peer.memory.is_some() && peer.ask.is_none() && self.leaving.is_none() && due {
            self.begin_ask(now, pe, Request::new(now));
            self.send_ask(now, pe);
        }
        self.settle(now);
    }

    /// The queue pair asked for by [`Action::CreateIni`] exists and is in INIT.
    pub fn ini_created(&mut self, now: u64, node: u32, qpn: Qpn) {
        let Some(entry) = self.nodes.get_mut(&node) else {
            return;
        };
        let NodeState::Preparing { direct } = entry.state else {
            debug_assert!(false, "a queue pair was created that nobody asked for");
            return;
        };
        self.generation += 1;
        self.stats.xrc.initiators += 1;
        let mine = Ini {
            generation: self.generation,
            qpn,
            psn: self.random_psn(),
        };
        let wanted = self.leaving.is_none() && self.is_wanted(direct);
        let peer = self.peer(direct);
        let heard = peer.ask.take().map_or(now, |ask| ask.heard);
        let state = if wanted {
            NodeState::Asking(Asking {
                direct,
                mine,
                request: Request::new(heard),
            })
        } else {
            NodeState::Idle
        };
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.state = state;
        }
        if wanted {
            self.send_open(now, node);
        } else {
            self.actions.push_back(Action::DestroyIni { node, qpn });
            self.pursue(now, node);
        }
        self.settle(now);
    }

    /// The queue pair asked for by [`Action::CreateIni`] cannot be created: nobody on the node
    /// can be reached.
    pub fn ini_failed(&mut self, now: u64, node: u32, why: &str) {
        let Some(entry) = self.nodes.get_mut(&node) else {
            return;
        };
        if matches!(entry.state, NodeState::Preparing { .. }) {
            entry.state = NodeState::Idle;
            for pe in std::mem::take(&mut entry.waiting) {
                self.fail(pe, Failure::QueuePair(why.to_owned()));
            }
        }
        self.settle(now);
    }

    /// Nothing is under way any more on the INI QP of `node`, as [`Action::Drain`] asked.
    pub fn drained(&mut self, now: u64, node: u32) {
        let draining = self.nodes.get(&node).map(|n| n.state);
        if let Some(NodeState::Draining(_)) = draining {
            self.end_connection(now, node, true);
            self.pursue(now, node);
        }
        self.settle(now);
    }

    /// Destroys the INI QP of `node`; with `bye` the direct peer is told until it answers.
    pub(super) fn end_connection(&mut self, now: u64, node: u32, bye: bool) {
        let Some(entry) = self.nodes.get_mut(&node) else {
            return;
        };
        let state = std::mem::take(&mut entry.state);
        let Some((mine, direct)) = state.ini() else {
            return;
        };
        let qpn = mine.qpn;
        self.actions.push_back(Action::DestroyIni { node, qpn });
        self.peer(direct);
        if bye {
            self.say_farewell(now, direct, mine.generation);
        }
    }

    pub(super) fn handle_accept(
        &mut self,
        now: u64,
        pe: u32,
        echo: Epoch,
        accept: &Accept,
    ) -> Verdict {
        let node = self.peers.get(&pe).and_then(|p| p.node);
        let entry = node.and_then(|node| Some((node, self.nodes.get_mut(&node)?)));
        let mine_is = |ini: &Ini, direct: u32| {
            direct == pe
                && echo.generation == ini.generation
                && echo.incarnation == self.local.incarnation
        };
        match entry {
            Some((node, entry)) if entry.state.ini().is_some_and(|(i, d)| mine_is(&i, d)) => {
                let NodeState::Asking(Asking { mine, direct, .. }) = entry.state else {
                    return Verdict::Duplicate;
                };
                entry.state = NodeState::Open(Linked {
                    direct,
                    mine,
                    broken: false,
                });
                self.link(now, node, mine, accept);
                Verdict::Accepted
            }
            _ => {
                // It made a target QP for an initiator QP that I have given up.
                if echo.incarnation == self.local.incarnation {
                    let told = self.peers.get(&pe).and_then(|p| p.farewell);
                    if told.is_none_or(|f| f.generation < echo.generation) {
                        self.send_bye(pe, echo.generation, false);
                    }
                }
                Verdict::Stale
            }
        }
    }

    fn link(&mut self, now: u64, node: u32, mine: Ini, accept: &Accept) {
        let Some(entry) = self.nodes.get(&node) else {
            return;
        };
        let waiting: Vec<u32> = entry.waiting.iter().copied().collect();
        let Some(direct) = entry.state.direct() else {
            return;
        };
        let remote = Remote {
            av: self.peer(direct).ud.unwrap_or_default().av(),
            qpn: accept.qpn,
            psn: accept.psn,
            mtu: accept.mtu.min(self.local.mtu),
            rd_atomic: accept.max_rd_atomic.min(self.local.max_rd_atomic),
        };
        self.actions.push_back(Action::Opened {
            node,
            qpn: mine.qpn,
            sq_psn: mine.psn,
            remote,
            direct,
        });
        self.learn(direct, &accept.memory);
        for pe in waiting {
            self.fulfil(now, pe);
        }
    }

    pub(super) fn handle_info(
        &mut self,
        now: u64,
        pe: u32,
        echo: Epoch,
        memory: &Memory,
    ) -> Verdict {
        if echo.incarnation != self.local.incarnation {
            return Verdict::Stale;
        }
        let peer = self.peer(pe);
        if peer.left.is_some() {
            return Verdict::Stale;
        }
        if peer.memory.is_some() && peer.ask.is_none() {
            return Verdict::Duplicate;
        }
        self.learn(pe, memory);
        self.fulfil(now, pe);
        Verdict::Accepted
    }

    fn learn(&mut self, pe: u32, memory: &Memory) {
        let peer = self.peer(pe);
        peer.ask = None;
        let Some(node) = peer.node else { return };
        if peer.memory.as_ref() != Some(memory) {
            peer.snubs = 0;
            peer.memory = Some(memory.clone());
            let memory = memory.clone();
            self.actions.push_back(Action::Known { pe, node, memory });
        }
    }

    /// If `pe` is reachable now, its wish has come true.
    fn fulfil(&mut self, now: u64, pe: u32) {
        if !self.is_reachable(pe) {
            return;
        }
        let peer = self.peer(pe);
        let (Some(started), Some(node)) = (peer.wish.take(), peer.node) else {
            return;
        };
        let mut is_direct = false;
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.waiting.remove(&pe);
            is_direct = entry.state.direct() == Some(pe);
        }
        let stats = &mut self.stats;
        stats.opened += 1;
        stats.last_opened = now;
        if stats.first_opened == 0 {
            stats.first_opened = now;
        }
        stats.first_contact.record(now.saturating_sub(started));
        if is_direct {
            stats.xrc.direct += 1;
        } else {
            stats.xrc.indirect += 1;
        }
    }

    /// The program does not get `pe`, if it waits for it or asks for it right now.
    pub(super) fn fail(&mut self, pe: u32, failure: Failure) {
        let peer = self.peer(pe);
        peer.wish = None;
        peer.ask = None;
        if let Some(node) = peer.node
            && let Some(entry) = self.nodes.get_mut(&node)
        {
            entry.waiting.remove(&pe);
        }
        self.stats.failed += 1;
        self.actions.push_back(Action::Failed { pe, failure });
    }

    pub(super) fn handle_wait(&mut self, now: u64, pe: u32, echo: Option<Epoch>) -> Verdict {
        // Without an echo it answers a LEAVE: just a sign of life.
        let Some(echo) = echo else {
            return Verdict::Accepted;
        };
        let me = self.local.incarnation;
        let node = self.peer(pe).node;
        if let Some(node) = node.and_then(|node| self.nodes.get_mut(&node))
            && let NodeState::Asking(asking) = &mut node.state
            && asking.direct == pe
            && echo.incarnation == me
            && echo.generation == asking.mine.generation
        {
            let retry = &self.local.retry;
            asking.request.be_patient(now, retry, &mut self.rng);
            return Verdict::Accepted;
        }
        if let Some(peer) = self.peers.get_mut(&pe)
            && let Some(ask) = &mut peer.ask
            && echo.incarnation == me
            && echo.generation == peer.asks
        {
            ask.be_patient(now, &self.local.retry, &mut self.rng);
            return Verdict::Accepted;
        }
        Verdict::Stale
    }

    /// `pe` has a new incarnation. If it was the direct peer of `node`, the connection is dead.
    pub(super) fn direct_restarted(&mut self, now: u64, node: u32, pe: u32) {
        let state = self.nodes.get(&node).map(|n| n.state);
        if let Some(NodeState::Open(linked) | NodeState::Draining(linked)) = state
            && linked.direct == pe
        {
            self.stats.replaced += 1;
            self.end_connection(now, node, false);
        }
        self.pursue(now, node);
    }

    /// `pe` has left or leaves: it fulfils no wish, and no connection with it lasts.
    pub(super) fn direct_leaves(&mut self, now: u64, pe: u32, echo: Epoch, asked: bool) {
        let peer = self.peer(pe);
        let (wished, node) = (peer.wish.is_some(), peer.node);
        if wished {
            self.fail(pe, Failure::PeerLeft);
        }
        self.peer(pe).memory = None;
        self.actions.push_back(Action::PeerLeft { pe });
        let Some(node) = node else {
            self.send_missing_bye(now, pe, echo, asked);
            return;
        };
        let state = self.nodes.get(&node).map(|n| n.state).unwrap_or_default();
        match state {
            NodeState::Asking(asking) if asking.direct == pe => {
                // If it asks for a BYE it may have made the target QP.
                self.end_connection(now, node, asked);
                self.pursue(now, node);
            }
            NodeState::Open(linked) if linked.direct == pe => {
                // Otherwise the connection ends presently anyway.
                if self.leaving.is_none() {
                    self.stats.xrc.moved += 1;
                    if let Some(entry) = self.nodes.get_mut(&node) {
                        entry.state = NodeState::Draining(linked);
                    }
                    self.actions.push_back(Action::Drain { node });
                }
                self.patience(pe, asked);
            }
            NodeState::Draining(linked) if linked.direct == pe => self.patience(pe, asked),
            _ => self.send_missing_bye(now, pe, echo, asked),
        }
    }

    /// A leaving peer that asks for our BYE has to wait until nothing is under way.
    fn patience(&mut self, pe: u32, asked: bool) {
        if asked {
            self.send_wait(pe, None);
        }
    }

    fn send_open(&mut self, now: u64, node: u32) {
        let Some(entry) = self.nodes.get_mut(&node) else {
            return;
        };
        let NodeState::Asking(asking) = &mut entry.state else {
            return;
        };
        asking
            .request
            .mark_sent(now, &self.local.retry, &mut self.rng);
        let Asking { direct, mine, .. } = *asking;
        self.stats.xrc.opens_sent += 1;
        let open = Open {
            ud: self.local.ud,
            qpn: mine.qpn,
            psn: mine.psn,
            mtu: self.local.mtu,
            max_rd_atomic: self.local.max_rd_atomic,
        };
        let epoch = self.epoch(mine.generation);
        self.peer(direct);
        self.send(direct, epoch, None, true, Body::Xrc(Xrc::Open(open)));
    }

    fn send_ask(&mut self, now: u64, pe: u32) {
        let Some(peer) = self.peers.get_mut(&pe) else {
            return;
        };
        let Some(ask) = &mut peer.ask else { return };
        ask.mark_sent(now, &self.local.retry, &mut self.rng);
        let epoch = Epoch {
            incarnation: self.local.incarnation,
            generation: peer.asks,
        };
        self.stats.xrc.asks_sent += 1;
        let ud = self.local.ud;
        self.send(pe, epoch, None, true, Body::Xrc(Xrc::Ask { ud }));
    }

    /// Sends the OPEN to `pe` again, or gives up.
    pub(super) fn open_timeout(&mut self, now: u64, pe: u32) {
        let Some(node) = self.peer(pe).node else {
            return;
        };
        let Some(NodeState::Asking(asking)) = self.nodes.get(&node).map(|n| n.state) else {
            return;
        };
        if asking.direct != pe || asking.request.due(&self.local.retry) > now {
            return;
        }
        let silent = now.saturating_sub(asking.request.heard);
        if silent >= self.local.retry.silence {
            self.fail(
                pe,
                Failure::Silence {
                    nanos: silent,
                    sent: asking.request.sent,
                },
            );
            // Once: if it lives after all, its ACCEPT is answered with another.
            self.end_connection(now, node, false);
            self.send_bye(pe, asking.mine.generation, false);
            self.pursue(now, node);
        } else if silent >= 4 * self.local.retry.max && self.has_better(node, pe) {
            // It may be dead; the node need not be. It stays wanted for itself.
            let peer = self.peer(pe);
            peer.snubs = peer.snubs.saturating_add(1);
            if peer.memory.is_none() {
                self.begin_ask(now, pe, asking.request);
            }
            self.end_connection(now, node, true);
            self.pursue(now, node);
        } else {
            self.stats.retransmissions += 1;
            self.send_open(now, node);
        }
    }

    /// Whether a PE that the program waits for, has answered, and was not silent as often as
    /// `direct` could take its place. Each place change raises a count, so they come to an end.
    fn has_better(&self, node: u32, direct: u32) -> bool {
        let snubs = |pe: &u32| self.peers.get(pe).map_or(0, |p| p.snubs);
        self.nodes.get(&node).is_some_and(|n| {
            n.waiting.iter().any(|pe| {
                self.memory(*pe).is_some() && *pe != direct && snubs(pe) <= snubs(&direct)
            })
        })
    }

    /// Sends the ASK to `pe` again, or gives up.
    pub(super) fn ask_timeout(&mut self, now: u64, pe: u32) {
        let Some(ask) = self.peer(pe).ask else { return };
        if ask.due(&self.local.retry) > now {
            return;
        }
        let silent = now.saturating_sub(ask.heard);
        if silent >= self.local.retry.silence && !self.is_wanted(pe) {
            self.peer(pe).ask = None;
        } else if silent >= self.local.retry.silence {
            let sent = ask.sent;
            self.fail(
                pe,
                Failure::Silence {
                    nanos: silent,
                    sent,
                },
            );
        } else {
            self.stats.retransmissions += 1;
            self.send_ask(now, pe);
        }
    }
}

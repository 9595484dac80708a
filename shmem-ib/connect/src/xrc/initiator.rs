//! The initiator: one connection per node, and what is known of its PEs.

use std::collections::BTreeSet;
use std::mem;

use super::Nodes;
use super::state::{Initiator, NodeState};
use crate::UdAddress;
use crate::interface::{Action, EventContext, Failure, Link, Outgoing, Verdict};
use crate::message::{Body, Generation, Memory, Offer};
use crate::retry::Repeater;
use shmem_verbs::Qpn;

impl Nodes {
    /// The local program wants to reach `pe`, which is on `node` and whose UD endpoint is at
    /// `ud`. Idempotent.
    ///
    /// A peer that has left fails at once. A PE that leaves itself does nothing.
    pub fn connect(&mut self, cx: &mut EventContext<'_>, pe: u32, node: u32, ud: UdAddress) {
        if cx.local.leaving {
            return;
        }
        let peer = self.peer(pe);
        if peer.left {
            return self.fail(cx, pe, Failure::PeerLeft);
        }
        if !peer.spoke {
            // Once the peer has given its address, its own word counts.
            peer.ud = Some(ud);
        }
        peer.node = Some(node);
        self.nodes.entry(node).or_default().members.insert(pe);
        if !self.is_reachable(pe) && !self.is_wanted(pe) {
            self.peer(pe).want = Some(cx.now);
            cx.stats.started += 1;
            self.pursue(cx, node);
            self.reach(cx, pe);
        }
    }

    /// The PEs of `node` that the program waits for.
    fn waiting(&self, node: u32) -> Vec<u32> {
        let Some(node) = self.nodes.get(&node) else {
            return Vec::new();
        };
        let members = node.members.iter().copied();
        members.filter(|pe| self.is_wanted(*pe)).collect()
    }

    /// Does what the waiting PEs of `node` need: a connection, and their memories.
    pub(super) fn pursue(&mut self, cx: &mut EventContext<'_>, node: u32) {
        let waiting = self.waiting(node);
        let peers = &self.peers;
        let Some(entry) = self.nodes.get_mut(&node) else {
            return;
        };
        if matches!(entry.state, NodeState::Idle) {
            // Rather one that has not kept us waiting, rather one that has answered already, else
            // the one that was wanted first.
            let rank = |pe: &u32| {
                let peer = peers.get(pe);
                let known = peer.is_some_and(|p| p.memory.is_some());
                let (snubs, want) = (peer.map(|p| p.snubs), peer.and_then(|p| p.want));
                (snubs, !known, want, *pe)
            };
            let Some(direct) = waiting.iter().copied().min_by_key(rank) else {
                return;
            };
            entry.state = NodeState::Preparing { direct };
            cx.act(direct, Action::CreateQp);
        }
        let direct = match &entry.state {
            // It tells with its answer.
            NodeState::Preparing { direct } => Some(*direct),
            NodeState::Offered(mine, _) => Some(mine.direct),
            _ => None,
        };
        for pe in waiting {
            let peer = self.peer(pe);
            if direct != Some(pe) && peer.memory.is_none() && peer.asks.now.is_none() {
                self.begin_ask(cx, pe, None);
            }
        }
    }

    /// Asks for the memory of `pe`, which has been silent since `heard` if that is given.
    fn begin_ask(&mut self, cx: &mut EventContext<'_>, pe: u32, heard: Option<u64>) {
        let mut repeater = Repeater::start(cx.now, cx.local.retry.request(), cx.rng);
        repeater.heard = heard.unwrap_or(cx.now);
        let asks = &mut self.peer(pe).asks;
        asks.number = asks.number.next();
        asks.began = cx.now;
        asks.now = Some(repeater);
        self.send_ask(cx, pe);
    }

    /// What is known of a reachable peer's memory lacks something: asks again, but not more often
    /// than a request is repeated at most.
    pub fn refresh(&mut self, cx: &mut EventContext<'_>, pe: u32) {
        let Some(peer) = self.peers.get(&pe) else {
            return;
        };
        let due = cx.now.saturating_sub(peer.asks.began) >= cx.local.retry.max;
        let lasts = !peer.left && !cx.local.leaving;
        if peer.memory.is_some() && peer.asks.now.is_none() && lasts && due {
            self.begin_ask(cx, pe, None);
        }
    }

    /// The node for which the direct peer `pe` is to get a queue pair.
    fn preparing(&self, pe: u32) -> Option<u32> {
        let node = self.peers.get(&pe)?.node?;
        let state = &self.nodes.get(&node)?.state;
        let this = matches!(state, NodeState::Preparing { direct } if *direct == pe);
        this.then_some(node)
    }

    fn set_state(&mut self, node: u32, state: NodeState) {
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.state = state;
        }
    }

    /// The queue pair asked for by [`Action::CreateQp`] for the sake of `pe` exists and is in INIT.
    pub fn qp_created(&mut self, cx: &mut EventContext<'_>, pe: u32, qpn: Qpn) {
        let Some(node) = self.preparing(pe) else {
            debug_assert!(false, "a queue pair was created that nobody asked for");
            return;
        };
        self.generation = self.generation.next();
        cx.stats.xrc.initiators += 1;
        let mine = Initiator {
            generation: self.generation,
            qpn,
            psn: cx.random_psn(),
            direct: pe,
            broken: false,
        };
        let ask = self.peer(pe).asks.now.take();
        if cx.local.leaving || !self.is_wanted(pe) {
            self.set_state(node, NodeState::Idle);
            cx.act(pe, Action::DestroyQp(qpn));
            self.pursue(cx, node);
            return;
        }
        let mut request = Repeater::start(cx.now, cx.local.retry.request(), cx.rng);
        request.heard = ask.map_or(cx.now, |ask| ask.heard);
        self.set_state(node, NodeState::Offered(mine, request));
        self.send_request(cx, mine);
    }

    /// The queue pair asked for by [`Action::CreateQp`] cannot be created: nobody on the node
    /// can be reached.
    pub fn qp_failed(&mut self, cx: &mut EventContext<'_>, pe: u32, why: &str) {
        if let Some(node) = self.preparing(pe) {
            self.set_state(node, NodeState::Idle);
            for pe in self.waiting(node) {
                self.fail(cx, pe, Failure::QueuePair(why.to_owned()));
            }
        }
    }

    /// Has the driver drain the queue pair towards `node`.
    pub(super) fn drain(&mut self, cx: &mut EventContext<'_>, node: u32) {
        let Some(entry) = self.nodes.get_mut(&node) else {
            return;
        };
        match mem::take(&mut entry.state) {
            NodeState::Open(mine, users) => {
                cx.stats.xrc.moved += 1;
                for pe in &users {
                    cx.act(*pe, Action::Drain(mine.qpn));
                }
                entry.state = NodeState::Draining(mine, users);
                self.end_if_drained(cx, node);
            }
            other => entry.state = other,
        }
    }

    /// Nothing is under way any more towards `pe` on queue pair `qpn`, as [`Action::Drain`] asked.
    pub fn drained(&mut self, cx: &mut EventContext<'_>, pe: u32, qpn: Qpn) {
        let Some(node) = self.peers.get(&pe).and_then(|p| p.node) else {
            return;
        };
        if let Some(entry) = self.nodes.get_mut(&node)
            && let NodeState::Draining(mine, users) = &mut entry.state
            && mine.qpn == qpn
        {
            users.remove(&pe);
            self.end_if_drained(cx, node);
        }
    }

    fn end_if_drained(&mut self, cx: &mut EventContext<'_>, node: u32) {
        let state = self.nodes.get(&node).map(|entry| &entry.state);
        if matches!(state, Some(NodeState::Draining(_, users)) if users.is_empty()) {
            self.end_connection(cx, node, true);
            self.pursue(cx, node);
        }
    }

    /// Destroys the initiator QP of `node`; with `tell` the direct peer is told until it answers.
    pub(super) fn end_connection(&mut self, cx: &mut EventContext<'_>, node: u32, tell: bool) {
        let Some(entry) = self.nodes.get_mut(&node) else {
            return;
        };
        if let Some(mine) = mem::take(&mut entry.state).mine() {
            cx.act(mine.direct, Action::DestroyQp(mine.qpn));
            self.touched.push(mine.direct);
            if tell {
                self.say_gone(cx, mine.direct, mine.generation);
            }
        }
    }

    /// An OFFER that tells of the target for our initiator QP `echo`.
    pub(super) fn handle_answer(
        &mut self,
        cx: &mut EventContext<'_>,
        pe: u32,
        echo: Generation,
        offer: &Offer,
    ) -> Verdict {
        self.found_at(pe, offer.ud);
        let node = self.peer(pe).node;
        let entry = node.and_then(|node| self.nodes.get_mut(&node));
        let named = |mine: &Initiator| mine.direct == pe && mine.generation == echo;
        match entry {
            Some(entry) if entry.state.mine().is_some_and(|mine| named(&mine)) => {
                let NodeState::Offered(mine, _) = entry.state else {
                    return Verdict::Duplicate;
                };
                entry.state = NodeState::Open(mine, BTreeSet::new());
                let members: Vec<u32> = entry.members.iter().copied().collect();
                let link = Action::LinkQp {
                    qpn: mine.qpn,
                    sq_psn: mine.psn,
                    link: Link::new(cx.local, offer),
                };
                cx.act(pe, link);
                self.learn(cx, pe, &offer.memory);
                for pe in members {
                    self.reach(cx, pe);
                }
                Verdict::Accepted
            }
            _ => {
                // It made a target QP for an initiator QP that I have given up.
                let told = self.peer(pe).gone;
                if told.is_none_or(|(generation, _)| generation < echo) {
                    self.send_drain(cx, pe, echo, None, false);
                }
                Verdict::Stale
            }
        }
    }

    /// The answer to the ASK of this number.
    pub(super) fn handle_memory(
        &mut self,
        cx: &mut EventContext<'_>,
        pe: u32,
        echo: Generation,
        memory: &Memory,
    ) -> Verdict {
        let peer = self.peer(pe);
        if peer.left || peer.asks.number != echo {
            return Verdict::Stale;
        }
        let awaited = peer.asks.now.is_some();
        let news = self.learn(cx, pe, memory);
        if !awaited && !news {
            return Verdict::Duplicate;
        }
        cx.stats.segments_received += 1;
        self.reach(cx, pe);
        Verdict::Accepted
    }

    /// Remembers the memory of a peer if it is more than before.
    fn learn(&mut self, cx: &mut EventContext<'_>, pe: u32, memory: &Memory) -> bool {
        let peer = self.peer(pe);
        peer.asks.now = None;
        let known = peer.memory.as_ref().map(|known| known.segments.len());
        if known.is_some_and(|known| memory.segments.len() <= known) {
            return false;
        }
        peer.snubs = 0;
        peer.memory = Some(memory.clone());
        let node = peer.node.and_then(|node| self.nodes.get(&node));
        if let Some(NodeState::Open(_, users)) = node.map(|node| &node.state)
            && users.contains(&pe)
        {
            cx.act(pe, Action::SegmentsAdded);
        }
        true
    }

    /// If `pe` is reachable now: operations to it may begin, and its want has come true.
    fn reach(&mut self, cx: &mut EventContext<'_>, pe: u32) {
        let peer = self.peer(pe);
        let (Some(_), Some(node)) = (&peer.memory, peer.node) else {
            return;
        };
        let Some(entry) = self.nodes.get_mut(&node) else {
            return;
        };
        let NodeState::Open(mine, users) = &mut entry.state else {
            return;
        };
        let direct = mine.direct;
        let added = users.insert(pe);
        let since = self.peer(pe).want.take();
        if added {
            cx.act(pe, Action::Opened { since });
        }
        if let Some(since) = since {
            cx.note_opened(Some(since));
            if direct == pe {
                cx.stats.xrc.direct += 1;
            } else {
                cx.stats.xrc.indirect += 1;
            }
        }
    }

    /// The program does not get `pe`, if it waits for it or asks for it right now.
    pub(super) fn fail(&mut self, cx: &mut EventContext<'_>, pe: u32, failure: Failure) {
        let peer = self.peer(pe);
        (peer.want, peer.asks.now) = (None, None);
        cx.fail(pe, failure);
    }

    pub(super) fn handle_wait(
        &mut self,
        cx: &mut EventContext<'_>,
        pe: u32,
        echo: Option<Generation>,
    ) -> Verdict {
        // Without an echo it answers a BYE: just a sign of life.
        let Some(echo) = echo else {
            return Verdict::Accepted;
        };
        let backoff = cx.local.retry.request();
        let node = self.peer(pe).node;
        if let Some(node) = node.and_then(|node| self.nodes.get_mut(&node))
            && let NodeState::Offered(mine, request) = &mut node.state
            && mine.direct == pe
            && mine.generation == echo
        {
            request.rest(cx.now, backoff, cx.rng);
            return Verdict::Accepted;
        }
        let asks = &mut self.peer(pe).asks;
        if let Some(ask) = &mut asks.now
            && asks.number == echo
        {
            ask.rest(cx.now, backoff, cx.rng);
            return Verdict::Accepted;
        }
        Verdict::Stale
    }

    fn send_request(&mut self, cx: &mut EventContext<'_>, mine: Initiator) {
        cx.stats.offers_sent += 1;
        let message = Outgoing {
            generation: mine.generation,
            echo: None,
            want_reply: true,
            body: Body::Offer(Offer {
                ud: cx.local.ud,
                qpn: mine.qpn,
                psn: mine.psn,
                mtu: cx.local.mtu,
                max_rd_atomic: cx.local.max_rd_atomic,
                heard: 0,
                memory: Memory::default(),
            }),
        };
        self.touched.push(mine.direct);
        self.send(cx, mine.direct, message);
    }

    fn send_ask(&mut self, cx: &mut EventContext<'_>, pe: u32) {
        cx.stats.xrc.asks_sent += 1;
        let message = Outgoing {
            generation: self.peer(pe).asks.number,
            echo: None,
            want_reply: true,
            body: Body::Ask(cx.local.ud),
        };
        self.send(cx, pe, message);
    }

    /// Sends the OFFER to `pe` again, or gives up.
    pub(super) fn request_timeout(&mut self, cx: &mut EventContext<'_>, pe: u32) {
        let Some(node) = self.peer(pe).node else {
            return;
        };
        let better = self.has_better(node, pe);
        let Some(entry) = self.nodes.get_mut(&node) else {
            return;
        };
        let NodeState::Offered(mine, request) = &mut entry.state else {
            return;
        };
        let policy = cx.local.retry;
        if mine.direct != pe || request.deadline(policy.silence) > cx.now {
            return;
        }
        let (mine, heard, sent) = (*mine, request.heard, request.sent);
        if let Some(nanos) = request.given_up(cx.now, policy.silence) {
            self.fail(cx, pe, Failure::Silence { nanos, sent });
            // Once: if it lives after all, its answer is answered with another.
            self.end_connection(cx, node, false);
            self.send_drain(cx, pe, mine.generation, None, false);
            self.pursue(cx, node);
        } else if better && request.given_up(cx.now, 4 * policy.max).is_some() {
            // It may be dead; the node need not be. It stays wanted for itself.
            let peer = self.peer(pe);
            peer.snubs = peer.snubs.saturating_add(1);
            if peer.memory.is_none() {
                self.begin_ask(cx, pe, Some(heard));
            }
            self.end_connection(cx, node, true);
            self.pursue(cx, node);
        } else {
            request.again(cx.now, policy.request(), cx.rng);
            cx.stats.retransmissions += 1;
            self.send_request(cx, mine);
        }
    }

    /// Whether a PE that the program waits for, has answered, and was not silent as often as
    /// `direct` could take its place. Each place change raises a count, so they come to an end.
    fn has_better(&self, node: u32, direct: u32) -> bool {
        let snubs = |pe: u32| self.peers.get(&pe).map_or(0, |p| p.snubs);
        let known = |pe: u32| self.memory(pe).is_some();
        self.waiting(node)
            .into_iter()
            .any(|pe| pe != direct && known(pe) && snubs(pe) <= snubs(direct))
    }

    /// Sends the ASK to `pe` again, or gives up.
    pub(super) fn ask_timeout(&mut self, cx: &mut EventContext<'_>, pe: u32) {
        let wanted = self.is_wanted(pe);
        let policy = cx.local.retry;
        let Some(ask) = &mut self.peer(pe).asks.now else {
            return;
        };
        if ask.deadline(policy.silence) > cx.now {
            return;
        }
        match ask.given_up(cx.now, policy.silence) {
            Some(nanos) if wanted => {
                let sent = ask.sent;
                self.fail(cx, pe, Failure::Silence { nanos, sent });
            }
            Some(_) => self.peer(pe).asks.now = None,
            None => {
                ask.again(cx.now, policy.request(), cx.rng);
                cx.stats.retransmissions += 1;
                self.send_ask(cx, pe);
            }
        }
    }
}

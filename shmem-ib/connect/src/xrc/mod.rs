//! Connections between a PE and a *node* over the extended reliable connection (XRC) transport.
//!
//! With RC, a PE that talks to all c PEs of n nodes has n·c queue pairs. With XRC it has n: a
//! request says in its header for whose shared receive queue (SRQ) it is meant, and the HCA of
//! the target executes it for that process, whichever process of the node owns the queue pair.
//! The design is that of Sridhar, "Scalable and Extensible Launching Architecture for Clusters",
//! chapter 4 (connections to nodes in a hash table, direct and indirect peers), on today's XRC
//! verbs with their separate *initiator* (INI) and *target* (TGT) queue pairs.
//!
//! Pure: `(event, now) -> actions`; no socket, clock, thread or unsafe code.
//!
//! # How a PE connects to a node
//! B1 and B2 are on one node. A uses B1 first, so B1 becomes the *direct* peer of that node;
//! B2 is an *indirect* one.
//! ```text
//!   A (wants to put to B1, then to B2)            B1                        B2
//!   CreateIni                                      |                         |
//!     |------- XRC_OPEN(a) ----------------------->|  CreateTgt(a)           |
//!     |------- XRC_ASK(1) ------------------------------------------------->|
//!     |<------ XRC_ACCEPT(tgt, srq 1, echo a) -----|                         |
//!   LinkIni, Opened, Known(B1)                     |                         |
//!     |======= RDMA for srq 1 ====================>|                         |
//!     |<------ XRC_INFO(srq 2, echo 1) ------------------------------------- |
//!   Known(B2)                                      |                         |
//!     |======= RDMA for srq 2 =======> (the TGT QP of B1) ==================>|
//! ```
//! The queue pairs serve one direction. If B1 uses A, it opens a connection of its own to A's
//! node; so there is no simultaneous open, and the target needs no proof that the initiator is
//! ready: it sends nothing but acknowledgements. The initiator needs one that the target is, for
//! the reasons given in [`handshake`](super::handshake): the ACCEPT that echoes its epoch.
//!
//! # The initiator, per node
//! *direct*: the peer that the connection is made with. Every INI QP of a process has its own
//! generation, so that its epoch (incarnation and generation) names it for good.
//!
//! | state | `connect` | ACCEPT, echo mine | LEAVE of the direct peer | silence of it | its restart |
//! |---|---|---|---|---|---|
//! | Idle | CreateIni → Preparing, the peer is direct | – | – | – | – |
//! | Preparing: waits for the local QP | remember; other than direct: ASK | – | fails; choose another → Preparing, or Idle | – | – |
//! | Asking: sends OPEN again at a timeout | the same | LinkIni → Open | DestroyIni, BYE; choose another | the same | go on: the successor answers |
//! | Open | other than direct and unknown: ASK | ignore | Drain → Draining | – | DestroyIni; choose another |
//! | Draining: the driver posts nothing and waits | remember; ASK | ignore | WAIT if asked | – | as Open |
//!
//! When the driver has drained, the INI QP is destroyed, and the direct peer is told (BYE,
//! until it says GONE). "Choose another": one of those that the program waits for, rather one
//! that has answered; if there is none, Idle until the next `connect`. An ACCEPT that echoes an
//! INI QP which is gone is answered with the BYE of that. So that a dead PE does not make its node
//! unreachable, a direct peer that is silent for a second gives its place to one that has answered.
//!
//! # What is known of a peer
//! Its SRQ number and segments ([`Memory`]), learned from its ACCEPT or INFO, valid for one
//! incarnation. An ASK is repeated until the INFO comes; answering it needs no memory of the
//! asker. ASKs to many peers of a node run at the same time as the OPEN to the direct one.
//! A peer is reachable when its memory is known and a connection to its node is open.
//!
//! # The target, per initiator PE
//!
//! | state | OPEN, newer epoch | OPEN, same epoch | BYE of this epoch or a later one | restart of the initiator |
//! |---|---|---|---|---|
//! | None | CreateTgt → Creating; no memory registered: WAIT → Pending | – | GONE | – |
//! | Pending | the same | WAIT | → Closed, GONE | → Closed |
//! | Creating: waits for the QP | remember | ignore | destroy it when it comes | the same |
//! | Serving | DestroyTgt, then as None | ACCEPT again | DestroyTgt → Closed, GONE | DestroyTgt → Closed |
//! | Closed: this epoch and all before are over | as None | ignore | GONE | – |
//!
//! Older epochs are ignored everywhere. Closed is kept so that a delayed OPEN does not make a
//! target QP that nobody will ever say BYE to.
//!
//! # How a PE leaves
//! Nothing of its own is under way. As initiator it destroys its INI QPs and says BYE to the
//! direct peers. As target it keeps its TGT QPs until their initiators have said BYE: somebody
//! may wait for a repeated acknowledgement. After a barrier over the job those BYEs come by
//! themselves; who has not said it after a repetition interval is asked (LEAVE), and answers
//! with BYE as soon as it has drained, or meanwhile with WAIT. New OPENs and ASKs are refused
//! (LEAVE). All of this is bounded by the linger time, counted from the last sign of life of
//! those that are missing.
//!
//! # Limits
//! An initiator learns of the restart of a peer from its messages. Until then its requests
//! for an *indirect* peer that is gone are refused by the node, and that puts the queue pair
//! into error for all peers of the node: one connection is one fate. An error therefore names
//! the direct peer, too.

#![forbid(unsafe_code)]

mod initiator;
mod interface;
mod leave;
mod manager;
pub mod message;
mod state;
mod target;
mod way;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

pub use interface::{Action, Local, Remote};
pub use manager::Manager;
pub use message::{Memory, Xrc};

use self::leave::Leaving;
use self::state::{Node, NodeState, Peer, Served};
use super::handshake::Verdict;
use super::message::{Body, Epoch, Message};
use super::{ConnectStats, UdAddress};
use shmem_verbs::rng::Rng;
use shmem_verbs::{Psn, Qpn};

/// All XRC connections of one PE.
///
/// Feed it with [`connect`](Self::connect), [`handle_message`](Self::handle_message) and
/// [`handle_timeout`](Self::handle_timeout), and after each take actions until
/// [`poll_action`](Self::poll_action) has none. Any input is allowed at any time.
///
/// Memory is proportional to the peers that were in contact. Maps are ordered, so that the
/// same inputs give the same actions.
#[derive(Clone, Debug)]
pub struct Machine {
    local: Local,
    /// Of the newest INI QP.
    generation: u32,
    nodes: BTreeMap<u32, Node>,
    peers: BTreeMap<u32, Peer>,
    leaving: Option<Leaving>,
    timers: BTreeSet<(u64, u32)>,
    /// Peers whose timer may have changed in the present event.
    touched: Vec<u32>,
    actions: VecDeque<Action>,
    rng: Rng,
    stats: ConnectStats,
}

/// Counters and randomness are no part of the state.
impl Hash for Machine {
    fn hash<S: Hasher>(&self, state: &mut S) {
        (self.local.incarnation, &self.local.memory, self.generation).hash(state);
        (&self.nodes, &self.peers, &self.leaving).hash(state);
    }
}

impl Machine {
    /// A machine without connections; everything random in it follows from `seed`.
    #[must_use]
    pub fn new(local: Local, seed: u64) -> Self {
        Self {
            local,
            generation: 0,
            nodes: BTreeMap::new(),
            peers: BTreeMap::new(),
            leaving: None,
            timers: BTreeSet::new(),
            touched: Vec::new(),
            actions: VecDeque::new(),
            rng: Rng::new(seed),
            stats: ConnectStats::default(),
        }
    }

    /// What this PE brings to every connection.
    #[must_use]
    pub const fn local(&self) -> &Local {
        &self.local
    }

    /// What has happened so far.
    #[must_use]
    pub const fn stats(&self) -> &ConnectStats {
        &self.stats
    }

    /// The INI QP towards `node` and the direct peer, if the connection is open.
    #[must_use]
    pub fn connection(&self, node: u32) -> Option<(Qpn, u32)> {
        match &self.nodes.get(&node)?.state {
            NodeState::Open(open) => Some((open.mine.qpn, open.direct)),
            _ => None,
        }
    }

    /// How `pe` is addressed, if that is known.
    #[must_use]
    pub fn memory(&self, pe: u32) -> Option<&Memory> {
        self.peers.get(&pe)?.memory.as_ref()
    }

    /// Whether operations may be posted to `pe`.
    #[must_use]
    pub fn is_reachable(&self, pe: u32) -> bool {
        let Some(peer) = self.peers.get(&pe) else {
            return false;
        };
        let node = peer.node.and_then(|node| self.connection(node));
        peer.memory.is_some() && node.is_some()
    }

    /// Whether the local program waits until `pe` is reachable.
    #[must_use]
    pub fn is_wanted(&self, pe: u32) -> bool {
        self.peers.get(&pe).is_some_and(|p| p.wish.is_some())
    }

    /// The TGT QP that serves initiator `pe`, and its epoch.
    #[must_use]
    pub fn target(&self, pe: u32) -> Option<(Qpn, Epoch)> {
        match &self.peers.get(&pe)?.served {
            Served::Serving(serving) => Some((serving.qpn, serving.epoch)),
            _ => None,
        }
    }

    /// All queue pairs there are: INI and TGT QPs.
    #[must_use]
    pub fn queue_pairs(&self) -> (Vec<Qpn>, Vec<Qpn>) {
        let initiators = self.nodes.values().filter_map(|n| n.state.ini());
        let targets = self.peers.values().filter_map(|peer| match &peer.served {
            Served::Serving(serving) => Some(serving.qpn),
            _ => None,
        });
        (
            initiators.map(|(ini, _)| ini.qpn).collect(),
            targets.collect(),
        )
    }

    /// Peers that were ever in contact, ascending.
    pub fn peers(&self) -> impl Iterator<Item = u32> + '_ {
        self.peers.keys().copied()
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The memory of this PE is registered: those who wait for it get their answers.
    pub fn ready(&mut self, now: u64, memory: Memory) {
        self.local.memory = Some(memory);
        let waiting: Vec<u32> = self
            .peers
            .iter()
            .filter(|(_, p)| p.owes.is_some() || matches!(p.served, Served::Pending(_)))
            .map(|(pe, _)| *pe)
            .collect();
        for pe in waiting {
            if let Some(question) = self.peer(pe).owes.take() {
                self.inform(pe, question);
            }
            self.serve_pending(pe);
        }
        self.settle(now);
    }

    /// `message.src_pe` has sent `message`; the caller has checked job, source and destination.
    /// Messages that are not for XRC are stale.
    pub fn handle_message(&mut self, now: u64, message: &Message) -> Verdict {
        let (pe, epoch) = (message.src_pe, message.epoch);
        if !matches!(message.body, Body::Xrc(_) | Body::Wait) {
            return Verdict::Stale;
        }
        let floor = self.peers.get(&pe).and_then(|p| p.floor);
        if floor.is_some_and(|floor| epoch.incarnation < floor) {
            return Verdict::Stale;
        }
        let missing = self.is_missing(pe);
        self.heard_of(now, pe, epoch.incarnation);
        let (asked, echo) = (message.want_reply, message.echo);
        let verdict = match (&message.body, echo) {
            (Body::Wait, echo) => self.handle_wait(now, pe, echo),
            (Body::Xrc(Xrc::Open(open)), _) => self.handle_open(pe, epoch, *open),
            (Body::Xrc(Xrc::Ask { ud }), _) => self.handle_ask(pe, epoch, *ud),
            (Body::Xrc(Xrc::Bye { ud }), _) => self.handle_bye(pe, epoch, *ud, asked),
            (Body::Xrc(Xrc::Accept(accept)), Some(echo)) => {
                self.handle_accept(now, pe, echo, accept)
            }
            (Body::Xrc(Xrc::Info(memory)), Some(echo)) => self.handle_info(now, pe, echo, memory),
            (Body::Xrc(Xrc::Leave { ud }), Some(echo)) => {
                self.handle_leave(now, pe, (epoch.incarnation, echo), *ud, asked)
            }
            (Body::Xrc(Xrc::Gone), Some(echo)) => self.handle_gone(pe, echo),
            // The codec does not let these through.
            _ => Verdict::Stale,
        };
        if missing && verdict != Verdict::Stale {
            self.traffic_seen(now);
        }
        self.settle(now);
        verdict
    }

    /// An authentic message of `pe` has come, not of an earlier incarnation than those before.
    fn heard_of(&mut self, now: u64, pe: u32, incarnation: u64) {
        let peer = self.peer(pe);
        let before = peer.floor.replace(incarnation);
        if peer.left.is_some_and(|left| incarnation > left) {
            peer.left = None;
        }
        if before.is_none_or(|before| before == incarnation) {
            return;
        }
        // What its predecessor knew and what we knew of it is void.
        peer.owes = None;
        peer.farewell = None;
        peer.memory = None;
        let node = peer.node;
        self.stats.peer_restarts += 1;
        self.actions
            .push_back(Action::PeerRestarted { pe, incarnation });
        self.initiator_restarted(pe, incarnation);
        if let Some(node) = node {
            self.direct_restarted(now, node, pe);
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let end = self.linger_end();
        match (timer, end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Does what is due at `now`: sends again, gives up.
    pub fn handle_timeout(&mut self, now: u64) {
        self.end_linger(now);
        // Each once: a timer that is set anew for the same instant fires the next time.
        let due: Vec<u32> = self
            .timers
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, pe)| *pe)
            .collect();
        for pe in due {
            self.open_timeout(now, pe);
            self.ask_timeout(now, pe);
            self.farewell_timeout(now, pe);
            self.solicit_timeout(now, pe);
        }
        self.settle(now);
    }

    /// The record of `pe`, which the present event may change.
    fn peer(&mut self, pe: u32) -> &mut Peer {
        self.touched.push(pe);
        self.peers.entry(pe).or_default()
    }

    /// Sets the timers of the peers that the event has touched, and counts who is missing.
    fn settle(&mut self, now: u64) {
        let touched = std::mem::take(&mut self.touched);
        for pe in &touched {
            let next = self.timeout_of(*pe);
            let missing = self.is_missing(*pe);
            let Some(peer) = self.peers.get_mut(pe) else {
                continue;
            };
            if peer.armed != next {
                if let Some(at) = peer.armed {
                    self.timers.remove(&(at, *pe));
                }
                if let Some(at) = next {
                    self.timers.insert((at, *pe));
                }
                peer.armed = next;
            }
            if let Some(leaving) = &mut self.leaving {
                leaving.note(now, *pe, missing);
            }
        }
        // Keeps the allocation.
        self.touched = touched;
        self.touched.clear();
    }

    fn timeout_of(&self, pe: u32) -> Option<u64> {
        let peer = self.peers.get(&pe)?;
        let retry = &self.local.retry;
        let open = peer
            .node
            .and_then(|node| match &self.nodes.get(&node)?.state {
                NodeState::Asking(asking) if asking.direct == pe => Some(asking.request.due(retry)),
                _ => None,
            });
        let ask = peer.ask.map(|ask| ask.due(retry));
        let farewell = peer.farewell.map(|f| f.repeated.resend);
        let solicit = match &peer.served {
            Served::Serving(serving) => serving.solicit.map(|s| s.resend),
            _ => None,
        };
        [open, ask, farewell, solicit].into_iter().flatten().min()
    }

    fn send(&mut self, pe: u32, epoch: Epoch, echo: Option<Epoch>, want_reply: bool, body: Body) {
        let Some(to) = self.peers.get(&pe).and_then(|p| p.ud) else {
            return;
        };
        let message = Message {
            src_pe: self.local.pe,
            dst_pe: pe,
            epoch,
            echo,
            want_reply,
            // Nobody waits in line for queue pairs here.
            ticket: 0,
            body,
        };
        self.actions.push_back(Action::Send { to, message });
    }

    /// An answer: names no queue pair of ours.
    fn answer(&mut self, pe: u32, echo: Option<Epoch>, want_reply: bool, body: Body) {
        let epoch = self.epoch(0);
        self.send(pe, epoch, echo, want_reply, body);
    }

    fn send_wait(&mut self, pe: u32, echo: Option<Epoch>) {
        self.stats.waits_sent += 1;
        self.answer(pe, echo, false, Body::Wait);
    }

    const fn epoch(&self, generation: u32) -> Epoch {
        Epoch {
            incarnation: self.local.incarnation,
            generation,
        }
    }

    fn random_psn(&mut self) -> Psn {
        Psn::new(self.rng.next_u32())
    }

    /// Takes the address that a peer gives of itself: it is better than the directory's.
    fn moved_to(&mut self, pe: u32, ud: UdAddress) {
        self.peer(pe).ud = Some(ud);
    }
}

#[cfg(test)]
mod tests;

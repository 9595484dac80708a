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
//!   CreateQp                                       |                         |
//!     |------- OFFER(a, WANT_REPLY) -------------->|  CreateTarget           |
//!     |------- ASK(1) ----------------------------------------------------->|
//!     |<------ OFFER(target, srq 1, echo a) -------|                         |
//!   LinkQp, Opened(B1)                             |                         |
//!     |======= RDMA for srq 1 ====================>|                         |
//!     |<------ SEGMENTS(srq 2, echo 1) ------------------------------------- |
//!   Opened(B2)                                     |                         |
//!     |======= RDMA for srq 2 =======> (the TGT QP of B1) ==================>|
//! ```
//! The queue pairs serve one direction. If B1 uses A, it opens a connection of its own to A's
//! node; so there is no simultaneous open, and the target needs no proof that the initiator is
//! ready: it sends nothing but acknowledgements. The initiator needs one that the target is, for
//! the reasons given in [`handshake`](super::handshake): the OFFER that echoes its generation.
//!
//! # The initiator, per node
//! *direct*: the peer that the connection is made with. Every initiator QP of a process has its own
//! generation, which names it for good, and its target, too. *answer*: an OFFER with an echo.
//!
//! | state | `connect` | answer, echo mine | BYE of the direct peer | silence of it |
//! |---|---|---|---|---|
//! | Idle | CreateQp → Preparing, the peer is direct | – | – | – |
//! | Preparing: waits for the local QP | remember; other than direct: ASK | – | fails; choose another → Preparing, or Idle | – |
//! | Offered: sends OFFER again at a timeout | the same | LinkQp → Open | DestroyQp, DRAIN; choose another | the same |
//! | Open | other than direct and unknown: ASK | ignore | Drain → Draining | – |
//! | Draining: the driver posts nothing and waits | remember; ASK | ignore | WAIT if asked | – |
//!
//! When the driver has drained all peers of the node, the initiator QP is destroyed, and the direct peer
//! is told (DRAIN with WANT_REPLY, until it says that the target is gone, too). "Choose another": one of
//! those that the program waits for, rather one
//! that has answered; if there is none, Idle until the next `connect`. An answer that echoes an
//! initiator QP which is gone is answered with the DRAIN of that. So that a dead PE does not make its node
//! unreachable, a direct peer that is silent for a second gives its place to one that has answered.
//!
//! # What is known of a peer
//! Its SRQ number and segments ([`Memory`]), learned from its OFFER or SEGMENTS. An ASK is repeated until
//! these come; answering it needs no memory of the asker. ASKs to many peers of a node run at the same
//! time as the OFFER to the direct one.
//! A peer is reachable when its memory is known and a connection to its node is open.
//!
//! # The target, per initiator PE
//!
//! | state | OFFER, newer | OFFER, the same | DRAIN of this generation or a later one |
//! |---|---|---|---|
//! | None | CreateTarget → Creating; no memory registered: WAIT → Pending | – | DRAIN |
//! | Pending | the same | WAIT | → Closed, DRAIN |
//! | Creating: waits for the QP | remember | ignore | destroy it when it comes, DRAIN |
//! | Serving | DestroyQp, then as None | answer again | DestroyQp → Closed, DRAIN |
//! | Closed: this generation and all before are over | as None | ignore | DRAIN |
//!
//! Older generations are ignored everywhere. Closed is kept so that a delayed OFFER does not make a
//! target QP that nobody will ever end.
//!
//! # How a PE leaves
//! Nothing of its own is under way. As initiator it destroys its QPs and says so to the direct peers. As
//! target it keeps its QPs until their initiators have said that they are gone: somebody
//! may wait for a repeated acknowledgement. After a barrier over the job those DRAINs come by
//! themselves; who has not said it after a repetition interval is asked (BYE with WANT_REPLY), and answers
//! as soon as it has drained, or meanwhile with WAIT. New OFFERs and ASKs are refused (BYE).
//! All of this is bounded by the linger time, counted from the last sign of life of
//! those that are missing.
//!
//! # Limits
//! Requests for an *indirect* peer that is gone are refused by its node, and that puts the queue pair
//! into error for all peers of the node: one connection is one fate. An error therefore names
//! the direct peer, too.

#![forbid(unsafe_code)]

mod initiator;
mod parting;
mod route;
mod state;
mod target;

use std::collections::BTreeMap;

use self::state::{Node, NodeState, Peer, Served};
use super::UdAddress;
use super::interface::{EventContext, Outgoing, Verdict};
use super::message::{Body, Generation, Memory, Message};
use shmem_verbs::Qpn;

/// All connections of one PE to nodes, and of others to this one.
///
/// Any input is allowed at any time. Memory is proportional to the peers that were in contact. Maps are
/// ordered, so that the same inputs give the same actions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nodes {
    /// Of the newest initiator QP.
    generation: Generation,
    nodes: BTreeMap<u32, Node>,
    peers: BTreeMap<u32, Peer>,
    /// Peers whose timer may have changed in the present event.
    touched: Vec<u32>,
}

impl Nodes {
    /// The initiator QP towards `node` and the direct peer, if the connection is open.
    #[must_use]
    pub fn connection(&self, node: u32) -> Option<(Qpn, u32)> {
        match &self.nodes.get(&node)?.state {
            NodeState::Open(mine, _) => Some((mine.qpn, mine.direct)),
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
        self.route(pe)
            .is_some_and(|route| !route.draining && !route.left)
    }

    /// Whether the local program waits until `pe` is reachable.
    #[must_use]
    pub fn is_wanted(&self, pe: u32) -> bool {
        self.peers.get(&pe).is_some_and(|p| p.want.is_some())
    }

    /// The target QP that serves initiator `pe`, and its generation.
    #[must_use]
    pub fn target(&self, pe: u32) -> Option<(Qpn, Generation)> {
        match &self.peers.get(&pe)?.served {
            Served::Serving(target) => Some((target.qpn, target.generation)),
            _ => None,
        }
    }

    /// All queue pairs there are: initiators and targets.
    #[must_use]
    pub fn queue_pairs(&self) -> (Vec<Qpn>, Vec<Qpn>) {
        let initiators = self.nodes.values().filter_map(|n| n.state.mine());
        let targets = self.peers.keys().filter_map(|pe| self.target(*pe));
        (
            initiators.map(|mine| mine.qpn).collect(),
            targets.map(|(qpn, _)| qpn).collect(),
        )
    }

    /// Peers that were ever in contact, ascending.
    pub fn peers(&self) -> impl Iterator<Item = u32> + '_ {
        self.peers.keys().copied()
    }

    /// The memory of this PE is registered: those who wait for it get their answers.
    pub fn ready(&mut self, cx: &mut EventContext<'_>) {
        let waiting: Vec<u32> = self
            .peers
            .iter()
            .filter(|(_, p)| p.owes.is_some() || matches!(p.served, Served::Pending(..)))
            .map(|(pe, _)| *pe)
            .collect();
        for pe in waiting {
            if let Some(question) = self.peer(pe).owes.take() {
                self.inform(cx, pe, question);
            }
            self.serve_pending(cx, pe);
        }
    }

    /// `message.src_pe` has sent `message`; the caller has checked job, source and destination.
    pub fn handle_message(&mut self, cx: &mut EventContext<'_>, message: Message) -> Verdict {
        let (pe, from, asks) = (message.src_pe, message.generation, message.want_reply);
        match (message.body, message.echo) {
            (Body::Wait, echo) => self.handle_wait(cx, pe, echo),
            (Body::Offer(offer), None) => self.handle_request(cx, pe, from, offer),
            (Body::Offer(offer), Some(echo)) => self.handle_answer(cx, pe, echo, &offer),
            (Body::Ask(ud), _) => self.handle_ask(cx, pe, from, ud),
            (Body::Segments(memory), Some(echo)) => self.handle_memory(cx, pe, echo, &memory),
            (Body::Drain(ud), None) => self.initiator_gone(cx, pe, from, ud, asks),
            (Body::Drain(_), Some(echo)) => self.target_gone(pe, echo),
            (Body::Bye, Some(echo)) => self.handle_bye(cx, pe, echo, asks),
            // RC's, or what the codec does not let through.
            _ => Verdict::Stale,
        }
    }

    /// When [`Self::handle_timeout`] of `pe` is due.
    #[must_use]
    pub fn next_timeout(&self, pe: u32, silence: u64) -> Option<u64> {
        let peer = self.peers.get(&pe)?;
        let node = peer.node.and_then(|node| self.nodes.get(&node));
        let request = match node.map(|node| &node.state) {
            Some(NodeState::Offered(mine, request)) if mine.direct == pe => {
                Some(request.deadline(silence))
            }
            _ => None,
        };
        let ask = peer.asks.now.map(|ask| ask.deadline(silence));
        let gone = peer.gone.map(|(_, repeater)| repeater.next);
        let bye = match &peer.served {
            Served::Serving(target) => target.bye.map(|bye| bye.next),
            _ => None,
        };
        [request, ask, gone, bye].into_iter().flatten().min()
    }

    /// Time has passed for `pe`: sends again, gives up. Does nothing if nothing is due.
    pub fn handle_timeout(&mut self, cx: &mut EventContext<'_>, pe: u32) {
        self.request_timeout(cx, pe);
        self.ask_timeout(cx, pe);
        self.gone_timeout(cx, pe);
        self.bye_timeout(cx, pe);
    }

    /// Whose timers and debts the last events may have changed.
    pub(crate) fn take_touched(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.touched)
    }

    /// The record of `pe`, which the present event may change.
    fn peer(&mut self, pe: u32) -> &mut Peer {
        self.touched.push(pe);
        self.peers.entry(pe).or_default()
    }

    fn send(&self, cx: &mut EventContext<'_>, pe: u32, message: Outgoing) {
        if let Some(to) = self.peers.get(&pe).and_then(|p| p.ud) {
            cx.send(pe, to, message);
        }
    }

    fn send_wait(&self, cx: &mut EventContext<'_>, pe: u32, echo: Option<Generation>) {
        cx.stats.waits_sent += 1;
        let message = Outgoing {
            generation: Generation::NONE,
            echo,
            want_reply: false,
            body: Body::Wait,
        };
        self.send(cx, pe, message);
    }

    /// Takes the address that a peer gives of itself: it is better than the directory's.
    fn found_at(&mut self, pe: u32, ud: UdAddress) {
        let peer = self.peer(pe);
        (peer.ud, peer.spoke) = (Some(ud), true);
    }
}

#[cfg(test)]
mod tests;

//! Parting: initiators that are gone, and how a PE leaves the job.

use std::mem;

use super::Nodes;
use super::state::{NodeState, Served};
use crate::interface::{Action, EventContext, Failure, Outgoing, Verdict};
use crate::message::{Body, Generation};
use crate::retry::Repeater;

impl Nodes {
    /// `cx.local.leaving` is set: nothing of this PE is under way, and nothing will be started.
    pub fn drop_wants(&mut self) {
        for peer in self.peers.values_mut() {
            (peer.want, peer.asks.now) = (None, None);
        }
        self.touched.extend(self.peers.keys());
    }

    /// Tells `pe` that we leave, as far as it has to know.
    pub fn leave(&mut self, cx: &mut EventContext<'_>, pe: u32) {
        if let Some(question) = self.peer(pe).owes.take() {
            self.send_bye(cx, pe, question, false);
        }
        match &mut self.peer(pe).served {
            // After the last barrier its DRAIN comes by itself.
            Served::Serving(target) => {
                let backoff = cx.local.retry.farewell();
                target.bye = Some(Repeater::start(cx.now, backoff, cx.rng));
            }
            Served::Pending(asked, _) => {
                let asked = *asked;
                self.peer(pe).served = Served::Closed(asked);
                self.send_bye(cx, pe, asked, false);
            }
            // Refused when the queue pair comes.
            Served::None | Served::Creating { .. } | Served::Closed(_) => {}
        }
        // A queue pair that is being made is destroyed when it comes.
        if let Some(node) = self.peer(pe).node
            && let Some(mine) = self.nodes.get(&node).and_then(|node| node.state.mine())
            && mine.direct == pe
        {
            self.end_connection(cx, node, true);
        }
    }

    /// Whether `pe` still owes something to a PE that leaves.
    #[must_use]
    pub fn is_missing(&self, pe: u32) -> bool {
        self.peers
            .get(&pe)
            .is_some_and(|p| p.gone.is_some() || matches!(p.served, Served::Serving(_)))
    }

    /// Tells `pe`, until it says the same of the target, that the initiator QP of this generation is
    /// gone.
    pub(super) fn say_gone(&mut self, cx: &mut EventContext<'_>, pe: u32, generation: Generation) {
        let repeater = Repeater::start(cx.now, cx.local.retry.farewell(), cx.rng);
        self.peer(pe).gone = Some((generation, repeater));
        self.send_drain(cx, pe, generation, None, true);
    }

    /// With `echo`: the target of this generation is gone. Else our initiator is.
    pub(super) fn send_drain(
        &self,
        cx: &mut EventContext<'_>,
        pe: u32,
        generation: Generation,
        echo: Option<Generation>,
        want_reply: bool,
    ) {
        cx.stats.drains_sent += 1;
        let message = Outgoing {
            generation,
            echo,
            want_reply,
            body: Body::Drain(cx.local.ud),
        };
        self.send(cx, pe, message);
    }

    pub(super) fn gone_timeout(&mut self, cx: &mut EventContext<'_>, pe: u32) {
        let Some((generation, repeater)) = &mut self.peer(pe).gone else {
            return;
        };
        if repeater.next > cx.now {
            return;
        }
        let over = repeater.given_up(cx.now, cx.local.retry.silence);
        if over.is_some() && !cx.local.leaving {
            self.peer(pe).gone = None;
            cx.stats.byes_missed += 1;
            return;
        }
        repeater.again(cx.now, cx.local.retry.farewell(), cx.rng);
        let generation = *generation;
        self.send_drain(cx, pe, generation, None, true);
    }

    /// The target of the initiator QP `echo` is gone, too.
    pub(super) fn target_gone(&mut self, pe: u32, echo: Generation) -> Verdict {
        let peer = self.peer(pe);
        match peer.gone {
            Some((generation, _)) if echo >= generation => {
                peer.gone = None;
                Verdict::Accepted
            }
            _ => Verdict::Duplicate,
        }
    }

    /// `asks` false: refuses the OFFER or ASK `echo`. Else asks for the end of the initiator QP `echo`.
    pub(super) fn send_bye(
        &self,
        cx: &mut EventContext<'_>,
        pe: u32,
        echo: Generation,
        asks: bool,
    ) {
        cx.stats.byes_sent += 1;
        let message = Outgoing {
            generation: Generation::NONE,
            echo: Some(echo),
            want_reply: asks,
            body: Body::Bye,
        };
        self.send(cx, pe, message);
    }

    /// We leave, and the initiator `pe` has not said that it is gone: asks for that.
    pub(super) fn bye_timeout(&mut self, cx: &mut EventContext<'_>, pe: u32) {
        if let Served::Serving(target) = &mut self.peer(pe).served
            && let Some(bye) = &mut target.bye
            && bye.next <= cx.now
        {
            // The first time was put off, and is no repetition.
            cx.stats.byes_repeated += u64::from(bye.sent > 1);
            bye.again(cx.now, cx.local.retry.farewell(), cx.rng);
            let generation = target.generation;
            self.send_bye(cx, pe, generation, true);
        }
    }

    /// `pe` has left or leaves: it fulfils no want, and no connection with it lasts. If it `asks`, it
    /// waits for the end of our initiator QP `echo`.
    pub(super) fn handle_bye(
        &mut self,
        cx: &mut EventContext<'_>,
        pe: u32,
        echo: Generation,
        asks: bool,
    ) -> Verdict {
        let peer = self.peer(pe);
        let before = mem::replace(&mut peer.left, true);
        let (wanted, node) = (peer.want.is_some(), peer.node);
        if wanted {
            self.fail(cx, pe, Failure::PeerLeft);
        }
        // We answer ourselves: it waits for all that is under way to its node.
        cx.act(pe, Action::PeerLeft { waits: false });
        let entry = node.and_then(|node| Some((node, self.nodes.get_mut(&node)?)));
        match entry.map(|(node, entry)| (node, &entry.state)) {
            Some((node, NodeState::Offered(mine, _))) if mine.direct == pe => {
                // If it asks it may have made the target QP.
                self.end_connection(cx, node, asks);
                self.pursue(cx, node);
            }
            Some((node, NodeState::Open(mine, _))) if mine.direct == pe => {
                // Otherwise the connection ends presently anyway.
                if !cx.local.leaving {
                    self.drain(cx, node);
                }
                self.ask_for_time(cx, pe, asks);
            }
            Some((_, NodeState::Draining(mine, _))) if mine.direct == pe => {
                self.ask_for_time(cx, pe, asks);
            }
            _ if asks => self.repeat_gone(cx, pe, echo),
            _ => {}
        }
        if before {
            Verdict::Duplicate
        } else {
            Verdict::Accepted
        }
    }

    /// A leaving peer that waits for our initiator has to wait until nothing is under way.
    fn ask_for_time(&self, cx: &mut EventContext<'_>, pe: u32, asks: bool) {
        if asks && self.direct(pe) == Some(pe) {
            self.send_wait(cx, pe, None);
        }
    }

    /// `pe` leaves and believes that we have an initiator QP linked to it, which is not so (any more).
    fn repeat_gone(&mut self, cx: &mut EventContext<'_>, pe: u32, echo: Generation) {
        let (generation, repeated) = match &mut self.peer(pe).gone {
            // The two messages have crossed.
            Some((_, said)) if cx.now.saturating_sub(said.said) < cx.local.retry.bye / 2 => return,
            Some((generation, said)) => {
                said.said = cx.now;
                (*generation, true)
            }
            None => (echo, false),
        };
        self.send_drain(cx, pe, generation, None, repeated);
    }
}

//! Stand-ins: where only a path of nodes is there, the siblings of each are agents that have the PEs of a whole
//! subtree, and do at once, at no cost, what their sibling has been seen to do.

use shmem_launch::agent::{Action, Event as AgentEvent};
use shmem_launch::frame::{Frame, each_frame};
use shmem_node::address::ADDRESS_LEN;
use shmem_node::to_agent::ToAgent;
use shmem_pmi::server::NodePlace;

use super::node::{Node, PIECE, StandIn};
use super::work::{AgentWork, Event, Said, Work};
use super::world::World;

impl World {
    pub(super) fn place_stand_in(&mut self, at: u32) {
        let subtree = self.tree.subtree(at);
        let ranks = self.layout.ranks(subtree.start).start..self.layout.ranks(subtree.end - 1).end;
        let place = NodePlace {
            ranks: ranks.clone().collect(),
            has_parent: true,
            children: Vec::new(),
        };
        let agent = self.agent(at, ranks.clone(), Vec::new(), place);
        let mut node = self.node(at, agent, ranks);
        node.stand_in = Some(StandIn::default());
        self.nodes[at as usize] = Some(Box::new(node));
    }

    /// What a node on the path says to its parent arrives together with what its siblings say.
    pub(super) fn overhear(&mut self, arrives: f64, node: u32, bytes: &[u8]) {
        let Some((parent, _)) = self.at(node).parent else {
            return;
        };
        let siblings: Vec<u32> = self.tree.children(parent).skip(1).collect();
        let stands_in = |world: &Self, at: &u32| {
            let node = world.nodes[*at as usize].as_ref();
            node.is_some_and(|node| node.is_stand_in())
        };
        if !siblings.first().is_some_and(|at| stands_in(self, at)) {
            return;
        }
        let mut all = Vec::new();
        let heard = each_frame(
            self.at(node),
            |node| Some(&mut node.overheard),
            bytes,
            |_, frame| {
                all.extend(match frame {
                    Frame::Ready => Some(Said::Ready),
                    Frame::Started => Some(Said::Started),
                    Frame::Addresses(_) => Some(Said::Addresses),
                    Frame::Exited => Some(Said::Exited),
                    _ => None,
                });
            },
        );
        heard.expect("frames of an agent");
        for said in all {
            for &sibling in &siblings {
                self.tell_stand_in(arrives, (node, sibling), said);
            }
        }
    }

    fn tell_stand_in(&mut self, arrives: f64, (node, sibling): (u32, u32), said: Said) {
        let takes = arrives - self.at(node).ran.unwrap_or(0.0);
        let it = self.at(sibling);
        let at = match (said, it.ran) {
            // Whose agent is started later is prepared later.
            (Said::Ready, None) => {
                it.stand_in.get_or_insert_default().takes = Some(takes);
                return;
            }
            (Said::Ready, Some(ran)) => arrives.max(ran + takes),
            _ => arrives,
        };
        self.agenda.add(at, Event::Follows(sibling, said));
    }

    /// The agent of a stand-in runs.
    pub(super) fn stand_in_runs(&mut self, now: f64, node: u32) {
        let takes = self.at(node).stand_in.as_ref().and_then(|s| s.takes);
        if let Some(takes) = takes {
            self.agenda
                .add(now + takes, Event::Follows(node, Said::Ready));
        }
    }

    /// A stand-in does what its sibling has done.
    pub(super) fn follow(&mut self, now: f64, node: u32, said: Said) {
        let it = self.at(node);
        let stand_in = it.stand_in.get_or_insert_default();
        match said {
            Said::Ready => it.agent.handle(AgentEvent::Prepared, now as u64),
            Said::Started => stand_in.starts = true,
            Said::Addresses if std::mem::replace(&mut stand_in.brought, true) => return,
            Said::Addresses => {
                let bytes = vec![7; it.n_local as usize * ADDRESS_LEN];
                let said = ToAgent::Addresses {
                    first: 0,
                    bytes: &bytes,
                };
                it.agent.handle(AgentEvent::Message(said), now as u64);
            }
            Said::Exited => stand_in.to_end = 0..it.n_local,
        }
        self.stand_in_goes_on(now, node);
    }

    /// A stand-in hears of its parent.
    pub(super) fn stand_in_hears(&mut self, now: f64, node: u32, bytes: &[u8]) {
        let it = self.at(node);
        it.agent.handle(AgentEvent::FromParent(bytes), now as u64);
        self.stand_in_goes_on(now, node);
    }

    fn stand_in_goes_on(&mut self, now: f64, node: u32) {
        let n_pes = self.shape.pes();
        loop {
            let it = self.at(node);
            let mut quiet = true;
            while let Some(action) = it.agent.poll_action() {
                quiet = false;
                match action {
                    Action::StartPes { first, count } => {
                        let stand_in = it.stand_in.get_or_insert_default();
                        stand_in.requests.push_back((first, count));
                    }
                    Action::FinishTemplate => {
                        it.agent.handle(AgentEvent::TemplateClosed, now as u64);
                    }
                    Action::CleanUp => {
                        let done = AgentEvent::CleanedUp(Node::report());
                        it.agent.handle(done, now as u64);
                    }
                    Action::Publish { .. } | Action::KillAll | Action::Exit => {}
                    other => panic!("nothing goes wrong here: {other:?}"),
                }
            }
            let stand_in = it.stand_in.get_or_insert_default();
            let next = match stand_in.starts {
                true => stand_in.requests.pop_front(),
                false => None,
            };
            if let Some((_, count)) = next {
                quiet = false;
                let pids = it.pids(count);
                let started = AgentEvent::PesStarted {
                    pids: &pids,
                    error: None,
                };
                it.agent.handle(started, now as u64);
            }
            if it.agent.may_read_output()
                && let Some(local) = it.stand_in.as_mut().and_then(|s| s.to_end.next())
            {
                quiet = false;
                it.ended(local, n_pes, now);
            }
            if quiet {
                break;
            }
        }
        let it = self.at(node);
        let bytes = it.agent.outgoing(None).take();
        let parent = it.parent;
        if let Some((parent, child)) = parent.filter(|_| !bytes.is_empty()) {
            for piece in bytes.chunks(PIECE) {
                self.outcome.pieces += 1;
                self.outcome.bytes += piece.len() as u64;
                let takes = self.costs.piece + self.costs.byte * piece.len() as f64;
                let work = Work::Agent(parent, AgentWork::Hear(Some(child), piece.to_vec()));
                let task = self.at(parent).task;
                self.agenda.add(now, Event::Arrives(task, takes, work));
            }
        }
    }
}

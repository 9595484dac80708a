//! Templates and PEs of the model: what they do one after the other. There is no machine for that in the runtime; what each
//! step takes is measured.

use super::Connect;
use super::work::{AgentWork, PeWork, TemplateWork, Work};
use super::world::World;

impl World {
    /// The agent asks its template for PEs.
    pub(super) fn template_forks(&mut self, now: f64, node: u32, first: u32, count: u32) {
        let template = self.at(node).template;
        for local in first..first + count {
            let last = (local + 1 == first + count).then_some(count);
            let work = Work::Template(node, TemplateWork::Forked(local, last));
            self.give(now, template, self.costs.fork, work);
        }
    }

    pub(super) fn template_does(&mut self, now: f64, node: u32, work: TemplateWork) {
        let (costs, agent) = (self.costs, self.at(node).task);
        match work {
            TemplateWork::Start => {}
            TemplateWork::Forked(local, last) => {
                self.give_pe(now, (node, local), costs.main, PeWork::Main);
                if let Some(count) = last {
                    let work = Work::Agent(node, AgentWork::Started(count));
                    self.give(now, agent, costs.piece, work);
                }
            }
            TemplateWork::End => {
                let work = Work::Agent(node, AgentWork::TemplateEnded);
                self.give(now, agent, 0.0, work);
            }
        }
    }

    pub(super) fn give_pe(
        &mut self,
        now: f64,
        (node, local): (u32, u32),
        takes: f64,
        work: PeWork,
    ) {
        let task = self.at(node).pes[local as usize];
        self.give(now, task, takes, Work::Pe(node, local, work));
    }

    pub(super) fn pe_does(&mut self, now: f64, pe: (u32, u32), work: PeWork) {
        let (node, local) = pe;
        let costs = self.costs;
        let rank = node * self.shape.per_node + local;
        let it = self.at(node);
        match work {
            PeWork::Main => {
                it.inits[local as usize] = now;
                self.give_pe(now, pe, costs.endpoint, PeWork::Endpoint);
            }
            PeWork::Endpoint => {
                it.left += 1;
                let task = it.pes[local as usize];
                if it.left == it.n_local {
                    let agent = it.task;
                    let work = Work::Agent(node, AgentWork::Addresses);
                    self.give(now, agent, costs.piece, work);
                }
                self.endpoint_opens(rank);
                // The new thread runs first.
                self.cores.give_way(task);
                self.give_pe(now, pe, costs.register, PeWork::Register);
            }
            PeWork::Register => match self.shape.connect {
                Connect::OnDemand => self.meet_in_init(now, node),
                Connect::Static => {
                    let [takes, _] = self.reckoned;
                    self.give_pe(now, pe, takes, PeWork::Connect);
                }
            },
            PeWork::Connect => {
                self.connected += 1;
                if self.connected == self.present() {
                    for node in self.path() {
                        for local in 0..self.at(node).n_local {
                            self.give_pe(now, (node, local), 0.0, PeWork::Connected);
                        }
                    }
                }
            }
            PeWork::Connected => self.meet_in_init(now, node),
            PeWork::InitDone => {
                let began = it.inits[local as usize];
                it.inits[local as usize] = now - began;
                self.give_pe(now, pe, costs.program, PeWork::Program);
            }
            PeWork::Program => {
                it.at_end += 1;
                if it.at_end == it.n_local {
                    self.node_is_home(now, node);
                }
            }
            PeWork::Exit => {
                let agent = it.task;
                let work = Work::Agent(node, AgentWork::Ended(local));
                self.give(now, agent, costs.reap, work);
            }
        }
    }

    /// A PE comes to the barrier of its node at the end of init; the last one lets all go.
    fn meet_in_init(&mut self, now: f64, node: u32) {
        let it = self.at(node);
        it.met += 1;
        if it.met == it.n_local {
            for local in 0..it.n_local {
                self.give_pe(now, (node, local), 0.0, PeWork::InitDone);
            }
        }
    }

    /// PEs of a node may go after the last barrier, its leader when it has told others.
    pub(super) fn let_go(&mut self, now: f64, node: u32) {
        let there = self.nodes[node as usize].as_ref();
        if there.is_some_and(|node| !node.is_stand_in()) {
            for pe in self.layout.ranks(node).skip(1) {
                self.leave(now, pe);
            }
        }
    }

    /// A PE has taken leave.
    pub(super) fn exits(&mut self, now: f64, pe: u32) {
        let (node, local) = (pe / self.shape.per_node, pe % self.shape.per_node);
        let there = self.nodes[node as usize].as_ref();
        if there.is_some_and(|node| !node.is_stand_in()) {
            let [_, farewell] = self.reckoned;
            self.give_pe(now, (node, local), self.costs.exit + farewell, PeWork::Exit);
        }
    }

    /// Their PEs.
    fn present(&self) -> u32 {
        self.path().len() as u32 * self.shape.per_node
    }
}

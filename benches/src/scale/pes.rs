//! Templates and PEs of the model: what they do one after the other. There is no machine for that in the runtime; what each
//! step takes is measured.

use super::Connect;
use super::agents::AgentWork;
use super::contacts::contact;
use super::job::{Work, World};

/// What a template does.
#[derive(Debug)]
pub(super) enum TemplateWork {
    /// It can fork.
    Start,
    /// It has forked a PE, the last one of a request of so many if there is a number.
    Forked(u32, Option<u32>),
    /// It ends.
    End,
}

/// What a PE does.
#[derive(Debug)]
pub(super) enum PeWork {
    /// It has come to init.
    Main,
    /// It has its endpoint, and an address.
    Endpoint,
    /// It is done with its own part of init.
    Register,
    /// It has done its part of all its connections.
    Connect,
    /// All PEs have.
    Connected,
    /// It has left init.
    InitDone,
    /// It has come to the last barrier.
    Program,
    /// It has ended.
    Exit,
}

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

    fn give_pe(&mut self, now: f64, (node, local): (u32, u32), takes: f64, work: PeWork) {
        let task = self.at(node).pes[local as usize];
        self.give(now, task, takes, Work::Pe(node, local, work));
    }

    pub(super) fn pe_does(&mut self, now: f64, pe: (u32, u32), work: PeWork) {
        let (node, local) = pe;
        let costs = self.costs;
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
                // The new thread runs first.
                self.cores.give_way(task);
                self.give_pe(now, pe, costs.register, PeWork::Register);
            }
            PeWork::Register => match self.shape.connect {
                Connect::OnDemand => self.meet_in_init(now, node),
                Connect::Static => {
                    let takes = self.static_contacts();
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

    /// PEs of a node may go after the last barrier; with connections on demand its leader has to take leave first.
    pub(super) fn let_go(&mut self, now: f64, node: u32) {
        let there = self.nodes[node as usize].as_ref();
        let Some(it) = there.filter(|node| !node.is_stand_in()) else {
            return;
        };
        let first = match self.shape.connect {
            Connect::Static => 0,
            Connect::OnDemand => 1,
        };
        let farewell = f64::from(contact(true).farewell) * self.costs.datagram;
        let takes = match self.shape.connect {
            Connect::Static => farewell * f64::from(self.shape.all_contacts()),
            Connect::OnDemand => 0.0,
        };
        for local in first..it.n_local {
            self.give_pe(now, (node, local), self.costs.exit + takes, PeWork::Exit);
        }
    }

    /// The leader of a node may go.
    pub(super) fn let_leader_go(&mut self, now: f64, node: u32) {
        let there = self.nodes[node as usize].as_ref();
        if there.is_some_and(|node| !node.is_stand_in()) {
            self.give_pe(now, (node, 0), self.costs.exit, PeWork::Exit);
        }
    }

    /// What it takes a PE to connect to all PEs of other nodes, who connect to it.
    fn static_contacts(&self) -> f64 {
        // Whatever their number, a connection takes as many datagrams.
        let each = contact(true);
        let takes = f64::from(each.queue_pairs) * self.costs.queue_pair
            + f64::from(each.datagrams) * self.costs.datagram;
        f64::from(self.shape.all_contacts()) * takes
    }

    /// The nodes that are there.
    pub(super) fn path(&self) -> Vec<u32> {
        let there = self.nodes.iter().flatten().filter(|n| !n.is_stand_in());
        there.map(|node| node.number()).collect()
    }

    /// Their PEs.
    fn present(&self) -> u32 {
        self.path().len() as u32 * self.shape.per_node
    }
}

//! Leaders of nodes at the last barrier of the model: they say along the tree of [`shmem::plans`] that their nodes have come,
//! and are released the same way. Who says something to another leader needs its address and a connection.

use std::collections::VecDeque;

use shmem::plans;

use super::Scope;
use super::work::{Event, Flag, LeaderWork, Work};
use super::world::{Leader, World};

impl World {
    pub(super) fn place_leaders(&mut self) {
        self.leaders = (0..self.shape.nodes)
            .map(|node| {
                let machine = self.machine_of(node);
                let there = self.nodes[node as usize].as_ref();
                let own = there.and_then(|node| node.pes.first().copied());
                Leader {
                    task: own.unwrap_or_else(|| self.cores.task(machine)),
                    home: false,
                    come: 0,
                    addresses: false,
                    waiting: VecDeque::new(),
                    writes: 0,
                    released: false,
                }
            })
            .collect();
    }

    fn leader(&mut self, node: u32) -> &mut Leader {
        &mut self.leaders[node as usize]
    }

    /// All PEs of a node have come to the last barrier.
    pub(super) fn node_is_home(&mut self, now: f64, node: u32) {
        let first = &mut self.outcome.finalize[0];
        if *first == 0.0 {
            *first = now;
        }
        self.leader(node).home = true;
        self.say_that_all_have_come(now, node);
        self.others_follow(now);
    }

    /// A node has the addresses of all PEs.
    pub(super) fn published(&mut self, now: f64, node: u32) {
        self.leader(node).addresses = true;
        self.write_what_waits(now, node);
        self.others_follow(now);
    }

    /// Where only a path is there, all other nodes come when those of the path have.
    fn others_follow(&mut self, now: f64) {
        if self.shape.scope == Scope::All {
            return;
        }
        let has_come = |&node: &u32| {
            let leader = &self.leaders[node as usize];
            leader.home && leader.addresses
        };
        if !self.path().iter().all(has_come) {
            return;
        }
        for node in 0..self.shape.nodes {
            let leader = self.leader(node);
            if !std::mem::replace(&mut leader.home, true) {
                leader.addresses = true;
                self.say_that_all_have_come(now, node);
            }
        }
    }

    fn say_that_all_have_come(&mut self, now: f64, node: u32) {
        let n = self.shape.nodes as usize;
        let children = plans::children(node as usize, n).count();
        let leader = self.leader(node);
        if !leader.home || leader.come < children {
            return;
        }
        match plans::parent(node as usize) {
            Some(parent) => self.write(now, node, parent as u32, Flag::Come),
            None => self.release(now, node),
        }
    }

    /// Farthest first, as the runtime does.
    fn release(&mut self, now: f64, node: u32) {
        self.outcome.finalize[1] = now;
        let n = self.shape.nodes as usize;
        for child in plans::children(node as usize, n).rev() {
            self.write(now, node, child as u32, Flag::Go);
        }
        self.leader(node).released = true;
        self.let_go(now, node);
        self.leader_leaves(now, node);
    }

    /// A leader goes when it has told all its children.
    fn leader_leaves(&mut self, now: f64, node: u32) {
        let first = self.layout.ranks(node).start;
        let leader = self.leader(node);
        if leader.released && leader.waiting.is_empty() && leader.writes == 0 {
            leader.released = false;
            self.leave(now, first);
        }
    }

    fn write(&mut self, now: f64, node: u32, to: u32, flag: Flag) {
        let [me, pe] = [node, to].map(|node| self.layout.ranks(node).start);
        let connected = self.is_connected(me, pe);
        let takes = self.costs.write;
        let leader = self.leader(node);
        if connected {
            leader.writes += 1;
            let task = leader.task;
            let work = Work::Leader(node, LeaderWork::Wrote(to, flag));
            return self.give(now, task, takes, work);
        }
        leader.waiting.push_back((to, flag));
        if leader.addresses {
            self.connect(now, me, pe);
        }
    }

    /// Writes what has waited, if it need not wait any more.
    pub(super) fn write_what_waits(&mut self, now: f64, node: u32) {
        for (to, flag) in std::mem::take(&mut self.leader(node).waiting) {
            self.write(now, node, to, flag);
        }
    }

    pub(super) fn leader_does(&mut self, now: f64, node: u32, work: LeaderWork) {
        let costs = self.costs;
        match work {
            LeaderWork::Wrote(to, flag) => {
                self.leader(node).writes -= 1;
                let task = self.leader(to).task;
                let sees = Work::Leader(to, LeaderWork::Sees(flag));
                let at = now + costs.latency;
                self.agenda.add(at, Event::Arrives(task, costs.write, sees));
                self.leader_leaves(now, node);
            }
            LeaderWork::Sees(Flag::Come) => {
                self.leader(node).come += 1;
                self.say_that_all_have_come(now, node);
            }
            LeaderWork::Sees(Flag::Go) => self.release(now, node),
        }
    }
}

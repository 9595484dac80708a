//! Leaders of nodes at the last barrier of the model: they say along the tree of [`shmem::plans`] that their nodes have come,
//! and are released the same way. Who says something to another leader for the first time needs its address and a
//! connection, which the real manager makes.

use std::collections::VecDeque;

use shmem::plans;

use super::contacts::{Connections, Done};
use super::cores::TaskId;
use super::job::{Event, Work, World};
use super::{Connect, Scope};

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    /// The nodes of the sender's subtree have come.
    Come,
    /// All have.
    Go,
}

/// What a leader does, or its progress thread.
#[derive(Debug)]
pub(super) enum LeaderWork {
    /// It has written a flag to the leader of a node.
    Wrote(u32, Flag),
    /// It notices a flag.
    Sees(Flag),
    /// Its thread has done this to connections.
    Acted(Done),
    /// A datagram has come.
    Hears(Vec<u8>),
    /// Time has passed.
    Tick,
}

/// A leader.
#[derive(Debug)]
pub(super) struct Leader {
    task: TaskId,
    thread: TaskId,
    /// Whether all PEs of its node have come, and how many of its children have said so of theirs.
    home: bool,
    come: usize,
    /// Whether it has the addresses of all.
    addresses: bool,
    /// Flags that wait for addresses or a connection.
    waiting: VecDeque<(u32, Flag)>,
    connections: Option<Box<Connections>>,
    /// Flags that are being written.
    writes: u32,
    /// Whether it is to take leave, and has begun to.
    leaves: bool,
    has_said_so: bool,
    /// Whether it has gone: nobody hears what comes.
    gone: bool,
    /// When it has to look at its connections next.
    timer: f64,
}

impl Leader {
    pub(super) fn peers(&self) -> u32 {
        self.connections.as_ref().map_or(0, |c| c.peers())
    }

    pub(super) fn sent(&self) -> [u64; 2] {
        self.connections.as_ref().map_or([0; 2], |c| c.sent())
    }
}

impl World {
    pub(super) fn place_leaders(&mut self) {
        self.leaders = (0..self.shape.nodes)
            .map(|node| {
                let machine = self.machine_of(node);
                let there = self.nodes[node as usize].as_ref();
                let own = there.and_then(|node| node.pes.first().copied());
                Leader {
                    task: own.unwrap_or_else(|| self.cores.task(machine)),
                    thread: self.cores.task(machine),
                    home: false,
                    come: 0,
                    addresses: false,
                    waiting: VecDeque::new(),
                    connections: None,
                    writes: 0,
                    leaves: false,
                    has_said_so: false,
                    gone: false,
                    timer: f64::INFINITY,
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
        let leader = self.leader(node);
        leader.addresses = true;
        for (to, flag) in std::mem::take(&mut leader.waiting) {
            self.write(now, node, to, flag);
        }
        self.others_follow(now);
    }

    /// Where only a path is there, all other nodes come when those of the path have.
    fn others_follow(&mut self, now: f64) {
        if self.shape.scope == Scope::All {
            return;
        }
        let path = self.path();
        let has_come = |&node: &u32| {
            let leader = &self.leaders[node as usize];
            leader.home && leader.addresses
        };
        if !path.iter().all(has_come) {
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
        self.let_go(now, node);
        let leader = self.leader(node);
        leader.leaves = true;
        self.leave(now, node);
    }

    /// A leader that has told all its children takes leave of all with whom it has connections, and goes when nobody
    /// needs it any more.
    fn leave(&mut self, now: f64, node: u32) {
        if self.shape.connect == Connect::Static {
            return;
        }
        let leader = self.leader(node);
        if !leader.leaves || !leader.waiting.is_empty() || leader.writes > 0 {
            return;
        }
        match &mut leader.connections {
            Some(connections) if !connections.has_left() => {
                if !std::mem::replace(&mut leader.has_said_so, true) {
                    let done = connections.leave(now);
                    self.act(now, node, done);
                }
            }
            _ => {
                leader.leaves = false;
                leader.gone = true;
                self.let_leader_go(now, node);
            }
        }
    }

    fn write(&mut self, now: f64, node: u32, to: u32, flag: Flag) {
        let (pe, all) = (self.layout.ranks(to).start, self.shape.connect);
        let (me, n_pes) = (self.layout.ranks(node).start, self.shape.pes());
        let leader = self.leader(node);
        let open = leader.connections.as_ref().is_some_and(|c| c.is_open(pe));
        if open || all == Connect::Static {
            leader.writes += 1;
            let (task, takes) = (leader.task, self.costs.write);
            let work = Work::Leader(node, LeaderWork::Wrote(to, flag));
            return self.give(now, task, takes, work);
        }
        leader.waiting.push_back((to, flag));
        if !leader.addresses {
            return;
        }
        let new = || Box::new(Connections::new(me, n_pes));
        let connections = leader.connections.get_or_insert_with(new);
        if !connections.is_wanted(pe) {
            let done = connections.connect(now, pe, to);
            self.act(now, node, done);
        }
    }

    /// The thread of a leader has something done to its connections, which takes time.
    fn act(&mut self, now: f64, node: u32, done: Done) {
        let Self { costs, leaders, .. } = self;
        let leader = &mut leaders[node as usize];
        let queue_pairs = f64::from(done.made + done.linked) / 2.0 * costs.queue_pair;
        let takes = queue_pairs + done.datagrams.len() as f64 * costs.datagram;
        let task = leader.thread;
        if let Some(at) = leader.connections.as_ref().and_then(|c| c.timeout())
            && at < leader.timer
        {
            leader.timer = at;
            self.agenda.add(at.max(now), Event::Timer(node));
        }
        let work = Work::Leader(node, LeaderWork::Acted(done));
        self.give_first(now, task, takes, work);
    }

    pub(super) fn leader_timer(&mut self, now: f64, node: u32) {
        let leader = self.leader(node);
        leader.timer = f64::INFINITY;
        let (thread, next) = (
            leader.thread,
            leader.connections.as_ref().and_then(|c| c.timeout()),
        );
        match next {
            Some(at) if at <= now => {
                self.give(now, thread, 0.0, Work::Leader(node, LeaderWork::Tick));
            }
            Some(at) => {
                self.leader(node).timer = at;
                self.agenda.add(at, Event::Timer(node));
            }
            None => {}
        }
    }

    pub(super) fn leader_does(&mut self, now: f64, node: u32, work: LeaderWork) {
        let (me, n_pes) = (self.layout.ranks(node).start, self.shape.pes());
        let costs = self.costs;
        let leader = self.leader(node);
        let new = || Box::new(Connections::new(me, n_pes));
        match work {
            LeaderWork::Wrote(to, flag) => {
                leader.writes -= 1;
                self.leave(now, node);
                let task = self.leader(to).task;
                let sees = Work::Leader(to, LeaderWork::Sees(flag));
                self.agenda.add(
                    now + costs.latency,
                    Event::Arrives(task, costs.write, sees),
                );
            }
            LeaderWork::Sees(Flag::Come) => {
                leader.come += 1;
                self.say_that_all_have_come(now, node);
            }
            LeaderWork::Sees(Flag::Go) => self.release(now, node),
            LeaderWork::Acted(done) => {
                let per_node = self.shape.per_node;
                for (pe, bytes) in done.datagrams {
                    let to = pe / per_node;
                    let thread = self.leader(to).thread;
                    let work = Work::Leader(to, LeaderWork::Hears(bytes));
                    let at = now + costs.latency;
                    self.agenda
                        .add(at, Event::Arrives(thread, costs.datagram, work));
                }
                if !done.opened.is_empty() {
                    for (to, flag) in std::mem::take(&mut self.leader(node).waiting) {
                        self.write(now, node, to, flag);
                    }
                }
                self.leave(now, node);
            }
            LeaderWork::Hears(_) | LeaderWork::Tick if leader.gone => {}
            LeaderWork::Hears(bytes) => {
                let connections = leader.connections.get_or_insert_with(new);
                let done = connections.hear(now, &bytes);
                self.act(now, node, done);
            }
            LeaderWork::Tick => {
                let connections = leader.connections.get_or_insert_with(new);
                let done = connections.tick(now);
                self.act(now, node, done);
            }
        }
    }
}

//! One node of the model: an agent, its link, and its processes.

use std::ops::Range;
use std::sync::Arc;

use shmem_pmi::server::{NodePlace, NodeServer, Output, Shared, TreeLink};

use super::program::{Call, Process, Step, Waiting};
use super::{Costs, Due, Event, PIECE, Scope, Sender, World};
use crate::agenda::Agenda;

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    at: u32,
    pub(super) server: NodeServer,
    /// The parent, and which of its children this is.
    pub(super) parent: Option<(u32, usize)>,
    children: Vec<u32>,
    processes: Vec<Process>,
    /// Operations below this number have their results in the memory of the node.
    published: u64,
    /// Until when the agent is busy, and its link in both directions.
    busy: f64,
    link: f64,
    link_in: f64,
    /// Bytes of its cache.
    cached: usize,
    /// All its work so far.
    pub(super) work: f64,
}

impl Node {
    pub(super) fn new(
        at: u32,
        mut server: NodeServer,
        parent: Option<(u32, usize)>,
        children: Vec<u32>,
        calls: &dyn Fn(u32) -> Vec<Call>,
    ) -> Self {
        let local = 0..server.place().ranks.len();
        let mut processes: Vec<Process> = local
            .map(|local| {
                let rank = server.rank(local);
                Process::new(rank, calls(rank))
            })
            .collect();
        for (local, process) in processes.iter_mut().enumerate() {
            let hello = process.client.take_output();
            server.handle_client_bytes(local, &hello);
        }
        while let Some(output) = server.poll_output() {
            if let Output::ToClient { local, bytes } = output {
                processes[local].receive(&bytes);
            }
        }
        Self {
            at,
            server,
            parent,
            children,
            processes,
            published: 0,
            busy: 0.0,
            link: 0.0,
            link_in: 0.0,
            cached: 0,
            work: 0.0,
        }
    }

    pub(super) fn processes(&self) -> usize {
        self.processes.len()
    }

    /// When each process was done, and its time in calls.
    pub(super) fn ends(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.processes.iter().map(|process| {
            let end = process.end.expect("a process that ends");
            (end, process.visible)
        })
    }

    /// A process makes calls until it has to wait.
    pub(super) fn proceed(
        &mut self,
        local: usize,
        mut now: f64,
        costs: &Costs,
        len: usize,
        agenda: &mut Agenda<Due>,
    ) {
        let at = self.at;
        let process = &mut self.processes[local];
        process.go_on(now);
        loop {
            let began = now;
            let step = process.step(len);
            let bytes = process.client.take_output();
            if !bytes.is_empty() {
                now += costs.call;
                let event = Event::Agent {
                    from: Sender::Process(local),
                    bytes: Arc::new(bytes).into(),
                };
                agenda.add(now + costs.local, (at, event));
            }
            match step {
                Step::On => process.visible += now - began,
                Step::Read => {
                    now += costs.call;
                    process.visible += costs.call;
                }
                Step::Reply => return process.wait(Waiting::Reply, began),
                Step::Gather(request) if request >= self.published => {
                    return process.wait(Waiting::Gather(request), began);
                }
                Step::Gather(_) => {}
                Step::Compute(time) => {
                    return agenda.add(now + time, (at, Event::Resume { local }));
                }
                Step::Done => {
                    process.end = Some(now);
                    return;
                }
            }
        }
    }

    /// Bytes have come to a process; says whether it goes on.
    pub(super) fn receive(&mut self, local: usize, bytes: &[u8]) -> bool {
        self.processes[local].receive(bytes)
    }

    fn spend(&mut self, time: f64) {
        self.busy += time;
        self.work += time;
    }

    /// The agent takes in bytes, as soon as it has time.
    pub(super) fn hear(&mut self, from: Sender, bytes: &Shared, now: f64, costs: &Costs) {
        self.busy = self.busy.max(now);
        match from {
            Sender::Process(local) => {
                self.spend(costs.request);
                self.server.handle_client_bytes(local, bytes);
            }
            Sender::Agent(link) => {
                // What others send at the same time shares the link.
                let through = self.link_in + costs.link_byte * bytes.len() as f64;
                self.link_in = through.max(now);
                self.busy = self.busy.max(self.link_in);
                self.spend(costs.piece + costs.byte * bytes.len() as f64);
                let heard = self.server.handle_tree(link, bytes);
                heard.expect("agents that understand each other");
            }
        }
        let before = std::mem::replace(&mut self.cached, self.server.cache_bytes());
        self.spend(costs.stored * self.cached.saturating_sub(before) as f64);
    }
}

impl World<'_> {
    /// Does what a server says.
    pub(super) fn pass(&mut self, node: &mut Node) {
        // One result for all children, which share the link.
        let mut down: Option<(Arc<Vec<u8>>, Vec<usize>)> = None;
        while let Some(output) = node.server.poll_output() {
            match output {
                Output::ToChild { child, bytes } => match &mut down {
                    Some((same, to)) if Arc::ptr_eq(same, &bytes) => to.push(child),
                    _ => {
                        self.send_down(node, down.replace((bytes, vec![child])));
                    }
                },
                Output::ToClient { local, bytes } => {
                    self.send_down(node, down.take());
                    node.spend(self.costs.reply);
                    let event = Event::Process { local, bytes };
                    self.agenda
                        .add(node.busy + self.costs.local, (node.at, event));
                }
                Output::ToParent(bytes) => self.send_up(node, &bytes),
                Output::Publish {
                    request,
                    values,
                    last,
                    ..
                } => {
                    node.spend(self.costs.byte * values.len() as f64);
                    if last {
                        self.publish(node, request);
                    }
                }
                other => panic!("nobody asked for {other:?}"),
            }
        }
        self.send_down(node, down);
    }

    /// Shows a result to the processes that wait for it.
    fn publish(&mut self, node: &mut Node, request: u64) {
        node.published = request + 1;
        for local in 0..node.processes.len() {
            if node.processes[local].waiting == Waiting::Gather(request) {
                node.spend(self.costs.futex);
                let at = node.busy + self.costs.wake;
                self.agenda.add(at, (node.at, Event::Resume { local }));
            }
        }
    }

    fn send_up(&mut self, node: &mut Node, bytes: &Arc<Vec<u8>>) {
        let Some((parent, child)) = node.parent else {
            return;
        };
        let mut arrival = 0.0;
        for piece in pieces(bytes) {
            arrival = self.carry(node, piece.len());
            self.deliver(arrival, parent, TreeLink::Child(child), piece);
        }
        if self.shape.scope == Scope::Path {
            let siblings: Vec<_> = self.tree.child_subtrees(parent).skip(1).collect();
            for (sibling, nodes) in (1..).zip(siblings) {
                for piece in pieces(&self.stand_in(nodes)) {
                    self.deliver(arrival, parent, TreeLink::Child(sibling), piece);
                }
            }
        }
    }

    fn send_down(&mut self, node: &mut Node, message: Option<(Arc<Vec<u8>>, Vec<usize>)>) {
        let Some((bytes, to)) = message else { return };
        for piece in pieces(&bytes) {
            // Where only a path is there, it is the first child, and served last.
            for &child in to.iter().rev() {
                let arrival = self.carry(node, piece.len());
                let at = node.children[child];
                if self.shape.scope == Scope::All || child == 0 {
                    self.deliver(arrival, at, TreeLink::Parent, piece.clone());
                }
            }
        }
    }

    /// The agent writes a piece; gives the time at which the other end has it.
    fn carry(&mut self, node: &mut Node, len: usize) -> f64 {
        self.outcome.messages += 1;
        self.outcome.bytes += len as u64;
        node.spend(self.costs.piece + self.costs.byte * len as f64);
        node.link = node.link.max(node.busy) + self.costs.link_byte * len as f64;
        node.link + self.costs.latency
    }

    fn deliver(&mut self, at: f64, to: u32, link: TreeLink, bytes: Shared) {
        let from = Sender::Agent(link);
        self.agenda.add(at, (to, Event::Agent { from, bytes }));
    }

    /// What the agent at the top of a subtree sends up when all processes in it have called: from one
    /// server that has all of them.
    fn stand_in(&self, nodes: Range<u32>) -> Arc<Vec<u8>> {
        let per_node = self.shape.per_node;
        let ranks = nodes.start * per_node..nodes.end * per_node;
        let place = NodePlace {
            ranks: ranks.clone().collect(),
            has_parent: true,
            children: Vec::new(),
        };
        let mut server = NodeServer::new(self.job.clone(), place).expect("ranks of the job");
        let mut sent = None;
        for (local, rank) in ranks.enumerate() {
            let process = Process::new(rank, (self.calls)(rank));
            server.handle_client_bytes(local, &process.all_at_once(self.shape.bytes));
            while let Some(output) = server.poll_output() {
                if let Output::ToParent(bytes) = output {
                    assert!(sent.replace(bytes).is_none(), "one operation on a path");
                }
            }
        }
        sent.expect("an operation that all have joined")
    }
}

/// A message in pieces that a socket takes at once.
fn pieces(bytes: &Arc<Vec<u8>>) -> impl Iterator<Item = Shared> + use<> {
    let bytes = Arc::clone(bytes);
    let len = bytes.len();
    (0..len).step_by(PIECE).map(move |from| {
        let to = (from + PIECE).min(len);
        Shared::new(Arc::clone(&bytes), from..to)
    })
}

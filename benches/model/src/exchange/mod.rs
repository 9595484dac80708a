//! PMI jobs in virtual time: the real clients, servers and messages, with a clock that only
//! [`Costs`] move. For jobs beyond the size of a machine, and for networks that it does not have.
//!
//! Each process has a core of its own, and so has each agent, which does one thing after the other.
//! An agent's link carries one message after the other; what several children are sent is
//! interleaved in pieces, as TCP shares a link. All begin at time 0, with the introductions done.
//!
//! # Every node, or a path
//! With [`Scope::All`] every server and every client is there. A node that is sent all pairs holds
//! them, so memory grows with the square of the job. [`Scope::Path`] has only the servers on the
//! path that leads from the root through first children, where subtrees are largest; instead of each
//! sibling's subtree one server that holds all processes of it makes, at no cost, the message that
//! the sibling would send. It arrives together with that of the node on the path, and of the
//! children the one on the path is sent the last piece. Both make it a bound from above; a test says how close.

mod node;
mod program;

use shmem_pmi::server::{CachePolicy, Job, NodePlace, NodeServer, Shared, TreeLink};
use shmem_pmi::tree::{DegreePolicy, Tree};

use crate::agenda::Agenda;
use node::Node;
pub use program::{Call, key, value};

/// What things cost, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// A process: making a request and writing it to the socket, or reading a reply that is there.
    pub call: f64,
    /// From the arrival of bytes at a process to its going on: a wake-up and a read.
    pub wake: f64,
    /// From a write to a local socket to the other end's notice of it.
    pub local: f64,
    /// An agent: reading and serving a request of a process.
    pub request: f64,
    /// An agent: writing a reply to a process.
    pub reply: f64,
    /// An agent: waking one process that waits for a result in shared memory.
    pub futex: f64,
    /// An agent: receiving or sending a piece of a message between agents.
    pub piece: f64,
    /// An agent: each byte that it copies.
    pub byte: f64,
    /// An agent: each byte by which its cache of pairs grows, bookkeeping included.
    pub stored: f64,
    /// Link between nodes: time to the first byte.
    pub latency: f64,
    /// Link between nodes: each byte.
    pub link_byte: f64,
}

impl Default for Costs {
    /// Agents and processes of the order that `pmi_collectives` shows as processor time per message
    /// on an AMD EPYC; a link of 10 Gbit/s with 20 µs through the kernel's TCP.
    fn default() -> Self {
        Self {
            call: 2_000.0,
            wake: 5_000.0,
            local: 1_000.0,
            request: 3_000.0,
            reply: 3_000.0,
            futex: 1_000.0,
            piece: 5_000.0,
            byte: 0.2,
            stored: 1.0,
            latency: 20_000.0,
            link_byte: 0.8,
        }
    }
}

impl Costs {
    /// The costs with their names.
    pub fn named(&mut self) -> [(&'static str, &mut f64); 11] {
        [
            ("call", &mut self.call),
            ("wake", &mut self.wake),
            ("local", &mut self.local),
            ("request", &mut self.request),
            ("reply", &mut self.reply),
            ("futex", &mut self.futex),
            ("piece", &mut self.piece),
            ("byte", &mut self.byte),
            ("stored", &mut self.stored),
            ("latency", &mut self.latency),
            ("link_byte", &mut self.link_byte),
        ]
    }

    /// Changes one: `NAME=NANOSECONDS`.
    ///
    /// # Errors
    /// There is no such cost, or that is no number.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, number) = text.split_once('=').unwrap_or((text, ""));
        let number: f64 = number
            .parse()
            .map_err(|_| format!("{text:?} is not NAME=NANOSECONDS"))?;
        let mut all = self.named();
        let known = all.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        match all.iter_mut().find(|(of, _)| *of == name) {
            Some((_, cost)) => **cost = number,
            None => return Err(format!("{name:?} is none of {}", known.join(", "))),
        }
        Ok(())
    }
}

/// Which nodes are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Those on the path through first children.
    Path,
}

/// Shape of a job.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Nodes.
    pub nodes: u32,
    /// Processes on each.
    pub per_node: u32,
    /// Length of a value in bytes.
    pub bytes: usize,
    /// How pairs travel.
    pub cache: CachePolicy,
    /// Which nodes are there.
    pub scope: Scope,
}

/// What a run has shown. Times in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// When the last process was done.
    pub span: f64,
    /// Time inside calls of PMI but for puts, mean over the processes that are there.
    pub visible: f64,
    /// Messages and pieces of messages between agents.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Work of the agent that had most.
    pub busiest: f64,
    /// Work of all agents that are there.
    pub agents: f64,
    /// Largest cache of an agent in bytes, the root's left out.
    pub cache: usize,
    /// Processes that are there.
    pub present: usize,
}

/// Longest piece of a message between agents: what a socket takes at once.
const PIECE: usize = 64 << 10;

/// Who sent bytes to an agent.
#[derive(Debug, Clone, Copy)]
enum Sender {
    Process(usize),
    Agent(TreeLink),
}

#[derive(Debug)]
enum Event {
    /// Bytes have come to an agent.
    Agent { from: Sender, bytes: Shared },
    /// Bytes have come to a process.
    Process { local: usize, bytes: Vec<u8> },
    /// A process has something to do by itself: its computation is over, or what it waited for in
    /// shared memory is there.
    Resume { local: usize },
}

/// An event at a node.
type Due = (u32, Event);

/// A job.
struct World<'a> {
    costs: Costs,
    shape: Shape,
    tree: Tree,
    job: Job,
    calls: &'a dyn Fn(u32) -> Vec<Call>,
    nodes: Vec<Option<Box<Node>>>,
    agenda: Agenda<Due>,
    outcome: Outcome,
}

/// Runs a job in which process r makes the calls `calls(r)`.
///
/// # Panics
/// If servers or clients do not understand each other, a value is wrong, or a process never ends:
/// all of them are errors of what is modelled.
pub fn run(shape: Shape, costs: Costs, calls: &dyn Fn(u32) -> Vec<Call>) -> Outcome {
    let policy = DegreePolicy::default();
    let tree = Tree::new(shape.nodes, policy.degree(shape.nodes, shape.per_node));
    let job = Job {
        id: "model".into(),
        size: shape.nodes * shape.per_node,
        extensions: true,
        cache: shape.cache,
        ..Job::default()
    };
    let mut world = World {
        costs,
        shape,
        tree,
        job,
        calls,
        nodes: (0..shape.nodes).map(|_| None).collect(),
        agenda: Agenda::default(),
        outcome: Outcome::default(),
    };
    let mut path = Some(0);
    while let Some(node) = path {
        world.place(node);
        path = match shape.scope {
            Scope::All => Some(node + 1).filter(|&next| next < shape.nodes),
            Scope::Path => tree.children(node).next(),
        };
    }
    world.go()
}

impl World<'_> {
    /// Puts server and processes on a node. What the first have to say to each other is said.
    fn place(&mut self, at: u32) {
        let ranks = |nodes: std::ops::Range<u32>| {
            nodes.start * self.shape.per_node..nodes.end * self.shape.per_node
        };
        let subtrees: Vec<_> = self.tree.child_subtrees(at).collect();
        let place = NodePlace {
            ranks: ranks(at..at + 1).collect(),
            has_parent: at > 0,
            children: subtrees
                .iter()
                .map(|nodes| ranks(nodes.clone()).into())
                .collect(),
        };
        let server = NodeServer::new(self.job.clone(), place).expect("a tree that fits the job");
        let parent = self.tree.parent(at).map(|parent| {
            let child = self.tree.children(parent).position(|child| child == at);
            (parent, child.expect("a child of its parent"))
        });
        let children = subtrees.into_iter().map(|nodes| nodes.start).collect();
        let node = Node::new(at, server, parent, children, self.calls);
        self.nodes[at as usize] = Some(Box::new(node));
    }

    fn go(mut self) -> Outcome {
        for at in 0..self.shape.nodes {
            let Some(mut node) = self.nodes[at as usize].take() else {
                continue;
            };
            for local in 0..node.processes() {
                node.proceed(local, 0.0, &self.costs, self.shape.bytes, &mut self.agenda);
            }
            self.nodes[at as usize] = Some(node);
        }
        while let Some((now, (node, event))) = self.agenda.next() {
            let at = node as usize;
            // Taken out while the world, of which it is a part, is changed.
            let Some(mut node) = self.nodes[at].take() else {
                continue;
            };
            match event {
                Event::Agent { from, bytes } => {
                    node.hear(from, &bytes, now, &self.costs);
                    self.pass(&mut node);
                }
                Event::Process { local, bytes } => {
                    let now = now + self.costs.wake;
                    if node.receive(local, &bytes) {
                        node.proceed(local, now, &self.costs, self.shape.bytes, &mut self.agenda);
                    }
                }
                Event::Resume { local } => {
                    node.proceed(local, now, &self.costs, self.shape.bytes, &mut self.agenda);
                }
            }
            self.nodes[at] = Some(node);
        }
        self.sum_up()
    }

    fn sum_up(mut self) -> Outcome {
        let (mut visible, outcome) = (0.0, &mut self.outcome);
        for node in self.nodes.iter().flatten() {
            for (end, in_calls) in node.ends() {
                outcome.span = outcome.span.max(end);
                visible += in_calls;
                outcome.present += 1;
            }
            outcome.busiest = outcome.busiest.max(node.work);
            outcome.agents += node.work;
            if node.parent.is_some() {
                outcome.cache = outcome.cache.max(node.server.cache_bytes());
            }
        }
        outcome.visible = visible / outcome.present.max(1) as f64;
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(nodes: u32, per_node: u32, cache: CachePolicy, scope: Scope) -> Shape {
        Shape {
            nodes,
            per_node,
            bytes: 32,
            cache,
            scope,
        }
    }

    fn fence(_: u32) -> Vec<Call> {
        vec![Call::Put, Call::Fence]
    }

    fn gather(_: u32) -> Vec<Call> {
        vec![Call::Iallgather, Call::WaitGather]
    }

    #[test]
    fn a_node_alone_takes_what_its_parts_take() {
        let costs = Costs {
            stored: 0.0,
            ..Costs::default()
        };
        let outcome = run(shape(1, 1, CachePolicy::Hcmab, Scope::All), costs, &fence);
        let round = costs.call + costs.local + costs.request + costs.reply;
        // A local message is noticed in the other direction, too.
        let both = 2.0 * (round + costs.local + costs.wake);
        assert!((outcome.span - both).abs() < 1.0, "{outcome:?}");
        assert!(
            (2.0 * outcome.visible - outcome.span).abs() < 1.0,
            "the put is left out"
        );
        assert_eq!((outcome.messages, outcome.present), (0, 1));
    }

    #[test]
    fn results_are_right_under_all_caches() {
        for cache in [
            CachePolicy::Hcs,
            CachePolicy::Hcma,
            CachePolicy::Hcmab,
            CachePolicy::HcmabLru { bytes: 2000 },
        ] {
            let size = 24;
            let calls = |rank: u32| {
                let mut calls = vec![Call::Put, Call::Fence];
                calls.extend((1..=5).map(|i| Call::Get((rank + 3 * i) % size)));
                calls
            };
            let outcome = run(shape(12, 2, cache, Scope::All), Costs::default(), &calls);
            assert_eq!(outcome.present, size as usize, "{cache}");
            assert!(outcome.messages > 0);
        }
    }

    #[test]
    fn what_hides_costs_a_call() {
        let costs = Costs::default();
        let hidden = |_| vec![Call::Iallgather, Call::Compute(1e9), Call::WaitGather];
        let shape = shape(9, 4, CachePolicy::Hcmab, Scope::All);
        let outcome = run(shape, costs, &hidden);
        assert_eq!(outcome.visible, costs.call);
        let hidden = |_| vec![Call::Put, Call::Ifence, Call::Compute(1e9), Call::WaitFence];
        assert_eq!(run(shape, costs, &hidden).visible, 2.0 * costs.call);
        assert!(run(shape, costs, &gather).visible > 10.0 * costs.call);
    }

    #[test]
    fn a_path_is_a_bound_for_all() {
        for (nodes, per_node) in [(2, 3), (10, 2), (40, 4), (130, 2)] {
            for calls in [fence as fn(u32) -> Vec<Call>, gather] {
                let time = |scope| {
                    let shape = shape(nodes, per_node, CachePolicy::Hcmab, scope);
                    run(shape, Costs::default(), &calls).span
                };
                let (all, path) = (time(Scope::All), time(Scope::Path));
                assert!(
                    path >= 0.999 * all && path < 1.3 * all,
                    "{nodes}: {path} {all}"
                );
            }
        }
    }

    #[test]
    fn costs_are_set_by_name() {
        let mut costs = Costs::default();
        costs.set("latency=1.5").unwrap();
        assert_eq!(costs.latency, 1.5);
        assert!(costs.set("speed=1").unwrap_err().contains("link_byte"));
        assert!(costs.set("latency").is_err());
    }
}

//! Seeded simulation of the agents that join PMIx servers: a tree of them, links that delay, and on each node
//! a server that joins fences of arbitrary sets and asks for what processes of other nodes have put.
//!
//! Whatever comes when: each node of a fence gets what all of them
//! have given to it, in the order of nodes; each question is answered once, by the node of which it asks; and
//! in the end nothing is under way.

use std::collections::{HashMap, VecDeque};

use shmem_pmi::ranks::RankSet;
use shmem_pmi::server::pmix::{NOT_FOUND, Output, PmixNode, SUCCESS};
use shmem_pmi::server::{NodePlace, TreeLink};
use shmem_pmi::tree::Tree;
use shmem_testkit::seeds;

use crate::rng::Rng;

/// What a node is to do, in order.
#[derive(Clone)]
enum Task {
    /// Join the fence with this number among all.
    Fence(usize),
    /// Ask for what a process has put.
    Fetch(u32),
}

struct Node {
    machine: PmixNode,
    parent: Option<(usize, usize)>,
    children: Vec<usize>,
    /// What came from the parent, and from each child.
    down: VecDeque<Vec<u8>>,
    up: Vec<VecDeque<Vec<u8>>>,
    tasks: VecDeque<Task>,
    /// Own numbers of what is under way.
    fences: HashMap<u64, usize>,
    fetches: HashMap<u64, u32>,
    lookups: Vec<(u64, u32)>,
    next: u64,
}

struct World {
    rng: Rng,
    n_pes: u32,
    nodes: Vec<Node>,
    node_of: Vec<u32>,
    /// Whom each fence is of.
    fences: Vec<RankSet>,
    /// Which of them each node has come out of.
    out_of: Vec<Vec<usize>>,
}

fn given(node: usize, fence: usize) -> Vec<u8> {
    // Sometimes nothing.
    match (node + fence) % 3 {
        0 => Vec::new(),
        _ => format!("[{node} gives {fence}]").into_bytes(),
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let most = if rng.percent(20) { 30 } else { 6 };
        let n_nodes = 1 + rng.below(most) as u32;
        let n_pes = n_nodes + rng.below(3 * u64::from(n_nodes)) as u32;
        // Each node has one; not always in blocks.
        let mut node_of: Vec<u32> = (0..n_pes).map(|rank| rank % n_nodes).collect();
        if rng.percent(70) {
            node_of.sort_unstable();
        }
        let tree = Tree::new(n_nodes, 2 + rng.below(3) as u32);
        let fences: Vec<RankSet> = (0..rng.below(30))
            .map(|_| match rng.below(3) {
                0 => RankSet::from(0..n_pes),
                1 => {
                    let first = rng.below(n_pes.into()) as u32;
                    RankSet::from(first..first + 1 + rng.below((n_pes - first).into()) as u32)
                }
                _ => {
                    let some: Vec<u32> = (0..n_pes).filter(|_| rng.percent(30)).collect();
                    match some.is_empty() {
                        true => RankSet::from(0..1),
                        false => some.into_iter().collect(),
                    }
                }
            })
            .collect();
        let nodes = (0..n_nodes).map(|node| {
            let place = NodePlace::in_tree(&tree, node, &node_of);
            let own = |set: &RankSet| set.iter().any(|rank| node_of[rank as usize] == node);
            let mut tasks = VecDeque::new();
            for (number, set) in fences.iter().enumerate() {
                if own(set) {
                    tasks.push_back(Task::Fence(number));
                }
                if rng.percent(30) {
                    // Now and then one that does not exist.
                    tasks.push_back(Task::Fetch(rng.below(u64::from(n_pes) + 1) as u32));
                }
            }
            let index = |parent| tree.children(parent).position(|c| c == node);
            Node {
                machine: PmixNode::new(&place),
                parent: tree
                    .parent(node)
                    .map(|p| (p as usize, index(p).expect("a child"))),
                children: tree.children(node).map(|c| c as usize).collect(),
                down: VecDeque::new(),
                up: tree.children(node).map(|_| VecDeque::new()).collect(),
                tasks,
                fences: HashMap::new(),
                fetches: HashMap::new(),
                lookups: Vec::new(),
                next: 0,
            }
        });
        let nodes: Vec<Node> = nodes.collect();
        Self {
            out_of: vec![Vec::new(); nodes.len()],
            rng,
            n_pes,
            nodes,
            node_of,
            fences,
        }
    }

    fn act(&mut self, at: usize) {
        while let Some(output) = self.nodes[at].machine.poll_output() {
            match output {
                Output::ToParent(bytes) => {
                    let (parent, index) = self.nodes[at].parent.expect("the root has none");
                    self.nodes[parent].up[index].push_back(bytes.to_vec());
                }
                Output::ToChild { child, bytes } => {
                    let child = self.nodes[at].children[child];
                    self.nodes[child].down.push_back(bytes.to_vec());
                }
                Output::Fenced { id, status, data } => {
                    let fence = self.nodes[at].fences.remove(&id).expect("joined, once");
                    let set = &self.fences[fence];
                    let takes_part = |node: &usize| {
                        let mut ranks = set.iter();
                        ranks.any(|rank| self.node_of[rank as usize] as usize == *node)
                    };
                    let all = (0..self.nodes.len()).filter(takes_part);
                    let all: Vec<u8> = all.flat_map(|node| given(node, fence)).collect();
                    assert_eq!((status, data), (SUCCESS, all), "node {at}, fence {fence}");
                    self.out_of[at].push(fence);
                }
                Output::Lookup { id, rank } => {
                    assert_eq!(self.node_of[rank as usize] as usize, at);
                    self.nodes[at].lookups.push((id, rank));
                }
                Output::Fetched { id, status, data } => {
                    let rank = self.nodes[at].fetches.remove(&id).expect("asked, once");
                    match rank < self.n_pes {
                        true => assert_eq!(data, format!("of {rank}").into_bytes()),
                        false => assert_eq!((status, data), (NOT_FOUND, Vec::new())),
                    }
                }
                Output::Failed(what) => panic!("{what}"),
            }
        }
    }

    /// Lets one thing happen; false if nothing can.
    fn step(&mut self) -> bool {
        let mut choices = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let busy = |set: &RankSet| {
                let mut open = node.fences.values();
                open.any(|&fence| self.fences[fence] == *set)
            };
            match node.tasks.front() {
                // A server joins the next fence of the same only when it is out of the last.
                Some(Task::Fence(number)) if busy(&self.fences[*number]) => {}
                Some(_) => choices.push((at, 0)),
                None => {}
            }
            if !node.down.is_empty() {
                choices.push((at, 1));
            }
            if !node.lookups.is_empty() {
                choices.push((at, 2));
            }
            let up = node.up.iter().enumerate().filter(|(_, q)| !q.is_empty());
            choices.extend(up.map(|(child, _)| (at, 3 + child)));
        }
        if choices.is_empty() {
            return false;
        }
        let (at, what) = choices[self.rng.below(choices.len() as u64) as usize];
        let node = &mut self.nodes[at];
        match what {
            0 => {
                let id = node.next;
                node.next += 1;
                match node.tasks.pop_front() {
                    Some(Task::Fence(number)) => {
                        node.fences.insert(id, number);
                        let set = self.fences[number].clone();
                        node.machine.join(id, set, given(at, number));
                    }
                    Some(Task::Fetch(rank)) => {
                        node.fetches.insert(id, rank);
                        node.machine.fetch(id, rank);
                    }
                    None => unreachable!("it was there"),
                }
            }
            1 => {
                let bytes = node.down.pop_front().expect("it was there");
                node.machine.handle_tree(TreeLink::Parent, &bytes).unwrap();
            }
            2 => {
                let (id, rank) = node.lookups.swap_remove(0);
                let data = format!("of {rank}").into_bytes();
                node.machine.put_by(id, SUCCESS, data);
            }
            child => {
                let bytes = node.up[child - 3].pop_front().expect("it was there");
                let from = TreeLink::Child(child - 3);
                node.machine.handle_tree(from, &bytes).unwrap();
            }
        }
        self.act(at);
        true
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    while world.step() {}
    for (at, node) in world.nodes.iter().enumerate() {
        assert!(node.tasks.is_empty(), "node {at} waits for ever");
        assert!(
            node.fences.is_empty() && node.fetches.is_empty(),
            "node {at}"
        );
        assert!(node.machine.is_idle(), "node {at}");
    }
}

#[test]
fn fences_and_questions_of_any_order_come_to_their_end() {
    seeds::each(3000, |seed, _| run(seed));
}

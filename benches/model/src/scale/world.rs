//! All that there is in a modelled job, and how any part of it gives a task something to do.
//!
//! What the parts do is in files of their own, each with methods of [`World`].

use std::collections::VecDeque;

use shmem_launch::plan::Layout;
use shmem_launch::root::Root;
use shmem_pmi::tree::Tree;

use super::contacts::Connections;
use super::cores::{Cores, TaskId};
use super::costs::Machine;
use super::node::Node;
use super::work::{Event, Flag, Work};
use super::{Costs, Outcome, Shape};
use crate::agenda::Agenda;

/// A job.
#[derive(Debug)]
pub(super) struct World {
    pub(super) costs: Costs,
    pub(super) shape: Shape,
    pub(super) tree: Tree,
    pub(super) layout: Layout,
    pub(super) cores: Cores<Work>,
    pub(super) agenda: Agenda<Event>,
    pub(super) root: Root,
    pub(super) launcher: TaskId,
    /// When the launcher looks at its clock next.
    pub(super) looks: f64,
    /// Those that are there, and stand-ins.
    pub(super) nodes: Vec<Option<Box<Node>>>,
    pub(super) leaders: Vec<Leader>,
    /// Those of all PEs.
    pub(super) endpoints: Vec<Endpoint>,
    /// What making all connections takes a PE, and leaving, where that is reckoned.
    pub(super) reckoned: [f64; 2],
    /// PEs that are there and have made all their connections in init.
    pub(super) connected: u32,
    pub(super) outcome: Outcome,
}

/// A leader.
#[derive(Debug)]
pub(super) struct Leader {
    pub(super) task: TaskId,
    /// Whether all PEs of its node have come, and how many of its children have said so of theirs.
    pub(super) home: bool,
    pub(super) come: usize,
    /// Whether it has the addresses of all.
    pub(super) addresses: bool,
    /// Flags that wait for addresses or a connection, and that are being written.
    pub(super) waiting: VecDeque<(u32, Flag)>,
    pub(super) writes: u32,
    /// Whether it goes when these are written.
    pub(super) released: bool,
}

/// An endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) thread: Option<TaskId>,
    pub(super) connections: Option<Box<Connections>>,
    /// Whether it can hear, and whether its PE has gone.
    pub(super) open: bool,
    pub(super) gone: bool,
    /// Whether its PE waits for nothing but leave.
    pub(super) leaves: bool,
    /// When it has to look at its connections next.
    pub(super) timer: f64,
}

impl Endpoint {
    pub(super) fn new(open: bool) -> Self {
        Self {
            thread: None,
            connections: None,
            open,
            gone: false,
            leaves: false,
            timer: f64::INFINITY,
        }
    }

    pub(super) fn peers(&self) -> u32 {
        self.connections.as_ref().map_or(0, |c| c.peers())
    }

    pub(super) fn sent(&self) -> [u64; 2] {
        self.connections.as_ref().map_or([0; 2], |c| c.sent())
    }

    pub(super) fn is_open_to(&self, pe: u32) -> bool {
        self.connections.as_ref().is_some_and(|c| c.is_open(pe))
    }
}

impl World {
    /// The machine that a node is on.
    pub(super) fn machine_of(&self, node: u32) -> u32 {
        match self.shape.machine {
            Machine::Emulating(_) => 0,
            Machine::Cluster(_) => node,
        }
    }

    /// A task has something to do.
    pub(super) fn give(&mut self, now: f64, task: TaskId, takes: f64, work: Work) {
        self.cores.push(now, task, takes, work, &mut self.agenda);
    }

    /// The same, before all else that it has to do.
    pub(super) fn give_first(&mut self, now: f64, task: TaskId, takes: f64, work: Work) {
        self.cores
            .push_first(now, task, takes, work, &mut self.agenda);
    }

    pub(super) fn at(&mut self, node: u32) -> &mut Node {
        self.nodes[node as usize].as_mut().expect("it is there")
    }

    /// The nodes that are there.
    pub(super) fn path(&self) -> Vec<u32> {
        let there = self.nodes.iter().flatten().filter(|n| !n.is_stand_in());
        there.map(|node| node.number()).collect()
    }
}

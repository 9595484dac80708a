//! A job of the model: how it begins, the loop that lets it happen, and what it has shown.
//!
//! The order of a start is that of the launcher (`shmem-launch/src/driver/agent/start.rs`) and of `init` and finalize
//! (`shmem-core/src/init_finalize/life.rs`): an agent starts those of its children, prepares its node, and executes the
//! template, which forks PEs when the launcher says so. A PE leaves its address to the agent, starts its progress thread,
//! connects to everybody where that is static, meets the PEs of its node, says hello and comes to the last barrier.

use shmem_launch::plan::Layout;
use shmem_launch::root::{self, Root};
use shmem_pmi::tree::{DegreePolicy, Tree};

use super::cores::{Cores, TaskId};
use super::costs::Machine;
use super::work::{Event, Work};
use super::world::{Endpoint, World};
use super::{Connect, Costs, Outcome, Scope, Shape};
use crate::agenda::Agenda;

/// Turns that a PE needs at most for its connections, where these are reckoned.
const TURNS: f64 = 64.0;

/// Runs a job.
///
/// # Panics
/// If machines do not understand each other, or the job does not end in order: errors of what is modelled.
pub fn run(shape: Shape, costs: Costs) -> Outcome {
    let mut world = World::new(shape, costs);
    world.begin();
    while let Some((now, event)) = world.agenda.next() {
        match event {
            Event::Ran(ran) => {
                let (task, done) = world.cores.ran(ran);
                if let Some(work) = done {
                    world.done(now, task, work);
                }
                world.cores.go_on(now, task, &mut world.agenda);
            }
            Event::Arrives(task, takes, work) => world.give(now, task, takes, work),
            Event::StandIn(node, bytes) => world.stand_in_hears(now, node, &bytes),
            Event::Follows(node, said) => world.follow(now, node, said),
            Event::Timer(pe) => world.endpoint_timer(now, pe),
        }
        if world.outcome.hello > 0.0 {
            break;
        }
    }
    world.sum_up()
}

impl World {
    fn new(shape: Shape, costs: Costs) -> Self {
        let degree = shape
            .degree
            .unwrap_or_else(|| DegreePolicy::default().degree(shape.nodes, shape.per_node));
        let (machines, cores) = match shape.machine {
            Machine::Emulating(cores) => (1, cores),
            Machine::Cluster(cores) => (shape.nodes as usize, cores),
        };
        let mut cores = Cores::new(machines, cores, costs.turn);
        let launcher = cores.task(0);
        let tree = Tree::new(shape.nodes, degree);
        let mut world = Self {
            costs,
            shape,
            tree,
            layout: Layout::of(shape.pes(), shape.nodes),
            cores,
            agenda: Agenda::default(),
            root: Root::new(Self::launcher_setup(&shape)),
            launcher,
            looks: 0.0,
            nodes: (0..shape.nodes).map(|_| None).collect(),
            leaders: Vec::new(),
            endpoints: Vec::new(),
            reckoned: [0.0; 2],
            connected: 0,
            outcome: Outcome::default(),
        };
        let mut at = Some(0);
        while let Some(node) = at {
            world.place(node);
            at = match shape.scope {
                Scope::All => Some(node + 1).filter(|&next| next < shape.nodes),
                Scope::Path => {
                    for stand_in in tree.children(node).skip(1) {
                        world.place_stand_in(stand_in);
                    }
                    tree.children(node).next()
                }
            };
        }
        world.place_leaders();
        // Of nodes that are not there, all PEs are ready for everything.
        let there = |pe: u32| world.nodes[(pe / shape.per_node) as usize].as_ref();
        let ready = |pe| there(pe).is_none_or(|node| node.is_stand_in());
        world.endpoints = (0..shape.pes())
            .map(|pe| Endpoint::new(ready(pe)))
            .collect();
        world.reckoned = world.reckoned_contacts();
        // As many turns tell who waits for whom; more would only take time.
        let [connecting, _] = world.reckoned;
        world.cores.lengthen_turns(connecting / TURNS);
        world
    }

    fn begin(&mut self) {
        let half = self.costs.launcher / 2.0;
        self.give(0.0, self.launcher, half, Work::Launcher);
    }

    /// A task has done something.
    fn done(&mut self, now: f64, task: TaskId, work: Work) {
        match work {
            Work::Launcher => self.give(now, task, self.costs.start, Work::Launched),
            Work::Launched => self.agent_starts(now, 0),
            Work::Hears(bytes) => {
                let event = root::Event::FromAgent(&bytes);
                self.root.handle(event, now as u64);
                self.settle_launcher(now);
            }
            Work::Says(bytes) => self.launcher_says(now, bytes),
            Work::Looks => {
                self.root.handle(root::Event::Timer, now as u64);
                self.settle_launcher(now);
            }
            Work::Ends => self.outcome.hello = now,
            Work::Agent(node, work) => self.agent_does(now, node, work),
            Work::Template(node, work) => self.template_does(now, node, work),
            Work::Pe(node, local, work) => self.pe_does(now, (node, local), work),
            Work::Leader(node, work) => self.leader_does(now, node, work),
            Work::Endpoint(pe, work) => self.endpoint_does(now, pe, work),
        }
    }

    fn sum_up(mut self) -> Outcome {
        assert!(
            self.outcome.hello > 0.0,
            "the job does not end: {:?}",
            self.outcome
        );
        assert_eq!(self.root.status(), 0, "the job fails");
        let present = self.nodes.iter().flatten().filter(|n| !n.is_stand_in());
        let (mut inits, mut pes) = (0.0, 0);
        for node in present {
            inits += node.in_init();
            pes += self.shape.per_node;
        }
        let outcome = &mut self.outcome;
        outcome.init = inits / f64::from(pes.max(1));
        outcome.present = pes;
        outcome.busy = self.cores.busy;
        outcome.tree_up = self.root.moments().ready as f64;
        let mut ends = 0;
        for endpoint in &self.endpoints {
            let peers = endpoint.peers();
            ends += u64::from(peers);
            outcome.most_connections = outcome.most_connections.max(peers);
            let [sent, again] = endpoint.sent();
            outcome.datagrams[0] += sent;
            outcome.datagrams[1] += again;
        }
        outcome.connections = ends / 2;
        if self.shape.connect == Connect::Static {
            let each = self.shape.all_contacts();
            outcome.connections = u64::from(self.shape.pes()) * u64::from(each) / 2;
            outcome.most_connections = each;
        }
        self.outcome
    }
}

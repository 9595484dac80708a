//! Whole jobs in virtual time, up to a million PEs: how long `init` and a hello world take, how many connections there
//! are, and what memory that needs, with static connections and on demand, by the degree of the launch tree.
//!
//! What decides is the code of the runtime itself, with a clock that only [`Costs`] move:
//!
//! * [`shmem_launch`]'s launcher and launch agents, with their frames, and in them the PMI servers that gather the
//!   addresses of all PEs;
//! * the connection manager of [`shmem_ib::connect`], with its handshake, datagrams, timers and repetitions;
//! * [`shmem::plans`]: which leaders of nodes talk with each other in a collective;
//! * [`shmem_node::layout`]: what lies in the memory of a node.
//!
//! What PEs and templates do between that is no pure machine, and here only time: `job` has its order.
//!
//! # Where
//! On this machine all nodes share its cores, as where it emulates nodes: that can be measured, and the model
//! is held against it at sizes that its costs were [not fitted](fit) on. On a cluster each node has cores of its own, and
//! queue pairs and the network cost what was [published](costs::INFINIBAND).
//!
//! # Every node, or a path
//! A node holds the addresses of all PEs, so that memory of the model grows with the square of the job. With [`Scope::Path`]
//! only the nodes from the root through first children are there. Each sibling of one is a stand-in, an agent
//! that has the PEs of its whole subtree, and says at no cost what it has to when its sibling has said the same. Leaders
//! of all nodes are there in either case, for the barrier at the end: those of other nodes come to it when all of the path have. So
//! it is a bound from above, but for what many do at the same time on shared cores. A test says how close.

mod agents;
mod contacts;
mod cores;
pub mod costs;
mod endpoints;
pub mod fit;
mod job;
mod leaders;
pub mod memory;
mod node;
mod pes;
mod stand_in;
mod work;
mod world;

pub use contacts::{Contact, contact};
pub use costs::{Costs, Machine};
pub use job::run;

pub use crate::exchange::Scope;

/// When connections are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connect {
    /// All in init.
    Static,
    /// When two PEs first talk.
    OnDemand,
}

/// A job.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Nodes.
    pub nodes: u32,
    /// PEs on each.
    pub per_node: u32,
    /// Children of an agent in the launch tree; as many as the launcher chooses, if nothing is said.
    pub degree: Option<u32>,
    /// When connections are made.
    pub connect: Connect,
    /// Which nodes are there.
    pub scope: Scope,
    /// Where they are.
    pub machine: Machine,
}

impl Shape {
    /// PEs of the job.
    pub fn pes(&self) -> u32 {
        self.nodes * self.per_node
    }

    /// Connections of a PE that has one with each PE of every other node.
    pub fn all_contacts(&self) -> u32 {
        self.pes() - self.per_node
    }
}

/// What a run has shown. Times in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// From the start of the launcher to its end.
    pub hello: f64,
    /// Time of a PE in init, mean over those that are there.
    pub init: f64,
    /// When all agents were prepared.
    pub tree_up: f64,
    /// When the first PE arrived at the last barrier, and when the last one left it.
    pub finalize: [f64; 2],
    /// Time of cores that all had that are there.
    pub busy: f64,
    /// Connections, each of which two PEs have.
    pub connections: u64,
    /// The most of one PE.
    pub most_connections: u32,
    /// Datagrams of handshakes, and how many of them were repetitions.
    pub datagrams: [u64; 2],
    /// Pieces of messages between agents, and their bytes.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// PEs that are there.
    pub present: u32,
}

impl Outcome {
    /// Connections of a PE, mean over all of the job.
    pub fn connections_of_a_pe(&self, shape: &Shape) -> f64 {
        2.0 * self.connections as f64 / f64::from(shape.pes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(nodes: u32, per_node: u32) -> Shape {
        Shape {
            nodes,
            per_node,
            degree: None,
            connect: Connect::OnDemand,
            scope: Scope::All,
            machine: Machine::Emulating(2),
        }
    }

    #[test]
    fn a_job_ends_and_has_the_connections_of_the_tree() {
        for (nodes, per_node) in [(2, 1), (4, 16), (9, 3), (64, 2)] {
            for machine in [Machine::Emulating(2), Machine::Cluster(16)] {
                let shape = Shape {
                    machine,
                    ..shape(nodes, per_node)
                };
                let outcome = run(shape, Costs::round());
                assert_eq!(outcome.connections, u64::from(nodes - 1), "{outcome:?}");
                // Node 0 has a child for each digit.
                let most = nodes.next_power_of_two().trailing_zeros();
                assert_eq!(outcome.most_connections, most, "{outcome:?}");
                assert_eq!(outcome.present, shape.pes());
            }
        }
    }

    /// Two PEs on one core do one thing after the other; what waits costs nothing.
    #[test]
    fn cores_have_the_work_of_all() {
        let costs = Costs {
            piece: 0.0,
            byte: 0.0,
            datagram: 0.0,
            write: 0.0,
            ..Costs::round()
        };
        let shape = shape(1, 2);
        let outcome = run(shape, costs);
        let of_a_pe = costs.main + costs.endpoint + costs.register + costs.program + costs.exit;
        let of_a_node = costs.start + costs.agent + costs.template + 2.0 * costs.rank;
        let all = costs.launcher + of_a_node + 2.0 * (of_a_pe + costs.fork + costs.reap);
        assert!((outcome.busy - all).abs() < 1.0, "{all}: {outcome:?}");
        let one_core = Shape {
            machine: Machine::Emulating(1),
            ..shape
        };
        let slow = run(one_core, costs);
        assert!(slow.hello >= all && slow.hello < all + 10.0 * costs.latency);
        assert!(outcome.hello < slow.hello && outcome.hello > all / 2.0);
    }

    #[test]
    fn larger_jobs_take_longer_and_static_ones_longest() {
        let of = |nodes, connect, machine| {
            let shape = Shape {
                connect,
                machine,
                ..shape(nodes, 4)
            };
            run(shape, Costs::round())
        };
        for machine in [Machine::Emulating(2), Machine::Cluster(4)] {
            let mut before = Outcome::default();
            for nodes in [2, 8, 32] {
                let lazy = of(nodes, Connect::OnDemand, machine);
                let all = of(nodes, Connect::Static, machine);
                assert!(lazy.hello > before.hello, "{nodes}: {lazy:?}");
                assert!(all.init > lazy.init && all.hello > lazy.hello, "{all:?}");
                let contacts = 4 * u64::from(nodes) * (4 * u64::from(nodes) - 4) / 2;
                assert_eq!(all.connections, contacts);
                before = lazy;
            }
        }
        // Where each node has cores of its own, init on demand knows nothing of the others.
        let [few, many] = [8, 128].map(|n| of(n, Connect::OnDemand, Machine::Cluster(4)).init);
        assert!((many / few - 1.0).abs() < 0.01, "{few} {many}");
    }

    #[test]
    fn a_tree_of_few_children_is_deep_and_one_of_many_has_a_busy_root() {
        let of = |degree| {
            let shape = Shape {
                degree: Some(degree),
                machine: Machine::Cluster(4),
                ..shape(200, 4)
            };
            run(shape, Costs::round().on_infiniband()).hello
        };
        let [two, eight, all] = [2, 8, 199].map(of);
        assert!(eight < two && eight < all, "{two} {eight} {all}");
    }

    #[test]
    fn a_path_is_close_to_all() {
        // Hosts are started so quickly that it does not hide the rest.
        let costs = Costs {
            shell: 1e6,
            start: 1e5,
            ..Costs::round().on_infiniband()
        };
        // Handshakes of static jobs are reckoned on a path, and there one by one if they are few.
        for (nodes, per_node, connect, least) in [
            (10, 4, Connect::OnDemand, 0.15),
            (64, 16, Connect::OnDemand, 0.15),
            (200, 4, Connect::OnDemand, 0.15),
            (10, 4, Connect::Static, 0.25),
            (64, 16, Connect::Static, 0.15),
        ] {
            let of = |scope| {
                let shape = Shape {
                    scope,
                    connect,
                    machine: Machine::Cluster(16),
                    ..shape(nodes, per_node)
                };
                run(shape, costs)
            };
            let (all, path) = (of(Scope::All), of(Scope::Path));
            let close = |a: f64, b: f64| (b / a - 1.0).abs() < least;
            assert!(close(all.hello, path.hello), "{all:?}, {path:?}");
            assert!(close(all.init, path.init), "{all:?}, {path:?}");
            assert_eq!(all.connections, path.connections);
        }
    }
}

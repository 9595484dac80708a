//! Memory of a job: what lies on a node, by the layout that the runtime itself uses, and what PEs have of their own, which
//! is measured.

use shmem_node::layout::TablesLayout;
use shmem_node::pe_block::PeBlock;
use shmem_node::sys;

use super::Shape;

/// Bytes of user memory that a connected queue pair takes with the driver of a common device, where its queues are short.
/// What mlx5 computes: 16 to 32 entries of 64 to 128 bytes, rounded up to a page.
pub const DEVICE_QUEUE_PAIR: f64 = 4096.0;

/// What processes have of their own, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Unit {
    /// All PEs of a machine together: the program and its libraries.
    pub program: f64,
    /// A PE without a connection.
    pub pe: f64,
    /// A connection of a PE.
    pub queue_pair: f64,
}

/// Bytes of a node that grow with the job, and that PEs share: tables of ranks, addresses of all PEs, and blocks of
/// its own PEs.
pub fn shared_by_node(shape: &Shape) -> f64 {
    let [pes, nodes, here] = [shape.pes(), shape.nodes, shape.per_node].map(|n| n as usize);
    let tables = TablesLayout::new(pes, nodes, here, 0, sys::page_size());
    let ranks = tables.ranks + 4 * here - tables.node_of;
    let blocks = here * size_of::<PeBlock>();
    (ranks + tables.addresses.stride + blocks) as f64
}

/// Bytes of a PE with so many connections, its part of the program left out.
pub fn of_a_pe(unit: &Unit, connections: f64) -> f64 {
    unit.pe + connections * unit.queue_pair
}

/// Bytes of a node, where each PE has so many connections.
pub fn of_a_node(unit: &Unit, shape: &Shape, connections: f64) -> f64 {
    let here = f64::from(shape.per_node);
    unit.program + shared_by_node(shape) + here * of_a_pe(unit, connections)
}

/// Bytes of all PEs of one machine that emulates all nodes, as their proportional memory adds up.
pub fn of_all_pes(unit: &Unit, shape: &Shape, connections: f64) -> f64 {
    unit.program + f64::from(shape.pes()) * of_a_pe(unit, connections)
}

#[cfg(test)]
mod tests {
    use super::super::{Connect, Machine, Scope};
    use super::*;

    fn shape(nodes: u32) -> Shape {
        Shape {
            nodes,
            per_node: 16,
            degree: None,
            connect: Connect::OnDemand,
            scope: Scope::Path,
            machine: Machine::Cluster(16),
        }
    }

    /// 8 bytes of tables and 40 of address for each PE, 4 for each node.
    #[test]
    fn tables_of_a_node_grow_with_the_job_and_those_of_a_pe_do_not() {
        let grown = shared_by_node(&shape(1024)) - shared_by_node(&shape(512));
        let each = grown / 512.0 / 16.0;
        assert!((48.0..49.0).contains(&each), "{each} bytes for a PE");
        let unit = Unit {
            program: 1e6,
            pe: 1e5,
            queue_pair: 5e3,
        };
        assert_eq!(of_a_pe(&unit, 2.0), 1.1e5);
        let all = of_a_node(&unit, &shape(512), 0.0);
        assert_eq!(all, 1e6 + 1.6e6 + shared_by_node(&shape(512)));
    }
}

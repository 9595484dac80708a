//! Which leaders of nodes talk with each other in a collective, without a job: what `select` chooses, and the plans
//! that the algorithms follow. Models reckon with it, the one of this folder's tests and that of whole jobs
//! (`shmem-model`), so that none of them has a copy of an algorithm.

use std::collections::BTreeSet;

use shmem_node::waiting::Collective;

use super::circulant::rounds;
use super::doubling::{Step, steps};
use super::select::{Between, Layout, Operation, select};
use crate::tree;

/// Where the PEs of a job are: as many on each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Nodes.
    pub nodes: usize,
    /// PEs on each.
    pub per_node: usize,
}

/// The nodes whose leaders the leader of `node` talks with in a collective of all PEs, in which each gives `bytes`. Of
/// `alltoall` without leaders, in which all PEs talk, these are all other nodes.
///
/// # Panics
/// If `node` is not among `places`.
pub fn partners(call: Collective, bytes: usize, places: Places, node: usize) -> BTreeSet<usize> {
    assert!(
        node < places.nodes,
        "node {node} of a job on {}",
        places.nodes
    );
    let operation = match call {
        Collective::Broadcast => Operation::Broadcast,
        Collective::Reduce => Operation::Reduce,
        Collective::Scan => Operation::Scan,
        Collective::Fcollect => Operation::Fcollect,
        Collective::Collect => Operation::Collect,
        Collective::Alltoall => Operation::Alltoall,
        // Members only meet.
        Collective::Barrier
        | Collective::Sync
        | Collective::Split
        | Collective::Finalize
        | Collective::Alloc
        | Collective::Realloc
        | Collective::Free
        | Collective::Destroy
        | Collective::AllGather
        | Collective::AllGatherParts
        | Collective::Gather
        | Collective::Scatter => Operation::Sync,
    };
    let layout = Layout {
        members: places.nodes * places.per_node,
        here: places.per_node,
        nodes: places.nodes,
        polls: false,
    };
    let (n, between) = (places.nodes, select(operation, bytes, layout).between);
    match between {
        Between::Nothing => BTreeSet::new(),
        Between::Tree => along_tree(node, n).collect(),
        Between::Circulant => around(node, n).collect(),
        Between::Doubling => doubling(node, n).collect(),
        // Before the rounds each leader says along the tree that it has entered.
        Between::Halving | Between::Exchange => {
            around(node, n).chain(along_tree(node, n)).collect()
        }
        Between::Pairs => (0..n).filter(|&other| other != node).collect(),
    }
}

/// The node to whose leader that of `node` says in a barrier that its nodes have come.
pub fn parent(node: usize) -> Option<usize> {
    tree::parent(node)
}

/// The nodes of whose leaders that of `node` hears so, among `nodes`, nearest first; they are released in the reverse
/// order.
pub fn children(node: usize, nodes: usize) -> impl DoubleEndedIterator<Item = usize> {
    tree::children(node, nodes).map(|(_, child)| child)
}

fn along_tree(node: usize, nodes: usize) -> impl Iterator<Item = usize> {
    parent(node).into_iter().chain(children(node, nodes))
}

/// Those 1, 2, 4 ... nodes away, to the right and to the left.
pub(super) fn around(node: usize, nodes: usize) -> impl Iterator<Item = usize> {
    (0..rounds(nodes)).flat_map(move |round| {
        let distance = 1 << round;
        [(node + distance) % nodes, (node + nodes - distance) % nodes]
    })
}

/// Those with whom a leader trades by doubling.
pub(super) fn doubling(node: usize, nodes: usize) -> impl Iterator<Item = usize> {
    steps(node, nodes).filter_map(|step| match step {
        Step::Take { from: with, .. } | Step::Trade { with, .. } | Step::Give { to: with, .. } => {
            Some(with)
        }
        Step::Get { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: [Collective; 7] = [
        Collective::Barrier,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::Scan,
        Collective::Fcollect,
        Collective::Collect,
        Collective::Alltoall,
    ];

    #[test]
    fn partners_have_each_other() {
        for nodes in [1, 2, 3, 7, 9, 64, 100] {
            for per_node in [1, 16] {
                let places = Places { nodes, per_node };
                for call in CALLS {
                    for bytes in [0, 8, 4096, 1 << 20] {
                        for node in 0..nodes {
                            for other in partners(call, bytes, places, node) {
                                assert!(other != node && other < nodes);
                                let back = partners(call, bytes, places, other);
                                assert!(back.contains(&node), "{call:?} {bytes} {places:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_barrier_goes_along_the_tree() {
        let places = Places {
            nodes: 100,
            per_node: 16,
        };
        let all = (0..100).map(|node| partners(Collective::Barrier, 0, places, node).len());
        assert_eq!(all.sum::<usize>(), 2 * 99);
        assert_eq!(parent(96), Some(64));
        assert!(children(64, 100).eq([65, 66, 68, 72, 80, 96]));
        assert!(partners(Collective::Finalize, 0, places, 64).contains(&0));
    }
}

//! The tree along which barriers, broadcasts and other short collectives go between nodes.
//!
//! A binomial tree over the node numbers, rooted at node 0: the parent of a node is its number
//! without the lowest set bit. All of them go along the same edges, so a program that has no other
//! communication makes fewer than two connections per node leader on average, however large it
//! is. Which collectives go in rounds instead, with a connection or two of a leader for each,
//! `collectives::select` says. The subtree of a node is a contiguous range of numbers.

use std::ops::Range;

/// Most children a node can have: 2^18 nodes.
pub(crate) const MAX_CHILDREN: usize = 18;

/// PEs for which the tree is deep enough, of nodes or of members of an active set.
pub(crate) const MAX_PES: usize = 1 << MAX_CHILDREN;

/// Parent of `node`; the root has none.
pub(crate) fn parent(node: usize) -> Option<usize> {
    (node != 0).then(|| node & (node - 1))
}

/// Which child `node` is to its parent: child `k` has number parent + 2^k.
pub(crate) fn child_index(node: usize) -> usize {
    node.trailing_zeros() as usize
}

/// Children of `node` among `n` nodes with their index, nearest first.
pub(crate) fn children(node: usize, n: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> {
    let limit = if node == 0 {
        MAX_CHILDREN
    } else {
        node.trailing_zeros() as usize
    };
    (0..limit)
        .map(move |k| (k, node + (1 << k)))
        .filter(move |&(_, child)| child < n)
}

/// Nodes of the subtree of `node` among `n`.
pub(crate) fn subtree(node: usize, n: usize) -> Range<usize> {
    let size = if node == 0 {
        n
    } else {
        1 << node.trailing_zeros()
    };
    node..(node + size).min(n)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_node_is_the_child_of_its_parent_and_subtrees_partition() {
        for n in 1..=130 {
            for node in 0..n {
                if let Some(p) = parent(node) {
                    let found = children(p, n).find(|&(_, c)| c == node);
                    assert_eq!(found, Some((child_index(node), node)), "node {node} of {n}");
                }
                let mut covered: Vec<usize> = children(node, n)
                    .flat_map(|(_, c)| subtree(c, n))
                    .chain([node])
                    .collect();
                covered.sort_unstable();
                assert_eq!(
                    covered,
                    subtree(node, n).collect::<Vec<_>>(),
                    "node {node} of {n}"
                );
            }
        }
    }

    #[test]
    fn the_tree_has_less_than_two_edges_a_node_and_logarithmic_depth() {
        for n in [2usize, 3, 64, 100, 1024] {
            let edges: usize = (0..n).map(|i| children(i, n).count()).sum();
            assert_eq!(edges, n - 1);
            let depth = |mut i| std::iter::from_fn(|| parent(i).inspect(|&p| i = p)).count();
            assert!((0..n).map(depth).max().unwrap() <= n.ilog2() as usize + 1);
        }
    }
}

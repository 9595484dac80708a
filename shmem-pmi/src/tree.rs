//! The k-ary tree of node agents: who starts whom, who talks to whom.
//!
//! # Numbering
//!
//! Nodes are numbered in **depth-first order**: the root is 0, a node's subtree is the contiguous
//! range that begins with the node itself. The rest of the range is cut into at most k parts whose
//! sizes differ by at most one, and the first node of each part is a child. So an agent that is
//! told its range knows everything below it, a subtree of a block-wise job is a contiguous range
//! of ranks, and the tree is as shallow as a k-ary tree of n nodes can be.
//!
//! # Degree
//!
//! ScELA chooses the degree from two numbers. *Depth*: the smallest k with
//! `ceil(log_k(nodes)) <= MAX_DEPTH`, because each level costs a hop of every collective and, at
//! start-up, the time of one remote shell. *Connections*: an agent serves its c PEs, k children and
//! one parent, and should not have more than `MAX_CONN` connections to serve; if
//! `c + k + 1 > MAX_CONN`, then `k = MAX_CONN - 1 - c`, but never less than 2, since a chain would
//! have the depth of the whole job.

use std::ops::Range;

/// What a level and a connection are worth when a degree is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DegreePolicy {
    /// Most hops between the root and any node (`MAX_DEPTH`), at least 1.
    ///
    /// The default is 3. Starting a remote agent costs some hundreds of milliseconds, issuing one
    /// more start some tens: a level is worth about ten children. With 3, 512 nodes have degree 8
    /// and 4096 nodes 16; with 2 they would have 23 and 64 starts one after another, with 4 a
    /// fourth remote shell in a row to save three of eight children.
    pub max_depth: u32,
    /// Most connections that an agent serves without trouble (`MAX_CONN`).
    ///
    /// The default is 128, ScELA's measured value.
    pub max_connections: u32,
}

impl Default for DegreePolicy {
    fn default() -> Self {
        Self {
            max_depth: 3,
            max_connections: 128,
        }
    }
}

impl DegreePolicy {
    /// The degree for a job of `nodes` nodes with `pes_per_node` PEs on the fullest of them.
    pub fn degree(&self, nodes: u32, pes_per_node: u32) -> u32 {
        let reaches = |k: u32| u64::from(k).saturating_pow(self.max_depth) >= u64::from(nodes);
        // The depth condition is monotone in k, so the smallest k is found by bisection.
        let (mut low, mut high) = (2, nodes.max(2));
        while low < high {
            let middle = low + (high - low) / 2;
            if reaches(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let connections = u64::from(pes_per_node) + u64::from(low) + 1;
        if connections <= u64::from(self.max_connections) {
            low
        } else {
            self.max_connections
                .saturating_sub(1)
                .saturating_sub(pes_per_node)
                .max(2)
        }
    }
}

/// A tree of `nodes` nodes of which none has more than `degree` children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    nodes: u32,
    degree: u32,
}

impl Tree {
    /// A tree of at least one node and degree at least 1; smaller numbers are raised to that.
    pub fn new(nodes: u32, degree: u32) -> Self {
        Self {
            nodes: nodes.max(1),
            degree: degree.max(1),
        }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Most children of a node.
    pub fn degree(&self) -> u32 {
        self.degree
    }

    /// The parts into which the subtree `range` is cut below its first node.
    fn parts(&self, range: &Range<u32>) -> impl ExactSizeIterator<Item = Range<u32>> + use<> {
        let first = range.start + 1;
        let below = range.end - first;
        let parts = self.degree.min(below);
        let (small, larger) = match below.checked_div(parts) {
            Some(small) => (small, below % parts),
            None => (0, 0),
        };
        (0..parts).map(move |part| {
            let start = first + part * small + part.min(larger);
            start..start + small + u32::from(part < larger)
        })
    }

    /// Walks from the root to `node`: its depth, its parent, and its subtree.
    fn find(&self, node: u32) -> (u32, Option<u32>, Range<u32>) {
        assert!(
            node < self.nodes,
            "node {node} is not in a tree of {} nodes",
            self.nodes
        );
        let (mut depth, mut parent, mut range) = (0, None, 0..self.nodes);
        while range.start != node {
            let below = range.end - range.start - 1;
            let parts = self.degree.min(below);
            let (small, larger) = (below / parts, below % parts);
            // The first `larger` parts have one node more than the others.
            let offset = node - range.start - 1;
            let in_larger = larger * (small + 1);
            let part = if offset < in_larger {
                offset / (small + 1)
            } else {
                larger + (offset - in_larger) / small
            };
            let start = range.start + 1 + part * small + part.min(larger);
            parent = Some(range.start);
            range = start..start + small + u32::from(part < larger);
            depth += 1;
        }
        (depth, parent, range)
    }

    /// The parent of `node`, or `None` for the root.
    ///
    /// # Panics
    ///
    /// This and the other queries panic if `node` is not below [`Tree::nodes`].
    pub fn parent(&self, node: u32) -> Option<u32> {
        self.find(node).1
    }

    /// The children of `node`, in ascending order.
    pub fn children(&self, node: u32) -> impl ExactSizeIterator<Item = u32> + use<> {
        self.child_subtrees(node).map(|range| range.start)
    }

    /// The subtrees of the children of `node`; each begins with the child itself.
    pub fn child_subtrees(&self, node: u32) -> impl ExactSizeIterator<Item = Range<u32>> + use<> {
        self.parts(&self.find(node).2)
    }

    /// The nodes of the subtree of `node`; the first is `node`.
    pub fn subtree(&self, node: u32) -> Range<u32> {
        self.find(node).2
    }

    /// Hops from the root to `node`.
    pub fn depth_of(&self, node: u32) -> u32 {
        self.find(node).0
    }

    /// Hops from the root to the farthest node.
    pub fn depth(&self) -> u32 {
        // The first part is never smaller than the others.
        let (mut depth, mut size) = (0, self.nodes);
        while size > 1 {
            size = (size - 1).div_ceil(self.degree);
            depth += 1;
        }
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_small_tree_by_hand() {
        let tree = Tree::new(8, 3);
        assert_eq!(tree.children(0).collect::<Vec<_>>(), [1, 4, 6]);
        assert_eq!(tree.children(1).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(tree.subtree(4), 4..6);
        assert_eq!(tree.parent(7), Some(6));
        assert_eq!(tree.parent(0), None);
        assert_eq!(tree.depth(), 2);
        assert_eq!(tree.children(7).len(), 0);
        assert_eq!(Tree::new(0, 0), Tree::new(1, 1));
    }

    #[test]
    fn every_small_tree_is_consistent() {
        for n in 1..=70u32 {
            for k in 1..=9 {
                let tree = Tree::new(n, k);
                let mut seen = vec![0; n as usize];
                let mut deepest = 0;
                for node in 0..n {
                    assert!(tree.children(node).len() <= k as usize);
                    let mut next = node + 1;
                    for range in tree.child_subtrees(node) {
                        assert_eq!(range.start, next, "n={n} k={k} node={node}");
                        assert_eq!(tree.parent(range.start), Some(node));
                        assert_eq!(tree.subtree(range.start), range);
                        seen[range.start as usize] += 1;
                        next = range.end;
                    }
                    assert_eq!(next, tree.subtree(node).end);
                    deepest = deepest.max(tree.depth_of(node));
                }
                assert_eq!(seen[0], 0);
                assert!(seen[1..].iter().all(|&s| s == 1));
                assert_eq!(deepest, tree.depth(), "n={n} k={k}");
                // No k-ary tree of n nodes is shallower.
                let full: u32 = (0..tree.depth()).map(|d| k.saturating_pow(d)).sum();
                assert!(n == 1 || full < n, "n={n} k={k}");
            }
        }
    }

    #[test]
    fn degrees() {
        let policy = DegreePolicy::default();
        assert_eq!(policy.degree(1, 4), 2);
        assert_eq!(policy.degree(8, 4), 2);
        assert_eq!(policy.degree(9, 4), 3);
        assert_eq!(policy.degree(512, 16), 8);
        assert_eq!(policy.degree(4096, 16), 16);
        assert_eq!(policy.degree(512, 119), 8, "119 + 8 + 1 = 128 fits");
        assert_eq!(policy.degree(512, 120), 7);
        assert_eq!(policy.degree(512, 126), 2);
        assert_eq!(policy.degree(512, 8192), 2);
        assert_eq!(policy.degree(u32::MAX, u32::MAX), 2);
    }

    proptest! {
        #[test]
        fn depth_limit_holds_unless_connections_forbid(nodes in 1u32..100_000, pes in 0u32..300) {
            let policy = DegreePolicy::default();
            let k = policy.degree(nodes, pes);
            prop_assert!(k >= 2);
            if pes + k < policy.max_connections - 1 {
                prop_assert!(Tree::new(nodes, k).depth() <= policy.max_depth);
                // And it is the smallest such degree.
                prop_assert!(k == 2 || u64::from(k - 1).pow(policy.max_depth) < u64::from(nodes));
            }
        }

        #[test]
        fn large_trees(nodes in 1u32..=u32::MAX, k in 1000u32..=u32::MAX, at: u32) {
            let tree = Tree::new(nodes, k);
            let node = at % nodes;
            let range = tree.subtree(node);
            prop_assert_eq!(range.start, node);
            prop_assert!(range.end <= nodes);
            if let Some(parent) = tree.parent(node) {
                prop_assert!(tree.subtree(parent).contains(&node));
            }
        }
    }
}

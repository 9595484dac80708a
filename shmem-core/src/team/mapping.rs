//! The mapping of a team's members to nodes: which of them share this PE's memory, and who leads on each
//! node.
//!
//! The *leader* on a node is its member of the lowest rank in the team. Of the world and the shared
//! team all of this lies in the node's tables, so they cost nothing; a team that was split keeps
//! lists, which are as long as what they tell of.

#![forbid(unsafe_code)]

use shmem_node::segment::NodeView;

use super::Members;

/// The positions on this node of a team's members, by rank.
#[derive(Debug)]
enum Locals {
    /// All PEs of the node.
    All(usize),
    Some(Box<[u32]>),
}

/// The leaders of a team, as PEs of the world, and who belongs to which.
#[derive(Debug)]
enum Nodes {
    /// All members are on this node.
    One,
    /// The world: the node's tables have it, by node and by PE.
    World {
        leaders: &'static [u32],
        node_of: &'static [u32],
    },
    /// In order of the leaders' ranks.
    Some {
        leaders: Box<[u32]>,
        /// Index into `leaders` by rank.
        of_rank: Box<[u32]>,
    },
}

/// Where the members of a team are.
#[derive(Debug)]
pub(crate) struct Mapping {
    locals: Locals,
    /// Index of this PE among those of its node.
    index: usize,
    nodes: Nodes,
    /// Index of this PE's node.
    node: usize,
}

impl Mapping {
    pub(super) fn of_world(view: &NodeView, local: usize) -> Self {
        let many = view.n_nodes() > 1;
        Self {
            locals: Locals::All(view.n_local()),
            index: local,
            nodes: if many {
                Nodes::World {
                    leaders: view.leader_of(),
                    node_of: view.node_of(),
                }
            } else {
                Nodes::One
            },
            node: if many { view.node() } else { 0 },
        }
    }

    pub(super) fn of_node(view: &NodeView, local: usize) -> Self {
        Self {
            locals: Locals::All(view.n_local()),
            index: local,
            nodes: Nodes::One,
            node: 0,
        }
    }

    /// For a team of any members: `node_of` and `local_of` tell where PEs are.
    pub(super) fn of(members: &Members, me: usize, node_of: &[u32], local_of: &[u32]) -> Self {
        let mine = node_of[me];
        let mut locals = Vec::new();
        let mut index = 0;
        let (mut leaders, mut of_rank) = (Vec::new(), Vec::with_capacity(members.len()));
        let mut known = std::collections::HashMap::new();
        for pe in members.iter() {
            if node_of[pe] == mine {
                if pe == me {
                    index = locals.len();
                }
                locals.push(local_of[pe]);
            }
            let node = *known.entry(node_of[pe]).or_insert_with(|| {
                leaders.push(pe as u32);
                leaders.len() as u32 - 1
            });
            of_rank.push(node);
        }
        let one = leaders.len() == 1;
        Self {
            locals: Locals::Some(locals.into()),
            index,
            node: known[&mine] as usize,
            nodes: if one {
                Nodes::One
            } else {
                Nodes::Some {
                    leaders: leaders.into(),
                    of_rank: of_rank.into(),
                }
            },
        }
    }

    /// Members on this node.
    #[inline]
    pub(crate) fn n_here(&self) -> usize {
        match &self.locals {
            Locals::All(n) => *n,
            Locals::Some(list) => list.len(),
        }
    }

    /// Position on the node of its `i`th member.
    #[inline]
    pub(crate) fn local(&self, i: usize) -> usize {
        match &self.locals {
            Locals::All(_) => i,
            Locals::Some(list) => list[i] as usize,
        }
    }

    /// Index of this PE among the members of its node.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Whether this PE leads on its node.
    #[inline]
    pub(crate) fn leads(&self) -> bool {
        self.index == 0
    }

    /// Number of nodes with members.
    #[inline]
    pub(crate) fn n_nodes(&self) -> usize {
        match &self.nodes {
            Nodes::One => 1,
            Nodes::World { leaders, .. } => leaders.len(),
            Nodes::Some { leaders, .. } => leaders.len(),
        }
    }

    /// Index of this node among them.
    #[inline]
    pub(crate) fn node(&self) -> usize {
        self.node
    }

    /// The leader, as numbered in the world, of a node.
    pub(crate) fn leader(&self, node: usize) -> usize {
        match &self.nodes {
            Nodes::One => unreachable!("nobody asks for leaders where there is one node"),
            Nodes::World { leaders, .. } => leaders[node] as usize,
            Nodes::Some { leaders, .. } => leaders[node] as usize,
        }
    }

    /// Index of the node of a member.
    #[inline]
    pub(crate) fn node_of(&self, rank: usize) -> usize {
        match &self.nodes {
            Nodes::One => 0,
            Nodes::World { node_of, .. } => node_of[rank] as usize,
            Nodes::Some { of_rank, .. } => of_rank[rank] as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six PEs in turn on three nodes.
    const NODE_OF: [u32; 6] = [0, 1, 2, 0, 1, 2];
    const LOCAL_OF: [u32; 6] = [0, 0, 0, 1, 1, 1];

    #[test]
    fn the_lowest_rank_on_a_node_leads() {
        let reversed = Members::all(6).strided(5, -1, 6).unwrap();
        let mapping = Mapping::of(&reversed, 4, &NODE_OF, &LOCAL_OF);
        assert_eq!(
            (mapping.n_here(), mapping.local(0), mapping.local(1)),
            (2, 1, 0)
        );
        assert_eq!(
            (mapping.n_nodes(), mapping.node(), mapping.index()),
            (3, 1, 0)
        );
        let leaders: Vec<_> = (0..3).map(|node| mapping.leader(node)).collect();
        assert_eq!(leaders, [5, 4, 3]);
        let nodes: Vec<_> = (0..6).map(|rank| mapping.node_of(rank)).collect();
        assert_eq!(nodes, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn one_node_needs_no_leaders() {
        let two = Members::all(6).strided(1, 3, 2).unwrap();
        let mapping = Mapping::of(&two, 4, &NODE_OF, &LOCAL_OF);
        assert_eq!(
            (mapping.n_nodes(), mapping.node(), mapping.node_of(1)),
            (1, 0, 0)
        );
        assert!(!mapping.leads());
    }
}

//! The mapping of a team's members to nodes: which of them share this PE's memory, and who leads on each
//! node.
//!
//! The *leader* on a node is its member of the lowest rank in the team. Of the world and the shared
//! team all of this lies in the node's tables, so they cost nothing; a team that was split keeps lists of
//! nodes if it is on several, and of members on this node where they are not in steps.

#![forbid(unsafe_code)]

use shmem_node::segment::NodeView;

use super::members::{Members, Steps};

/// The positions on this node of a team's members, by rank.
#[derive(Debug)]
enum Locals {
    /// All PEs of the node.
    All(usize),
    /// So many in steps.
    Steps {
        first: usize,
        stride: isize,
        len: usize,
    },
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
    Some(Box<Several>),
}

/// The nodes of a team that was split.
#[derive(Debug)]
struct Several {
    /// In order of their ranks.
    leaders: Vec<u32>,
    /// Index into `leaders` by node of the job.
    index_of: Vec<u32>,
    members: Members,
    node_of: &'static [u32],
}

/// What a node's tables tell of the PEs of the job.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    pub(super) n_nodes: usize,
    pub(super) node_of: &'static [u32],
    pub(super) local_of: &'static [u32],
    /// The PEs of this node.
    pub(super) ranks: &'static [u32],
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

    /// For a team of any members, one of them `me`.
    pub(super) fn of(members: &Members, me: usize, tables: Tables) -> Self {
        let rank = members.rank_of(me).expect("this PE is a member");
        let steps = members.steps_among(tables.ranks, rank);
        let in_steps = |steps: &Steps| Locals::Steps {
            first: steps.first,
            stride: steps.stride,
            len: steps.ranks.len(),
        };
        if let Some(steps) = &steps
            && steps.ranks.len() == members.len()
        {
            return Self {
                locals: in_steps(steps),
                index: rank,
                nodes: Nodes::One,
                node: 0,
            };
        }
        const UNKNOWN: u32 = u32::MAX;
        let mut index_of = vec![UNKNOWN; tables.n_nodes];
        let (mut leaders, mut locals, mut index) = (Vec::new(), Vec::new(), 0);
        let mine = tables.node_of[me];
        for pe in members.iter() {
            let node = tables.node_of[pe];
            let known = &mut index_of[node as usize];
            if *known == UNKNOWN {
                *known = leaders.len() as u32;
                leaders.push(pe as u32);
            }
            if steps.is_none() && node == mine {
                if pe == me {
                    index = locals.len();
                }
                locals.push(tables.local_of[pe]);
            }
        }
        let (locals, index) = match &steps {
            Some(steps) => (in_steps(steps), rank - steps.ranks.start),
            None => (Locals::Some(locals.into()), index),
        };
        let node = index_of[mine as usize] as usize;
        Self {
            locals,
            index,
            node,
            nodes: match leaders.len() {
                1 => Nodes::One,
                _ => Nodes::Some(Box::new(Several {
                    leaders,
                    index_of,
                    members: *members,
                    node_of: tables.node_of,
                })),
            },
        }
    }

    /// Members on this node.
    #[inline]
    pub(crate) fn n_here(&self) -> usize {
        match &self.locals {
            Locals::All(n) => *n,
            Locals::Steps { len, .. } => *len,
            Locals::Some(list) => list.len(),
        }
    }

    /// Position on the node of its `i`th member.
    #[inline]
    pub(crate) fn local(&self, i: usize) -> usize {
        match &self.locals {
            Locals::All(_) => i,
            Locals::Steps { first, stride, .. } => first.wrapping_add_signed(stride * i as isize),
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
            Nodes::Some(several) => several.leaders.len(),
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
            Nodes::Some(several) => several.leaders[node] as usize,
        }
    }

    /// Index of the node of a member.
    #[inline]
    pub(crate) fn node_of(&self, rank: usize) -> usize {
        match &self.nodes {
            Nodes::One => 0,
            Nodes::World { node_of, .. } => node_of[rank] as usize,
            Nodes::Some(several) => {
                let pe = several.members.world_pe(rank);
                let pe = pe.expect("ranks are below the length");
                several.index_of[several.node_of[pe] as usize] as usize
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn tables(node_of: Vec<u32>, me: usize) -> Tables {
        let mut here = std::collections::HashMap::new();
        let place = |node: &u32| {
            let next = here.entry(*node).or_insert(0);
            *next += 1;
            *next - 1
        };
        let local_of: Vec<u32> = node_of.iter().map(place).collect();
        let on_mine = |pe: &u32| node_of[*pe as usize] == node_of[me];
        let ranks: Vec<u32> = (0..node_of.len() as u32).filter(on_mine).collect();
        Tables {
            n_nodes: 1 + *node_of.iter().max().unwrap() as usize,
            local_of: local_of.leak(),
            ranks: ranks.leak(),
            node_of: node_of.leak(),
        }
    }

    #[test]
    fn the_lowest_rank_on_a_node_leads() {
        let reversed = Members::all(6).strided(5, -1, 6).unwrap();
        let mapping = Mapping::of(&reversed, 4, tables(vec![0, 1, 2, 0, 1, 2], 4));
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
    fn one_node_needs_no_lists() {
        let two = Members::all(1000).strided(999, -3, 300).unwrap();
        let mapping = Mapping::of(&two, 999 - 30, tables(vec![0; 1000], 999 - 30));
        assert!(matches!(mapping.locals, Locals::Steps { .. }));
        assert!(matches!(mapping.nodes, Nodes::One));
        assert_eq!((mapping.index(), mapping.local(10)), (10, 999 - 30));
        assert!(!mapping.leads());
    }

    proptest! {
        /// All that is told is what looking at each member one after the other gives.
        #[test]
        fn mappings_are_those_of_lists(
            nodes in prop::collection::vec(1usize..6, 1..5),
            dealt in any::<bool>(),
            (start, stride, size) in (0isize..20, -4isize..5, 1isize..12),
            which in any::<prop::sample::Index>(),
            shared in any::<bool>(),
        ) {
            let n: usize = nodes.iter().sum();
            let node_of: Vec<u32> = match dealt {
                true => (0..n).map(|pe| (pe % nodes.len()) as u32).collect(),
                false => nodes.iter().enumerate().flat_map(|(node, &n)| vec![node as u32; n]).collect(),
            };
            let all = match shared {
                true => Members::listed(tables(node_of.clone(), which.index(n)).ranks),
                false => Members::all(n),
            };
            let Some(members) = all.strided(start, stride, size) else { return Ok(()) };
            let list: Vec<usize> = members.iter().collect();
            let me = list[which.index(list.len())];
            let tables = tables(node_of, me);
            let mapping = Mapping::of(&members, me, tables);
            let node = |pe: usize| tables.node_of[pe];
            let here: Vec<usize> = list.iter().copied().filter(|&pe| node(pe) == node(me)).collect();
            prop_assert_eq!(mapping.n_here(), here.len());
            for (i, &pe) in here.iter().enumerate() {
                prop_assert_eq!(mapping.local(i), tables.local_of[pe] as usize);
            }
            prop_assert_eq!(here[mapping.index()], me);
            let mut leaders: Vec<usize> = Vec::new();
            for (rank, &pe) in list.iter().enumerate() {
                let known = leaders.iter().position(|&leader| node(leader) == node(pe));
                let index = known.unwrap_or(leaders.len());
                if known.is_none() {
                    leaders.push(pe);
                }
                prop_assert_eq!(mapping.node_of(rank), index);
                if pe == me {
                    prop_assert_eq!(mapping.node(), index);
                }
            }
            prop_assert_eq!(mapping.n_nodes(), leaders.len());
            if leaders.len() > 1 {
                let told: Vec<usize> = (0..leaders.len()).map(|i| mapping.leader(i)).collect();
                prop_assert_eq!(told, leaders);
            }
        }
    }
}

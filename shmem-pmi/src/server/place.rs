//! What a server knows from the start: the job, and its own place in the tree.

use super::cache::CachePolicy;
use crate::ranks::RankSet;
use crate::tree::Tree;

/// Facts of the job, the same on all nodes. The default is a job without PEs, for those who name
/// only what they need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// Job id, the name of the job's key-value space.
    pub id: String,
    /// Number of PEs.
    pub size: u32,
    /// Number of the program among those of the job; -1 to leave it open.
    pub appnum: i32,
    /// If the job has several programs, the number of PEs of each, in the order of ranks: the PEs of
    /// the first have number 0, and so on. Those beyond have [`Job::appnum`].
    pub programs: Vec<u32>,
    /// Value of the attribute `PMI_process_mapping`. Common clients read at most
    /// [`crate::wire::MAX_VALUE`] bytes of an attribute.
    pub process_mapping: String,
    /// Other job attributes by name, for example `universeSize`.
    pub attributes: Vec<(String, String)>,
    /// Id of the job that spawned this one.
    pub spawner: Option<String>,
    /// Pairs that are in the key-value space from the start.
    pub preputs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the extension commands are served.
    pub extensions: bool,
    /// How pairs travel between agents, and which of them each keeps.
    pub cache: CachePolicy,
    /// Whether a PE whose connection ends may come back ([`super::NodeServer::restart`]). Who wants a key
    /// or a message of it then goes on waiting, until it is restarted and gives it, or
    /// [`super::NodeServer::will_not_return`].
    pub respawn: bool,
}

impl Job {
    /// The number of a PE's program.
    pub(super) fn appnum_of(&self, rank: u32) -> i32 {
        let mut end = 0_u64;
        let program = self.programs.iter().position(|&pes| {
            end += u64::from(pes);
            u64::from(rank) < end
        });
        let program = program.and_then(|program| i32::try_from(program).ok());
        program.unwrap_or(self.appnum)
    }
}

/// The place of a server: its PEs, and its links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlace {
    /// Ranks of the PEs of this node, by local index. May be empty.
    pub ranks: Vec<u32>,
    /// Whether there is a parent; if not, this is the root.
    pub has_parent: bool,
    /// For each child agent the ranks of all PEs of its subtree, its own node included.
    pub children: Vec<RankSet>,
}

impl NodePlace {
    /// The place of node `node` of `tree`, in a job whose rank r runs on node `node_of_rank[r]`.
    /// Local indices are in the order of ranks.
    ///
    /// # Panics
    ///
    /// If `node` is not a node of the tree.
    pub fn in_tree(tree: &Tree, node: u32, node_of_rank: &[u32]) -> Self {
        let ranks_in = |nodes: std::ops::Range<u32>| {
            (0..)
                .zip(node_of_rank)
                .filter(move |(_, at)| nodes.contains(at))
                .map(|(rank, _)| rank)
        };
        Self {
            ranks: ranks_in(node..node + 1).collect(),
            has_parent: tree.parent(node).is_some(),
            children: tree
                .child_subtrees(node)
                .map(|nodes| ranks_in(nodes).collect())
                .collect(),
        }
    }

    /// All ranks of the subtree, after the check that they make sense.
    pub(super) fn subtree(&self, size: u32) -> Result<RankSet, ConfigError> {
        let own: RankSet = self.ranks.iter().copied().collect();
        if own.len() != self.ranks.len() {
            return Err(ConfigError::RankTwiceOnNode {
                ranks: own.to_string(),
                given: self.ranks.len(),
            });
        }
        let sets = std::iter::once(&own).chain(&self.children);
        let subtree =
            RankSet::disjoint_union(sets).map_err(|rank| ConfigError::RankTwice { rank })?;
        if let Some(last) = subtree.runs().last()
            && last.end > size
        {
            return Err(ConfigError::RankBeyondSize {
                rank: last.end - 1,
                size,
            });
        }
        if !self.has_parent && subtree.len() != size as usize {
            return Err(ConfigError::Incomplete {
                ranks: subtree.to_string(),
                size,
            });
        }
        Ok(subtree)
    }
}

/// A server cannot stand at the given place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The list of the node's ranks names one twice.
    #[error("{given} PEs on the node, but their ranks are only {ranks}")]
    RankTwiceOnNode {
        /// The distinct ranks.
        ranks: String,
        /// Length of the list.
        given: usize,
    },
    /// Two rank sets overlap.
    #[error("rank {rank} is both on the node and below a child, or below two children")]
    RankTwice {
        /// The smallest such rank.
        rank: u32,
    },
    /// A rank that the job does not have.
    #[error("rank {rank} in a job of {size} PEs")]
    RankBeyondSize {
        /// The largest rank.
        rank: u32,
        /// Number of PEs of the job.
        size: u32,
    },
    /// The root does not reach all PEs.
    #[error("the tree reaches only ranks {ranks} of a job of {size} PEs")]
    Incomplete {
        /// The ranks that it reaches.
        ranks: String,
        /// Number of PEs of the job.
        size: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(ranks: &[u32], has_parent: bool, children: &[&[u32]]) -> NodePlace {
        NodePlace {
            ranks: ranks.to_vec(),
            has_parent,
            children: children
                .iter()
                .map(|ranks| ranks.iter().copied().collect())
                .collect(),
        }
    }

    #[test]
    fn places_are_checked() {
        assert_eq!(
            place(&[3, 0], false, &[&[1], &[2]]).subtree(4),
            Ok(RankSet::from(0..4))
        );
        let error = |place: NodePlace| place.subtree(4).unwrap_err();
        assert!(matches!(
            error(place(&[0, 0], true, &[])),
            ConfigError::RankTwiceOnNode { given: 2, .. }
        ));
        assert_eq!(
            error(place(&[0, 1], true, &[&[1]])),
            ConfigError::RankTwice { rank: 1 }
        );
        assert_eq!(
            error(place(&[0], true, &[&[4]])),
            ConfigError::RankBeyondSize { rank: 4, size: 4 }
        );
        assert!(matches!(
            error(place(&[0, 1], false, &[&[3]])),
            ConfigError::Incomplete { .. }
        ));
    }

    #[test]
    fn places_in_a_tree_fit_together() {
        let node_of_rank = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 6];
        let tree = Tree::new(7, 2);
        for node in 0..7 {
            let own = NodePlace::in_tree(&tree, node, &node_of_rank);
            own.subtree(11).unwrap();
            for (child, ranks) in tree.children(node).zip(&own.children) {
                let below = NodePlace::in_tree(&tree, child, &node_of_rank);
                assert!(below.has_parent);
                assert_eq!(&below.subtree(11).unwrap(), ranks);
            }
        }
        assert!(NodePlace::in_tree(&tree, 5, &node_of_rank).ranks.is_empty());
    }
}

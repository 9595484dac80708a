//! What was asked for, made definite: which rank runs on which node.
//!
//! Ranks are placed block-wise: node 0 has the first ranks, node 1 the next. Nodes differ by at
//! most one PE, so the layout is two numbers and every agent computes its own part of it.

use std::ops::Range;

/// Most PEs of a job.
pub const MAX_PES: u32 = 1 << 20;

/// How ranks lie on nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    n_pes: u32,
    n_nodes: u32,
}

/// A request that cannot be met, with what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A number must not be 0.
    #[error("{option} 0 starts nothing; give a number of at least 1")]
    Zero {
        /// The option.
        option: &'static str,
    },
    /// More PEs than a launcher can start.
    #[error("{n} PEs are more than shmrun can start ({max}); lower {option}", max = MAX_PES)]
    TooMany {
        /// PEs asked for.
        n: u64,
        /// The option that asks for them.
        option: &'static str,
    },
    /// A node would have no PE.
    #[error(
        "{n} PEs cannot occupy {nodes} nodes: each node needs a PE; lower --nodes to {n} or less"
    )]
    EmptyNodes {
        /// PEs asked for.
        n: u32,
        /// Nodes asked for.
        nodes: u32,
    },
    /// The nodes have no room for the PEs.
    #[error(
        "{n} PEs do not fit on {nodes} nodes with {ppn} PEs each ({room}); raise --nodes to {need} \
         or --ppn to {each}",
        room = u64::from(*nodes) * u64::from(*ppn),
        need = n.div_ceil(*ppn),
        each = n.div_ceil(*nodes)
    )]
    NoRoom {
        /// PEs asked for.
        n: u32,
        /// Nodes asked for.
        nodes: u32,
        /// PEs allowed on each.
        ppn: u32,
    },
}

impl Layout {
    /// Combines `-n`, `--nodes` and `--ppn`. Without `-n`, nodes are filled; without `--nodes`,
    /// as few nodes are used as `--ppn` allows (one if that is not given either).
    ///
    /// # Errors
    /// When the numbers contradict each other.
    pub fn new(n: Option<u32>, nodes: Option<u32>, ppn: Option<u32>) -> Result<Self, PlanError> {
        for (option, value) in [("-n", n), ("--nodes", nodes), ("--ppn", ppn)] {
            if value == Some(0) {
                return Err(PlanError::Zero { option });
            }
        }
        let wanted = match n {
            Some(n) => u64::from(n),
            None => u64::from(nodes.unwrap_or(1)) * u64::from(ppn.unwrap_or(1)),
        };
        let n_pes = match u32::try_from(wanted) {
            Ok(n) if n <= MAX_PES => n,
            _ => {
                let option = if n.is_some() {
                    "-n"
                } else {
                    "--nodes or --ppn"
                };
                return Err(PlanError::TooMany { n: wanted, option });
            }
        };
        let n_nodes = nodes.unwrap_or_else(|| ppn.map_or(1, |ppn| n_pes.div_ceil(ppn)));
        if n_nodes > n_pes {
            return Err(PlanError::EmptyNodes {
                n: n_pes,
                nodes: n_nodes,
            });
        }
        if let Some(ppn) = ppn
            && u64::from(n_nodes) * u64::from(ppn) < u64::from(n_pes)
        {
            return Err(PlanError::NoRoom {
                n: n_pes,
                nodes: n_nodes,
                ppn,
            });
        }
        Ok(Self { n_pes, n_nodes })
    }

    /// A layout that is already known to be possible: `1 <= n_nodes <= n_pes`.
    pub fn of(n_pes: u32, n_nodes: u32) -> Self {
        assert!(
            (1..=n_pes).contains(&n_nodes),
            "{n_pes} PEs on {n_nodes} nodes"
        );
        Self { n_pes, n_nodes }
    }

    /// PEs of the job.
    pub fn n_pes(&self) -> u32 {
        self.n_pes
    }

    /// Nodes of the job.
    pub fn n_nodes(&self) -> u32 {
        self.n_nodes
    }

    /// PEs on the fullest node.
    pub fn max_per_node(&self) -> u32 {
        self.n_pes.div_ceil(self.n_nodes)
    }

    /// The ranks of a node.
    pub fn ranks(&self, node: u32) -> Range<u32> {
        let (each, more) = (self.n_pes / self.n_nodes, self.n_pes % self.n_nodes);
        let start = node * each + node.min(more);
        start..start + each + u32::from(node < more)
    }

    /// The node of each rank.
    pub fn node_of(&self) -> Vec<u32> {
        let mut out = Vec::with_capacity(self.n_pes as usize);
        for node in 0..self.n_nodes {
            out.resize(self.ranks(node).end as usize, node);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_combine() {
        let plan = |n, k, p| Layout::new(n, k, p).map(|l| (l.n_pes(), l.n_nodes()));
        assert_eq!(plan(None, None, None), Ok((1, 1)));
        assert_eq!(plan(Some(8), None, None), Ok((8, 1)));
        assert_eq!(plan(Some(8), Some(4), None), Ok((8, 4)));
        assert_eq!(plan(Some(9), None, Some(4)), Ok((9, 3)));
        assert_eq!(plan(None, Some(3), Some(4)), Ok((12, 3)));
        assert_eq!(plan(Some(8), Some(4), Some(4)), Ok((8, 4)));
    }

    #[test]
    fn contradictions_say_what_to_change() {
        let text = |n, k, p| Layout::new(n, k, p).unwrap_err().to_string();
        assert!(text(Some(3), Some(4), None).contains("lower --nodes to 3"));
        let t = text(Some(9), Some(2), Some(4));
        assert!(
            t.contains("raise --nodes to 3") && t.contains("--ppn to 5"),
            "{t}"
        );
        assert!(text(Some(0), None, None).contains("-n 0"));
        assert!(text(None, Some(u32::MAX), Some(u32::MAX)).contains("lower --nodes or --ppn"));
        assert!(text(Some(MAX_PES + 1), None, None).contains("lower -n"));
    }

    proptest! {
        #[test]
        fn every_rank_has_one_node(n in 1u32..500, nodes in 1u32..500) {
            prop_assume!(nodes <= n);
            let l = Layout::new(Some(n), Some(nodes), None).unwrap();
            let node_of = l.node_of();
            prop_assert_eq!(node_of.len(), n as usize);
            prop_assert!(node_of.is_sorted());
            let mut next = 0;
            for node in 0..nodes {
                let ranks = l.ranks(node);
                prop_assert_eq!(ranks.start, next);
                prop_assert!(!ranks.is_empty() && ranks.len() as u32 <= l.max_per_node());
                prop_assert!(ranks.len() as u32 + 1 >= l.max_per_node());
                prop_assert!(ranks.clone().all(|r| node_of[r as usize] == node));
                next = ranks.end;
            }
            prop_assert_eq!(next, n);
        }
    }
}

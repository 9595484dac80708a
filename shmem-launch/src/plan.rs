//! What was asked for, made definite: which rank runs on which node.
//!
//! Ranks are placed block-wise: node 0 has the first ranks, node 1 the next. Without slots nodes
//! differ by at most one PE, so the layout is two numbers and every agent computes its own part of it;
//! with slots it is the number of PEs of each host.

use std::ops::Range;
use std::sync::Arc;

use shmem_node::contract::MAX_PES;

use crate::hosts::Host;

/// How ranks lie on nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    n_pes: u32,
    n_nodes: u32,
    /// The rank after each node's last, where nodes are not filled evenly.
    ends: Option<Arc<[u32]>>,
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
    /// The hosts have no room for the PEs.
    #[error(
        "{n} PEs do not fit on {hosts} hosts with {slots} slots; name more hosts or slots, or lower -n"
    )]
    NoSlots {
        /// PEs asked for.
        n: u32,
        /// Hosts named.
        hosts: usize,
        /// Their slots.
        slots: u64,
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
        Ok(Self::of(n_pes, n_nodes))
    }

    /// PEs on hosts, in their order. Where slots were named, or `ppn`, which limits those of every
    /// host, a host is filled before the next is begun (one that names none among others has one);
    /// else PEs are spread evenly. Without `n` all slots are filled. Hosts for which nothing is left
    /// at the end of the list have no part in the job.
    ///
    /// # Errors
    /// When there are not enough slots.
    pub fn on_hosts(n: Option<u32>, hosts: &[Host], ppn: Option<u32>) -> Result<Self, PlanError> {
        for (option, value) in [("-n", n), ("--ppn", ppn)] {
            if value == Some(0) {
                return Err(PlanError::Zero { option });
            }
        }
        let too_many = |n| {
            let option = "-n or the number of slots";
            Err(PlanError::TooMany { n, option })
        };
        let bounded = ppn.is_some() || hosts.iter().any(|h| h.slots.is_some());
        let slots = |h: &Host| match (h.slots, ppn) {
            (Some(slots), Some(ppn)) => slots.min(ppn),
            (Some(slots), None) => slots,
            (None, ppn) => ppn.unwrap_or(1),
        };
        let room: u64 = hosts.iter().map(|h| u64::from(slots(h))).sum();
        let wanted = n.map_or(room, u64::from);
        if wanted > MAX_PES.into() {
            return too_many(wanted);
        }
        let n = wanted as u32;
        if !bounded {
            return Ok(Self::of(n, n.min(hosts.len() as u32)));
        }
        if wanted > room {
            return Err(PlanError::NoSlots {
                n,
                hosts: hosts.len(),
                slots: room,
            });
        }
        let mut left = n;
        let take = |h: &Host| {
            let here = left.min(slots(h));
            left -= here;
            here
        };
        let counts: Vec<u32> = hosts.iter().map(take).take_while(|&n| n > 0).collect();
        Ok(Self::of_counts(&counts).expect("every host has PEs, and they were counted"))
    }

    /// A layout with so many PEs on each node; `None` if a node has none, or all have too many.
    pub fn of_counts(counts: &[u32]) -> Option<Self> {
        let mut ends = Vec::with_capacity(counts.len());
        let mut end = 0u32;
        for &n in counts {
            end = end.checked_add(n).filter(|&end| n > 0 && end <= MAX_PES)?;
            ends.push(end);
        }
        Some(Self {
            n_pes: end,
            n_nodes: u32::try_from(ends.len()).ok().filter(|&n| n > 0)?,
            ends: Some(ends.into()),
        })
    }

    /// A layout that is already known to be possible: `1 <= n_nodes <= n_pes`.
    pub fn of(n_pes: u32, n_nodes: u32) -> Self {
        assert!(
            (1..=n_pes).contains(&n_nodes),
            "{n_pes} PEs on {n_nodes} nodes"
        );
        Self {
            n_pes,
            n_nodes,
            ends: None,
        }
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
        match &self.ends {
            None => self.n_pes.div_ceil(self.n_nodes),
            Some(_) => (0..self.n_nodes)
                .map(|node| self.ranks(node).len() as u32)
                .max()
                .unwrap_or(0),
        }
    }

    /// The ranks of a node.
    pub fn ranks(&self, node: u32) -> Range<u32> {
        if let Some(ends) = &self.ends {
            let node = node as usize;
            return node.checked_sub(1).map_or(0, |before| ends[before])..ends[node];
        }
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

    fn hosts(slots: &[Option<u32>]) -> Vec<Host> {
        let name = |i: usize| format!("h{i}");
        let host = |(i, &slots)| Host {
            slots,
            ..Host::new(name(i))
        };
        slots.iter().enumerate().map(host).collect()
    }

    fn counts(l: &Layout) -> Vec<usize> {
        (0..l.n_nodes()).map(|n| l.ranks(n).len()).collect()
    }

    #[test]
    fn hosts_are_filled_by_slots_or_evenly() {
        let plan = |n, slots: &[Option<u32>], ppn| {
            Layout::on_hosts(n, &hosts(slots), ppn).map(|l| counts(&l))
        };
        assert_eq!(plan(Some(5), &[None, None], None), Ok(vec![3, 2]));
        assert_eq!(plan(None, &[None; 3], None), Ok(vec![1, 1, 1]));
        assert_eq!(plan(Some(2), &[None; 3], None), Ok(vec![1, 1]));
        assert_eq!(plan(None, &[Some(2), Some(4)], None), Ok(vec![2, 4]));
        assert_eq!(plan(Some(3), &[Some(2), Some(4)], None), Ok(vec![2, 1]));
        assert_eq!(plan(Some(2), &[Some(2), Some(4)], None), Ok(vec![2]));
        assert_eq!(plan(None, &[Some(8), None], None), Ok(vec![8, 1]));
        assert_eq!(plan(None, &[Some(8), None], Some(3)), Ok(vec![3, 3]));
        assert_eq!(
            plan(Some(7), &[Some(2), Some(4)], None),
            Err(PlanError::NoSlots {
                n: 7,
                hosts: 2,
                slots: 6
            })
        );
        assert!(plan(Some(0), &[None], None).is_err());
        assert!(plan(None, &[Some(MAX_PES), Some(1)], None).is_err());
        assert_eq!(Layout::of_counts(&[1, 0]), None);
        assert_eq!(Layout::of_counts(&[]), None);
        assert_eq!(Layout::of_counts(&[u32::MAX, u32::MAX]), None);
    }

    proptest! {
        #[test]
        fn slots_hold_every_rank_once(slots in proptest::collection::vec(1u32..9, 1..40)) {
            let l = Layout::of_counts(&slots).unwrap();
            prop_assert_eq!(l.max_per_node(), *slots.iter().max().unwrap());
            let node_of = l.node_of();
            prop_assert_eq!(node_of.len() as u32, l.n_pes());
            for (node, &n) in (0u32..).zip(&slots) {
                prop_assert_eq!(node_of.iter().filter(|&&at| at == node).count() as u32, n);
            }
            prop_assert!(node_of.is_sorted());
        }

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

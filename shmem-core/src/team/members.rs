//! Who is in a team: arithmetic only.
//!
//! All teams come from the world team or the team of a node's PEs by strided splits, and a strided
//! part of a strided part is strided again. So the members of a team are a few numbers, however
//! many there are: a stride through all PEs or through the ascending list of a node's PEs.

#![forbid(unsafe_code)]

use std::ops::Range;

use shmem_node::waiting::{Team, TeamKind};

/// The members of a team, in order of their rank in it. Cheap to copy.
///
/// # Example
/// ```
/// # let _world = shmem::init().unwrap();
/// let members = shmem::Team::world().members();
/// assert_eq!(members.world_pe(0), Some(0));
/// assert_eq!(members.rank_of(members.len()), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members {
    /// The PEs that positions count, ascending; without it, a position is a PE.
    table: Option<&'static [u32]>,
    /// Position of rank 0.
    start: usize,
    /// Positions from one rank to the next; any number for a single member.
    stride: isize,
    len: usize,
}

/// Members of a node that are in steps among its PEs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Position on the node of the first.
    pub(super) first: usize,
    /// From one to the next.
    pub(super) stride: isize,
    /// Their ranks.
    pub(super) ranks: Range<usize>,
}

impl Members {
    /// PEs 0 to `n` - 1.
    pub(crate) fn all(n: usize) -> Self {
        Self {
            table: None,
            start: 0,
            stride: 1,
            len: n,
        }
    }

    /// The PEs of an ascending list.
    pub(crate) fn listed(pes: &'static [u32]) -> Self {
        debug_assert!(pes.is_sorted_by(|a, b| a < b));
        let first = pes.first().map_or(0, |&pe| pe as usize);
        let dense = pes
            .last()
            .is_some_and(|&last| last as usize - first == pes.len() - 1);
        Self {
            table: (!dense).then_some(pes),
            start: if dense { first } else { 0 },
            stride: 1,
            len: pes.len(),
        }
    }

    /// The `size` members from rank `start` on, `stride` ranks apart; `None` if that is no set of
    /// different members: no member, one that does not exist, or one twice.
    pub(crate) fn strided(&self, start: isize, stride: isize, size: isize) -> Option<Self> {
        let rank = |i: isize| {
            let rank = i.checked_mul(stride)?.checked_add(start)?;
            usize::try_from(rank).ok().filter(|&rank| rank < self.len)
        };
        if size < 1 || (stride == 0 && size > 1) {
            return None;
        }
        let first = rank(0)?;
        rank(size - 1)?;
        Some(Self {
            table: self.table,
            start: self.position(first),
            // Both strides are less than the number of PEs unless there is a single member.
            stride: self.stride.wrapping_mul(stride),
            len: size as usize,
        })
    }

    /// The team of these, as others are told of it.
    pub(super) fn told(&self, kind: TeamKind, slot: usize) -> Team {
        Team {
            kind,
            slot: slot as u8,
            listed: self.table.is_some(),
            first: self.start as u32,
            stride: self.stride as i32,
            size: self.len as u32,
        }
    }

    /// The members that are among the PEs of a node, an ascending list that has the member of rank `mine`, if
    /// they are in steps there.
    pub(super) fn steps_among(&self, pes: &[u32], mine: usize) -> Option<Steps> {
        let (low, n) = match self.table {
            // It is that list.
            Some(_) => (0, pes.len()),
            None => (pes[0] as usize, pes.len()),
        };
        if self.table.is_none() && pes[n - 1] as usize - low != n - 1 {
            return None;
        }
        let here = self.position(mine) - low;
        let (before, after) = match self.stride {
            _ if self.len == 1 => (0, 0),
            stride if stride > 0 => (here / stride as usize, (n - 1 - here) / stride as usize),
            stride => {
                let stride = stride.unsigned_abs();
                ((n - 1 - here) / stride, here / stride)
            }
        };
        let ranks = mine.saturating_sub(before)..self.len.min(mine + after + 1);
        Some(Steps {
            first: self.position(ranks.start) - low,
            stride: self.stride,
            ranks,
        })
    }

    fn position(&self, rank: usize) -> usize {
        self.start
            .wrapping_add_signed(self.stride.wrapping_mul(rank as isize))
    }

    /// Number of members.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none, which is true of no team.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The PE, as numbered in the world team, that has this rank; `None` if there is no such rank.
    #[inline]
    #[must_use]
    pub fn world_pe(&self, rank: usize) -> Option<usize> {
        if rank >= self.len {
            return None;
        }
        let position = self.position(rank);
        Some(match self.table {
            None => position,
            Some(table) => table[position] as usize,
        })
    }

    /// The rank of a PE of the world team; `None` if it is no member.
    #[inline]
    pub fn rank_of(&self, world_pe: usize) -> Option<usize> {
        let position = match self.table {
            None => world_pe,
            Some(table) => table.binary_search(&u32::try_from(world_pe).ok()?).ok()?,
        };
        let distance = (position as isize).wrapping_sub(self.start as isize);
        let rank = match self.stride {
            _ if distance == 0 => 0,
            0 => return None,
            stride if distance % stride != 0 => return None,
            stride => distance / stride,
        };
        usize::try_from(rank).ok().filter(|&rank| rank < self.len)
    }

    /// All members, by rank.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        (0..self.len).map(|rank| self.world_pe(rank).expect("ranks below the length exist"))
    }
}

impl std::fmt::Display for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pe = |rank: usize| self.world_pe(rank).unwrap_or_default();
        match self.len {
            1 => write!(f, "PE {}", pe(0)),
            2 => write!(f, "PEs {} and {}", pe(0), pe(1)),
            n => write!(f, "PEs {}, {}, .. {}", pe(0), pe(1), pe(n - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nonsense_is_refused() {
        let ten = Members::all(10);
        for (start, stride, size) in [
            (0, 1, 0),
            (0, 1, -1),
            (-1, 1, 2),
            (10, 1, 1),
            (0, 1, 11),
            (0, 0, 2),
            (3, -2, 3),
            (0, isize::MAX, 3),
            (0, isize::MIN, 2),
            (isize::MAX, isize::MAX, isize::MAX),
        ] {
            assert_eq!(
                ten.strided(start, stride, size),
                None,
                "{start} {stride} {size}"
            );
        }
        for stride in [0, 1, -7, isize::MAX, isize::MIN] {
            let one = ten.strided(9, stride, 1).unwrap();
            assert_eq!((one.world_pe(0), one.world_pe(1)), (Some(9), None));
            assert_eq!(
                (one.rank_of(9), one.rank_of(8), one.rank_of(10)),
                (Some(0), None, None)
            );
            let same = one.strided(0, stride, 1).unwrap();
            assert_eq!(same.rank_of(9), Some(0));
        }
    }

    #[test]
    fn a_dense_list_needs_no_table() {
        assert_eq!(Members::listed(&[3, 4, 5]).table, None);
        let sparse = Members::listed(&[1, 4, 6]);
        assert_eq!(sparse.iter().collect::<Vec<_>>(), [1, 4, 6]);
        assert_eq!((sparse.rank_of(4), sparse.rank_of(5)), (Some(1), None));
    }

    proptest! {
        /// Parts of parts are what picking elements of lists gives.
        #[test]
        fn strides_compose(
            listed in any::<bool>(),
            cuts in prop::collection::vec((-3isize..20, -5isize..6, -1isize..12), 1..4),
        ) {
            const SOME: &[u32] = &[0, 2, 3, 7, 8, 11, 12, 13, 17, 20, 21, 25];
            let mut members = if listed { Members::listed(SOME) } else { Members::all(15) };
            let mut list: Vec<usize> = members.iter().collect();
            for (start, stride, size) in cuts {
                let picked: Option<Vec<usize>> = (0..size)
                    .map(|i| list.get(usize::try_from(start + i * stride).ok()?).copied())
                    .collect();
                let sensible = size >= 1 && (stride != 0 || size == 1);
                let Some(cut) = members.strided(start, stride, size) else {
                    prop_assert!(!sensible || picked.is_none());
                    continue;
                };
                prop_assert!(sensible);
                list = picked.unwrap();
                members = cut;
                prop_assert_eq!(members.iter().collect::<Vec<_>>(), list.clone());
                for pe in 0..30 {
                    prop_assert_eq!(members.rank_of(pe), list.iter().position(|&x| x == pe));
                }
            }
        }
    }
}

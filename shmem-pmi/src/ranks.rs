//! Sets of ranks, kept as runs: the PEs of a node or of a subtree.
//!
//! Block-wise placement makes them one run whatever the size of the job; the worst placement
//! (cyclic) costs one run for each rank.

use std::fmt;
use std::ops::Range;

/// A set of ranks in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RankSet {
    /// Disjoint, not adjacent, ascending.
    runs: Vec<Range<u32>>,
    /// For each run, how many ranks the runs before it hold.
    before: Vec<usize>,
    len: usize,
}

impl RankSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of ranks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The maximal runs of consecutive ranks, ascending.
    pub fn runs(&self) -> &[Range<u32>] {
        &self.runs
    }

    /// The smallest rank.
    pub fn first(&self) -> Option<u32> {
        self.runs.first().map(|run| run.start)
    }

    /// All ranks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().cloned().flatten()
    }

    /// How many ranks of the set are smaller than `rank`, if the set holds `rank`.
    pub fn position(&self, rank: u32) -> Option<usize> {
        let run = self.runs.partition_point(|run| run.end <= rank);
        let found = self.runs.get(run)?;
        found
            .contains(&rank)
            .then(|| self.before[run] + (rank - found.start) as usize)
    }

    /// Whether the set holds `rank`.
    pub fn contains(&self, rank: u32) -> bool {
        self.position(rank).is_some()
    }

    /// The set with these runs, if they are as [`RankSet::runs`] gives them.
    pub fn from_runs(runs: &[Range<u32>]) -> Option<Self> {
        let mut set = Self::new();
        for run in runs {
            let apart = set.runs.last().is_none_or(|last| last.end < run.start);
            if run.is_empty() || !apart {
                return None;
            }
            set.push(run.clone());
        }
        Some(set)
    }

    /// The smallest rank that both sets hold.
    pub fn common(&self, other: &Self) -> Option<u32> {
        let (mut ours, mut theirs) = (self.runs.iter().peekable(), other.runs.iter().peekable());
        loop {
            let (a, b) = (*ours.peek()?, *theirs.peek()?);
            if a.start < b.end && b.start < a.end {
                return Some(a.start.max(b.start));
            }
            match a.end <= b.start {
                true => ours.next(),
                false => theirs.next(),
            };
        }
    }

    /// Whether `other` holds all ranks of this set.
    pub fn is_within(&self, other: &Self) -> bool {
        self.runs.iter().all(|run| {
            let at = other.runs.partition_point(|o| o.end <= run.start);
            let holds = |o: &Range<u32>| o.start <= run.start && run.end <= o.end;
            other.runs.get(at).is_some_and(holds)
        })
    }

    /// Adds a run that begins behind all others.
    fn push(&mut self, run: Range<u32>) {
        let count = run.len();
        if count == 0 {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => {
                self.before.push(self.len);
                self.runs.push(run);
            }
        }
        self.len += count;
    }

    /// The union of sets that have no rank in common; a common rank is returned as the error.
    ///
    /// # Errors
    ///
    /// The smallest rank that is in two of the sets.
    pub fn disjoint_union<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Result<Self, u32> {
        let mut runs: Vec<_> = sets.into_iter().flat_map(|set| &set.runs).collect();
        runs.sort_unstable_by_key(|run| run.start);
        let mut union = Self::new();
        for run in runs {
            if union.runs.last().is_some_and(|last| last.end > run.start) {
                return Err(run.start);
            }
            union.push(run.clone());
        }
        Ok(union)
    }
}

impl From<Range<u32>> for RankSet {
    fn from(range: Range<u32>) -> Self {
        let mut set = Self::new();
        set.push(range);
        set
    }
}

impl FromIterator<u32> for RankSet {
    /// Collects ranks in any order; ranks that come twice count once.
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut ranks: Vec<u32> = ranks.into_iter().collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut set = Self::new();
        for run in ranks.chunk_by(|a, b| a + 1 == *b) {
            // The last rank of a u32 range has no end: ranks stay below u32::MAX.
            set.push(run[0]..run[run.len() - 1].saturating_add(1));
        }
        set
    }
}

impl fmt::Display for RankSet {
    /// Writes `0-3,7`, and `none` for the empty set. At most 16 runs are named.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_RUNS: usize = 16;
        if self.is_empty() {
            return f.write_str("none");
        }
        for (i, run) in self.runs.iter().take(MAX_RUNS).enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match run.len() {
                1 => write!(f, "{}", run.start)?,
                _ => write!(f, "{}-{}", run.start, run.end - 1)?,
            }
        }
        match self.runs.len().saturating_sub(MAX_RUNS) {
            0 => Ok(()),
            more => write!(f, " and {more} more ranges, {} PEs in all", self.len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn text() {
        let set: RankSet = [7, 3, 1, 2, 0, 3].into_iter().collect();
        assert_eq!(set.to_string(), "0-3,7");
        assert_eq!(RankSet::new().to_string(), "none");
        let cyclic: RankSet = (0..40).map(|r| r * 2).collect();
        assert!(
            cyclic
                .to_string()
                .ends_with("30 and 24 more ranges, 40 PEs in all")
        );
    }

    #[test]
    fn unions() {
        let a: RankSet = [0, 1, 4].into_iter().collect();
        let b: RankSet = [2, 3].into_iter().collect();
        assert_eq!(
            RankSet::disjoint_union([&a, &b]),
            Ok(RankSet::from(0..5)),
            "adjacent runs grow together"
        );
        assert_eq!(RankSet::disjoint_union([&a, &RankSet::from(3..6)]), Err(4));
        assert_eq!(RankSet::disjoint_union([]), Ok(RankSet::new()));
    }

    #[test]
    fn runs_that_are_none_are_refused() {
        let runs = |ends: &[[u32; 2]]| {
            let runs: Vec<_> = ends.iter().map(|&[start, end]| start..end).collect();
            RankSet::from_runs(&runs)
        };
        assert_eq!(runs(&[[1, 2], [4, 7]]).map(|set| set.len()), Some(4));
        for wrong in [
            &[[3, 3]][..],
            &[[4, 3]],
            &[[0, 2], [2, 3]],
            &[[0, 3], [2, 5]],
            &[[5, 6], [0, 1]],
        ] {
            assert_eq!(runs(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(ranks in prop::collection::vec(0u32..60, 0..40)) {
            let model: BTreeSet<u32> = ranks.iter().copied().collect();
            let set: RankSet = ranks.into_iter().collect();
            prop_assert_eq!(set.len(), model.len());
            prop_assert!(set.iter().eq(model.iter().copied()));
            for rank in 0..61 {
                let position = model.iter().position(|&r| r == rank);
                prop_assert_eq!(set.position(rank), position);
            }
            prop_assert_eq!(RankSet::from_runs(set.runs()), Some(set));
        }

        #[test]
        fn sets_are_compared(
            a in prop::collection::btree_set(0u32..30, 0..20), b in prop::collection::btree_set(0u32..30, 0..30),
        ) {
            let set = |model: &BTreeSet<u32>| model.iter().copied().collect::<RankSet>();
            prop_assert_eq!(set(&a).common(&set(&b)), a.intersection(&b).next().copied());
            prop_assert_eq!(set(&a).is_within(&set(&b)), a.is_subset(&b));
        }
    }
}

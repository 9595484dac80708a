//! Sets of ranks as runs: what most sets of PEs are, whose bytes and whose text stay short.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Runs of a set that its text shows; of more it says how many members they have.
const SHOWN: usize = 12;

/// A set of numbers: of PEs, or of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Vec<(u32, u32)>", try_from = "Vec<(u32, u32)>")]
pub struct RankSet {
    /// First and last of each run; ascending, and at least one number apart.
    runs: Vec<(u32, u32)>,
}

/// Runs that are none: one of them ends beyond the numbers, or touches the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("runs of ranks that overlap or do not end")]
pub struct NoRuns;

/// On the wire: how many numbers are missing before a run, and how many follow its first.
impl From<RankSet> for Vec<(u32, u32)> {
    fn from(set: RankSet) -> Self {
        let mut next = 0;
        let mut pairs = Self::with_capacity(set.runs.len());
        for (first, last) in set.runs {
            pairs.push((first - next, last - first));
            next = last.saturating_add(1);
        }
        pairs
    }
}

impl TryFrom<Vec<(u32, u32)>> for RankSet {
    type Error = NoRuns;

    fn try_from(pairs: Vec<(u32, u32)>) -> Result<Self, NoRuns> {
        let mut runs: Vec<(u32, u32)> = Vec::with_capacity(pairs.len());
        for (gap, more) in pairs {
            let first = match runs.last() {
                None => gap,
                Some(_) if gap == 0 => return Err(NoRuns),
                Some(&(_, last)) => last
                    .checked_add(1)
                    .and_then(|next| next.checked_add(gap))
                    .ok_or(NoRuns)?,
            };
            runs.push((first, first.checked_add(more).ok_or(NoRuns)?));
        }
        Ok(Self { runs })
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut ranks: Vec<u32> = ranks.into_iter().collect();
        ranks.sort_unstable();
        Self::of_runs(ranks.into_iter().map(|rank| (rank, rank)))
    }
}

impl RankSet {
    /// From one number to before another.
    pub fn range(range: std::ops::Range<u32>) -> Self {
        match range.is_empty() {
            true => Self::default(),
            false => Self {
                runs: vec![(range.start, range.end - 1)],
            },
        }
    }

    /// From runs whose firsts ascend.
    fn of_runs(sorted: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (first, last) in sorted {
            match runs.last_mut() {
                Some(run) if first <= run.1.saturating_add(1) => run.1 = run.1.max(last),
                _ => runs.push((first, last)),
            }
        }
        Self { runs }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        let lens = self.runs.iter().map(|&(a, b)| u64::from(b - a) + 1);
        lens.sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The lowest.
    pub fn first(&self) -> Option<u32> {
        self.runs.first().map(|run| run.0)
    }

    /// All, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Whether one is among them.
    pub fn contains(&self, rank: u32) -> bool {
        let at = self.runs.partition_point(|run| run.1 < rank);
        self.runs.get(at).is_some_and(|run| run.0 <= rank)
    }

    /// Adds those of another set.
    pub fn add(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        let mut all = [&self.runs[..], &other.runs[..]].concat();
        all.sort_unstable();
        *self = Self::of_runs(all.into_iter());
    }

    /// Those that another set does not have.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut others = other.runs.iter().peekable();
        for &(mut first, last) in &self.runs {
            let mut over = false;
            while let Some(&&(from, to)) = others.peek() {
                if to < first {
                    others.next();
                } else if from > last {
                    break;
                } else {
                    if from > first {
                        left.push((first, from - 1));
                    }
                    if to >= last {
                        over = true;
                        break;
                    }
                    first = to + 1;
                }
            }
            if !over {
                left.push((first, last));
            }
        }
        Self { runs: left }
    }

    /// Those that another set has, too.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }

    /// "PE 5" or "PEs 0-3,7", and how many if that is not plain.
    pub fn named(&self, one: &str) -> String {
        match self.len() {
            1 => format!("{one} {self}"),
            n if n > 2 => format!("{one}s {self} ({n})"),
            _ => format!("{one}s {self}"),
        }
    }
}

/// As lists of hosts are written: `0-3,7`, and `0-62:2` for every second.
impl fmt::Display for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut at = 0;
        let mut shown = 0;
        while at < self.runs.len() {
            if shown == SHOWN {
                let rest = Self {
                    runs: self.runs[at..].to_vec(),
                };
                return write!(f, " and {} more", rest.len());
            }
            if shown > 0 {
                f.write_str(",")?;
            }
            shown += 1;
            let (first, last) = self.runs[at];
            let singles = self.singles(at);
            if singles > 3 {
                let stride = self.runs[at + 1].0 - first;
                write!(f, "{first}-{}:{stride}", self.runs[at + singles - 1].0)?;
                at += singles;
                continue;
            }
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
            at += 1;
        }
        Ok(())
    }
}

impl RankSet {
    /// How many runs from `at` on are single numbers, equally far apart.
    fn singles(&self, at: usize) -> usize {
        let single = |run: &(u32, u32)| run.0 == run.1;
        let runs = &self.runs[at..];
        match runs {
            [a, b, ..] if single(a) => {
                let stride = b.0 - a.0;
                let same = runs
                    .windows(2)
                    .take_while(|w| single(&w[1]) && w[1].0 - w[0].0 == stride);
                same.count() + 1
            }
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(ranks: &[u32]) -> RankSet {
        ranks.iter().copied().collect()
    }

    #[test]
    fn sets_are_written_as_lists_of_hosts_are() {
        let but_13 = RankSet::range(0..64).without(&set(&[13]));
        assert_eq!(but_13.to_string(), "0-12,14-63");
        assert_eq!(but_13.named("PE"), "PEs 0-12,14-63 (63)");
        for (ranks, text) in [
            (&[][..], ""),
            (&[5], "5"),
            (&[5, 6], "5,6"),
            (&[0, 2, 4], "0,2,4"),
            (&[0, 2, 4, 6], "0-6:2"),
            (&[1, 4, 7, 10, 11, 12, 13], "1,4,7,10-13"),
            (&[0, 3, 6, 9, 20], "0-9:3,20"),
        ] {
            assert_eq!(set(ranks).to_string(), text);
        }
        assert_eq!(set(&[7]).named("PE"), "PE 7");
        assert_eq!(set(&[7, 9]).named("node"), "nodes 7,9");
        let pairs: RankSet = (0..40).map(|i| i / 2 * 5 + i % 2).collect();
        assert!(pairs.to_string().ends_with("55,56 and 16 more"), "{pairs}");
    }

    #[test]
    fn runs_that_are_none_are_refused() {
        let max = u32::MAX;
        for pairs in [vec![(0, 3), (0, 1)], vec![(1, max)], vec![(0, max), (1, 0)]] {
            assert_eq!(RankSet::try_from(pairs), Err(NoRuns));
        }
        let all = RankSet::try_from(vec![(0, max)]).unwrap();
        assert_eq!(all.len(), 1 << 32);
        assert_eq!(Vec::from(all), [(0, max)]);
    }

    proptest! {
        #[test]
        fn sets_are_sets(a in prop::collection::btree_set(0u32..60, 0..40),
                         b in prop::collection::btree_set(0u32..60, 0..40)) {
            let of = |s: &BTreeSet<u32>| s.iter().copied().collect::<RankSet>();
            let (x, y) = (of(&a), of(&b));
            prop_assert_eq!(x.len(), a.len() as u64);
            prop_assert!(x.iter().eq(a.iter().copied()));
            prop_assert_eq!(x.without(&y), of(&(&a - &b)));
            prop_assert_eq!(x.common(&y), of(&(&a & &b)));
            let mut sum = x.clone();
            sum.add(&y);
            prop_assert_eq!(sum, of(&(&a | &b)));
            prop_assert!((0..60).all(|i| x.contains(i) == a.contains(&i)));
            let wire: Vec<(u32, u32)> = x.clone().into();
            prop_assert_eq!(RankSet::try_from(wire), Ok(x));
        }
    }
}

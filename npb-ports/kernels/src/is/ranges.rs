//! Which keys a PE ranks: a range of them, so that all have about as many.
//!
//! Most keys are near the middle of their range, and nobody may rely on that: where to cut is found from the
//! keys. As in the reference programs a PE owns whole buckets, next to each other. Those
//! programs count the keys of all buckets first, which is a pass over all keys and costs a third as much as
//! ranking them. To cut well it is enough to count some of them, taken from all over the sequence; how many keys a PE
//! then really gets, and how many lower ones there are, is found when they are sent.

use super::params::Params;
use std::ops::Range;

/// Keys in a row that are counted: memory is fast in rows.
const RUN: usize = 512;

/// As many keys are counted on each PE, about: shares differ by 1 % or so.
const SAMPLE: usize = 16 << 10;

/// Counts in `counts` the buckets of some of `keys`, which are those of a PE.
pub fn sample(params: &Params, keys: &[u32], counts: &mut [u32]) {
    let every = (keys.len() / SAMPLE).max(1);
    let shift = params.shift();
    counts.fill(0);
    for group in keys.chunks(every * RUN) {
        for key in &group[..RUN.min(group.len())] {
            counts[(key >> shift) as usize] += 1;
        }
    }
}

/// The ranges of all PEs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    shift: u32,
    /// The first bucket of each PE, and the end of all.
    starts: Vec<u32>,
    /// The owner of each bucket.
    owners: Vec<u32>,
}

impl Ranges {
    /// Room for `n_pes` PEs. All keys are of the first.
    #[must_use]
    pub fn new(params: &Params, n_pes: usize) -> Self {
        let mut starts = vec![params.buckets() as u32; n_pes + 1];
        starts[0] = 0;
        Self {
            shift: params.shift(),
            starts,
            owners: vec![0; params.buckets()],
        }
    }

    /// Cuts so that PEs have about the same shares of `counts`, one a bucket.
    pub fn cut(&mut self, counts: &[u64]) {
        let total: u64 = counts.iter().sum();
        let n_pes = self.n_pes() as u64;
        let (mut pe, mut below) = (1, 0);
        let twice_share = |pe: u64| 2 * (total * pe / n_pes);
        let mut twice = twice_share(pe);
        for (bucket, count) in counts.iter().enumerate() {
            // The next PE begins here if that is nearer to its share than to begin after this bucket.
            while pe < n_pes && twice < 2 * below + count {
                self.starts[pe as usize] = bucket as u32;
                pe += 1;
                twice = twice_share(pe);
            }
            self.owners[bucket] = pe as u32 - 1;
            below += count;
        }
        let end = counts.len() as u32;
        self.starts[pe as usize..].fill(end);
    }

    /// How many PEs there are.
    #[inline]
    #[must_use]
    pub fn n_pes(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether one PE has all keys.
    #[inline]
    #[must_use]
    pub fn is_of_one(&self) -> bool {
        self.n_pes() == 1
    }

    /// Keys of PE `pe`.
    #[inline]
    #[must_use]
    pub fn keys(&self, pe: usize) -> Range<u64> {
        let key = |pe: usize| u64::from(self.starts[pe]) << self.shift;
        key(pe)..key(pe + 1)
    }

    /// The PE that ranks `key`.
    #[inline]
    #[must_use]
    pub fn owner(&self, key: u32) -> usize {
        self.owners[(key >> self.shift) as usize] as usize
    }
}

/// Values in the widest range of a PE, which is one at the edge: a share x of all values has a part of (4 x)^4 / 24 of all
/// keys there, or less in the middle.
#[must_use]
pub fn widest(params: &Params, n_pes: usize) -> u64 {
    let share = match n_pes {
        1 => 1.0,
        _ => 1.1 * (24.0 / n_pes as f64).powf(0.25) / 4.0,
    };
    let values = 1_u64 << params.log_limit;
    (share * values as f64) as u64 + (1 << params.shift())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::cpu::Level;
    use crate::is::keys::{generate, places};

    fn params() -> Params {
        Params::of(Class::S).unwrap()
    }

    #[test]
    fn ranges_follow_each_other() {
        let params = params();
        let mut counts = vec![0; params.buckets()];
        (counts[3], counts[7], counts[300]) = (100, 50, 1 << 40);
        for counts in [counts, vec![0; params.buckets()], vec![1; params.buckets()]] {
            for n_pes in [1, 2, 3, 8, 128, 1024] {
                let mut ranges = Ranges::new(&params, n_pes);
                ranges.cut(&counts);
                let mut next = 0;
                for pe in 0..n_pes {
                    let keys = ranges.keys(pe);
                    assert_eq!(keys.start, next);
                    assert!(keys.clone().all(|key| ranges.owner(key as u32) == pe));
                    next = keys.end;
                }
                assert_eq!(next, 1 << params.log_limit);
            }
        }
    }

    /// The sums of what `n_pes` PEs count of `keys`, which are all.
    fn samples(params: &Params, n_pes: usize, keys: &[u32]) -> Vec<u64> {
        let mut sums = vec![0; params.buckets()];
        let mut counts = vec![0; params.buckets()];
        for pe in 0..n_pes {
            let Range { start, end } = places(params, pe, n_pes);
            sample(params, &keys[start as usize..end as usize], &mut counts);
            for (sum, count) in sums.iter_mut().zip(&counts) {
                *sum += u64::from(*count);
            }
        }
        sums
    }

    #[test]
    fn everybody_gets_a_fair_share() {
        let params = Params::of(Class::W).unwrap();
        let keys = generate(&params, 0..params.keys(), Level::best()).unwrap();
        for n_pes in [1, 2, 3, 16, 50] {
            let counts = samples(&params, n_pes, &keys);
            let counted: u64 = counts.iter().sum();
            assert!(counted >= params.keys().min(n_pes as u64 * SAMPLE as u64));
            let mut ranges = Ranges::new(&params, n_pes);
            ranges.cut(&counts);
            let mut shares = vec![0; n_pes];
            keys.iter().for_each(|key| shares[ranges.owner(*key)] += 1);
            let fair = params.keys() / n_pes as u64;
            // Half a bucket at either end, and what the sample does not tell.
            let off = fair / 25 + params.keys() * 3 / params.buckets() as u64;
            assert!(
                shares.iter().all(|share| fair.abs_diff(*share) <= off),
                "{shares:?}"
            );
        }
    }

    #[test]
    fn ranges_are_not_wider_than_planned() {
        let params = Params::of(Class::W).unwrap();
        let keys = generate(&params, 0..params.keys(), Level::best()).unwrap();
        for n_pes in [1, 2, 3, 4, 5, 8, 16, 64, 256, 1024] {
            let mut ranges = Ranges::new(&params, n_pes);
            ranges.cut(&samples(&params, n_pes, &keys));
            let width = |pe| ranges.keys(pe).end - ranges.keys(pe).start;
            let found = (0..n_pes).map(width).max().unwrap();
            assert!(found <= widest(&params, n_pes), "{n_pes}: {found}");
        }
    }
}

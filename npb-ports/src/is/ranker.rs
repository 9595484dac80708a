//! The ranking of one PE, and the keys that it sends and gets.
//!
//! The *rank* of a key is the number of smaller keys. A PE counts each of the keys in its range, and sums the counts
//! from the lowest key on: that is an array of ranks for all keys that there may be. The counts are where the ranks
//! will be, and for the range of a PE they are in the second-level cache or not far from it. Keys of other ranges go to
//! their owners, which count them where they land ([`parts`](crate::exchange::parts)).

use super::keys::{change, generate, places};
use super::params::{Params, TESTS};
use super::ranges::{Ranges, sample};
use super::ranks::{count, place, sum_up};
use crate::array::Array;
use crate::cpu::Level;
use crate::exchange::Partners;
use crate::exchange::parts::{Aside, Parts, Sizes};
use std::io;
use std::ops::Range;

/// Up to so many PEs a block of keys is gone through for each of them, with vector instructions; else once, key by key.
const FEW: usize = 12;

/// The keys of one PE, and the ranks of those in its range.
#[derive(Debug)]
pub struct Ranker {
    params: Params,
    pe: usize,
    level: Level,
    /// The places of the PE's keys in the sequence.
    places: Range<u64>,
    keys: Array<u32>,
    ranges: Ranges,
    parts: Parts,
    /// Counts of a sample, by bucket, and after them the tested keys that this PE has.
    told: Vec<u32>,
    /// The same of all PEs together.
    counts: Vec<u64>,
    /// The tested keys.
    tested: [u32; TESTS],
    /// Of each key of the range how many there are, up to and with it.
    upto: Array<u32>,
    /// Keys of lower ranges.
    below: u64,
}

/// Words that PEs tell each other before keys.
#[must_use]
pub fn words(params: &Params) -> usize {
    params.buckets() + TESTS
}

/// The pieces in which keys travel.
#[must_use]
pub fn sizes(params: &Params, n_pes: usize) -> Sizes {
    Sizes::new(n_pes, params.keys() / n_pes as u64, words(params))
}

impl Ranker {
    /// The part of `pe` of `n_pes`, with the keys before the first iteration.
    ///
    /// # Errors
    /// If the system has no address space for it.
    pub fn new(params: Params, pe: usize, n_pes: usize, level: Level) -> io::Result<Self> {
        let places = places(&params, pe, n_pes);
        Ok(Self {
            params,
            pe,
            level,
            keys: generate(&params, places.clone(), level)?,
            places,
            ranges: Ranges::new(&params, n_pes),
            parts: Parts::new(pe, sizes(&params, n_pes)),
            told: vec![0; words(&params)],
            counts: vec![0; params.buckets()],
            tested: [0; TESTS],
            upto: Array::new(1 << params.log_limit)?,
            below: 0,
        })
    }

    /// Ranks all keys, after those have changed that do in `iteration`, from 1. Gives how many tested keys
    /// of this PE's range have the rank that they should.
    pub fn rank(&mut self, iteration: u32, partners: &mut impl Partners<u32>) -> u64 {
        if self.pe == 0 {
            change(&self.params, &mut self.keys, iteration);
        }
        self.cut(partners);
        self.upto().fill(0);
        self.below = self.exchange(partners, count);
        sum_up(self.upto());
        self.right(iteration)
    }

    /// Finds the ranges of all PEs, and the tested keys.
    fn cut(&mut self, partners: &mut impl Partners<u32>) {
        let buckets = self.params.buckets();
        let (sampled, tests) = self.told.split_at_mut(buckets);
        for (told, place) in tests.iter_mut().zip(self.params.tested()) {
            let mine = self.places.contains(&place);
            *told = if mine {
                self.keys[(place - self.places.start) as usize]
            } else {
                0
            };
        }
        self.tested.copy_from_slice(tests);
        if self.ranges.is_of_one() {
            return;
        }
        sample(&self.params, &self.keys, sampled);
        for (count, mine) in self.counts.iter_mut().zip(&*sampled) {
            *count = u64::from(*mine);
        }
        let (counts, tested) = (&mut self.counts, &mut self.tested);
        self.parts.gather(partners, &self.told, |_, told| {
            let (sampled, tests) = told.split_at(buckets);
            for (count, theirs) in counts.iter_mut().zip(sampled) {
                *count += u64::from(*theirs);
            }
            for (key, theirs) in tested.iter_mut().zip(tests) {
                *key += *theirs;
            }
        });
        self.ranges.cut(&self.counts);
    }

    /// What there is for each key of this PE's range.
    fn upto(&mut self) -> &mut [u32] {
        let Range { start, end } = self.ranges.keys(self.pe);
        &mut self.upto[..(end - start) as usize]
    }

    /// Sends all keys to their owners, and gives those of this PE's range to `take`, with the lowest key there may be and
    /// [`upto`](Self::upto). Gives how many keys are of lower ranges.
    fn exchange(
        &mut self,
        partners: &mut impl Partners<u32>,
        mut take: impl FnMut(&[u32], u32, &mut [u32]),
    ) -> u64 {
        let Range { start, end } = self.ranges.keys(self.pe);
        let (low, upto) = (start as u32, &mut self.upto[..(end - start) as usize]);
        if self.ranges.is_of_one() {
            take(&self.keys, low, upto);
            return 0;
        }
        let (ranges, level) = (&self.ranges, self.level);
        let split = |block: &[u32], aside: &mut Aside| split(block, aside, ranges, level);
        self.parts
            .exchange(partners, &self.keys, split, |keys| take(keys, low, upto))
    }

    /// The rank of `key` if it is in this PE's range.
    fn rank_of(&self, key: u32) -> Option<u64> {
        let range = self.ranges.keys(self.pe);
        let at = range
            .contains(&u64::from(key))
            .then(|| u64::from(key) - range.start)?;
        let in_range = match at {
            0 => 0,
            _ => self.upto[at as usize - 1],
        };
        Some(self.below + u64::from(in_range))
    }

    /// How many tested keys of this PE's range have the right rank.
    fn right(&self, iteration: u32) -> u64 {
        let right = |(test, key): (usize, &u32)| {
            self.rank_of(*key) == Some(self.params.rank(test, iteration))
        };
        self.tested
            .iter()
            .enumerate()
            .filter(|test| right(*test))
            .count() as u64
    }

    /// Sorts all keys by their ranks, which are then used up. Gives whether all is as it should: every key of this PE's range has
    /// found a place, they are in order, and none is less than any of lower PEs.
    ///
    /// # Errors
    /// If the system has no address space for the sorted keys.
    pub fn sorts(&mut self, partners: &mut impl Partners<u32>) -> io::Result<bool> {
        let total = self.upto().last().map_or(0, |last| *last as usize);
        let mut sorted = Array::<u32>::new(total)?;
        let mut placed = 0;
        let below = self.exchange(partners, |keys, low, upto| {
            place(keys, low, upto, &mut sorted);
            placed += keys.len();
        });
        let largest = sorted.last().map_or([0; 2], |last| [1, *last]);
        let smallest = sorted.first().copied();
        let mut good = placed == total && below == self.below && sorted.is_sorted();
        self.told.fill(0);
        self.told[..2].copy_from_slice(&largest);
        self.parts.gather(partners, &self.told, |pe, told| {
            let lower = pe < self.pe && told[0] == 1;
            good &= !lower || smallest.is_none_or(|smallest| told[1] <= smallest);
        });
        Ok(good)
    }
}

/// Puts keys aside for their owners.
fn split(block: &[u32], aside: &mut Aside, ranges: &Ranges, level: Level) {
    let n_pes = ranges.n_pes();
    if n_pes <= FEW && level.compresses() {
        for pe in 0..n_pes {
            let Range { start, end } = ranges.keys(pe);
            let (low, width) = (start as u32, (end - start) as u32);
            let count = level.keep(block, low, width, aside.room(pe));
            aside.add(pe, count);
        }
    } else {
        for &key in block {
            aside.push(ranges.owner(key), key);
        }
    }
}

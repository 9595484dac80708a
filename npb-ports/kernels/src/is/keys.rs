//! The keys: their sequence, and which of them a PE begins with.

use super::params::{ITERATIONS, Params};
use crate::array::Array;
use crate::cpu::{Kernel, Level};
use crate::random::{BITS, Lanes, MULTIPLIER, SEED, power};
use std::io;
use std::ops::Range;

/// Random numbers of which a key is made.
const NUMBERS: usize = 4;

/// Keys that are made side by side.
const WIDTH: usize = 16;

/// Keys that change in the iterations, which one PE has: the first.
pub const CHANGING: usize = 2 * ITERATIONS as usize + 1;

/// The places of a PE's keys in the sequence.
#[must_use]
pub fn places(params: &Params, pe: usize, n_pes: usize) -> Range<u64> {
    let (keys, pe, n_pes) = (params.keys(), pe as u64, n_pes as u64);
    let start = |pe: u64| keys / n_pes * pe + pe.min(keys % n_pes);
    start(pe)..start(pe + 1)
}

/// The keys at `places` of the sequence, before the first iteration.
///
/// # Errors
/// If the system has no address space for them.
pub fn generate(params: &Params, places: Range<u64>, level: Level) -> io::Result<Array<u32>> {
    let len = usize::try_from(places.end - places.start).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut keys = Array::new(len)?;
    level.run(Generate {
        first: places.start,
        shift: BITS + NUMBERS.ilog2() - params.log_limit,
        keys: &mut keys,
    });
    Ok(keys)
}

/// Makes the keys from place `first` on. A key is the mean of four random numbers, scaled, and cut off: in integers, their sum
/// shifted to the right.
struct Generate<'a> {
    first: u64,
    shift: u32,
    keys: &'a mut [u32],
}

impl Kernel for Generate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        const STEP: u64 = power(MULTIPLIER, (NUMBERS * WIDTH) as u64);
        // The first number is the one after the seed.
        let first = self.first * NUMBERS as u64 + 1;
        let lanes = |number: u64| Lanes::<WIDTH>::new(SEED, first + number, NUMBERS as u64);
        let mut numbers = [0, 1, 2, 3].map(lanes);
        for keys in self.keys.chunks_mut(WIDTH) {
            let mut sums = [0; WIDTH];
            for lanes in &mut numbers {
                for (sum, word) in sums.iter_mut().zip(&mut lanes.words) {
                    *sum += *word >> (u64::BITS - BITS);
                    *word = word.wrapping_mul(STEP);
                }
            }
            for (key, sum) in keys.iter_mut().zip(sums) {
                *key = (sum >> self.shift) as u32;
            }
        }
    }
}

/// Changes the two keys that change in `iteration`, from 1; `keys` are those of the first PE.
pub fn change(params: &Params, keys: &mut [u32], iteration: u32) {
    let i = iteration as usize;
    keys[i] = iteration;
    keys[i + ITERATIONS as usize] = ((1_u64 << params.log_limit) - u64::from(iteration)) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::random::Lcg;

    #[test]
    fn keys_are_means_of_four_numbers() {
        for class in [Class::S, Class::W, Class::A, Class::E] {
            let params = Params::of(class).unwrap();
            let mut random = Lcg::new(SEED);
            let scale = (1_u64 << params.log_limit) as f64 / 4.0;
            let expected: Vec<u32> = (0..1000)
                .map(|_| {
                    let sum: f64 = (0..4).map(|_| random.next_f64()).sum();
                    (scale * sum) as u32
                })
                .collect();
            for level in Level::supported() {
                for places in [0..1000, 0..1, 17..500, 16..32, 999..1000, 5..5] {
                    let keys = generate(&params, places.clone(), level).unwrap();
                    assert_eq!(
                        keys[..],
                        expected[places.start as usize..places.end as usize]
                    );
                }
            }
        }
    }

    #[test]
    fn every_place_is_of_one_pe() {
        let params = Params::of(Class::S).unwrap();
        for n_pes in [1, 2, 3, 7, 128] {
            let mut next = 0;
            for pe in 0..n_pes {
                let places = places(&params, pe, n_pes);
                assert_eq!(places.start, next);
                assert!(places.end - places.start >= CHANGING as u64);
                next = places.end;
            }
            assert_eq!(next, params.keys());
        }
    }
}

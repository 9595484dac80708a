//! IS of the NAS Parallel Benchmarks, class S, as plain code: integer keys are sorted by counting. Each PE owns a range of keys,
//! gets all of them by one exchange, and counts. `npb-ports/` has the benchmark for measurements.

use std::ops::Range;

use shmem::{Team, World};

const KEYS: usize = 1 << 16;
/// Keys are less than this.
const MAX_KEY: usize = 1 << 11;
const ITERATIONS: usize = 10;

/// The keys at these places have these ranks, but for the number of the iteration, which the first three are to be larger by
/// and the others smaller.
const TEST_PLACES: [usize; 5] = [48427, 17148, 23627, 62548, 4431];
const TEST_RANKS: [usize; 5] = [0, 18, 346, 64917, 65463];

/// Part `i` of `n` of so many, as equal as can be.
fn part(i: usize, n: usize, of: usize) -> Range<usize> {
    i * of / n..(i + 1) * of / n
}

/// The keys at some places, by the benchmark's generator: each is a sum of four random numbers.
fn keys(places: Range<usize>) -> Vec<u32> {
    const FACTOR: u64 = 1_220_703_125; // 5^13
    const MASK: u64 = (1 << 46) - 1;
    let mut x = 314_159_265_u64;
    let mut next = || {
        x = x.wrapping_mul(FACTOR) & MASK;
        x as f64 / (MASK + 1) as f64
    };
    let mut key = || ((MAX_KEY / 4) as f64 * (next() + next() + next() + next())) as u32;
    for _ in 0..places.start {
        key();
    }
    places.map(|_| key()).collect()
}

/// All keys of this PE's range, in order, and how many keys of all PEs are less than the range.
fn sort(world: &Team, keys: &[u32]) -> Result<(Vec<u32>, usize), shmem::Error> {
    let n = world.n_pes();
    let ranges: Vec<_> = (0..n).map(|pe| part(pe, n, MAX_KEY)).collect();
    let mut parts = vec![Vec::new(); n];
    for &key in keys {
        let owner = ranges.partition_point(|range| range.end <= key as usize);
        parts[owner].push(key);
    }
    let got = world.alltoallv(&parts)?;
    let range = &ranges[world.my_pe()];
    let mut counts = vec![0; range.len()];
    for &key in got.iter() {
        counts[key as usize - range.start] += 1;
    }
    let keys = (range.start as u32..).zip(counts);
    let sorted: Vec<u32> = keys.flat_map(|(key, count)| vec![key; count]).collect();
    let before = world.sum_before(sorted.len());
    Ok((sorted, before))
}

/// Whether the keys at the benchmark's places have the ranks that it demands.
fn check(
    world: &World,
    mine: &Range<usize>,
    keys: &[u32],
    sorted: &[u32],
    before: usize,
    iteration: usize,
) {
    let key_at = |place: &usize| match mine.contains(place) {
        true => keys[place - mine.start],
        false => 0,
    };
    let mut tested = TEST_PLACES.each_ref().map(key_at);
    world.max_slice(&mut tested);
    let range = part(world.my_pe(), world.n_pes(), MAX_KEY);
    let ranks = tested.map(|key| match range.contains(&(key as usize)) {
        true => before + sorted.partition_point(|&other| other < key),
        false => 0,
    });
    for (i, rank) in world.sum(ranks).into_iter().enumerate() {
        let want = match i {
            0..3 => TEST_RANKS[i] + iteration,
            _ => TEST_RANKS[i] - iteration,
        };
        assert_eq!(rank, want, "test {i} of iteration {iteration}");
    }
}

fn main() {
    shmem::run(|world| {
        let mine = part(world.my_pe(), world.n_pes(), KEYS);
        let mut keys = keys(mine.clone());
        for iteration in 1..=ITERATIONS {
            for (place, key) in [
                (iteration, iteration),
                (iteration + ITERATIONS, MAX_KEY - iteration),
            ] {
                if mine.contains(&place) {
                    keys[place - mine.start] = key as u32;
                }
            }
            let (sorted, before) = sort(world, &keys)?;
            check(world, &mine, &keys, &sorted, before, iteration);
        }
        if world.my_pe() == 0 {
            println!("{KEYS} keys sorted {ITERATIONS} times, verified");
        }
        Ok(())
    });
}

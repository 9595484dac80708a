//! EP of the NAS Parallel Benchmarks, class S, as plain code: pairs of Gaussian random numbers, counted by size. Each PE takes
//! its share of the batches, and one sum adds all up. `npb-ports/` has the benchmark for measurements.

use shmem::{Arithmetic, Datum};

/// Pairs, and pairs of a batch.
const PAIRS: u64 = 1 << 24;
const BATCH: u64 = 1 << 16;

/// What the benchmark's page says of class S.
const SUMS: [f64; 2] = [-3_247.834_652_034_74, -6_958.407_078_382_297];

const FACTOR: u64 = 1_220_703_125; // 5^13
const SEED: u64 = 271_828_183;
const MASK: u64 = (1 << 46) - 1;

/// The benchmark's generator: numbers in (0, 1).
struct Randoms(u64);

impl Randoms {
    /// From number `skip` of the sequence on.
    fn skipping(skip: u64) -> Self {
        // FACTOR to the power of `skip`, times the seed. The product of 64 bits is right in its low 46.
        let (mut x, mut square, mut rest) = (SEED, FACTOR, skip);
        while rest > 0 {
            if rest % 2 == 1 {
                x = x.wrapping_mul(square);
            }
            square = square.wrapping_mul(square);
            rest /= 2;
        }
        Self(x & MASK)
    }

    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(FACTOR) & MASK;
        self.0 as f64 / (MASK + 1) as f64
    }
}

/// What PEs add up.
#[derive(Clone, Copy, Debug, Default, Datum, Arithmetic)]
#[repr(C)]
struct Totals {
    sums: [f64; 2],
    /// How many pairs have a larger number between i and i + 1.
    counts: [u64; 10],
}

impl Totals {
    fn add_batch(&mut self, batch: u64) {
        let mut randoms = Randoms::skipping(2 * BATCH * batch);
        for _ in 0..BATCH {
            let [x, y] = [randoms.next(), randoms.next()].map(|r| 2.0 * r - 1.0);
            let square = x * x + y * y;
            if square <= 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                let pair = [x * factor, y * factor];
                self.counts[pair[0].abs().max(pair[1].abs()) as usize] += 1;
                self.sums[0] += pair[0];
                self.sums[1] += pair[1];
            }
        }
    }
}

fn main() {
    shmem::run(|world| {
        let mut mine = Totals::default();
        for batch in (world.my_pe() as u64..PAIRS / BATCH).step_by(world.n_pes()) {
            mine.add_batch(batch);
        }
        let Totals { sums, counts } = world.sum(mine);
        for (sum, want) in sums.iter().zip(SUMS) {
            assert!(
                ((sum - want) / want).abs() < 1e-8,
                "{sum} instead of {want}"
            );
        }
        if world.my_pe() == 0 {
            println!("{} Gaussian pairs, verified", counts.iter().sum::<u64>());
        }
        Ok(())
    });
}

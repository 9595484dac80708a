//! A histogram spread over all PEs: everybody adds to everybody's bins with one-sided atomics, and
//! nobody has to take part in anybody else's additions.

use shmem::atomic_inc;

const BINS_PER_PE: usize = 8;
const SAMPLES_PER_PE: u64 = 500;

/// A sequence of numbers that differs between PEs (a linear congruential generator).
fn samples(seed: u64) -> impl Iterator<Item = u64> {
    let mut x = seed;
    std::iter::repeat_with(move || {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        x >> 33
    })
}

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe(), world.n_pes());
        let bins = shmem::alloc::<u64>(BINS_PER_PE)?;

        for sample in samples(me as u64 + 1).take(SAMPLES_PER_PE as usize) {
            let bin = sample as usize % (n * BINS_PER_PE);
            atomic_inc(bins.elem(bin % BINS_PER_PE), bin / BINS_PER_PE);
        }
        world.barrier(); // completes all additions

        // The same, computed alone, is the proof.
        let mut expected = [0u64; BINS_PER_PE];
        for pe in 0..n {
            for sample in samples(pe as u64 + 1).take(SAMPLES_PER_PE as usize) {
                let bin = sample as usize % (n * BINS_PER_PE);
                if bin / BINS_PER_PE == me {
                    expected[bin % BINS_PER_PE] += 1;
                }
            }
        }
        assert_eq!(bins.to_vec(), expected, "bins of PE {me}");

        let total = world.sum(expected.iter().sum::<u64>());
        assert_eq!(total, n as u64 * SAMPLES_PER_PE);
        if me == 0 {
            println!("{total} samples in {} bins on {n} PEs", n * BINS_PER_PE);
        }
        Ok(())
    });
}

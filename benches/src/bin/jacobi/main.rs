//! One program in two manners of the Rust interface, to be compared with each other and with C
//! (`rivals/jacobi.c`): Jacobi's method in a ring of blocks, whose outermost rows go to both neighbours in each
//! step.
//!
//! `shmrun -n 4 --nodes 2 jacobi [ROWS COLS]`: µs a step of PE 0, median and best of batches, of both in turn. The
//! sums of the fields are the same to the last bit.

mod plain;
mod typed;

use std::time::Instant;

use shmem_benches::stats::{median, min};

const BATCHES: usize = 30;
const STEPS: usize = 200;

/// A row of the next field.
fn relax(up: &[f64], at: &[f64], down: &[f64], to: &mut [f64]) {
    let n = at.len();
    to[0] = at[0];
    to[n - 1] = at[n - 1];
    let sides = at.windows(3).zip(&up[1..n - 1]).zip(&down[1..n - 1]);
    for (to, ((at, up), down)) in to[1..n - 1].iter_mut().zip(sides) {
        *to = 0.25 * (up + down + at[0] + at[2]);
    }
}

/// Times `step`, which gives nothing.
fn timed(mut step: impl FnMut()) -> Vec<f64> {
    let batch = |_| {
        let begin = Instant::now();
        (0..STEPS).for_each(|_| step());
        begin.elapsed().as_secs_f64() * 1e6 / STEPS as f64
    };
    (0..BATCHES).map(batch).collect()
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).flat_map(|n| n.parse()).collect();
    let (rows, cols) = match numbers[..] {
        [rows, cols] if rows > 0 && cols > 2 => (rows, cols),
        _ => (64, 512),
    };
    shmem::run(|world| {
        let mut sums = Vec::new();
        for _ in 0..2 {
            for (name, program) in [
                ("plain", plain::run as fn(_, _, _) -> _),
                ("typed", typed::run),
            ] {
                let (took, sum): (Vec<f64>, f64) = program(world, rows, cols)?;
                sums.push(sum);
                if world.my_pe() == 0 {
                    let (median, best) = (median(&took), min(&took));
                    println!("{name:8} {median:10.2} us a step, best {best:10.2}, sum {sum:.9e}");
                }
            }
        }
        assert!(sums.iter().all(|&sum| sum == sums[0]), "{sums:?}");
        Ok(())
    });
}

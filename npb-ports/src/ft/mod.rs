//! FT: a diffusion equation by Fourier transforms in three dimensions, the benchmark in which everybody sends to
//! everybody.
//!
//! A random field is transformed. For each time of some, the waves that it is made of decay by their lengths, and are transformed back to
//! a field, of which a checksum is taken.
//!
//! | module | what it holds |
//! |---|---|
//! | [`params`], [`checksums`] | sizes, and the published results |
//! | [`slab`] | which points a PE has, landing slots, memory |
//! | [`lanes`] | eight complex numbers side by side |
//! | [`mod@fft`] | the transform of eight lines |
//! | [`plane`] | initial state, transforms along x and y |
//! | [`line`](mod@line) | transforms along z, with the decay |
//! | [`decay`] | what the time does |
//! | [`checksum`] | the points of the checksum |
//! | [`solver`] | the field of a PE and its messages |

pub mod checksum;
pub mod checksums;
pub mod decay;
pub mod fft;
pub mod lanes;
pub mod line;
pub mod params;
pub mod plane;
pub mod slab;
pub mod solver;
#[cfg(test)]
mod tests;

use crate::console::Console;
use crate::error::Error;
use crate::exchange::Slots;
use crate::job::Reduction;
use crate::memory;
use crate::numbers::scientific;
use crate::options::Options;
use crate::report::{Report, Value};
use crate::timer::Timer;
use crate::verify::Verification;
use checksums::Complex;
use params::{Params, TOLERANCE};
use slab::Slab;
use solver::Solver;

/// Runs FT on all PEs.
///
/// # Errors
/// If it does not run on this number of PEs, or its data does not fit into memory, or its
/// landing slots not into the symmetric heap.
pub fn run(options: &Options) -> Result<Report, Error> {
    let (class, pe, n_pes) = (options.class(), shmem::my_pe(), shmem::n_pes());
    let params = Params::of(class);
    let iterations = params.iterations();
    slab::rule(params.n).check("FT", class, n_pes)?;
    let slab = Slab::new(params.n, pe, n_pes);
    memory::check("FT", class, slab.memory())?;
    let console = Console::new(options);
    console.opening(class, params.size(), iterations, None);

    let mut sums = vec![[0.0; 2]; params.checksums.len()];
    let all = Reduction::new(sums.as_flattened().len())?;
    let mut slots = Slots::new(&slab.slot_sizes())?;
    let mut solver = Solver::new(slab, options.level())?;
    // Connects, and touches all memory.
    solver.initialize(&mut slots);

    shmem::barrier_all();
    let timer = Timer::start();
    solver.initialize(&mut slots);
    for (step, sum) in (1..).zip(&mut sums) {
        *sum = solver.checksum(step, &mut slots);
    }
    all.sums(sums.as_flattened_mut());
    for (step, sum) in (1..).zip(&sums) {
        console.say(format_args!("{}", line_of(step, *sum)));
    }
    let seconds = all.max(timer.seconds());

    slots.free()?;
    all.free()?;
    Ok(report(options, &params, &sums, seconds, n_pes))
}

/// What is said of an iteration.
fn line_of(step: u32, sum: Complex) -> String {
    let [re, im] = sum.map(|part| scientific(part, 12).replace('E', "D"));
    format!(" T ={step:5}     Checksum ={re:>22}{im:>22}")
}

fn report(
    options: &Options,
    params: &Params,
    sums: &[Complex],
    seconds: f64,
    n_pes: usize,
) -> Report {
    let class = options.class();
    Report {
        name: "FT",
        class,
        size: params.size(),
        iterations: params.iterations(),
        seconds,
        processes: n_pes,
        active: n_pes,
        operations: params.operations(),
        operation_type: "floating point",
        verification: Verification::of_checksums(class, TOLERANCE, sums, params.checksums),
        results: vec![("simd", Value::Text(options.level().to_string()))],
        results_text: String::new(),
    }
}

//! FT: a diffusion equation by Fourier transforms in three dimensions, the benchmark in which everybody sends to
//! everybody.
//!
//! A random field is transformed. For each time of some, the waves that it is made of decay by their lengths, and are transformed back to
//! a field, of which a checksum is taken. Transforms and decay are in [`npb_kernels::ft`], the messages of a PE in [`solver`].

pub mod solver;
#[cfg(test)]
mod tests;

pub use npb_kernels::ft::{
    checksum, checksums, decay, fft, lanes, line, params, plane, reference, slab,
};

use crate::console::Console;
use crate::error::Error;
use crate::exchange::Slots;
use crate::job::{self, Reduction};
use crate::numbers::scientific;
use crate::options::Options;
use crate::processes::Rule;
use crate::report::{Report, Size, Value};
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
    rule(params.n).check("FT", class, n_pes)?;
    let slab = Slab::new(params.n, pe, n_pes);
    crate::memory::check("FT", class, memory(&slab))?;
    let console = Console::new(options);
    console.opening(class, size(&params), iterations, None);

    let mut sums = vec![[0.0; 2]; params.checksums.len()];
    let all = Reduction::new(sums.as_flattened().len())?;
    let mut slots = Slots::new(&slab.slot_sizes())?;
    let mut solver = Solver::new(slab, options.level())?;
    // Connects, and touches all memory.
    solver.initialize(&mut slots);

    let start = job::begin();
    solver.initialize(&mut slots);
    for (step, sum) in (1..).zip(&mut sums) {
        *sum = solver.checksum(step, &mut slots);
    }
    all.sums(sums.as_flattened_mut());
    for (step, sum) in (1..).zip(&sums) {
        console.say(format_args!("{}", line_of(step, *sum)));
    }
    let seconds = all.slowest(start);

    slots.free()?;
    all.free()?;
    Ok(report(options, &params, &sums, seconds, n_pes))
}

/// On which numbers of PEs a grid can be cut.
#[must_use]
pub fn rule(n: [usize; 3]) -> Rule {
    Rule::PowerOfTwo {
        most: Slab::most_pes(n),
    }
}

/// Bytes that a PE needs, landing slots included.
#[must_use]
pub fn memory(slab: &Slab) -> u64 {
    slab.bytes() + Slots::<f64>::bytes(&slab.slot_sizes()) as u64
}

fn size(params: &Params) -> Size {
    let [x, y, z] = params.n;
    Size::Grid([x as u32, y as u32, z as u32])
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
        size: size(params),
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

//! CG: the smallest eigenvalue of a sparse matrix by inverse powers, each by 25 steps of conjugate gradients.
//!
//! The matrix is symmetric, its nonzeros are at random: what takes the time is its product with a vector, and
//! there the numbers of the vector, which are read one here and one there. Matrix, product and what is done between
//! products are in [`npb_kernels::cg`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`decomposition`] | which block of the matrix a PE has, its partners, landing slots |
//! | [`solver`] | an iteration of a PE and its messages |

pub mod decomposition;
pub mod solver;
#[cfg(test)]
mod tests;

pub use npb_kernels::cg::{params, region, share, vector_kernels, vectors};

use crate::console::Console;
use crate::error::Error;
use crate::exchange::Slots;
use crate::job::{self, Reduction};
use crate::memory;
use crate::numbers::fortran;
use crate::options::Options;
use crate::report::{Report, Size, Value};
use crate::verify::{Check, Verification};
use decomposition::Place;
use params::Params;
use solver::{Estimate, Solver};
use std::fmt;

/// Runs CG on all PEs.
///
/// # Errors
/// If it does not run on this number of PEs, or its data does not fit into memory, or its landing slots not into
/// the symmetric heap.
pub fn run(options: &Options) -> Result<Report, Error> {
    let (class, pe, n_pes) = (options.class(), shmem::my_pe(), shmem::n_pes());
    let params = Params::of(class);
    decomposition::rule(params.n).check("CG", class, n_pes)?;
    let place = Place::new(params.n, pe, n_pes);
    memory::check("CG", class, Solver::bytes(&params, &place))?;
    let console = Console::new(options);
    console.opening(class, size(&params), params.iterations, None);
    let (nonzeros, shift) = (params.nonzeros, params.shift);
    console.say(format_args!(" Number of nonzeroes per row: {nonzeros:8}"));
    console.say(format_args!(" Eigenvalue shift: {shift:9.3}"));

    let all = Reduction::new(1)?;
    let mut slots = Slots::new(place.slots().sizes())?;
    let mut solver = Solver::new(&params, place, options.level())?;
    // Connects, and touches all memory.
    let mut estimate = solver.step(&mut slots);
    solver.initialize();

    let start = job::begin();
    for iteration in 1..=params.iterations {
        estimate = solver.step(&mut slots);
        if iteration == 1 {
            console.say(format_args!("{HEADING}"));
        }
        console.say(format_args!("{}", Line(iteration, estimate)));
    }
    let seconds = all.slowest(start);
    slots.free()?;
    all.free()?;
    Ok(report(options, &params, &estimate, seconds))
}

fn size(params: &Params) -> Size {
    Size::Count(params.n as u64)
}

/// Above the lines of iterations.
const HEADING: &str = "\n   iteration           ||r||                 zeta";

/// What is said of an iteration, made only where it is read.
struct Line(u32, Estimate);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(iteration, Estimate { residual, zeta }) = self;
        let residual = fortran(*residual, 14);
        write!(f, "    {iteration:5}      {residual:>21}{zeta:20.13}")
    }
}

fn report(options: &Options, params: &Params, estimate: &Estimate, seconds: f64) -> Report {
    let class = options.class();
    let check = Check {
        name: "Zeta",
        value: estimate.zeta,
        reference: params.zeta,
        tolerance: 1e-10,
    };
    Report {
        name: "CG",
        class,
        size: size(params),
        iterations: params.iterations,
        seconds,
        processes: shmem::n_pes(),
        active: shmem::n_pes(),
        operations: params.operations(),
        operation_type: "floating point",
        verification: Verification::of_value(class, check),
        results: vec![
            ("residual", Value::Real(estimate.residual)),
            ("simd", Value::Text(options.level().to_string())),
        ],
        results_text: String::new(),
    }
}

#[cfg(test)]
mod text {
    use super::*;

    #[test]
    fn iterations_are_told_as_by_the_reference() {
        let estimate = Estimate {
            residual: 0.304_156_980_259_21e-12,
            zeta: 19.999_758_127_704,
        };
        assert_eq!(
            format!("{HEADING}\n{}", Line(1, estimate)),
            "
   iteration           ||r||                 zeta
        1       0.30415698025921E-12    19.9997581277040"
        );
    }
}

//! MG, multigrid: a Poisson equation on a periodic cube, by V-cycles.
//!
//! The grid of 2^l cells in each direction is the finest of l levels; each next one has half as
//! many. [`decomposition`] says which PE owns what on each level, [`halo`] how ghosts are exchanged. The operators are
//! in [`npb_kernels::mg`]; [`vcycle`] is the order in which they are applied, and [`pipeline`] the same for the finest level
//! in one pass over memory. [`mod@join`] finds the charges of the right-hand side among those of all PEs.
//!
//! Messages go between neighbours only. No PE waits for all others but in two sums, one before
//! the first V-cycle and one after the last.

pub mod decomposition;
pub mod halo;
pub mod join;
pub mod pipeline;
pub mod vcycle;

#[cfg(test)]
mod tests;

pub use npb_kernels::mg::{charges, grid, operators, params, stencil, transfer};

use crate::class::Class;
use crate::console::Console;
use crate::error::Error;
use crate::exchange;
use crate::job::{self, Reduction};
use crate::memory;
use crate::options::Options;
use crate::report::{Report, Size, Value};
use crate::verify::{Check, Verification};
use charges::Extremes;
use decomposition::Decomposition;
use halo::Slots;
use params::Params;
use pipeline::Pipeline;
use std::time::Instant;
use vcycle::Multigrid;

/// Runs MG on all PEs.
///
/// # Errors
/// If the number of PEs is no power of two or too large, or memory or the symmetric heap is too
/// small.
pub fn run(options: &Options) -> Result<Report, Error> {
    let (class, called) = (options.class(), Instant::now());
    let params = Params::of(class);
    let (pe, n_pes) = (shmem::my_pe(), shmem::n_pes());
    let console = Console::new(options);
    console.opening(class, size(&params), params.iterations, None);
    decomposition::rule(params.levels).check("MG", class, n_pes)?;
    memory::check("MG", class, memory_per_pe(class, n_pes))?;

    let place = Decomposition::new(params.levels, pe, n_pes);
    let slots = exchange::Slots::new(Slots::new(&place).words())?;
    let all = Reduction::new(charges::COUNTS)?;
    let first = place.first_cell();
    let block = Extremes::of_block(&params, first, place.share(params.levels));
    let charges = join::join(&block, &all)?;
    let mut grids = Multigrid::new(place, options.level(), params.smoother, slots)?;
    charges.place(&params, first, grids.rhs());

    // Once untimed, so that memory, connections and code are warm.
    grids.start();
    grids.cycle(true);
    grids.reset();
    let preparation = all.slowest(called);
    console.say(format_args!(
        "\n Initialization time: {preparation:15.3} seconds\n"
    ));

    let start = job::begin();
    let norm = |squares| (all.sum(squares) / params.points()).sqrt();
    let first_norm = norm(grids.start());
    let mut squares = 0.0;
    for iteration in 1..=params.iterations {
        let last = iteration == params.iterations;
        if iteration == 1 || last || iteration % 5 == 0 {
            console.say(format_args!("  iter  {iteration:3}"));
        }
        squares = grids.cycle(last);
    }
    let last_norm = norm(squares);
    let seconds = all.slowest(start);

    all.free()?;
    grids.into_partners().free()?;
    Ok(report(options, &params, [first_norm, last_norm], seconds))
}

/// Bytes of memory that each PE needs on `n_pes` PEs, or more; landing slots included.
///
/// # Panics
/// If [`decomposition::rule`] does not allow `n_pes`.
#[must_use]
pub fn memory_per_pe(class: Class, n_pes: usize) -> u64 {
    let params = Params::of(class);
    let place = Decomposition::new(params.levels, n_pes - 1, n_pes);
    // u and v or r on each level; on the finest one all three, or what a pipeline keeps of r.
    let fields = (1..=params.levels).map(|level| 2 * place.shape(level).words());
    let finest = place.shape(params.levels);
    let residual = if Pipeline::fits(&place) {
        Pipeline::words(&finest)
    } else {
        finest.words()
    };
    let words = fields.sum::<usize>() + residual;
    let slots = exchange::Slots::<f64>::bytes(Slots::new(&place).words());
    (words * size_of::<f64>() + slots) as u64
}

fn size(params: &Params) -> Size {
    Size::Grid([1 << params.levels; 3])
}

fn report(options: &Options, params: &Params, norms: [f64; 2], seconds: f64) -> Report {
    let class = options.class();
    let [first, last] = norms;
    let check = Check {
        name: "L2 Norm",
        value: last,
        reference: params.norm,
        tolerance: 1e-8,
    };
    Report {
        name: "MG",
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
            ("initial_norm", Value::Real(first)),
            ("simd", Value::Text(options.level().to_string())),
        ],
        results_text: String::new(),
    }
}

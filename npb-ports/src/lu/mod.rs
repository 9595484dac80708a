//! LU: symmetric successive over-relaxation, the solver with a wavefront.
//!
//! The same flow as BT's and SP's, and the same right-hand side ([`adi`](crate::adi) has it, with exact
//! solution, initial state and norms). The implicit step does not factor into directions, but into a lower
//! and an upper triangle: one sweep through all points from one corner of the grid, one back, in each
//! of which a point waits for three neighbours: the kernels in [`npb_kernels::lu`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`decomposition`] | which points a PE has, and who its neighbours are |
//! | [`plan`] | landing slots, memory |
//! | [`solver`] | the time step of a PE and its messages |

pub mod decomposition;
pub mod plan;
pub mod solver;
#[cfg(test)]
mod tests;

pub use npb_kernels::lu::{params, point, surface, sweep};

use crate::adi::constants::EQUATIONS;
use crate::adi::run::{means, norms, report, size};
use crate::console::Console;
use crate::error::Error;
use crate::exchange::Slots;
use crate::job::{self, Reduction};
use crate::memory;
use crate::options::Options;
use crate::report::Report;
use crate::verify::Norms;
use decomposition::Pencil;
use params::Params;
use solver::Solver;

/// Runs LU on all PEs.
///
/// # Errors
/// If it does not run on this number of PEs, or its data does not fit into memory, or its
/// landing slots not into the symmetric heap.
pub fn run(options: &Options) -> Result<Report, Error> {
    let (class, pe, n_pes) = (options.class(), shmem::my_pe(), shmem::n_pes());
    let params = Params::of(class);
    let (flow, n) = (&params.flow, params.flow.n);
    decomposition::rule(n).check("LU", class, n_pes)?;
    memory::check("LU", class, plan::memory(n, n_pes))?;
    let console = Console::new(options);
    console.opening(class, size(flow), flow.iterations, None);

    let all = Reduction::new(EQUATIONS + 1)?;
    let mut slots = Slots::new(&plan::slot_sizes(n, n_pes))?;
    let mut solver = Solver::new(Pencil::new(n, pe, n_pes), flow, options.level())?;
    // Connects, and touches all memory.
    solver.step(&mut slots);
    solver.initialize();

    let start = job::begin();
    for step in 1..=flow.iterations {
        if step == 1 || step == flow.iterations || step % 20 == 0 {
            console.say(format_args!(" Time step {step:4}"));
        }
        solver.step(&mut slots);
    }
    // The reference programs have the norm of the residual in the timed region.
    let mut residual = solver.residual(&mut slots);
    all.sums(&mut residual);
    let seconds = all.slowest(start);

    let mut sums = [0.0; EQUATIONS + 1];
    sums[..EQUATIONS].copy_from_slice(&solver.error());
    sums[EQUATIONS] = solver.surface();
    all.sums(&mut sums);
    slots.free()?;
    all.free()?;
    let (error, surface) = sums.split_at(EQUATIONS);
    let (residual, error) = (means(&residual, flow.n), means(error, flow.n));
    let [residual, error] = norms(flow, &residual, &error);
    let surface = Norms {
        kind: "surface integral",
        values: surface,
        references: &[params.surface],
    };
    let norms = [residual, error, surface];
    Ok(report(
        "LU",
        options,
        flow,
        seconds,
        params.operations(),
        &norms,
    ))
}

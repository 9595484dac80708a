//! The whole benchmark, for any scheme: set up, steps, norms, report; the last of LU, too.

use super::constants::EQUATIONS;
use super::norms::root_mean_square;
use super::partition::Partition;
use super::plan::{Plan, Reach};
use super::scheme::Params;
use super::solver::Solver;
use super::sweep::Sweeps;
use crate::console::Console;
use crate::error::Error;
use crate::exchange::Slots;
use crate::job::{self, Reduction};
use crate::memory;
use crate::options::Options;
use crate::processes::Rule;
use crate::report::{Report, Size, Value};
use crate::verify::{Norms, Verification};

/// The largest relative error of a norm that verifies.
const TOLERANCE: f64 = 1e-8;

/// Runs the benchmark that `S` solves, on all PEs.
///
/// # Errors
/// If it does not run on this number of PEs, or its data does not fit into memory, or its
/// landing slots not into the symmetric heap.
pub fn run<S: Sweeps>(options: &Options) -> Result<Report, Error> {
    let (class, n_pes) = (options.class(), shmem::n_pes());
    let params = S::params(class);
    let most = Partition::max_pes(params.n);
    Rule::Square { most }.check(S::NAME, class, n_pes)?;
    let partition = Partition::new(params.n, n_pes).expect("what the rule allows");
    // All PEs see the same: with several nodes, none has all of them.
    let reach = match shmem::Team::shared().n_pes() == n_pes {
        true => Reach::Node,
        false => Reach::Network,
    };
    let plan = Plan::new::<S>(partition, reach);
    memory::check(S::NAME, class, plan.memory::<S>())?;
    let console = Console::new(options);
    console.opening(class, size(&params), params.iterations, Some(params.dt));

    let all = Reduction::new(2 * EQUATIONS)?;
    let mut slots = Slots::new(&plan.slot_sizes::<S>())?;
    let mut solver = Solver::<S>::new(plan, shmem::my_pe(), &params, options.level())?;
    // Connects, and touches all memory.
    solver.step(&mut slots);
    solver.initialize();

    let start = job::begin();
    for step in 1..=params.iterations {
        if step == 1 || step % 20 == 0 {
            console.say(format_args!(" Time step {step:4}"));
        }
        solver.step(&mut slots);
    }
    let seconds = start.elapsed().as_secs_f64();

    let mut sums = [0.0; 2 * EQUATIONS];
    sums[..EQUATIONS].copy_from_slice(&solver.residual(&mut slots));
    sums[EQUATIONS..].copy_from_slice(&solver.error());
    all.sums(&mut sums);
    let seconds = all.max(seconds);
    slots.free()?;
    all.free()?;
    let (residual, error) = sums.split_at(EQUATIONS);
    let (residual, error) = (means(residual, params.n), means(error, params.n));
    let norms = norms(&params, &residual, &error);
    Ok(report(
        S::NAME,
        options,
        &params,
        seconds,
        S::operations(&params),
        &norms,
    ))
}

/// Root mean squares over a grid of `n` points a side, of sums of squares of each component.
#[must_use]
pub fn means(sums: &[f64], n: usize) -> Vec<f64> {
    sums.iter().map(|&sum| root_mean_square(sum, n)).collect()
}

/// Norms of residual and error beside those of the reference.
#[must_use]
pub fn norms<'a>(params: &'a Params, residual: &'a [f64], error: &'a [f64]) -> [Norms<'a>; 2] {
    [
        Norms {
            kind: "RMS-norms of residual",
            values: residual,
            references: &params.residual,
        },
        Norms {
            kind: "RMS-norms of solution error",
            values: error,
            references: &params.error,
        },
    ]
}

/// The grid, as reports show it.
#[must_use]
pub fn size(params: &Params) -> Size {
    Size::Grid([u32::try_from(params.n).unwrap_or(u32::MAX); 3])
}

/// What the benchmark `name` reports, which took `seconds` for so many `operations`.
#[must_use]
pub fn report(
    name: &'static str,
    options: &Options,
    params: &Params,
    seconds: f64,
    operations: f64,
    norms: &[Norms<'_>],
) -> Report {
    let n_pes = shmem::n_pes();
    Report {
        name,
        class: options.class(),
        size: size(params),
        iterations: params.iterations,
        seconds,
        processes: n_pes,
        active: n_pes,
        operations,
        operation_type: "floating point",
        verification: Verification::of_norms(options.class(), TOLERANCE, norms),
        results: vec![
            ("dt", Value::Real(params.dt)),
            ("simd", Value::Text(options.level().to_string())),
        ],
        results_text: String::new(),
    }
}

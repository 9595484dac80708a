//! IS, "integer sort": ranks of integer keys, as a particle method needs them to put particles in cells.
//!
//! Keys are spread over the PEs as they were drawn. In each iteration two of them change, and then
//! each PE gets the keys of a range of values, counts them, and knows their ranks. Everybody sends to
//! everybody. Keys are put in order only in the end, to see whether the ranks are right. What a PE does with its keys
//! is in [`npb_kernels::is`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`ranker`] | ranking, and the order that follows from it |
//! | [`plan`] | numbers of PEs, memory |

pub mod plan;
pub mod ranker;
#[cfg(test)]
mod tests;

pub use npb_kernels::is::{keys, params, ranges, ranks};

use crate::class::Class;
use crate::console::Console;
use crate::error::Error;
use crate::exchange::Slots;
use crate::job::{self, Reduction};
use crate::memory;
use crate::options::Options;
use crate::report::{Report, Size, Value};
use crate::verify::Verification;
use params::{ITERATIONS, Params, TESTS};
use ranker::Ranker;

/// Runs IS on all PEs.
///
/// # Errors
/// If it does not run on this number of PEs, or its data does not fit into memory, or its
/// landing slots not into the symmetric heap.
///
/// # Panics
/// For class F, which [`Options`] refuse for this benchmark.
pub fn run(options: &Options) -> Result<Report, Error> {
    let (class, pe, n_pes) = (options.class(), shmem::my_pe(), shmem::n_pes());
    let params = Params::of(class).expect("a class that the options allow");
    plan::rule(&params).check("IS", class, n_pes)?;
    memory::check("IS", class, plan::memory(&params, n_pes))?;
    let console = Console::new(options);
    console.say(format_args!("{}", opening(&params, n_pes)));

    let all = Reduction::new(2)?;
    let mut slots = Slots::new(&ranker::sizes(&params, n_pes).slots())?;
    let mut ranker = Ranker::new(params, pe, n_pes, options.level())?;
    // Connects, and touches all memory.
    ranker.rank(1, &mut slots);
    let tells = class != Class::S;
    if tells {
        console.say(format_args!("\n   iteration"));
    }

    let start = job::begin();
    let mut right = 0;
    for iteration in 1..=ITERATIONS {
        if tells {
            console.say(format_args!("        {iteration}"));
        }
        right += ranker.rank(iteration, &mut slots);
    }
    let seconds = all.slowest(start);

    let sorted = ranker.sorts(&mut slots)?;
    let mut counts = [right as f64, f64::from(u8::from(sorted))];
    all.sums(&mut counts);
    slots.free()?;
    all.free()?;
    Ok(report(options, &params, seconds, n_pes, counts))
}

/// What the reference program says first.
fn opening(params: &Params, n_pes: usize) -> String {
    format!(
        " Size:  {}  (class {})\n Iterations:   {ITERATIONS}\n Number of processes:     {n_pes}",
        params.keys(),
        params.class
    )
}

/// `right`: ranks of tested keys, and PEs whose keys were in order.
fn report(
    options: &Options,
    params: &Params,
    seconds: f64,
    n_pes: usize,
    right: [f64; 2],
) -> Report {
    let [ranks, parts] = right.map(|count| count as u64);
    let tests = TESTS as u64 * u64::from(ITERATIONS);
    let counts = [
        ("ranks of test keys", ranks, tests),
        ("PEs with sorted keys", parts, n_pes as u64),
    ];
    Report {
        name: "IS",
        class: params.class,
        size: Size::Count(params.keys()),
        iterations: ITERATIONS,
        seconds,
        processes: n_pes,
        active: n_pes,
        operations: f64::from(ITERATIONS) * params.keys() as f64,
        operation_type: "keys ranked",
        verification: Verification::of_counts(params.class, &counts),
        results: vec![("simd", Value::Text(options.level().to_string()))],
        results_text: String::new(),
    }
}

//! Every routine of the library, checked by the PEs themselves.
//!
//! `shmrun -n N [--nodes K] conformance [NAME ...]` runs the named checks, or all; `-NAME` leaves one out. It is one
//! program so that the checks also follow each other in one job: memory is reused, connections and
//! collectives go on from what came before. With `SHMEM_TEST_THOROUGH` checks have more sizes and rounds, as at night.

mod active_sets;
mod atomics;
mod check;
mod churn;
mod collectives;
mod contexts;
mod growth;
mod life;
mod locks;
mod memory;
mod mixed;
mod nbi;
mod order;
mod progress;
mod rma;
mod signals;
mod slices;
mod strided;
mod teams;
mod threads;
mod values;
mod waiting;

use check::Check;
use progress::Progress;
use shmem::{barrier_all, my_pe, n_pes};

fn main() -> Result<(), shmem::Error> {
    let _world = shmem::init()?;
    let (not, wanted): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|word| word.starts_with('-'));
    let not: Vec<&str> = not.iter().map(|word| &word[1..]).collect();
    let checks: Vec<Check> = [
        growth::CHECKS,
        rma::CHECKS,
        strided::CHECKS,
        atomics::CHECKS,
        nbi::CHECKS,
        mixed::CHECKS,
        order::CHECKS,
        signals::CHECKS,
        contexts::CHECKS,
        waiting::CHECKS,
        locks::CHECKS,
        collectives::CHECKS,
        teams::CHECKS,
        values::CHECKS,
        slices::CHECKS,
        churn::CHECKS,
        active_sets::CHECKS,
        memory::CHECKS,
        life::CHECKS,
        threads::CHECKS,
    ]
    .concat();
    let words = wanted.iter().map(String::as_str).chain(not.iter().copied());
    let unknown: Vec<_> = words
        .filter(|w| !checks.iter().any(|(name, _)| name == w))
        .collect();
    assert!(unknown.is_empty(), "there are no checks {unknown:?}");
    let progress = Progress::watch(my_pe());
    let mut run = 0;
    for (name, check) in checks {
        let named = wanted.is_empty() || wanted.iter().any(|w| w == name);
        if named && !not.contains(&name) {
            progress.enter(name);
            check();
            progress.enter("the barrier after a check");
            barrier_all();
            run += 1;
        }
    }
    drop(progress);
    if my_pe() == 0 {
        println!("{run} checks passed on {} PEs", n_pes());
    }
    Ok(())
}

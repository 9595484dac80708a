//! Simulation of XRC connection management: random networks from seeds, and all schedules of
//! a small job within small budgets.
//!
//! `SHMEM_SIM_SEEDS=n` runs n seeds instead of the default, `SHMEM_SIM_SEED=s` replays one and
//! prints what happens.

mod explore;
mod fabric;
mod totals;
mod world;

use std::env;

use totals::Totals;
use world::World;

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|e| panic!("{name}={text}: {e}")),
    )
}

#[test]
fn everybody_reaches_everybody_over_one_queue_pair_per_node() {
    let mut totals = Totals::default();
    if let Some(seed) = number("SHMEM_SIM_SEED") {
        World::new(seed, true).run(&mut totals);
    } else {
        for seed in 0..number("SHMEM_SIM_SEEDS").unwrap_or(10_000) {
            let run = std::panic::AssertUnwindSafe(|| World::new(seed, false).run(&mut totals));
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!("failed: replay with SHMEM_SIM_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
        totals.assert_that_everything_happened();
    }
    println!("{totals:#?}");
}

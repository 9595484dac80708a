//! Simulation of XRC connection management: random networks from seeds, and all schedules of
//! a small job within small budgets.
//!
//! `SHMEM_SIM_SEEDS=n` runs n seeds instead of the default, `SHMEM_SIM_SEED=s` replays one and
//! prints what happens.

mod explore;
mod fabric;
#[path = "../common/seeds.rs"]
mod seeds;
mod totals;
mod world;

use seeds::each_seed;
use totals::Totals;
use world::World;

#[test]
fn everybody_reaches_everybody_over_one_queue_pair_per_node() {
    let mut totals = Totals::default();
    if each_seed(10_000, |seed, replay| {
        World::new(seed, replay).run(&mut totals)
    }) {
        totals.assert_that_everything_happened();
    }
    println!("{totals:#?}");
}

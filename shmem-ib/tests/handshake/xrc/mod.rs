//! Simulation of XRC connection management: random networks from seeds, and all schedules of
//! a small job within small budgets.

mod explore;
mod fabric;
mod world;

use shmem_testkit::seeds;
use world::{Totals, World};

#[test]
fn everybody_reaches_everybody_over_one_queue_pair_per_node() {
    let mut totals = Totals::default();
    if seeds::each(1_000, |seed, replay| {
        World::new(seed, replay).run(&mut totals)
    }) {
        totals.assert_that_everything_happened();
    }
    println!("{totals:#?}");
}

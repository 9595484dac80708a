//! Simulation of the connection handshake, from first contact to leaving: random networks from
//! seeds, and all schedules of two endpoints within small budgets.
//!
//! `SHMEM_SIM_SEEDS=n` runs n seeds instead of the default, `SHMEM_SIM_SEED=s` replays one and
//! prints what happens.

mod eviction;
mod explore;
mod explore_room;
mod fabric;
mod leaving;
mod world;

use std::env;

use world::{Totals, World};

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|e| panic!("{name}={text}: {e}")),
    )
}

#[test]
fn random_networks_always_connect_the_right_queue_pairs() {
    let mut totals = Totals::default();
    if let Some(seed) = number("SHMEM_SIM_SEED") {
        World::new(seed, true).run(&mut totals);
    } else {
        for seed in 0..number("SHMEM_SIM_SEEDS").unwrap_or(20_000) {
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

#[test]
fn everybody_leaves_and_nobody_is_left_behind() {
    let mut totals = leaving::Totals::default();
    if let Some(seed) = number("SHMEM_SIM_SEED") {
        leaving::World::new(seed).run(&mut totals);
    } else {
        for seed in 0..number("SHMEM_SIM_SEEDS").unwrap_or(20_000) {
            let run = || leaving::World::new(seed).run(&mut totals);
            if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                eprintln!("failed: replay with SHMEM_SIM_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
        totals.assert_that_everything_happened();
    }
    println!("{totals:#?}");
}

#[test]
fn operations_are_executed_once_whatever_makes_room() {
    let mut totals = eviction::Totals::default();
    if let Some(seed) = number("SHMEM_SIM_SEED") {
        eviction::World::new(seed, true).run(&mut totals);
    } else {
        for seed in 0..number("SHMEM_SIM_SEEDS").unwrap_or(20_000) {
            let run = || eviction::World::new(seed, false).run(&mut totals);
            if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                eprintln!("failed: replay with SHMEM_SIM_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
        totals.assert_that_everything_happened();
    }
    println!("{totals:#?}");
}

#[test]
fn everybody_uses_everybody_with_four_queue_pairs() {
    let mut totals = eviction::Totals::default();
    for seed in 0..2 {
        eviction::World::storm(seed, 64, 4).run(&mut totals);
    }
    for seed in 0..20 {
        eviction::World::storm(seed, 12, 1).run(&mut totals);
    }
    totals.assert_that_it_took_at_most_ms(10_000);
    println!("{totals:#?}");
}

//! Simulation of the connection handshake, from first contact to leaving: random networks from
//! seeds, and all schedules of two endpoints within small budgets.

mod eviction;
mod explore;
mod explore_room;
mod fabric;
mod leaving;
mod world;

use shmem_testkit::seeds;
use world::{Totals, World};

#[test]
fn random_networks_always_connect_the_right_queue_pairs() {
    let mut totals = Totals::default();
    if seeds::each(1_000, |seed, replay| {
        World::new(seed, replay).run(&mut totals)
    }) {
        totals.assert_that_everything_happened();
    }
    println!("{totals:#?}");
}

#[test]
fn everybody_leaves_and_nobody_is_left_behind() {
    let mut totals = leaving::Totals::default();
    if seeds::each(1_000, |seed, replay| {
        leaving::World::new(seed, replay).run(&mut totals)
    }) {
        totals.assert_that_everything_happened();
        totals.assert_that_few_were_abandoned();
    }
    println!("{totals:#?}");
}

#[test]
fn operations_are_executed_once_whatever_makes_room() {
    let mut totals = eviction::Totals::default();
    if seeds::each(1_000, |seed, replay| {
        eviction::World::new(seed, replay).run(&mut totals)
    }) {
        totals.assert_that_everything_happened();
    }
    println!("{totals:#?}");
}

#[test]
fn everybody_uses_everybody_with_four_queue_pairs() {
    let mut totals = eviction::Totals::default();
    seeds::each_costly(1, 10_000, |seed, _| {
        eviction::World::storm(seed, 64, 4).run(&mut totals);
    });
    seeds::each_costly(5, 1_000, |seed, _| {
        eviction::World::storm(seed, 12, 1).run(&mut totals);
    });
    totals.assert_that_it_took_at_most_ms(10_000);
    println!("{totals:#?}");
}

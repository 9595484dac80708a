//! Seeded simulation of whole jobs: real clients and real servers in a tree, joined by byte streams
//! which are cut, glued and delayed at random.

use shmem_testkit::seeds;

use crate::world::World;

#[test]
fn small_jobs() {
    seeds::each(500, |seed, _| World::new(seed, 6).run());
}

#[test]
fn large_jobs() {
    seeds::each_costly(30, 20, |seed, _| World::new(seed, 40).run());
}

//! Seeded simulation of whole jobs: real clients and real servers in a tree, joined by byte streams
//! which are cut, glued and delayed at random.
//!
//! A seed decides everything. A failure prints it; `SHMEM_SIM_SEED=n` runs that seed alone, and
//! `SHMEM_SIM_COUNT=n` that many seeds instead of the default.

mod world;

use world::World;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}

fn run(seed: u64, largest: u32) {
    struct Told(u64);
    impl Drop for Told {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("replay with SHMEM_SIM_SEED={}", self.0);
            }
        }
    }
    let told = Told(seed);
    World::new(seed, largest).run();
    drop(told);
}

#[test]
fn small_jobs() {
    if let Some(seed) = number("SHMEM_SIM_SEED") {
        return run(seed, 6);
    }
    for seed in 0..number("SHMEM_SIM_COUNT").unwrap_or(3000) {
        run(seed, 6);
    }
}

#[test]
fn large_jobs() {
    if let Some(seed) = number("SHMEM_SIM_SEED") {
        return run(seed, 40);
    }
    for seed in 0..number("SHMEM_SIM_COUNT").unwrap_or(3000) / 20 {
        run(seed, 40);
    }
}

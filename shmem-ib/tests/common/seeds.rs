//! Which seeds a simulation runs: what all simulations have in common.
//!
//! `SHMEM_SIM_SEEDS=n` runs n seeds instead of the default, `SHMEM_SIM_SEED=s` replays one.

#![allow(dead_code, reason = "each simulation uses its part")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The number in an environment variable, if it is set.
///
/// # Panics
/// If it is set to anything else: a typing mistake must not run the default instead.
pub(crate) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|e| panic!("{name}={text}: {e}")),
    )
}

/// Calls `run` with each seed, and whether that seed is replayed. A failure prints its seed. Returns
/// whether all seeds ran, so that the totals mean something.
pub(crate) fn each_seed(default: u64, mut run: impl FnMut(u64, bool)) -> bool {
    if let Some(seed) = number("SHMEM_SIM_SEED") {
        run(seed, true);
        return false;
    }
    for seed in 0..number("SHMEM_SIM_SEEDS").unwrap_or(default) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, false))) {
            eprintln!("failed: replay with SHMEM_SIM_SEED={seed}");
            resume_unwind(panic);
        }
    }
    true
}

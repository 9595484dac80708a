//! What tests and benchmarks have in common, whichever crate they are of.
//!
//! They start jobs and judge how those end ([`job`]), look at processes ([`processes`]), read what
//! `shmrun --report-json` wrote ([`report`]), keep samples so that they can be compared later
//! ([`samples`]), run simulations with many seeds ([`seeds`]), find compilers ([`tools`]) and launchers of others ([`launchers`]), go without what a machine lacks ([`needs`]), hold files of the repository against what
//! they are made from ([`generated`]), and, with `--cfg loom`, try all interleavings of a protocol (`models`). All of that happens from outside, so this crate needs none of ours.

pub mod generated;
pub mod job;
pub mod launchers;
#[cfg(loom)]
pub mod models;
pub mod needs;
pub mod ports;
pub mod processes;
pub mod report;
pub mod samples;
pub mod seeds;
pub mod tools;

pub use job::{Job, Outcome, Running};

use std::time::{Duration, Instant};

/// How long anything may take before it counts as hung. Generous: a loaded machine is no failure.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until something is; `state` tells what is instead.
///
/// # Panics
/// If that takes longer than [`PATIENCE`].
#[track_caller]
pub fn wait_until(what: &str, mut is: impl FnMut() -> bool, state: impl Fn() -> String) {
    let start = Instant::now();
    while !is() {
        let waited = start.elapsed();
        assert!(
            waited < PATIENCE,
            "waited in vain until {what}: {}",
            state()
        );
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

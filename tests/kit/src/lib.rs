//! What tests and benchmarks have in common, whichever crate they are of.
//!
//! They start jobs and judge how those end ([`job`]), also under launchers of others ([`launchers`]), look at processes
//! ([`processes`]), read what `shmrun --report FILE.json` wrote ([`report`]), keep samples so that they can be compared later
//! ([`samples`]), run simulations with many seeds ([`seeds`]), find compilers ([`tools`]) and ports ([`ports`]), take turns
//! with other processes ([`lock`]), go without what a machine lacks ([`needs`]), hold files of the repository against what
//! they are made from ([`generated`]), and, with `--cfg loom`, try all interleavings of a protocol (`models`). All of that
//! happens from outside, so this crate uses none of ours.

pub mod generated;
pub mod job;
pub mod launchers;
pub mod lock;
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

/// Between the first two looks at what is waited for, and at most between later ones.
const PAUSES: [Duration; 2] = [Duration::from_millis(3), Duration::from_millis(50)];

/// How many times the processor time of a look the pause behind it lasts, at least.
const IDLE: u32 = 9;

/// Waits until a condition holds; `state` returns what is the case instead. Pauses between looks grow, and are
/// the longer the more a look costs: who waits takes at most a tenth of a processor from those it waits for.
///
/// # Panics
/// If that takes longer than [`PATIENCE`].
#[track_caller]
pub fn wait_until(what: &str, mut is: impl FnMut() -> bool, state: impl Fn() -> String) {
    let start = Instant::now();
    let [mut pause, longest] = PAUSES;
    loop {
        let before = processor_time();
        if is() {
            return;
        }
        let cost = processor_time().saturating_sub(before);
        let waited = start.elapsed();
        assert!(
            waited < PATIENCE,
            "waited in vain until {what}: {}",
            state()
        );
        std::thread::sleep(pause.max(IDLE * cost).min(PATIENCE - waited));
        pause = longest.min(pause * 5 / 4);
    }
}

/// What this thread has had of a processor.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

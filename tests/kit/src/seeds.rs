//! Which seeds a simulation runs, and how to repeat one of them.
//!
//! - `SHMEM_SIM_SEED=17` runs one seed.
//! - `SHMEM_SIM_SEEDS=5000` runs that many seeds of each simulation, and fewer of those that state a cost.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const ONE: &str = "SHMEM_SIM_SEED";
const MANY: &str = "SHMEM_SIM_SEEDS";

/// Returns the number in an environment variable, if that is set.
///
/// # Panics
/// If the value is no number: a typing mistake must not run the default instead.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// Returns the only seed that is to run, if `SHMEM_SIM_SEED` is set.
///
/// # Panics
/// If the value is no number.
pub fn single() -> Option<u64> {
    number(ONE)
}

/// Returns how many seeds to run. If `SHMEM_SIM_SEEDS` is set, that is its value divided by `cost`, which says
/// how many seeds of other simulations take as long as one of this: so one value suits all simulations.
///
/// # Panics
/// If the value is no number.
pub fn count(default: u64, cost: u64) -> u64 {
    number(MANY).map_or(default, |n| n.div_ceil(cost))
}

/// Returns the seeds to run: [`count`] of them, or a single one.
fn seeds(default: u64, cost: u64) -> Range<u64> {
    single().map_or_else(|| 0..count(default, cost), |seed| seed..seed + 1)
}

/// Calls `run` with each seed, and with whether that is the only one. If one panics, prints how to repeat it.
/// Returns whether all seeds ran, so that totals mean something.
///
/// # Panics
/// If `run` does, or if a variable holds no number.
pub fn each(default: u64, run: impl FnMut(u64, bool)) -> bool {
    each_costly(default, 1, run)
}

/// Does the same as [`each`] for a simulation of which a seed takes as long as `cost` seeds of others.
///
/// # Panics
/// As [`each`].
pub fn each_costly(default: u64, cost: u64, mut run: impl FnMut(u64, bool)) -> bool {
    let alone = single().is_some();
    for seed in seeds(default, cost) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, alone))) {
            eprintln!("{}", how_to_repeat(seed));
            resume_unwind(panic);
        }
    }
    !alone
}

/// Returns the command that runs the calling test with one seed.
pub fn how_to_repeat(seed: u64) -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo sets this for the tests that it runs.
    let package = std::env::var("CARGO_PKG_NAME").ok();
    command(
        seed,
        package.as_deref(),
        &program,
        std::thread::current().name(),
    )
}

/// `program` is a file of cargo's, with a hash behind its name; libtest names a test's thread after it.
fn command(seed: u64, package: Option<&str>, program: &str, test: Option<&str>) -> String {
    let package = package.map(|p| format!(" -p {p}")).unwrap_or_default();
    let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
    let test = test.filter(|t| *t != "main");
    let test = test.map(|t| format!(" -- {t}")).unwrap_or_default();
    format!("failed; to repeat it: {ONE}={seed} cargo test{package} --test {program}{test}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_that_repeats_it() {
        let said = command(
            17,
            Some("shmem-ib"),
            "handshake-0123456789abcdef",
            Some("xrc::t"),
        );
        let wanted = "SHMEM_SIM_SEED=17 cargo test -p shmem-ib --test handshake -- xrc::t";
        assert!(said.ends_with(wanted), "{said}");
        let said = command(3, None, "sim", Some("main"));
        assert!(
            said.ends_with("SHMEM_SIM_SEED=3 cargo test --test sim"),
            "{said}"
        );
    }
}

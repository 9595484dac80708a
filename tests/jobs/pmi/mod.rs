//! Programs that speak PMI, and know nothing of OpenSHMEM, under the real `shmrun`: clients of our own
//! that speak it without a library, well and badly; MPICH programs; programs with Slurm's library.
//!
//! Needs of `SHMEM_TEST_REQUIRE`: `mpich`, `mpich-spawn`, `libpmi2`.

mod client;
mod foreign;
mod nla;
mod spawn;
mod trouble;

use shmem_testkit::{Job, Outcome};

use crate::programs::{PMI_CLIENT, shmrun};

/// A job of our own client.
fn client(options: &str, args: &str) -> Job {
    let program: Vec<&str> = [PMI_CLIENT].into_iter().chain(args.split(' ')).collect();
    shmrun(options, &program)
}

/// Runs a job that must end with this status; gives what it wrote.
fn ends_with(status: i32, job: Job) -> Outcome {
    let outcome = job.run();
    assert_eq!(outcome.status.code(), Some(status), "{outcome:?}");
    outcome
}

//! Programs that speak PMI, and know nothing of OpenSHMEM, under the real `shmrun`: clients of our own
//! that speak it without a library, well and badly; MPICH programs; programs with Slurm's library.
//!
//! Needs of `SHMEM_TEST_REQUIRE`: `mpich`, `mpich-spawn`, `libpmi2`.

mod client;
mod foreign;
mod nla;
mod spawn;
mod trouble;

use std::process::Output;

use shmem_tests::Job;

const SHMRUN: &str = env!("CARGO_BIN_EXE_shmrun-under-test");
const CLIENT: &str = env!("CARGO_BIN_EXE_pmi-client");

/// A job of our own client.
fn client(options: &str, args: &str) -> Job {
    let program: Vec<&str> = [CLIENT].into_iter().chain(args.split(' ')).collect();
    Job::new(SHMRUN, options, &program)
}

/// Standard output and error.
fn texts(output: &Output) -> (String, String) {
    (
        shmem_tests::text(&output.stdout),
        shmem_tests::text(&output.stderr),
    )
}

/// Runs a job that must end with this status; gives what it wrote.
fn ends_with(status: i32, job: Job) -> (String, String) {
    let output = job.output();
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(status), "{out}\n{err}");
    (out, err)
}

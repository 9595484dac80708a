//! valgrind's memcheck on programs and on the launcher: it runs them, and finds no error.

use std::process::Command;

use shmem_testkit::Job;
use shmem_testkit::needs::skipped;

use crate::programs::{HELLO, SHMRUN, STATICS, shmrun};

const VALGRIND: &str = "valgrind";
/// Says nothing but errors, which give a status of their own.
const OPTIONS: [&str; 2] = ["-q", "--error-exitcode=9"];
/// valgrind keeps notes for each byte, and looks through them at the end.
const SMALL: (&str, &str) = ("SHMEM_SYMMETRIC_SIZE", "4M");

/// Whether valgrind is there.
fn found() -> bool {
    let tried = Command::new(VALGRIND).arg("--version").output();
    tried
        .inspect_err(|e| skipped("valgrind", format!("{VALGRIND}: {e}")))
        .is_ok()
}

#[test]
fn programs_run_without_errors() {
    if !found() {
        return;
    }
    for options in ["-n 1", "-n 2", "-n 2 --nodes 2"] {
        let program = [&[VALGRIND], &OPTIONS[..], &[STATICS]].concat();
        let job = shmrun(options, &program).env(SMALL.0, SMALL.1);
        assert!(job.succeed().contains("static data checked"), "{options}");
    }
}

#[test]
fn the_launcher_runs_without_errors() {
    if !found() {
        return;
    }
    for options in ["-n 2", "-n 2 --nodes 2"] {
        let options = format!("{} {SHMRUN} {options}", OPTIONS.join(" "));
        let out = Job::new(VALGRIND, &options, &[HELLO]).succeed();
        assert!(out.contains("PE 1 of 2"), "{out}");
    }
}

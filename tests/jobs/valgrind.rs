//! valgrind's memcheck on programs and on the launcher: it runs them, and finds no error.

use std::process::Command;

use shmem_testkit::Job;
use shmem_testkit::needs::skipped;

use crate::programs::{HELLO, SHMRUN, STATICS, shmrun};

const VALGRIND: &str = "valgrind";
/// Says nothing but errors, which give a status of their own.
const OPTIONS: [&str; 2] = ["-q", "--error-exitcode=9"];
/// valgrind keeps notes for each byte, and looks through them at the end.
const SMALL: [(&str, &str); 2] = [
    ("SHMEM_SYMMETRIC_SIZE", "4M"),
    ("SHMEM_STATICS_SIZE", "16M"),
];

/// Whether there is a valgrind that works.
pub(crate) fn found() -> bool {
    let why = match Command::new(VALGRIND).arg("--version").output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => format!("{VALGRIND} --version: {}", output.status),
        Err(e) => format!("{VALGRIND}: {e}"),
    };
    skipped("valgrind", why);
    false
}

#[test]
fn programs_run_without_errors() {
    if !found() {
        return;
    }
    for options in ["-n 1", "-n 2", "-n 2 --nodes 2"] {
        let program = [&[VALGRIND], &OPTIONS[..], &[STATICS]].concat();
        let job = SMALL
            .into_iter()
            .fold(shmrun(options, &program), |job, (name, value)| {
                job.env(name, value)
            });
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
        let output = Job::new(VALGRIND, &options, &[HELLO]).run();
        let (ended, err) = (output.status, output.stderr);
        assert!(
            ended.success() && output.stdout.contains("PE 1 of 2"),
            "{ended}: {err}"
        );
        // Agents, which are forks of the launcher, print their errors and change no status.
        assert_eq!(err, "", "{options}");
    }
}

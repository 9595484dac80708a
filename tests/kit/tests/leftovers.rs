//! Nothing outlives a job that has a limit, and who leaves something behind is told.

use std::process::Command;
use std::time::Duration;

use shmem_testkit::processes::Process;
use shmem_testkit::{Job, Outcome};

fn shell(script: &str) -> Job {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Job::of(command)
}

/// The process that the job said it had started, which has gone.
#[track_caller]
fn assert_gone(outcome: &Outcome) {
    let pid = outcome.stdout.trim().parse().expect("a process's number");
    let left = Process::of(pid).filter(|p| p.state != 'Z');
    assert_eq!(left, None);
}

#[test]
fn nothing_outlives_a_job() {
    let script = "setsid sleep 1000 & echo $!; exit 3";
    let outcome = shell(script).run_within(Duration::from_secs(600));
    assert_eq!(outcome.failure().as_deref(), Some("exit status: 3"));
    assert_gone(&outcome);
}

#[test]
fn a_job_that_does_not_end_is_ended() {
    let script = "trap '' TERM; setsid sleep 1000 & echo $!; sleep 1000";
    // On a machine that is so busy that the shell gets nowhere, it gets more time.
    let found = (1..=6).find_map(|seconds| {
        let outcome = shell(script).run_within(Duration::from_secs(seconds));
        assert_eq!(outcome.failure(), Some(format!("ended after {seconds} s")));
        (!outcome.stdout.is_empty()).then_some(outcome)
    });
    assert_gone(&found.expect("the shell says something in time"));
}

#[test]
fn the_processes_of_a_job_are_found_whoever_started_them() {
    let job = shell("setsid sleep 1000 & exec sleep 1000").start();
    let found = job.wait_for("sleep", 2);
    assert!(found.contains(&job.pid()), "{found:?}");
    assert_gone_all(job.end_within(Duration::ZERO), &found);
}

fn assert_gone_all(outcome: Outcome, pids: &[i32]) {
    assert!(outcome.failure().is_some());
    for &pid in pids {
        assert_eq!(Process::of(pid).filter(|p| p.state == 'S'), None);
    }
}

#[test]
fn streams_and_status_are_kept() {
    let outcome = shell("cat; echo shmrun: no >&2; kill -9 $$").run_with_input(b"b\na\n".to_vec());
    assert_eq!(outcome.signal(), Some(9));
    assert_eq!(outcome.sorted(), ["a", "b"]);
    assert_eq!(outcome.messages(), ["shmrun: no"]);
}

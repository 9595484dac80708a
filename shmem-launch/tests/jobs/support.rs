//! Starting the `shmrun` that cargo built for these tests.

use std::process::Command;

use shmem_testkit::job::Running;
use shmem_testkit::processes::kill;
use shmem_testkit::{Job, wait_until};

/// How long agents may be silent: for ever, but in tests of that. On a busy machine one may not run for seconds.
pub(crate) const HEARTBEAT_TIMEOUT: &str = "SHMEM_HEARTBEAT_TIMEOUT";

/// A job of `shmrun`, with its options and a program.
pub(crate) fn shmrun(args: &[&str]) -> Job {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shmrun"));
    command.args(args);
    under_control(command)
}

/// A job that `sh` becomes after it has done something else, say `trap '' HUP`.
pub(crate) fn shmrun_after(first: &str, args: &[&str]) -> Job {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &format!("{first}; exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_shmrun"))
        .args(args);
    under_control(command)
}

/// Programs of `options`, then `/bin/sh` with a script.
pub(crate) fn sh(options: &[&str], script: &str) -> Job {
    shmrun(&[options, &["/bin/sh", "-c", script]].concat())
}

/// Kills a process of this name of a job whose start has come so far that there are so many processes: the one
/// whose turn that number makes it, or the launcher if there is none of that name yet. Nobody else ends meanwhile,
/// so its number is still its own.
#[track_caller]
pub(crate) fn kill_when(job: &Running, there_are: usize, victim: &str) {
    let mut there = Vec::new();
    wait_until(
        &format!("there are {there_are} processes"),
        || {
            there = job.processes();
            there.len() >= there_are
        },
        || format!("{:?}", job.processes()),
    );
    let victims = there.iter().filter(|p| p.name == victim && p.state != 'Z');
    let pids: Vec<i32> = victims.map(|p| p.pid).collect();
    let pid = pids.get(there_are % pids.len().max(1)).copied();
    kill(pid.unwrap_or(job.pid()), 9);
}

fn under_control(mut command: Command) -> Job {
    command.env_remove("SHMEM_SPAWN");
    command.env(HEARTBEAT_TIMEOUT, "0s");
    Job::of(command).in_a_group()
}

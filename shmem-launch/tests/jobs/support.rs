//! Starting the `shmrun` that cargo built for these tests.

use std::process::Command;

use shmem_testkit::Job;

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

fn under_control(mut command: Command) -> Job {
    command.env_remove("SHMEM_SPAWN");
    Job::of(command).in_a_group()
}

//! Nothing outlives a job. A process of its own, because a job owns all descendants.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use shmem_benches::job::{End, run};

/// Runs a shell script whose `$1` is a file for the number of a process that it leaves behind.
fn job(script: &str, limit: Duration, file: &Path) -> (End, String) {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(file);
    let end = run(command.stdout(Stdio::null()), limit).unwrap();
    (end, fs::read_to_string(file).unwrap_or_default())
}

#[track_caller]
fn assert_gone(pid: &str) {
    let pid = pid.trim();
    assert!(
        pid.parse::<i32>().is_ok(),
        "no process was started: {pid:?}"
    );
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap(), "{pid} lives");
}

#[test]
fn nothing_outlives_a_job() {
    let file = std::env::temp_dir().join(format!("shmem-benches-{}", std::process::id()));

    let script = "setsid sleep 1000 & echo $! > $1; exit 3";
    let (end, pid) = job(script, Duration::from_secs(600), &file);
    assert!(
        matches!(end, End::Exited(status) if status.code() == Some(3)),
        "{end:?}"
    );
    assert_gone(&pid);

    // On a machine that is so busy that the shell gets nowhere, it gets more time.
    let script = "trap '' TERM; setsid sleep 1000 & echo $! > $1; sleep 1000";
    let found = (1..=6).find_map(|seconds| {
        fs::remove_file(&file).ok();
        let (end, pid) = job(script, Duration::from_secs(seconds), &file);
        assert_eq!(end, End::TimedOut);
        (!pid.is_empty()).then_some(pid)
    });
    fs::remove_file(&file).ok();
    assert_gone(&found.unwrap_or_default());
}

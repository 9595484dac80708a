//! Launchers of others that tests start jobs with.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::Job;
use crate::needs::skipped;

/// Whether a launcher is installed. If it is not, the calling test is skipped for lack of `need`.
///
/// # Panics
/// As [`skipped`].
#[track_caller]
pub fn installed(launcher: &str, need: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(launcher).exists());
    if !found {
        skipped(need, format_args!("{launcher} is not installed"));
    }
    found
}

/// A job of MPICH's launcher; none if that is not installed. `mpiexec` reports the end of its input to the first
/// process's proxy, and dies of SIGPIPE if the proxy has ended by then, so the input does not end.
///
/// # Panics
/// As [`installed`].
#[track_caller]
pub fn hydra(options: &str, program: &[&str]) -> Option<Job> {
    let job = || Job::new("mpiexec.hydra", options, program).stdin(Stdio::piped());
    installed("mpiexec.hydra", "mpich").then(job)
}

/// A job of Hydra with 2 PEs on each of some hosts, which are proxies on this machine. The remote shell is a script in
/// `dir`.
///
/// # Panics
/// As [`installed`], and as [`remote_shell`].
#[track_caller]
pub fn hydra_on(dir: &Path, hosts: u32, options: &str, program: &[&str]) -> Option<Job> {
    let shell = remote_shell(dir);
    let list: Vec<String> = (1..=hosts).map(|i| format!("n{i}:2")).collect();
    let options = format!(
        "-launcher ssh -launcher-exec {} -hosts {} -n {} {options}",
        shell.display(),
        list.join(","),
        2 * hosts
    );
    let job = hydra(&options, program)?.env("HYDRA_LAUNCHER_AUTOFORK", "0");
    // The hosts have their cores in common, which no PE can know.
    Some(job.env("SHMEM_SPIN", "0"))
}

/// A script in `dir` that `mpiexec.hydra` takes for ssh: it runs the command, which follows options and a host, here.
///
/// # Panics
/// If the script cannot be written.
pub fn remote_shell(dir: &Path) -> PathBuf {
    const SCRIPT: &str =
        "#!/bin/sh\nwhile [ \"$1\" != \"${1#-}\" ]; do shift; done\nshift\neval exec \"$@\"\n";
    let path = dir.join("remote-shell");
    if std::fs::read_to_string(&path).is_ok_and(|there| there == SCRIPT) {
        return path;
    }
    // Tests of other threads and processes see the whole script or none.
    let thread = std::thread::current().id();
    let fresh = dir.join(format!("remote-shell-{}-{thread:?}", std::process::id()));
    std::fs::write(&fresh, SCRIPT).expect("a file for the test");
    let executable = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&fresh, executable).expect("an executable file");
    std::fs::rename(&fresh, &path).expect("a file under its name");
    path
}

//! The example `calls` under each launcher and with each MPI that this machine has.

use std::path::PathBuf;
use std::process::Command;

use shmem_testkit::needs::skipped;

/// Beside the tests, where cargo puts examples that it builds for them.
fn calls() -> PathBuf {
    let test = std::env::current_exe().expect("a running program");
    let dir = test.parent().and_then(|deps| deps.parent());
    dir.expect("a directory of programs").join("examples/calls")
}

/// Runs 4 processes, each of which says that all is right with this interface.
fn run(need: &str, mut launcher: Command, level: &str, interface: &str) {
    for (name, value) in [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
        ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ] {
        launcher.env(name, value);
    }
    let job = launcher.args(["-n", "4"]).arg(calls()).arg(level).output();
    let output = match job {
        Ok(output) => output,
        Err(e) => return skipped(need, format_args!("{:?}: {e}", launcher.get_program())),
    };
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{out}{err}");
    let right = format!("of 4 right: {interface}");
    assert_eq!(out.matches(&right).count(), 4, "{out}{err}");
}

#[test]
fn under_debians_mpich() {
    for level in ["single", "serialized", "multiple"] {
        run("mpich", Command::new("mpiexec.hydra"), level, "MPICH ABI");
    }
}

#[test]
fn under_debians_open_mpi() {
    for level in ["funneled", "serialized", "multiple"] {
        let mut launcher = Command::new("mpirun.openmpi");
        launcher.arg("--oversubscribe");
        run("openmpi", launcher, level, "Open MPI ABI");
    }
}

#[test]
fn with_mpich_5_and_the_standard_interface() {
    let Some(prefix) = std::env::var_os("PMI_SPAWN_MPICH").map(PathBuf::from) else {
        return skipped("mpich-spawn", "PMI_SPAWN_MPICH is not set");
    };
    for (library, interface) in [
        ("libmpi.so.12", "MPICH ABI"),
        ("libmpi_abi.so.1", "MPI 5 ABI"),
    ] {
        let mut launcher = Command::new(prefix.join("bin/mpiexec.hydra"));
        launcher.env("SHMEM_MPI_LIBRARY", prefix.join("lib").join(library));
        run("mpich-spawn", launcher, "multiple", interface);
    }
}

#[test]
fn with_open_mpi_5() {
    let Some(prefix) = std::env::var_os("OPENMPI_PREFIX").map(PathBuf::from) else {
        return skipped("openmpi5", "OPENMPI_PREFIX is not set");
    };
    let mut launcher = Command::new(prefix.join("bin/prterun"));
    for name in ["OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX"] {
        launcher.env(name, &prefix);
    }
    launcher.arg("--prefix").arg(&prefix);
    launcher.args(["--map-by", ":oversubscribe"]);
    run("openmpi5", launcher, "serialized", "Open MPI ABI");
}

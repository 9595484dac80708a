//! Programs of others: Debian's MPICH (PMI-1), Slurm's PMI-2 library, and, for `MPI_Comm_spawn`, which
//! Debian's build of MPICH refuses, an MPICH whose prefix `PMI_SPAWN_MPICH` tells.

use super::*;
use std::path::{Path, PathBuf};

use shmem_testkit::needs::skipped;
use shmem_testkit::tools::{self, command, made_by};

/// Compiles a program of `tests/c/mpi` as `name`; `None` without what it needs.
fn compiled(
    name: &str,
    source: &str,
    compiler: &str,
    more: &[&str],
    need: &str,
) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("pmi")
        .join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("c/mpi")
        .join(source);
    let words = [
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        source.to_str().expect("text"),
    ];
    let made = made_by(command(compiler), &program, words.iter().chain(more));
    made.map_err(|why| skipped(need, why)).ok()
}

fn mpich(name: &str) -> Option<PathBuf> {
    compiled(name, &format!("{name}.c"), "mpicc.mpich", &[], "mpich")
}

fn job(options: &str, program: &Path) -> Job {
    shmrun(options, &[program.to_str().expect("text")])
}

/// Processes and nodes.
fn layouts() -> impl Iterator<Item = (usize, usize)> {
    // Processes that wait take processors from each other.
    [(1, 1), (2, 1), (2, 2), (4, 1), (4, 4), (8, 4)].into_iter()
}

#[test]
fn mpich_programs_run() {
    run_mpich_programs(layouts());
}

#[test]
#[ignore = "nightly: many processes that wait for each other"]
fn mpich_programs_run_as_many_processes() {
    run_mpich_programs([(4, 2), (8, 1), (8, 2), (16, 1), (16, 2), (16, 4)].into_iter());
}

fn run_mpich_programs(layouts: impl Iterator<Item = (usize, usize)>) {
    let (Some(hello), Some(allreduce)) = (mpich("hello"), mpich("allreduce")) else {
        return;
    };
    for (n, nodes) in layouts {
        let options = format!("-n {n} --nodes {nodes}");
        let out = job(&options, &hello).succeed();
        let here = format!("of {n}, {} on this node", n / nodes);
        assert_eq!(out.matches(&here).count(), n, "{options}: {out}");
        let out = job(&options, &allreduce).succeed();
        assert_eq!(out, format!("allreduce of {n} is right\n"), "{options}");
    }
}

#[test]
fn an_mpich_program_that_aborts_gives_the_status() {
    let Some(program) = mpich("abort") else {
        return;
    };
    let err = ends_with(37, job("-n 4 --nodes 2", &program)).stderr;
    assert!(err.contains("PE 3 on node 1"), "{err}");
}

#[test]
fn programs_with_slurms_library_run() {
    let more = ["-lpmi2"];
    let Some(program) = compiled("pmi2", "pmi2.c", &tools::CC.words(), &more, "libpmi2") else {
        return;
    };
    for (n, nodes) in layouts() {
        let options = format!("-n {n} --nodes {nodes}");
        let out = job(&options, &program).succeed();
        assert_eq!(out.matches("pmi2 rank").count(), n, "{options}: {out}");
    }
}

#[test]
fn an_mpich_program_spawns_others() {
    let Some(prefix) = std::env::var_os("PMI_SPAWN_MPICH") else {
        return skipped("mpich-spawn", "PMI_SPAWN_MPICH is not set");
    };
    let prefix = Path::new(&prefix);
    let (mpicc, lib) = (prefix.join("bin/mpicc"), prefix.join("lib"));
    let rpath = format!("-Wl,-rpath,{}", lib.display());
    let mpicc = mpicc.to_str().expect("text");
    let Some(program) = compiled("spawn", "spawn.c", mpicc, &[&rpath], "mpich-spawn") else {
        return;
    };
    for (n, nodes) in [(1, 1), (2, 1), (4, 2)] {
        let out = job(&format!("-n {n} --nodes {nodes}"), &program).succeed();
        let all = format!("of {} together", n + 5);
        assert_eq!(out.matches(&all).count(), n + 5, "{out}");
    }
}

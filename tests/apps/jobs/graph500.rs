//! The Graph500 benchmark as jobs: edges, roots and levels are those of the reference on every layout, with and without
//! MPI, and what cannot work is refused in words that help. How results can be wrong is tested in `apps/graph500/tests`.

use std::path::Path;

use shmem_testkit::launchers::{hydra, hydra_on, installed};
use shmem_testkit::{Job, Outcome};

use crate::programs::{GRAPH500, TMP, shmrun};

const ALGORITHMS: [&str; 2] = ["top-down", "direction-optimising"];

fn job(options: &str, args: &str) -> Job {
    let words: Vec<_> = args.split_whitespace().collect();
    shmrun(options, &[&[GRAPH500], &words[..]].concat())
}

/// Runs a job with `--check`, which must find what the reference does and print official lines, once.
fn verifies(job: Job, scale: u32, n: usize) -> Outcome {
    let outcome = job.run();
    outcome.expect_success();
    let (out, said) = (&outcome.stdout, &outcome.stderr);
    let all = said
        .matches("All values are those of the reference.")
        .count();
    assert_eq!(all, 1, "{said}");
    for (name, value) in [("SCALE:", scale as usize), ("num_mpi_processes:", n)] {
        let line = format!("{name:<32}{value}");
        assert_eq!(out.lines().filter(|l| **l == line).count(), 1, "{out}");
    }
    assert!(out.contains("bfs  harmonic_mean_TEPS:     !  "), "{out}");
    outcome
}

/// PEs and nodes.
const LAYOUTS: [(usize, usize); 6] = [(1, 1), (2, 1), (3, 2), (4, 4), (7, 3), (16, 4)];

#[test]
fn values_are_those_of_the_reference() {
    for ((n, nodes), algorithm) in LAYOUTS.into_iter().zip(ALGORITHMS.into_iter().cycle()) {
        let options = format!("-n {n} --nodes {nodes}");
        let job = job(&options, &format!("10 --check --algorithm {algorithm}"));
        verifies(job, 10, n);
    }
}

#[test]
#[ignore = "nightly: every combination"]
fn values_are_those_of_the_reference_on_every_layout() {
    for (n, nodes) in LAYOUTS {
        for connect in ["ondemand", "static"] {
            for algorithm in ALGORITHMS {
                let options = format!("-n {n} --nodes {nodes}");
                let job = job(&options, &format!("10 --check --algorithm {algorithm}"));
                verifies(job.env("SHMEM_CONNECT", connect), 10, n);
            }
        }
    }
}

#[test]
#[ignore = "nightly: larger"]
fn a_larger_graph() {
    for (n, nodes) in [(3, 1), (4, 2), (16, 4)] {
        for algorithm in ALGORITHMS {
            let args = format!("14 --check --roots 4 --algorithm {algorithm}");
            verifies(job(&format!("-n {n} --nodes {nodes}"), &args), 14, n);
        }
    }
}

#[test]
fn hybrid_on_one_node() {
    for n in [1, 3] {
        let args = [GRAPH500, "10", "--check", "--hybrid", "--roots", "4"];
        if let Some(job) = hydra(&format!("-n {n}"), &args) {
            verifies(job, 10, n);
        }
    }
}

#[test]
fn hybrid_on_several_nodes() {
    for algorithm in ALGORITHMS {
        let args = ["10", "--check", "--hybrid", "--roots", "4", "--algorithm"];
        let args = [&[GRAPH500], &args[..], &[algorithm]].concat();
        if let Some(job) = hydra_on(Path::new(TMP), 3, "", &args) {
            verifies(job, 10, 6);
            // There is an MPICH, then.
            verifies(shmrun("-n 4 --nodes 2", &args), 10, 4);
        }
    }
}

/// Runs a job that must fail; gives what it says of that, which is one line.
fn refused(job: Job, status: i32) -> String {
    let outcome = job.run();
    let said = outcome.stderr;
    assert_eq!(outcome.status.code(), Some(status), "{said}");
    assert!(outcome.stdout.is_empty(), "{}", outcome.stdout);
    assert!(!said.contains("panicked"), "{said}");
    let lines: Vec<_> = said
        .lines()
        .filter(|l| !l.starts_with("shmrun: "))
        .collect();
    let first = lines
        .first()
        .unwrap_or_else(|| panic!("nothing of it in {said}"));
    let again = lines.iter().filter(|line| *line == first).count();
    assert_eq!(again, 1, "{said}");
    (*first).to_owned()
}

#[test]
fn what_cannot_work_is_refused_once() {
    for options in ["-n 9", "-n 9 --nodes 2"] {
        let said = refused(job(options, "3"), 1);
        assert!(said.contains("use SCALE 4 or more, or fewer PEs"), "{said}");
        let said = refused(job(options, "99"), 2);
        assert!(said.contains("99 is not in 1..=31"), "{said}");
        let hybrid = job(options, "10 --hybrid").env("SHMEM_MPI_LIBRARY", "/nowhere/libmpi.so");
        let said = refused(hybrid, 1);
        assert!(
            said.contains("the MPI library /nowhere/libmpi.so cannot be loaded"),
            "{said}"
        );
    }
}

#[test]
fn an_mpi_that_needs_an_option_of_shmrun_is_refused_with_it() {
    if installed("mpirun.openmpi", "openmpi") {
        let job = |options: &str| {
            let job = job(options, "10 --hybrid --check --roots 1");
            job.env("SHMEM_MPI_LIBRARY", "libmpi.so.40")
        };
        let said = refused(job("-n 3"), 1);
        assert!(said.contains("--pmix"), "{said}");
        verifies(job("--pmix -n 3"), 10, 3);
    }
}

#[test]
fn a_heap_that_is_too_small_is_told_with_the_size_to_set() {
    for nodes in [1, 2] {
        let options = format!("-n 4 --nodes {nodes}");
        let job = |size: &str| {
            let job = job(&options, "16 --check --quiet --roots 1");
            job.env("SHMEM_SYMMETRIC_SIZE", size)
        };
        let said = refused(job("1m"), 1);
        let (_, size) = said
            .split_once("set SHMEM_SYMMETRIC_SIZE=")
            .unwrap_or_else(|| panic!("no size in {said}"));
        job(size.split_once(' ').expect("more words").0).succeed();
    }
}

#[test]
fn results_as_json_are_one_line() {
    let out = job("-n 3 --nodes 2", "10 --roots 2 --json -").succeed();
    assert_eq!(out.lines().count(), 1, "{out}");
    assert!(
        out.starts_with("{\"name\":\"graph500-bfs\",\"scale\":10,"),
        "{out}"
    );
    assert!(out.contains("\"pes\":3,\"nodes\":2,"), "{out}");
    assert!(out.contains("\"levels\":[1, 8, 500, 380, 8]"), "{out}");
}

//! Every example, at several sizes: they assert their results themselves.

use shmem_require::lacks_descriptors;
use shmem_tests::Job;

fn run(options: &str, program: &[&str]) -> String {
    Job::new(env!("CARGO_BIN_EXE_shmrun-under-test"), options, program).succeed()
}

const LAYOUTS: [&str; 6] = [
    "-n 1",
    "-n 2",
    "-n 3 --nodes 2",
    "-n 4",
    "-n 8 --nodes 4",
    "-n 13 --nodes 5",
];

#[test]
fn hello() {
    for options in LAYOUTS {
        let out = run(options, &[env!("CARGO_BIN_EXE_hello-under-test")]);
        let n: usize = options.split_whitespace().nth(1).unwrap().parse().unwrap();
        let mut lines: Vec<_> = out.lines().map(str::to_owned).collect();
        let mut want: Vec<_> = (0..n)
            .map(|pe| format!("Hello from PE {pe} of {n}"))
            .collect();
        lines.sort();
        want.sort();
        assert_eq!(lines, want, "{options}");
    }
}

#[test]
fn ring() {
    for options in LAYOUTS {
        assert!(run(options, &[env!("CARGO_BIN_EXE_ring-under-test")]).contains("came back right"));
    }
}

#[test]
fn histogram() {
    for options in LAYOUTS {
        run(options, &[env!("CARGO_BIN_EXE_histogram-under-test")]);
    }
}

#[test]
fn histogram_with_atomics_by_owners() {
    for options in LAYOUTS {
        let shmrun = env!("CARGO_BIN_EXE_shmrun-under-test");
        let job = Job::new(
            shmrun,
            options,
            &[env!("CARGO_BIN_EXE_histogram-under-test")],
        );
        job.env("SHMEM_ATOMICS", "owner").succeed();
    }
}

#[test]
fn heat2d() {
    for options in LAYOUTS {
        run(options, &[env!("CARGO_BIN_EXE_heat2d-under-test")]);
    }
}

/// More PEs than cores by far, each with a heap: nothing spins, nothing is allocated in full.
fn a_thousand_pes(options: &str) {
    let options = format!("-n 1000 {options}");
    let out = run(&options, &[env!("CARGO_BIN_EXE_hello-under-test")]);
    assert_eq!(out.lines().count(), 1000, "{options}");
}

#[test]
fn a_thousand_pes_on_forty_nodes() {
    a_thousand_pes("--nodes 40");
}

#[test]
fn a_thousand_pes_on_one_node() {
    if !lacks_descriptors(4096) {
        a_thousand_pes("");
    }
}

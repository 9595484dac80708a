//! Every example, at several sizes: they assert their results themselves.

use shmem_testkit::needs::lacks_descriptors;

use crate::programs::{
    BLOCK_ARRAY, HASH_MAP, HELLO, HISTOGRAM, LOCK, NPB_EP, NPB_IS, OWN_TYPE, RING, TEAMS, THREADS,
    WORK_QUEUE, shmrun,
};

fn run(options: &str, program: &[&str]) -> String {
    shmrun(options, program).succeed()
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
        let out = run(options, &[HELLO]);
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
        assert!(run(options, &[RING]).contains("came back right"));
    }
}

#[test]
fn histogram() {
    for options in LAYOUTS {
        run(options, &[HISTOGRAM]);
    }
}

#[test]
fn histogram_with_atomics_by_owners() {
    for options in LAYOUTS {
        let job = shmrun(options, &[HISTOGRAM]);
        job.env("SHMEM_ATOMICS", "owner").succeed();
    }
}

#[test]
fn structures_of_all_pes() {
    for options in LAYOUTS {
        for program in [BLOCK_ARRAY, HASH_MAP, WORK_QUEUE] {
            run(options, &[program]);
        }
    }
}

#[test]
fn ideas() {
    for options in LAYOUTS {
        for program in [LOCK, OWN_TYPE, TEAMS, THREADS] {
            run(options, &[program]);
        }
    }
}

#[test]
fn nas_benchmarks_as_plain_code() {
    for options in ["-n 1", "-n 4", "-n 5 --nodes 2"] {
        assert_eq!(
            run(options, &[NPB_EP]),
            "13176389 Gaussian pairs, verified\n"
        );
        assert_eq!(
            run(options, &[NPB_IS]),
            "65536 keys sorted 10 times, verified\n"
        );
    }
}

/// More PEs than cores by far, each with a heap: nothing spins, nothing is allocated in full.
fn a_thousand_pes(options: &str) {
    let options = format!("-n 1000 {options}");
    let out = run(&options, &[HELLO]);
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

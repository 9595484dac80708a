//! The NAS benchmarks as jobs: they verify on every layout, need no more connections than their
//! neighbours and the tree of the collectives, and refuse what cannot work in words that help.

use npb_ports::kernels;
use shmem_testkit::{Job, Outcome};

use crate::programs::{NPB, NPB_FRAME, SHMRUN, shmrun};

/// What is tested of a benchmark.
struct Kernel {
    of: &'static kernels::Kernel,
    /// Numbers of PEs that class S runs on.
    counts: &'static [usize],
    /// A number of PEs that it does not run on, and what is said of it.
    wrong: Option<(usize, &'static str)>,
}

/// Points along an edge of MG's grid at class S.
const EDGE: usize = 32;

const EP: Kernel = Kernel {
    of: &kernels::EP,
    counts: &[1, 2, 3, 4, 8, 16],
    wrong: None,
};

const CG: Kernel = Kernel {
    of: &kernels::CG,
    counts: &[1, 2, 4, 8, 16, 64],
    wrong: Some((3, "start it with 2 or 4 PEs")),
};

const FT: Kernel = Kernel {
    of: &kernels::FT,
    counts: &[1, 2, 4, 8, 16],
    wrong: Some((3, "start it with 2 or 4 PEs")),
};

const IS: Kernel = Kernel {
    of: &kernels::IS,
    counts: &[1, 2, 3, 4, 8, 16],
    wrong: Some((129, "start it with 128 PEs")),
};

const MG: Kernel = Kernel {
    of: &kernels::MG,
    counts: &[1, 2, 4, 8, 16, 64],
    wrong: Some((3, "start it with 2 or 4 PEs")),
};

const LU: Kernel = Kernel {
    of: &kernels::LU,
    counts: &[1, 2, 4, 6, 8, 16],
    wrong: Some((3, "start it with 2 or 4 PEs")),
};

const BT: Kernel = Kernel {
    of: &kernels::BT,
    counts: &[1, 4, 9, 16],
    wrong: Some((3, "start it with 1 or 4 PEs")),
};

const SP: Kernel = Kernel {
    of: &kernels::SP,
    wrong: Some((25, "start it with 16 PEs")),
    ..BT
};

const KERNELS: [&Kernel; 8] = [&BT, &CG, &EP, &FT, &IS, &LU, &MG, &SP];

impl Kernel {
    fn job(&self, options: &str, args: &[&str]) -> Job {
        shmrun(options, &[&[NPB, self.of.name], args].concat())
    }

    /// Runs `job` of `n` PEs, whose output must be that of a run of `class` that verified.
    fn verifies(&self, job: Job, n: usize, class: &str) -> Outcome {
        let outcome = job.run();
        outcome.expect_success();
        let out = &outcome.stdout;
        let lines = [
            format!(" {} Benchmark Completed.", self.of.name),
            format!(" Class           = {class:>24}"),
            format!(" Total processes = {n:>24}"),
            format!(" Verification    = {:>24}", "SUCCESSFUL"),
        ];
        for line in &lines {
            assert!(out.lines().any(|l| l == line), "no line {line:?}: {out}");
        }
        outcome
    }

    /// Class S with numbers of PEs, on as many as `most_nodes` nodes.
    fn class_s(&self, counts: &[usize], most_nodes: usize, connect: &str) {
        for &n in counts {
            let options = format!("-n {n} --nodes {}", n.min(most_nodes));
            let job = self.job(&options, &["S"]).env("SHMEM_CONNECT", connect);
            self.verifies(job, n, "S");
        }
    }
}

#[test]
fn no_benchmark_is_left_out() {
    let tested = KERNELS.map(|kernel| kernel.of.name);
    assert_eq!(tested, kernels::KERNELS.map(|kernel| kernel.name));
}

/// How many numbers of PEs each run tries of those that a benchmark runs on, the smallest.
const FEW: usize = 3;

#[test]
fn class_s() {
    for kernel in KERNELS {
        let few = &kernel.counts[..FEW];
        kernel.class_s(few, 1, "ondemand");
        kernel.class_s(&few[1..], 4, "ondemand");
    }
}

#[test]
#[ignore = "nightly: all numbers of PEs, up to 64"]
fn class_s_on_all_numbers_of_pes() {
    for kernel in KERNELS {
        kernel.class_s(kernel.counts, 1, "ondemand");
        kernel.class_s(kernel.counts, 4, "ondemand");
        kernel.class_s(kernel.counts, 4, "static");
    }
}

#[test]
#[ignore = "nightly: it computes for minutes, in release mode"]
fn class_w() {
    for (kernel, n) in [
        (&BT, 4),
        (&BT, 9),
        (&CG, 2),
        (&CG, 8),
        (&EP, 4),
        (&FT, 2),
        (&FT, 8),
        (&IS, 4),
        (&IS, 9),
        (&LU, 2),
        (&LU, 8),
        (&MG, 2),
        (&MG, 8),
        (&SP, 4),
        (&SP, 9),
    ] {
        let layouts: &[_] = match n {
            2 => &[(1, "ondemand"), (2, "static")],
            4 => &[(1, "ondemand"), (4, "static")],
            _ => &[(4, "ondemand")],
        };
        for (nodes, connect) in layouts {
            let job = kernel.job(&format!("-n {n} --nodes {nodes}"), &["W"]);
            kernel.verifies(job.env("SHMEM_CONNECT", connect), n, "W");
        }
    }
}

#[test]
fn more_pes_than_work() {
    // EP has 256 batches.
    EP.verifies(EP.job("-n 300 --nodes 20", &["S"]), 300, "S");
}

#[test]
fn packets_get_lost() {
    for kernel in KERNELS {
        let faults = "drop=2%,duplicate=1%,reorder=2%,seed=11";
        let job = kernel.job("-n 4 --nodes 4", &["S"]);
        kernel.verifies(job.env("SHMEM_SOFT_FAULTS", faults), 4, "S");
    }
}

#[test]
fn over_xrc() {
    for kernel in KERNELS {
        let job = kernel.job("-n 16 --nodes 4", &["S"]);
        kernel.verifies(job.env("SHMEM_TRANSPORT", "xrc"), 16, "S");
    }
}

#[test]
fn peers_are_neighbours_and_those_that_collectives_take() {
    peers(4..=9);
}

#[test]
#[ignore = "nightly: up to 64 PEs, each on a node of its own"]
fn peers_of_many_pes_are_few() {
    peers(2..=64);
}

/// Each PE on a node of its own, so that every peer is a connection. A barrier by another pattern
/// than theirs, an all-to-all, a message to somebody who is no neighbour: all would show.
fn peers(counts: std::ops::RangeInclusive<usize>) {
    for kernel in KERNELS {
        for &n in kernel.counts.iter().filter(|n| counts.contains(n)) {
            let options = format!("-n {n} --nodes {n}");
            let job = Job::reported(SHMRUN, &options, &[NPB, kernel.of.name, "S"]);
            let outcome = kernel.verifies(job, n, "S");
            let model = kernel.of.peers(n, EDGE);
            for name in ["connections", "queue pairs"] {
                let found = outcome.report().figure(name);
                assert!(
                    found.mean <= model.mean() && found.max <= model.max() as f64,
                    "{} on {n} PEs: {} {name} a PE, {} at most, where {} and {} are needed",
                    kernel.of.name,
                    found.mean,
                    found.max,
                    model.mean(),
                    model.max(),
                );
                // Fewer would mean that PEs do not use the network, and this test nothing.
                assert!(found.mean > 0.0, "{}", kernel.of.name);
            }
        }
    }
}

/// Runs a job that must fail, with the status that programs use for it; gives what it says.
fn refused(job: Job) -> String {
    let output = job.run();
    let said = output.stderr;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!output.stdout.contains("Completed"), "{}", output.stdout);
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn a_wrong_number_of_pes_is_told_with_right_ones() {
    for kernel in KERNELS {
        let Some((n, expected)) = kernel.wrong else {
            continue;
        };
        for nodes in [1, 2] {
            let said = refused(kernel.job(&format!("-n {n} --nodes {nodes}"), &["S"]));
            let found = said.lines().filter(|line| line.contains(expected)).count();
            assert_eq!(found, 1, "{said}");
        }
    }
}

#[test]
fn a_heap_that_is_too_small_is_told_with_the_size_to_set() {
    for (kernel, size) in [
        (&EP, "64"),
        (&BT, "8k"),
        (&CG, "8k"),
        (&FT, "64k"),
        (&IS, "8k"),
        (&LU, "8k"),
        (&MG, "64"),
        (&MG, "64k"),
        (&SP, "8k"),
    ] {
        let job = |size: &str| {
            let job = kernel.job("-n 4 --nodes 2", &["S"]);
            job.env("SHMEM_SYMMETRIC_SIZE", size)
        };
        let said = refused(job(size));
        let (_, size) = said
            .split_once("set SHMEM_SYMMETRIC_SIZE=")
            .unwrap_or_else(|| panic!("no size in {said}"));
        let size = size.split_once(' ').expect("more words").0;
        kernel.verifies(job(size), 4, "S");
    }
}

#[test]
fn a_class_that_needs_more_memory_than_there_is_says_how_much() {
    for kernel in [&BT, &CG, &FT, &LU, &MG, &SP] {
        for options in ["-n 1", "-n 4 --nodes 2"] {
            let said = refused(kernel.job(options, &["F"]));
            let start = format!("{} class F on ", kernel.of.name);
            let mut lines = said.lines().filter(|line| line.contains(&start));
            let line = lines.next().unwrap_or_else(|| panic!("no error in {said}"));
            // Emulated nodes share the memory of this machine.
            let n = options.split_whitespace().nth(1).expect("a number");
            let place = format!("iB of memory on a node with {n} of them");
            assert!(line.contains(&place), "{line}");
            assert!(line.contains("use more nodes or a smaller class"), "{line}");
            assert_eq!(lines.next(), None, "{said}");
        }
    }
}

#[test]
fn a_class_that_a_benchmark_does_not_have_is_told_once() {
    for options in ["-n 1", "-n 5 --nodes 3"] {
        let output = IS.job(options, &["F"]).run();
        let said = output.stderr;
        assert_eq!(output.status.code(), Some(2), "{said}");
        let expected = "IS has no problem class `F`: use one of S, W, A, B, C, D, E\n";
        assert_eq!(said.matches(expected).count(), 1, "{said}");
        assert!(output.stdout.is_empty());
    }
    // The next one needs as many PEs, and more memory than they have.
    let said = refused(IS.job("-n 4", &["E"]));
    assert_eq!(
        said.matches("16 to 1024 PEs; start it with 16 PEs").count(),
        1,
        "{said}"
    );
    let said = refused(IS.job("-n 16 --nodes 2", &["E"]));
    assert_eq!(
        said.matches("IS class E on 16 PEs needs ").count(),
        1,
        "{said}"
    );
}

#[test]
fn a_report_as_json_is_one_line() {
    for kernel in KERNELS {
        let out = kernel.job("-n 4 --nodes 2", &["S", "--json"]).succeed();
        assert_eq!(out.lines().count(), 1, "{out}");
        let start = format!("{{\"name\":\"{}\",\"class\":\"S\",", kernel.of.name);
        assert!(out.starts_with(&start) && out.ends_with("}\n"), "{out}");
        assert!(out.contains("\"verified\":true"), "{out}");
    }
}

/// The frame of the benchmarks, by a program of its own.
fn frame(options: &str, args: &[&str]) -> Job {
    shmrun(options, &[&[NPB_FRAME], args].concat())
}

#[test]
fn messages_land_and_figures_add_up() {
    for options in ["-n 1", "-n 2", "-n 4 --nodes 2", "-n 5 --nodes 5"] {
        frame(options, &[]).succeed();
    }
    let faults = "drop=1%,duplicate=1%,reorder=2%,seed=3";
    for (name, value) in [("SHMEM_TRANSPORT", "xrc"), ("SHMEM_SOFT_FAULTS", faults)] {
        frame("-n 4 --nodes 2", &[]).env(name, value).succeed();
    }
}

#[test]
fn a_message_that_was_overwritten_is_found_out() {
    for options in ["-n 2", "-n 2 --nodes 2"] {
        let output = frame(options, &["early"]).run();
        let said = output.stderr;
        assert!(!output.status.success(), "{said}");
        assert!(
            said.contains("message 1 in slot 0 was overwritten by message 2"),
            "{said}"
        );
    }
}

#[test]
fn nobody_waits_for_a_pe_that_fails_alone() {
    for options in ["-n 1", "-n 2", "-n 5 --nodes 3"] {
        let said = refused(frame(options, &["S"]));
        let found = said.matches("npb-xx: no address space for a grid").count();
        assert_eq!(found, 1, "{said}");
    }
}

#[test]
fn a_wrong_command_line_is_told_once() {
    for options in ["-n 1", "-n 5 --nodes 3"] {
        let output = MG.job(options, &["Z"]).run();
        let said = output.stderr;
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.matches("no problem class `Z`").count(), 1, "{said}");
        assert!(output.stdout.is_empty());
        let help = MG.job(options, &["--help"]).succeed();
        assert_eq!(help.matches("Usage: npb-mg ").count(), 1, "{help}");
    }
}

#[test]
fn all_pes_learn_that_one_needs_too_much_memory() {
    for options in ["-n 1", "-n 3", "-n 5 --nodes 3"] {
        let out = frame(options, &["large"]).succeed();
        let lines: Vec<_> = out.lines().collect();
        let n: usize = options.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(lines.len(), n, "{out}");
        assert!(lines.iter().all(|line| *line == lines[0]), "{out}");
        assert!(lines[0].starts_with("XX class F on "), "{out}");
    }
}

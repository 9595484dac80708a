//! What a PE and an agent cost, without a clock: counts, and what they may be.
//!
//! Start-up grows dearer by a system call here and a page there, which nobody notices one by one. So a change
//! that makes it dearer has to raise a bound here, on purpose. Of processes that do the same the cheapest
//! counts: what others have on top depends on who came first. Bounds have some room for kernels and C libraries
//! that need a page more.

use std::process::Command;

use shmem_testkit::needs::skipped;

use crate::programs::{COSTS, HELLO, SHMRUN};

/// Status of the program that counts, where it may not.
const NOT_ALLOWED: i32 = 3;

/// How often each job runs: of a launcher there is one, and what it has to do depends on who comes when.
const RUNS: usize = 4;

/// What is counted, in the order of the program that does.
const COUNTS: [&str; 5] = ["calls", "faults", "threads", "descriptors", "KiB written"];

type Counts = [i64; COUNTS.len()];

/// The processes of a job by kind.
struct Job(Vec<(&'static str, Counts)>);

impl Job {
    /// Runs `hello` some times. `None` where nothing can be counted.
    fn run(options: &str) -> Option<Self> {
        let mut processes = Vec::new();
        for _ in 0..RUNS {
            processes.extend(Self::run_once(options)?);
        }
        Some(Self(processes))
    }

    fn run_once(options: &str) -> Option<Vec<(&'static str, Counts)>> {
        let output = Command::new(COSTS)
            .arg(SHMRUN)
            .args(options.split(' '))
            .args(["--spawn", "template", HELLO])
            // Where the loader searches, and what a variable more costs, is not what is asked here.
            .env_clear()
            .output()
            .expect("the program that counts");
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(NOT_ALLOWED) {
            skipped("ptrace", errors.trim());
            return None;
        }
        assert!(output.status.success(), "{options}: {errors}");
        let text = String::from_utf8_lossy(&output.stdout);
        Some(text.lines().map(parse).collect())
    }

    /// The least of each count, of a kind.
    fn least(&self, kind: &str) -> Counts {
        let of_kind = || self.0.iter().filter(|(k, _)| *k == kind);
        assert!(of_kind().next().is_some(), "no {kind}");
        std::array::from_fn(|at| of_kind().map(|(_, counts)| counts[at]).min().unwrap_or(0))
    }

    fn number_of(&self, kind: &str) -> usize {
        self.0.iter().filter(|(k, _)| *k == kind).count()
    }
}

/// A line of the program that counts.
fn parse(line: &str) -> (&'static str, Counts) {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| -> i64 { words[at].parse().expect("a number") };
    let kind = match (words[0], number(1)) {
        ("shmrun-agent", 0) => "agent",
        ("pe-guard", _) => "guard",
        ("hello", 0) => "PE",
        ("hello", _) => "template",
        _ => "launcher",
    };
    (kind, std::array::from_fn(|at| number(2 + at)))
}

/// What there may be of each.
struct Bound {
    what: &'static str,
    most: Counts,
}

/// How much of its memory is a process's alone depends on who of those forked from it, or beside it, still lives:
/// only of many alike, as PEs are, one has the least.
const ANY: i64 = i64::MAX;

/// Calls, faults, threads, descriptors, KiB.
const BOUNDS: [Bound; 9] = [
    Bound {
        what: "PE, one node",
        most: [36, 88, 1, 7, 96],
    },
    Bound {
        what: "PE, several nodes",
        most: [62, 110, 2, 10, 144],
    },
    Bound {
        what: "agent, for itself",
        most: [175, 210, 1, 12, ANY],
    },
    Bound {
        what: "agent, for each PE, one node",
        most: [24, 3, 0, 0, ANY],
    },
    Bound {
        what: "agent, for each PE, several nodes",
        most: [25, 3, 0, 0, ANY],
    },
    Bound {
        what: "template, for itself",
        most: [195, 170, 1, 9, ANY],
    },
    Bound {
        what: "template, for each PE",
        most: [9, 7, 0, 0, ANY],
    },
    Bound {
        what: "guard",
        most: [24, 40, 1, 4, ANY],
    },
    Bound {
        what: "launcher",
        most: [380, 420, 4, 6, ANY],
    },
];

/// How much the second has more than the first, for each of `more` PEs, rounded up.
fn each(first: Counts, second: Counts, more: i64) -> Counts {
    std::array::from_fn(|at| (second[at] - first[at] + more - 1).div_euclid(more))
}

/// What is left without `n` PEs.
fn without(all: Counts, n: i64, each: Counts) -> Counts {
    std::array::from_fn(|at| all[at] - n * each[at])
}

#[test]
fn a_process_costs_no_more_than_it_may() {
    let run = |options| Job::run(options);
    let (Some(few), Some(many)) = (run("-n 8"), run("-n 40")) else {
        return;
    };
    let (Some(few_far), Some(many_far)) = (run("-n 8 --nodes 2"), run("-n 72 --nodes 2")) else {
        return;
    };
    assert_eq!(many.number_of("PE"), RUNS * 40);
    assert_eq!(many_far.number_of("agent"), RUNS * 2);
    let near = each(few.least("agent"), many.least("agent"), 32);
    let far = each(few_far.least("agent"), many_far.least("agent"), 32);
    let fork = each(few.least("template"), many.least("template"), 32);
    let counted = [
        many.least("PE"),
        many_far.least("PE"),
        without(few.least("agent"), 8, near),
        near,
        far,
        without(few.least("template"), 8, fork),
        fork,
        many.least("guard"),
        many.least("launcher"),
    ];
    let mut too_much = Vec::new();
    println!("{:>36} {COUNTS:?}", "");
    for (bound, counts) in BOUNDS.iter().zip(counted) {
        println!("{:>36} {counts:?} of {:?}", bound.what, bound.most);
        for (at, count) in COUNTS.iter().enumerate() {
            if counts[at] > bound.most[at] {
                let (what, most) = (bound.what, bound.most[at]);
                too_much.push(format!("{what}: {} {count}, at most {most}", counts[at]));
            }
        }
    }
    assert!(too_much.is_empty(), "{}", too_much.join("\n"));
}

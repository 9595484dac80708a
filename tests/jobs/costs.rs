//! What a PE and an agent cost, without a clock: counts, and what they may be.
//!
//! Start-up grows dearer by a system call here and a page there, which nobody notices one by one. So a change
//! that makes it dearer has to raise a bound here, on purpose. Of processes that do the same the cheapest
//! counts: what others have on top depends on who came first.
//!
//! What a process costs that does nothing is the business of the kernel, the dynamic linker and the C library, and
//! differs between machines. So it is counted in the same run, of one that has executed a program and of one that
//! was only forked, and bounds are what a process may cost beyond that.

use std::process::Command;

use shmem_testkit::needs::skipped;

use crate::programs::{COSTS, HELLO, SHMRUN};

/// Status of the program that counts, where it may not.
const NOT_ALLOWED: i32 = 3;

/// How often each job runs in a round: of a launcher there is one, and what it has to do depends on who comes when.
const RUNS: usize = 4;

/// How many rounds there are, at most. Another one follows if something cost too much: on a busy machine what a
/// process has to do beyond the least comes often, but not always.
const ROUNDS: usize = 5;

/// What is counted, in the order of the program that does.
const COUNTS: [&str; 5] = ["calls", "faults", "threads", "descriptors", "KiB written"];

type Counts = [i64; COUNTS.len()];

/// The processes of jobs that are alike, by kind.
#[derive(Default)]
struct Job(Vec<(&'static str, Counts)>);

impl Job {
    /// Runs a command some times more. `None` where nothing can be counted.
    fn run(&mut self, command: &[&str]) -> Option<()> {
        for _ in 0..RUNS {
            self.0.extend(Self::count(command)?);
        }
        Some(())
    }

    /// The same with a job of `hello`.
    fn run_hello(&mut self, options: &str) -> Option<()> {
        let options: Vec<_> = options.split(' ').collect();
        self.run(
            &[
                &[SHMRUN][..],
                &options,
                &["-x", "SHMEM_SPAWN=template", HELLO],
            ]
            .concat(),
        )
    }

    fn count(command: &[&str]) -> Option<Vec<(&'static str, Counts)>> {
        let output = Command::new(COSTS)
            .args(command)
            // Where the loader searches, and what a variable more costs, is not what is asked here.
            .env_clear()
            .output()
            .expect("the program that counts");
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(NOT_ALLOWED) {
            skipped("ptrace", errors.trim());
            return None;
        }
        assert!(output.status.success(), "{command:?}: {errors}");
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
        ("costs", 0) => "forked",
        ("costs", _) => "executed",
        _ => "launcher",
    };
    (kind, std::array::from_fn(|at| number(2 + at)))
}

/// What a process begins with, before it does anything of its own.
#[derive(Debug, Clone, Copy)]
enum Start {
    /// The kernel forks it.
    Forked,
    /// It executes a program, which the dynamic linker and the C library start.
    Executed,
    /// This is a share of a process.
    None,
}

/// What there may be of each, beyond its start.
struct Bound {
    what: &'static str,
    start: Start,
    most: Counts,
}

/// How much of its memory is a process's alone depends on who of those forked from it, or beside it, still lives:
/// only of many alike, as PEs are, one has the least.
const ANY: i64 = i64::MAX / 2;

/// Calls, faults, threads, descriptors, KiB on a machine with pages of 4 KiB, of programs as cargo builds them for
/// tests: code that is not optimised has more pages.
const BOUNDS: [Bound; 9] = [
    Bound {
        what: "PE, one node",
        start: Start::Forked,
        most: [34, 84, 0, 4, 72],
    },
    Bound {
        what: "PE, several nodes",
        start: Start::Forked,
        most: [64, 115, 1, 7, 132],
    },
    Bound {
        what: "agent, for itself",
        start: Start::Forked,
        most: [182, 222, 0, 9, ANY],
    },
    Bound {
        what: "agent, for each PE, one node",
        start: Start::None,
        most: [24, 3, 0, 0, ANY],
    },
    Bound {
        what: "agent, for each PE, several nodes",
        start: Start::None,
        most: [25, 3, 0, 0, ANY],
    },
    Bound {
        what: "template, for itself",
        start: Start::Executed,
        most: [133, 52, 0, 6, ANY],
    },
    Bound {
        what: "template, for each PE",
        start: Start::None,
        // Since glibc 2.41 a fork blocks signals for a while: two calls.
        most: [11, 6, 0, 0, ANY],
    },
    Bound {
        what: "guard",
        start: Start::Forked,
        most: [22, 53, 0, 1, ANY],
    },
    Bound {
        what: "launcher",
        start: Start::Executed,
        most: [296, 398, 3, 3, ANY],
    },
];

/// A bound where pages are larger, and where control groups and mounts are so many that looking at them takes more
/// calls than where the bounds were measured.
fn on_this_machine(bound: &Bound) -> Counts {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let [mut calls, faults, threads, descriptors, kib] = bound.most;
    match bound.what {
        // It looks for the control groups among the mounts, 1 KiB a call.
        "agent, for itself" => {
            let blocks = read("/proc/self/mountinfo").len().div_ceil(1024);
            calls += blocks.saturating_sub(2) as i64;
        }
        // It reads the limit of memory of each group above it, five calls a group.
        "launcher" => {
            let groups = read("/proc/self/cgroup");
            let levels = groups.lines().map(|line| {
                let path = line.rsplit(':').next().unwrap_or_default();
                path.split('/').filter(|name| !name.is_empty()).count()
            });
            calls += 5 * levels.max().unwrap_or(0).saturating_sub(2) as i64;
        }
        _ => {}
    }
    let smaps = read("/proc/self/smaps");
    let page = smaps.lines().find_map(|line| {
        let kib = line.strip_prefix("KernelPageSize:")?;
        kib.trim().strip_suffix(" kB")?.parse::<i64>().ok()
    });
    let page = page.unwrap_or(4);
    let kib = kib.saturating_mul(page) / 4;
    [calls, faults, threads, descriptors, kib]
}

/// How much the second has more than the first, for each of `more` PEs, rounded up.
fn each(first: Counts, second: Counts, more: i64) -> Counts {
    std::array::from_fn(|at| (second[at] - first[at] + more - 1).div_euclid(more))
}

/// What is left without `n` PEs.
fn without(all: Counts, n: i64, each: Counts) -> Counts {
    std::array::from_fn(|at| all[at] - n * each[at])
}

/// What has run so far.
#[derive(Default)]
struct Jobs {
    bare: Job,
    few: Job,
    many: Job,
    few_far: Job,
    many_far: Job,
}

impl Jobs {
    /// One round more. `None` where nothing can be counted.
    fn run(&mut self) -> Option<()> {
        self.bare.run(&[COSTS, "bare"])?;
        self.few.run_hello("-n 8")?;
        self.many.run_hello("-n 40")?;
        self.few_far.run_hello("-n 8 --nodes 2")?;
        self.many_far.run_hello("-n 72 --nodes 2")
    }

    fn start(&self, of: Start) -> Counts {
        match of {
            Start::Forked => self.bare.least("forked"),
            Start::Executed => self.bare.least("executed"),
            Start::None => [0; COUNTS.len()],
        }
    }

    /// What costs too much.
    fn too_much(&self) -> Vec<String> {
        let Self { few, many, .. } = self;
        let near = each(few.least("agent"), many.least("agent"), 32);
        let far = each(
            self.few_far.least("agent"),
            self.many_far.least("agent"),
            32,
        );
        let fork = each(few.least("template"), many.least("template"), 32);
        let counted = [
            many.least("PE"),
            self.many_far.least("PE"),
            without(few.least("agent"), 8, near),
            near,
            far,
            without(few.least("template"), 8, fork),
            fork,
            many.least("guard"),
            many.least("launcher"),
        ];
        println!("{:>36} {COUNTS:?}", "");
        for kind in [Start::Forked, Start::Executed] {
            println!("{:>36} {:?}", format!("{kind:?}"), self.start(kind));
        }
        let mut too_much = Vec::new();
        for (bound, counts) in BOUNDS.iter().zip(counted) {
            let counts = without(counts, 1, self.start(bound.start));
            let most = on_this_machine(bound);
            println!("{:>36} {counts:?} of {most:?}", bound.what);
            for (at, count) in COUNTS.iter().enumerate() {
                if counts[at] > most[at] {
                    let (what, most) = (bound.what, most[at]);
                    too_much.push(format!("{what}: {} {count}, at most {most}", counts[at]));
                }
            }
        }
        too_much
    }
}

#[test]
fn a_process_costs_no_more_than_it_may() {
    let mut jobs = Jobs::default();
    let mut too_much = Vec::new();
    for round in 1..=ROUNDS {
        if jobs.run().is_none() {
            return;
        }
        assert_eq!(jobs.many.number_of("PE"), round * RUNS * 40);
        assert_eq!(jobs.many_far.number_of("agent"), round * RUNS * 2);
        too_much = jobs.too_much();
        if too_much.is_empty() {
            return;
        }
    }
    panic!("{}", too_much.join("\n"));
}

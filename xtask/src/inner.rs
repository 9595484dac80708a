//! `cargo xtask t CRATE`: what to run after each change of a crate. Its unit tests, and a few whole jobs that pass through it.
//!
//! It leaves out what takes long or is far from the crate; `ci/test.sh` and `ci/nightly.sh` have everything. Programs of jobs
//! are built and started without the tests around them, which take longer to compile than the jobs to run.

use std::process::{Command, ExitStatus, Output};
use std::time::Instant;

use crate::build::workspace;
use crate::error::Error;

/// What is run for a crate, or for several that belong together.
struct Crate {
    /// As users name it: the package without `shmem-`.
    name: &'static str,
    /// Packages of which the unit tests run.
    unit: &'static [&'static str],
    /// Options of `cargo test` for these.
    options: &'static [&'static str],
    /// Arguments of `cargo test` for more, if any.
    more: &'static [&'static str],
    /// Jobs: a program of `tests`, and a layout of `tests/jobs/layouts/named.txt`.
    jobs: &'static [(&'static str, &'static str)],
}

/// Jobs for what moves data.
const ROUTINES: &[(&str, &str)] = &[
    ("conformance", "five_on_one_node"),
    ("conformance", "two_nodes_of_two"),
    ("conformance", "grow_uneven"),
];
/// Jobs for what connects.
const CONNECTIONS: &[(&str, &str)] = &[("conformance", "lossy"), ("conformance", "xrc_uneven")];
/// Jobs for what starts and ends.
const STARTS: &[(&str, &str)] = &[
    ("lives", "three_on_one_node"),
    ("lives", "three_nodes_uneven"),
    ("lives", "by_exec"),
];
/// Nothing is run for it.
const PLAIN: Crate = Crate {
    name: "",
    unit: &[],
    options: &[],
    more: &[],
    jobs: &[],
};

const CRATES: &[Crate] = &[
    Crate {
        name: "core",
        unit: &["shmem-core"],
        jobs: ROUTINES,
        ..PLAIN
    },
    Crate {
        name: "ib",
        unit: &[
            "shmem-verbs",
            "shmem-soft",
            "shmem-connect",
            "shmem-device",
            "shmem-ib",
        ],
        more: &["-p", "shmem-ib", "--test", "handshake", "--test", "sim"],
        jobs: CONNECTIONS,
        ..PLAIN
    },
    Crate {
        name: "pmi",
        unit: &["shmem-pmi"],
        more: &["-p", "shmem-pmi", "--test", "*"],
        jobs: STARTS,
        ..PLAIN
    },
    Crate {
        name: "node",
        unit: &["shmem-node"],
        jobs: STARTS,
        ..PLAIN
    },
    Crate {
        name: "launch",
        unit: &["shmem-launch"],
        more: &["-p", "shmem-launch", "--test", "sim"],
        jobs: STARTS,
        ..PLAIN
    },
    Crate {
        name: "capi",
        unit: &["shmem-capi", "shmem-table"],
        ..PLAIN
    },
    Crate {
        name: "macros",
        more: &["-p", "shmem-test", "--test", "macros"],
        ..PLAIN
    },
    Crate {
        name: "npb",
        unit: &["npb-kernels", "npb-ports"],
        // Without optimisation they take minutes.
        options: &["--release"],
        ..PLAIN
    },
    Crate {
        name: "graph500",
        unit: &["graph500"],
        ..PLAIN
    },
    Crate {
        name: "mpi",
        unit: &["shmem-mpi", "shmem-pmix"],
        ..PLAIN
    },
];

/// Names that [`run`] takes.
pub fn names() -> impl Iterator<Item = &'static str> {
    CRATES.iter().map(|c| c.name)
}

/// Runs what belongs to a crate, and prints how long each part took.
///
/// # Errors
/// There is no such crate, or something failed, which has said why.
pub fn run(name: &str) -> Result<String, Error> {
    let name = name.trim_start_matches("shmem-");
    let has = |c: &&Crate| {
        c.name == name
            || c.unit
                .iter()
                .any(|p| p.trim_start_matches("shmem-") == name)
    };
    let Some(of) = CRATES.iter().find(has) else {
        let names: Vec<_> = names().collect();
        return Err(Error::NoCrate(name.to_owned(), names.join(", ")));
    };
    let began = Instant::now();
    if !of.jobs.is_empty() {
        timed("build of programs", || build(of.jobs))?;
        timed("whole jobs", || jobs(of.jobs))?;
    }
    if !of.unit.is_empty() {
        let packages = of.unit.iter().flat_map(|package| ["-p", package]);
        let options = of.options.iter().copied();
        let words: Vec<_> = packages.chain(["--lib"]).chain(options).collect();
        timed("unit tests", || test(&words))?;
    }
    if !of.more.is_empty() {
        timed("integration tests", || test(of.more))?;
    }
    Ok(format!("{name}: {:.0} s", began.elapsed().as_secs_f64()))
}

fn timed(what: &str, step: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let began = Instant::now();
    step()?;
    println!("-- {what}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace());
    cargo
}

fn succeeded(what: &str, status: std::io::Result<ExitStatus>) -> Result<(), Error> {
    let status = status.map_err(|e| Error::io("run", what.as_ref(), e))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Command(what.into(), status)),
    }
}

fn test(words: &[&str]) -> Result<(), Error> {
    succeeded(
        "cargo test",
        cargo().args(["test", "--quiet"]).args(words).status(),
    )
}

fn build(jobs: &[(&str, &str)]) -> Result<(), Error> {
    let mut cargo = cargo();
    cargo.args([
        "build",
        "--quiet",
        "-p",
        "shmem-tests",
        "--bin",
        "shmrun-under-test",
    ]);
    for (program, _) in jobs {
        cargo.args(["--bin", program]);
    }
    succeeded("cargo build", cargo.status())
}

/// Starts all jobs at once, and shows what those wrote that failed.
fn jobs(jobs: &[(&str, &str)]) -> Result<(), Error> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let programs = workspace().join(target).join("debug");
    let run = |(program, layout): &(&str, &str)| -> Result<Output, Error> {
        let (options, env) = named(layout).ok_or_else(|| Error::NoLayout((*layout).to_owned()))?;
        let shmrun = programs.join("shmrun-under-test");
        let mut job = Command::new(&shmrun);
        job.args(["--timeout", "300"])
            .args(options)
            .arg(programs.join(program));
        // As the tests have it: enough, and few pages.
        job.env("SHMEM_SYMMETRIC_SIZE", "64M").envs(env);
        if *program == "lives" {
            job.arg("5");
        }
        job.output().map_err(|e| Error::io("start", &shmrun, e))
    };
    let outcomes: Vec<_> = std::thread::scope(|s| {
        let started: Vec<_> = jobs.iter().map(|job| s.spawn(|| run(job))).collect();
        let ended = started.into_iter().map(|job| job.join().expect("no panic"));
        ended.collect()
    });
    let mut failed = None;
    for ((program, layout), outcome) in jobs.iter().zip(outcomes) {
        let output = outcome?;
        if !output.status.success() {
            println!("-- {program} on layout {layout}: {}", output.status);
            println!("{}", String::from_utf8_lossy(&output.stdout));
            println!("{}", String::from_utf8_lossy(&output.stderr));
            failed = Some(Error::Command(program.into(), output.status));
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Options of `shmrun`, and variables.
type Layout = (Vec<&'static str>, Vec<(&'static str, &'static str)>);

/// The layout that has a name.
fn named(layout: &str) -> Option<Layout> {
    const TABLE: &str = include_str!("../../tests/jobs/layouts/named.txt");
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let mut fields = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let row = fields.find(|row| row[0] == layout)?;
    let env = row[3].split(' ').filter_map(|word| word.split_once('='));
    Some((row[1].split(' ').collect(), env.collect()))
}

#[test]
fn every_job_has_a_layout() {
    for (program, layout) in CRATES.iter().flat_map(|c| c.jobs) {
        assert!(named(layout).is_some(), "{program}: {layout}");
    }
}

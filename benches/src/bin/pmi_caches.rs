//! Exchanges under the caches of the key-value space (`SHMEM_PMI_CACHE`): every process puts, all
//! fence, and each gets the values of two others (1:2) or of all (1:p).
//!
//! `pmi_caches` runs real jobs on emulated nodes, in turn, and the same in virtual time, where nodes
//! have processors and links of their own. Ratios are to HCS, the simplest cache; the ScELA thesis
//! (2009) gives them for 1:2 and 1:p. All samples go to `--out` as CSV.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use shmem_benches::pmi::member::Member;
use shmem_benches::pmi::model::{self, Call, Costs, Scope, Shape};
use shmem_benches::pmi::rounds::{self, HEADER, Operation, Plan};
use shmem_benches::stats::median;
use shmem_benches::table::time;
use shmem_pmi::server::CachePolicy;
use shmem_testkit::samples::csv;
use shmem_testkit::{Job, job};

#[derive(Parser)]
#[command(
    about = "Exchanges under the caches of PMI",
    args_conflicts_with_subcommands = true
)]
struct Options {
    #[command(subcommand)]
    inside: Option<Inside>,
    /// Processes of the real jobs.
    #[arg(short = 'n', long, default_value_t = 64)]
    processes: usize,
    /// Emulated nodes of the real jobs.
    #[arg(short = 'N', long, default_value_t = 8)]
    nodes: usize,
    /// Jobs of each kind.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    #[command(flatten)]
    work: Work,
    /// Nodes of the jobs in virtual time, separated by commas; none for real jobs only.
    #[arg(long, value_delimiter = ',', default_value = "8,32")]
    model_nodes: Vec<u32>,
    /// Processes on each node in virtual time.
    #[arg(long, default_value_t = 16)]
    per_node: u32,
    /// Memory of the LRU cache in bytes: the setting SHMEM_PMI_CACHE_SIZE.
    #[arg(long, default_value_t = 16384)]
    lru: usize,
    /// Virtual time only.
    #[arg(long)]
    model_only: bool,
    /// A cost of the model. May be repeated.
    #[arg(long, value_name = "NAME=NANOSECONDS")]
    cost: Vec<String>,
    /// Directory for the samples; made if need be.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// What a job does.
#[derive(Args, Clone)]
struct Work {
    /// Rounds in each job.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a value in bytes.
    #[arg(long, default_value_t = 32)]
    length: usize,
}

#[derive(Subcommand)]
enum Inside {
    /// A process of a job.
    Member {
        /// Values that each gets.
        #[arg(long)]
        gets: usize,
        #[command(flatten)]
        work: Work,
    },
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.inside {
        Some(Inside::Member { gets, work }) => inside(*gets, work),
        None => outside(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("pmi_caches: {e}");
            ExitCode::FAILURE
        }
    }
}

fn inside(gets: usize, work: &Work) -> io::Result<()> {
    let member = Member::join()?;
    let gets = gets.min(member.size());
    let plan = Plan {
        bytes: work.length,
        rounds: work.rounds,
        gets,
        compute: 0.0,
        operations: vec![Operation::FenceGet],
    };
    let job = format!(
        "{},{},{},{gets}",
        member.size(),
        member.nodes(),
        work.length
    );
    rounds::run(&member, &plan, |round, operation, row| {
        println!("{job},{round},{},{}", operation.name(), row.csv());
    })?;
    member.finalize()
}

fn outside(options: &Options) -> io::Result<()> {
    if !options.model_only {
        real(options)?;
    }
    let mut costs = Costs::default();
    for text in &options.cost {
        costs.set(text).map_err(io::Error::other)?;
    }
    virtual_time(options, costs);
    Ok(())
}

fn policies(lru: usize) -> [CachePolicy; 4] {
    let lru = CachePolicy::HcmabLru { bytes: lru };
    [CachePolicy::Hcs, CachePolicy::Hcma, CachePolicy::Hcmab, lru]
}

/// Real jobs, in turn.
fn real(options: &Options) -> io::Result<()> {
    let shmrun = job::built("shmrun")?;
    let own = std::env::current_exe()?;
    let mut samples = match &options.out {
        Some(directory) => Some(csv(
            directory,
            "pmi_caches.csv",
            &format!("cache,run,{HEADER}"),
        )?),
        None => None,
    };
    let exchanges = [("1:2", 2), ("1:p", options.processes)];
    let mut seen = vec![Vec::new(); exchanges.len() * 4];
    for run in 0..options.runs {
        for (at, (_, gets)) in exchanges.iter().enumerate() {
            for (of, policy) in policies(options.lru).iter().enumerate() {
                let mut command = Command::new(&shmrun);
                command
                    .args(["-n", &options.processes.to_string()])
                    .args(["--nodes", &options.nodes.to_string()])
                    .args(["--env", &format!("SHMEM_PMI_CACHE={}", policy.name())])
                    .args(["--env", &format!("SHMEM_PMI_CACHE_SIZE={}", options.lru)])
                    .arg(&own)
                    .args(["member", "--gets", &gets.to_string()])
                    .args(["--rounds", &options.work.rounds.to_string()])
                    .args(["--length", &options.work.length.to_string()]);
                let text = Job::of(command)
                    .run_within(Duration::from_secs(120))
                    .well()?
                    .stdout;
                for line in text.lines() {
                    if let Some(file) = &mut samples {
                        writeln!(file, "{},{run},{line}", policy.name())?;
                    }
                    seen[at * 4 + of].push(figures(line)?);
                }
            }
        }
    }
    println!(
        "Real jobs: {} processes on {} emulated nodes, {} jobs of {} rounds each; medians.\n",
        options.processes, options.nodes, options.runs, options.work.rounds
    );
    println!("| exchange | cache | time | HCS / it | CPU of agents | HCS / it | CPU of all |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    for (at, (name, _)) in exchanges.iter().enumerate() {
        let mid = |of: usize, which: usize| {
            let all: Vec<f64> = seen[at * 4 + of]
                .iter()
                .map(|f: &[f64; 3]| f[which])
                .collect();
            median(&all)
        };
        for (of, policy) in policies(options.lru).iter().enumerate() {
            println!(
                "| {name} | {} | {} | {:.2} | {} | {:.2} | {} |",
                policy.name(),
                time(mid(of, 0)),
                mid(0, 0) / mid(of, 0),
                time(mid(of, 2)),
                mid(0, 2) / mid(of, 2),
                time(mid(of, 1) + mid(of, 2)),
            );
        }
    }
    println!();
    Ok(())
}

/// Span, processor time of processes, and of agents, in a row of samples.
fn figures(line: &str) -> io::Result<[f64; 3]> {
    let of = |name: &str| {
        let at = HEADER.split(',').position(|column| column == name)?;
        line.split(',').nth(at)?.parse().ok()
    };
    let all = ["span_ns", "cpu_ns", "agents_cpu_ns"].map(of);
    match all {
        [Some(span), Some(cpu), Some(agents)] => Ok([span, cpu, agents]),
        _ => Err(io::Error::other(format!("not a sample: {line:?}"))),
    }
}

/// The same exchanges on nodes of their own.
fn virtual_time(options: &Options, mut costs: Costs) {
    let named = costs.named().map(|(name, cost)| format!("{name} {cost}"));
    println!("Virtual time; costs in ns: {}.\n", named.join(", "));
    println!(
        "| processes | nodes | exchange | cache | time | HCS / it | time of gets | HCS / it | messages \
         between agents | bytes | busiest agent | largest cache |"
    );
    println!("|---:|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for &nodes in &options.model_nodes {
        let size = nodes * options.per_node;
        for (name, gets) in [("1:2", 2), ("1:p", size)] {
            let mut first = None;
            for cache in policies(options.lru) {
                let shape = Shape {
                    nodes,
                    per_node: options.per_node,
                    bytes: options.work.length,
                    cache,
                    scope: Scope::All,
                };
                let exchange = |rank: u32| {
                    // As in the real jobs: the processes that follow.
                    let others = (1..=gets).map(|i| Call::Get((rank + i) % size));
                    [Call::Put, Call::Fence].into_iter().chain(others).collect()
                };
                let outcome = model::run(shape, costs, &exchange);
                let without = model::run(shape, costs, &|_| vec![Call::Put, Call::Fence]);
                let in_gets = outcome.span - without.span;
                let (base, base_gets) = *first.get_or_insert((outcome.span, in_gets));
                println!(
                    "| {size} | {nodes} | {name} | {} | {} | {:.2} | {} | {:.2} | {} | {} | {} | {} |",
                    cache.name(),
                    time(outcome.span),
                    base / outcome.span,
                    time(in_gets),
                    base_gets / in_gets,
                    outcome.messages,
                    outcome.bytes,
                    time(outcome.busiest),
                    outcome.cache,
                );
            }
        }
    }
}

//! PMI's collectives in turn, in real jobs under `shmrun`: fence, fence with gets, allgather, and
//! the non-blocking ones with nothing, sleep and computation to hide behind.
//!
//! `pmi_collectives --processes 16,64,256 --nodes 1,4 --bytes 8,64,256,1024` starts one job for each
//! combination; each job runs all operations in turn, round by round, so that ratios are of one
//! sitting. All samples go to `--out` as CSV, a table to standard output.
//!
//! *Span* is the time from the first start of a process to the last end; *visible* the time that a
//! process spends inside calls of PMI, but for the put before a fence; *overlap* the part of a blocking operation's visible time that
//! a computation as long as its span hides, as in "Non-blocking PMI Extensions for Fast MPI Startup",
//! section VI-D. Processor times are of all processes together, and of all agents together.
//!
//! Processes compute only where each has a core of its own, as in the paper; where they outnumber the
//! cores a computation would measure how the system shares them.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use shmem_benches::pmi::member::Member;
use shmem_benches::pmi::rounds::{self, HEADER, Meanwhile, Operation, Plan};
use shmem_benches::stats::median;
use shmem_benches::table::time;
use shmem_testkit::samples::csv;
use shmem_testkit::{Job, job};

#[derive(Parser)]
#[command(
    about = "PMI's collectives in real jobs, in turn",
    args_conflicts_with_subcommands = true
)]
struct Options {
    #[command(subcommand)]
    inside: Option<Inside>,
    /// Processes, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "2,16,64,256")]
    processes: Vec<usize>,
    /// Emulated nodes, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    nodes: Vec<usize>,
    /// Lengths of a value, separated by commas: 8 to 1023.
    #[arg(long, value_delimiter = ',', default_value = "8,64,256,1023")]
    bytes: Vec<usize>,
    #[command(flatten)]
    rounds: Rounds,
    /// Seconds after which a job that hangs is ended.
    #[arg(long, default_value_t = 280)]
    limit: u64,
    /// A setting NAME=VALUE for all jobs. May be repeated.
    #[arg(long, value_name = "SETTING")]
    env: Vec<String>,
    /// Directory for the samples; made if need be.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// What a job measures.
#[derive(Args, Clone)]
struct Rounds {
    /// Rounds; each runs every operation once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Values that a process gets after a fence, and reads after an allgather; at most all.
    #[arg(long, default_value_t = 16)]
    gets: usize,
    /// Length of a computation as multiple of the blocking operation's span.
    #[arg(long, default_value_t = 1.0)]
    compute: f64,
    /// Leave out the operations with something to hide behind.
    #[arg(long)]
    no_overlap: bool,
    /// Compute even where processes outnumber cores.
    #[arg(long)]
    spin: bool,
}

#[derive(Subcommand)]
enum Inside {
    /// A process of the job.
    Member {
        /// Length of a value.
        #[arg(long)]
        length: usize,
        #[command(flatten)]
        rounds: Rounds,
    },
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.inside {
        Some(Inside::Member { length, rounds }) => inside(*length, rounds),
        None => outside(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("pmi_collectives: {e}");
            ExitCode::FAILURE
        }
    }
}

fn inside(length: usize, rounds: &Rounds) -> io::Result<()> {
    let member = Member::join()?;
    let gets = rounds.gets.min(member.size());
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let plan = Plan {
        bytes: length,
        rounds: rounds.rounds,
        gets,
        compute: rounds.compute,
        operations: Operation::ALL
            .into_iter()
            .filter(|operation| match operation.meanwhile() {
                Meanwhile::Nothing => true,
                Meanwhile::Sleep => !rounds.no_overlap,
                Meanwhile::Spin => !rounds.no_overlap && (rounds.spin || cores >= member.size()),
            })
            .collect(),
    };
    let job = format!("{},{},{length},{gets}", member.size(), member.nodes());
    rounds::run(&member, &plan, |round, operation, row| {
        println!("{job},{round},{},{}", operation.name(), row.csv());
    })?;
    member.finalize()
}

fn outside(options: &Options) -> io::Result<()> {
    let shmrun = job::built("shmrun")?;
    let own = std::env::current_exe()?;
    let mut samples = match &options.out {
        Some(directory) => Some(csv(directory, "pmi_collectives.csv", HEADER)?),
        None => None,
    };
    println!(
        "| processes | nodes | bytes | operation | span, median | span, best | against fence | visible, mean \
         | against blocking | overlap | CPU | CPU of agents |"
    );
    println!("|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for &processes in &options.processes {
        for &nodes in options.nodes.iter().filter(|&&nodes| nodes <= processes) {
            for &bytes in &options.bytes {
                let mut command = Command::new(&shmrun);
                command
                    .args(["-n", &processes.to_string()])
                    .args(["--nodes", &nodes.to_string()])
                    .args(options.env.iter().flat_map(|setting| ["--env", setting]))
                    .arg(&own)
                    .args(["member", "--length", &bytes.to_string()])
                    .args(["--rounds", &options.rounds.rounds.to_string()])
                    .args(["--gets", &options.rounds.gets.to_string()])
                    .args(["--compute", &options.rounds.compute.to_string()])
                    .args(options.rounds.no_overlap.then_some("--no-overlap"))
                    .args(options.rounds.spin.then_some("--spin"));
                let text = Job::of(command)
                    .run_within(Duration::from_secs(options.limit))
                    .well()
                    .map_err(|e| io::Error::other(format!("{processes} on {nodes}: {e}")))?
                    .stdout;
                if let Some(file) = &mut samples {
                    file.write_all(text.as_bytes())?;
                }
                print!("{}", table(&text)?);
            }
        }
    }
    Ok(())
}

/// Samples of one operation of one job.
#[derive(Default)]
struct Samples {
    span: Vec<f64>,
    visible: Vec<f64>,
    cpu: Vec<f64>,
    agents: Vec<f64>,
}

/// The lines of the table for one job.
fn table(csv: &str) -> io::Result<String> {
    let column = |name: &str| {
        let at = HEADER.split(',').position(|column| column == name);
        at.expect("a column of the header")
    };
    let mut of: BTreeMap<&str, Samples> = BTreeMap::new();
    let mut job = "";
    for line in csv.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |name: &str| {
            let field = fields
                .get(column(name))
                .and_then(|field| field.parse().ok());
            field.ok_or_else(|| io::Error::other(format!("{name} is missing in: {line}")))
        };
        let samples = of
            .entry(fields.get(column("operation")).unwrap_or(&""))
            .or_default();
        samples.span.push(number("span_ns")?);
        samples.visible.push(number("visible_mean_ns")?);
        samples.cpu.push(number("cpu_ns")?);
        samples.agents.push(number("agents_cpu_ns")?);
        let head = fields
            .iter()
            .take(3)
            .map(|field| field.len() + 1)
            .sum::<usize>();
        job = &line[..head - 1];
    }
    let mut text = String::new();
    let mid = |name: &str, pick: fn(&Samples) -> &Vec<f64>| {
        of.get(name).map_or(f64::NAN, |s| median(pick(s)))
    };
    for operation in Operation::ALL {
        let name = operation.name();
        let Some(samples) = of.get(name) else {
            continue;
        };
        let (span, visible) = (median(&samples.span), median(&samples.visible));
        let blocking = operation.blocking().name();
        let best = samples.span.iter().copied().fold(f64::INFINITY, f64::min);
        let against = 100.0 * visible / mid(blocking, |s| &s.visible);
        let (against_blocking, overlap) = match operation.meanwhile() {
            _ if blocking == name => ("–".to_owned(), "–".to_owned()),
            Meanwhile::Nothing => (format!("{against:.1} %"), "–".to_owned()),
            _ => (
                format!("{against:.1} %"),
                format!("{:.1} %", 100.0 - against),
            ),
        };
        text += &format!(
            "| {} | {name} | {} | {} | {:.2} | {} | {against_blocking} | {overlap} | {} | {} |\n",
            job.replace(',', " | "),
            time(span),
            time(best),
            span / mid("fence", |s| &s.span),
            time(visible),
            time(median(&samples.cpu)),
            time(median(&samples.agents)),
        );
    }
    Ok(text)
}

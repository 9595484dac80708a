//! Our library beside other OpenSHMEM libraries, in one sitting.
//!
//! `compare --out DIR node` measures on one node: one-sided operations between two PEs (`p2p`), and
//! collectives on several numbers of PEs (`collectives`). `compare --out DIR network` measures
//! one-sided operations between two nodes, emulated on this machine, over the loopback device. Each
//! library runs once a round, and another one comes first in each round, so that all see the same
//! machine. Nothing else should run meanwhile.
//!
//! * Ours from Rust; and, if `SHMEM_PREFIX` names the directory where it is installed, from C.
//! * Open MPI (`oshcc`, `oshrun` on the PATH) over UCX.
//! * Between nodes: Sandia OpenSHMEM over libfabric, provider `tcp;ofi_rxm`. `SOS_PREFIX` names the
//!   directory it is installed in; it is started with `mpiexec.hydra`.
//! * The limit, without a library: on one node memory that two processes share, between nodes two processes
//!   that spin on UDP sockets.
//!
//! What is not there is left out with a message. The tables go to standard output and, with all
//! samples, the machine and the commit, into the directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use shmem_benches::rivals::{Bench, COLLECTIVES, Candidate, Over, P2P};
use shmem_benches::table::{self, Library, Row};
use shmem_testkit::Job;
use shmem_testkit::samples::about;

#[derive(Parser)]
#[command(about = "Our library beside other OpenSHMEM libraries")]
struct Options {
    /// Where the PEs are.
    #[arg(value_enum, default_value_t = Where::Network)]
    place: Where,
    /// Rounds; each runs every library once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of measurement per row.
    #[arg(long, default_value_t = 50)]
    milliseconds: u32,
    /// Numbers of PEs for collectives.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 16, 64])]
    pes: Vec<usize>,
    /// Seconds after which a run that hangs is ended.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// Directory for the samples and the tables; made if need be.
    #[arg(long)]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Where {
    /// On one node: p2p and collectives.
    Node,
    /// On two nodes: p2p.
    Network,
}

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("compare: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all runs were good.
fn compare(options: &Options) -> io::Result<bool> {
    fs::create_dir_all(&options.out)?;
    let over = match options.place {
        Where::Node => Over::Memory,
        Where::Network => Over::Loopback,
    };
    let mut candidates = vec![Candidate::rust(over)?];
    let mut others = vec![
        ("our library from C", Candidate::c(over)),
        ("Open MPI", Candidate::open_mpi(over)),
    ];
    match options.place {
        Where::Node => others.push(("raw memory", Candidate::raw(&options.out))),
        Where::Network => others.extend([
            ("Sandia OpenSHMEM", Candidate::sandia()),
            ("raw UDP", Candidate::sockets()),
        ]),
    }
    for (name, other) in others {
        match other {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => eprintln!("compare: {name} is left out: {why}"),
        }
    }
    let mut head = about();
    for c in &candidates {
        head.push_str(&format!("{}: {}\n", c.name, c.version));
    }
    fs::write(options.out.join("about.txt"), &head)?;

    let mut good = measure_all(P2P, 2, &candidates, options)?;
    if options.place == Where::Node {
        for &n in &options.pes {
            good &= measure_all(COLLECTIVES, n, &candidates, options)?;
        }
    }
    Ok(good)
}

/// One benchmark on one number of PEs with all that can run it. Returns whether all runs were good.
fn measure_all(
    bench: Bench,
    n_pes: usize,
    candidates: &[Candidate],
    options: &Options,
) -> io::Result<bool> {
    let mut good = true;
    let mut programs = Vec::new();
    for candidate in candidates.iter().filter(|c| c.can(bench, n_pes)) {
        match candidate.program(bench, &options.out) {
            Ok(program) => programs.push((candidate, program)),
            Err(why) => {
                good = false;
                eprintln!("compare: {} is left out: {why}", candidate.name);
            }
        }
    }
    let mut libraries: Vec<Library> = programs
        .iter()
        .map(|(candidate, _)| Library {
            name: candidate.name.to_owned(),
            part: candidate.part,
            runs: Vec::new(),
        })
        .collect();
    let name = format!("{}-{n_pes}", bench.name);
    for round in 0..options.rounds {
        for at in 0..programs.len() {
            let which = (round + at) % programs.len();
            let (candidate, program) = &programs[which];
            let files = options
                .out
                .join(format!("{name}.{}.{round}", candidate.key));
            match measure(candidate, program, n_pes, &files, options)? {
                Ok(rows) => libraries[which].runs.push(rows),
                Err(why) => {
                    good = false;
                    eprintln!("compare: round {round}, {name}, {}: {why}", candidate.name);
                }
            }
        }
        eprintln!(
            "compare: {name}: {} of {} rounds",
            round + 1,
            options.rounds
        );
    }
    let table = table::table(&libraries);
    fs::write(options.out.join(format!("{name}.md")), &table)?;
    println!("## {} on {n_pes} PEs\n\n{table}", bench.name);
    Ok(good)
}

/// One run. The inner error says what was wrong with it.
fn measure(
    candidate: &Candidate,
    program: &Path,
    n_pes: usize,
    files: &Path,
    options: &Options,
) -> io::Result<Result<Vec<Row>, String>> {
    let file = |ending: &str| PathBuf::from(format!("{}.{ending}", files.display()));
    let mut command = candidate.command(program, n_pes);
    command.arg(options.milliseconds.to_string());
    let outcome = Job::of(command).run_within(Duration::from_secs(options.limit));
    fs::write(file("csv"), &outcome.stdout)?;
    let errors = file("err");
    match outcome.stderr.is_empty() {
        // An earlier run may have left one.
        true if errors.exists() => fs::remove_file(errors)?,
        true => {}
        false => fs::write(errors, &outcome.stderr)?,
    }
    let last = outcome.stderr.lines().last().unwrap_or("nothing was said");
    Ok(match outcome.failure() {
        Some(how) => Err(format!("{how} ({last})")),
        None => table::read(&outcome.stdout),
    })
}

//! Rates of the NAS benchmarks beside those of other implementations, in turn, so that all see the same machine.
//!
//! `npb_beside --beside 'OMP_NUM_THREADS={n} NPB3.4-OMP/bin/{kernel}.{class}.x' --out samples.jsonl` runs, for each
//! benchmark and number of PEs, ours and then the other one, and all of that several times over. It prints a table of
//! medians with the smallest and the largest rate in brackets. What did not verify counts as a failure. Raw samples go to
//! a file, one JSON object a line, behind one that tells where they were taken.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use npb_ports::kernels::{KERNELS, Kernel};
use shmem_benches::stats::{median, min};
use shmem_benches::turns::Turns;
use shmem_testkit::job;
use shmem_testkit::samples::{Samples, quoted};

#[derive(Parser)]
#[command(about = "Rates of the NAS benchmarks beside those of other implementations")]
struct Options {
    /// Rounds; each runs everything once.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Class.
    #[arg(long, default_value = "A")]
    class: String,
    /// Numbers of PEs. A benchmark that does not run on that many is left out.
    #[arg(long, value_name = "PES", num_args = 1.., default_values_t = [1, 2, 4])]
    pes: Vec<usize>,
    /// Benchmarks, as bt or cg [default: all].
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// A command for the shell that runs another implementation and prints its report; {kernel}, {class} and {n} stand
    /// for the benchmark, as in bt, its class and the number of processes or threads.
    #[arg(long, value_name = "COMMAND")]
    beside: Vec<String>,
    /// The most processes or threads that others run with.
    #[arg(long, value_name = "N", default_value_t = 2)]
    beside_up_to: usize,
    /// File for the raw samples.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// What is run again and again.
struct Case {
    kernel: &'static Kernel,
    pes: usize,
    /// Which implementation: 0 is ours.
    whose: usize,
    command: Command,
    rates: Vec<f64>,
    /// Whether it does not run on so many, or fails.
    over: bool,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("npb_beside: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all runs were good.
fn measure(options: &Options) -> io::Result<bool> {
    let mut samples = Samples::begin(File::create(&options.out)?)?;
    let mut cases = cases(options)?;
    let mut good = true;
    let turns = Turns {
        rounds: options.runs,
        warm_up: false,
    };
    turns.run(cases.len(), |at, run| {
        let case = &mut cases[at];
        if case.over {
            return Ok(());
        }
        let (name, run) = (case.kernel.name, run.unwrap_or(0));
        match rate(case)? {
            Ok(rate) => {
                case.rates.push(rate);
                let whose = case.whose.checked_sub(1);
                let whose = whose.map_or("ours", |at| &options.beside[at]);
                samples.add(&[
                    ("run", &run),
                    ("benchmark", &quoted(name)),
                    ("class", &quoted(&options.class)),
                    ("pes", &case.pes),
                    ("of", &quoted(whose)),
                    ("mops", &rate),
                ])?;
            }
            Err(Bad::Refused) => case.over = true,
            Err(Bad::Failed(why)) => {
                case.over = true;
                good = false;
                eprintln!("npb_beside: {name} on {} failed: {why}", case.pes);
            }
        }
        Ok(())
    })?;
    print!("{}", table(&cases, options));
    Ok(good)
}

fn cases(options: &Options) -> io::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for kernel in KERNELS {
        let name = kernel.name.to_lowercase();
        if !options.only.is_empty() && !options.only.contains(&name) {
            continue;
        }
        for &pes in &options.pes {
            let mut add = |whose, command| {
                cases.push(Case {
                    kernel,
                    pes,
                    whose,
                    command,
                    rates: Vec::new(),
                    over: false,
                });
            };
            let mut ours = Command::new(job::built("shmrun")?);
            ours.args(["-n", &pes.to_string()])
                .arg(job::built(&kernel.program())?)
                .args([&options.class, "--json"]);
            add(0, ours);
            for (at, command) in options.beside.iter().enumerate() {
                if pes > options.beside_up_to {
                    continue;
                }
                let line = command
                    .replace("{kernel}", &name)
                    .replace("{class}", &options.class)
                    .replace("{n}", &pes.to_string());
                let mut other = Command::new("/bin/sh");
                other.args(["-c", &line]);
                add(at + 1, other);
            }
        }
    }
    Ok(cases)
}

/// Why there is no rate.
enum Bad {
    /// It does not run on so many PEs.
    Refused,
    Failed(String),
}

/// Runs a case once; gives Mop/s.
fn rate(case: &mut Case) -> io::Result<Result<f64, Bad>> {
    let output = case.command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if case.whose == 0 && errors.contains("does not run on") {
        return Ok(Err(Bad::Refused));
    }
    let (rate, verified) = match case.whose {
        0 => (
            number(&said, "\"mops\":"),
            said.contains("\"verified\":true"),
        ),
        _ => (number(&said, "Mop/s total"), said.contains("SUCCESSFUL")),
    };
    Ok(match rate {
        Some(rate) if verified && output.status.success() => Ok(rate),
        Some(_) if !verified => Err(Bad::Failed("it did not verify".to_owned())),
        _ => {
            let why = errors
                .lines()
                .chain(said.lines())
                .next()
                .unwrap_or_default();
            Err(Bad::Failed(format!("{}, {why}", output.status)))
        }
    })
}

/// The number behind a name, with a sign of equality or a colon between them.
fn number(text: &str, name: &str) -> Option<f64> {
    let (_, rest) = text.split_once(name)?;
    let rest = rest.trim_start_matches([' ', '=', ':']);
    rest.split([',', '}', '\n']).next()?.trim().parse().ok()
}

/// Rates of each benchmark and number of PEs, and how many times that of the fastest other one ours is.
fn table(cases: &[Case], options: &Options) -> String {
    let mut text = format!(
        "Mop/s of class {}: median of {} runs in turn (smallest to largest)\n\n| benchmark | PEs | here |",
        options.class, options.runs
    );
    for command in &options.beside {
        let _ = write!(text, " `{command}` |");
    }
    text.push_str(" here / fastest other |\n|---|---:|---:|");
    text.push_str(&"---:|".repeat(options.beside.len() + 1));
    text.push('\n');
    for ours in cases.iter().filter(|case| case.whose == 0 && !case.over) {
        let _ = write!(
            text,
            "| {} | {} | {} |",
            ours.kernel.name,
            ours.pes,
            cell(&ours.rates)
        );
        let mut fastest = f64::NAN;
        for whose in 1..=options.beside.len() {
            let same = |case: &&Case| {
                case.whose == whose && case.pes == ours.pes && case.kernel.name == ours.kernel.name
            };
            let rates = cases.iter().find(same).map_or(&[][..], |case| &case.rates);
            fastest = fastest.max(median(rates));
            let _ = write!(text, " {} |", cell(rates));
        }
        let ratio = median(&ours.rates) / fastest;
        let _ = match ratio.is_nan() {
            true => writeln!(text, " – |"),
            false => writeln!(text, " {ratio:.2} |"),
        };
    }
    text
}

fn cell(rates: &[f64]) -> String {
    let most = rates.iter().copied().fold(0.0, f64::max);
    match rates {
        [] => "–".to_owned(),
        _ => format!("{:.0} ({:.0} to {most:.0})", median(rates), min(rates)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use npb_ports::kernels;

    #[test]
    fn both_reports_are_read() {
        let ours = "{\"name\":\"EP\",\"mops\":1043.5,\"verified\":true}";
        assert_eq!(number(ours, "\"mops\":"), Some(1043.5));
        let theirs = " Time in seconds =     3.99\n Mop/s total     =           134.67\n Mop/s/thread  = 1\n";
        assert_eq!(number(theirs, "Mop/s total"), Some(134.67));
        assert_eq!(number("", "Mop/s total"), None);
    }

    #[test]
    fn rows_have_as_many_cells_as_their_heads() {
        let options = Options::parse_from(["x", "--beside", "a", "--beside", "b", "--out", "x"]);
        let case = |whose, pes, rates: &[f64]| Case {
            kernel: &kernels::EP,
            pes,
            whose,
            command: Command::new("true"),
            rates: rates.to_vec(),
            over: false,
        };
        let cases = [
            case(0, 1, &[30.0, 10.0, 20.0]),
            case(1, 1, &[5.0, 8.0, 1.0]),
            case(2, 1, &[]),
            case(0, 4, &[7.0]),
        ];
        let text = table(&cases, &options);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            rows[2],
            "| EP | 1 | 20 (10 to 30) | 5 (1 to 8) | – | 4.00 |"
        );
        assert_eq!(rows[3], "| EP | 4 | 7 (7 to 7) | – | – | – |");
        let cells = |row: &str| row.matches('|').count();
        assert!(
            rows.iter().all(|row| cells(row) == cells(rows[0])),
            "{text}"
        );
    }
}

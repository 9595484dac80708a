//! Rates of the NAS benchmarks, and of other implementations in turn, so that all see the same machine.
//!
//! `npb_rates --beside 'OMP_NUM_THREADS={n} NPB3.4-OMP/bin/{kernel}.{class}.x' --out samples.jsonl` runs, for each
//! benchmark, class and layout, ours and then the other one, and all of that several times over. It prints a table of
//! medians with the smallest and the largest rate in brackets, and with the peers and queue pairs of a PE that `shmrun`
//! counted. What did not verify counts as a failure. Raw samples go to a file, one JSON object a line, behind one that tells
//! where they were taken.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use npb_ports::kernels::{KERNELS, Kernel};
use shmem_benches::stats::{median, min};
use shmem_benches::turns::Turns;
use shmem_testkit::job::{self, Job};
use shmem_testkit::report::Figure;
use shmem_testkit::samples::{Samples, quoted};

#[derive(Parser)]
#[command(about = "Rates of the NAS benchmarks, also beside those of other implementations")]
struct Options {
    /// Rounds; each runs everything once.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Classes.
    #[arg(long, value_name = "CLASS", num_args = 1.., default_values = ["A"])]
    class: Vec<String>,
    /// Layouts: PEs, or PEs on nodes as 16x4. A benchmark that does not run on that many is left out.
    #[arg(long, value_name = "PES[xNODES]", num_args = 1.., value_parser = layout,
          default_values = ["1", "2", "4", "4x4", "16x4"])]
    layout: Vec<Layout>,
    /// Benchmarks, as bt or cg [default: all].
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = kernel)]
    only: Vec<&'static Kernel>,
    /// A command for the shell that runs another implementation and prints its report; {kernel}, {class} and {n} stand
    /// for the benchmark, as in bt, its class and the number of processes or threads.
    #[arg(long, value_name = "COMMAND")]
    beside: Vec<String>,
    /// The most processes or threads that others run with, on one node.
    #[arg(long, value_name = "N", default_value_t = 2)]
    beside_up_to: usize,
    /// Seconds after which a run is ended.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// File for the raw samples.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// PEs and the nodes that they are spread over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    pes: usize,
    nodes: usize,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.pes, self.nodes)
    }
}

fn layout(text: &str) -> Result<Layout, String> {
    let (pes, nodes) = text.split_once('x').unwrap_or((text, "1"));
    match (pes.parse(), nodes.parse()) {
        (Ok(pes), Ok(nodes)) if pes >= nodes && nodes > 0 => Ok(Layout { pes, nodes }),
        _ => Err("not PEs, or PESxNODES with at least a PE for each node".to_owned()),
    }
}

fn kernel(name: &str) -> Result<&'static Kernel, String> {
    let names = || KERNELS.map(|k| k.name.to_lowercase()).join(", ");
    let found = KERNELS.into_iter().find(|k| k.name.to_lowercase() == name);
    found.ok_or_else(|| format!("there are {}", names()))
}

/// What is run again and again.
struct Case {
    kernel: &'static Kernel,
    class: String,
    layout: Layout,
    /// Which implementation: 0 is ours.
    whose: usize,
    /// The command of another one, for the shell.
    command: Option<String>,
    rates: Vec<f64>,
    /// Peers on other nodes and queue pairs of a PE.
    counted: Option<[Figure; 2]>,
    /// Whether it does not run on so many, or fails.
    over: bool,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("npb_rates: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all runs were good.
fn measure(options: &Options) -> io::Result<bool> {
    let mut samples = Samples::begin(File::create(&options.out)?)?;
    let mut cases = cases(options);
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
        match rate(case, Duration::from_secs(options.limit))? {
            Ok(rate) => {
                case.rates.push(rate);
                samples.add(&[
                    ("run", &run.unwrap_or(0)),
                    ("benchmark", &quoted(case.kernel.name)),
                    ("class", &quoted(&case.class)),
                    ("pes", &case.layout.pes),
                    ("nodes", &case.layout.nodes),
                    ("of", &quoted(case.command.as_deref().unwrap_or("ours"))),
                    ("mops", &rate),
                ])?;
            }
            Err(Bad::Refused) => case.over = true,
            Err(Bad::Failed(why)) => {
                (case.over, good) = (true, false);
                let (name, class, layout) = (case.kernel.name, &case.class, case.layout);
                eprintln!("npb_rates: {name} {class} on {layout} failed: {why}");
            }
        }
        Ok(())
    })?;
    print!("{}", table(&cases, options));
    Ok(good)
}

fn cases(options: &Options) -> Vec<Case> {
    let asked = |kernel: &Kernel| {
        options.only.is_empty() || options.only.iter().any(|k| k.name == kernel.name)
    };
    let mut cases = Vec::new();
    for kernel in KERNELS.into_iter().filter(|kernel| asked(kernel)) {
        for class in &options.class {
            for &layout in &options.layout {
                let mut add = |whose, command| {
                    cases.push(Case {
                        kernel,
                        class: class.clone(),
                        layout,
                        whose,
                        command,
                        rates: Vec::new(),
                        counted: None,
                        over: false,
                    });
                };
                add(0, None);
                if layout.nodes > 1 || layout.pes > options.beside_up_to {
                    continue;
                }
                for (at, command) in options.beside.iter().enumerate() {
                    let line = command
                        .replace("{kernel}", &kernel.name.to_lowercase())
                        .replace("{class}", class)
                        .replace("{n}", &layout.pes.to_string());
                    add(at + 1, Some(line));
                }
            }
        }
    }
    cases
}

/// Why there is no rate.
enum Bad {
    /// It does not run on so many PEs.
    Refused,
    Failed(String),
}

/// Runs a case once; gives Mop/s.
fn rate(case: &mut Case, limit: Duration) -> io::Result<Result<f64, Bad>> {
    let job = match &case.command {
        Some(line) => {
            let mut other = Command::new("/bin/sh");
            other.args(["-c", line]);
            Job::of(other)
        }
        None => {
            let Layout { pes, nodes } = case.layout;
            let program = job::built(&case.kernel.program())?;
            let words = [&*program.to_string_lossy(), &case.class, "--json"];
            let options = format!("-n {pes} --nodes {nodes}");
            Job::reported(job::built("shmrun")?, &options, &words)
        }
    };
    let ended = job.run_within(limit);
    let said = &ended.stdout;
    if case.command.is_none() && ended.stderr.contains("does not run on") {
        return Ok(Err(Bad::Refused));
    }
    if let Some(how) = ended.failure() {
        let why = ended.stderr.lines().chain(said.lines()).next();
        let why = why.unwrap_or_default();
        return Ok(Err(Bad::Failed(format!("{how}, {why}"))));
    }
    if let Some(report) = &ended.report {
        let counted = ["connections", "queue pairs"].map(|name| report.find(name));
        case.counted = counted[0].zip(counted[1]).map(<[Figure; 2]>::from);
    }
    let (rate, verified) = match case.command {
        None => (
            number(said, "\"mops\":"),
            said.contains("\"verified\":true"),
        ),
        Some(_) => (number(said, "Mop/s total"), said.contains("SUCCESSFUL")),
    };
    Ok(match rate {
        Some(rate) if verified => Ok(rate),
        Some(_) => Err(Bad::Failed("it did not verify".to_owned())),
        None => Err(Bad::Failed("it told no rate".to_owned())),
    })
}

/// The number behind a name, with a sign of equality or a colon between them.
fn number(text: &str, name: &str) -> Option<f64> {
    let (_, rest) = text.split_once(name)?;
    let rest = rest.trim_start_matches([' ', '=', ':']);
    rest.split([',', '}', '\n']).next()?.trim().parse().ok()
}

/// Rates of each benchmark, class and layout, how many times that of the fastest other one ours is, and what was counted.
fn table(cases: &[Case], options: &Options) -> String {
    let mut text = format!(
        "Mop/s of all PEs together: median of {} runs in turn (smallest to largest); peers on other nodes and queue pairs of \
         a PE: mean, largest\n\n| benchmark | class | PEs | nodes | here |",
        options.runs
    );
    for command in &options.beside {
        let _ = write!(text, " `{command}` |");
    }
    text.push_str(" here / fastest other | peers | queue pairs |\n|---|---|---:|---:|---:|");
    text.push_str(&"---:|".repeat(options.beside.len() + 3));
    text.push('\n');
    for ours in cases.iter().filter(|case| case.whose == 0 && !case.over) {
        let (name, class, Layout { pes, nodes }) = (ours.kernel.name, &ours.class, ours.layout);
        let rates = cell(&ours.rates);
        let _ = write!(text, "| {name} | {class} | {pes} | {nodes} | {rates} |");
        let mut fastest = f64::NAN;
        for whose in 1..=options.beside.len() {
            let same = |case: &&Case| {
                case.whose == whose
                    && (case.kernel.name, &case.class, case.layout) == (name, class, ours.layout)
            };
            let rates = cases.iter().find(same).map_or(&[][..], |case| &case.rates);
            fastest = fastest.max(median(rates));
            let _ = write!(text, " {} |", cell(rates));
        }
        let ratio = median(&ours.rates) / fastest;
        let _ = match ratio.is_nan() {
            true => write!(text, " – |"),
            false => write!(text, " {ratio:.2} |"),
        };
        let _ = match ours.counted {
            None => writeln!(text, " – | – |"),
            Some(counted) => {
                let [peers, pairs] = counted.map(|f| format!("{:.2}, {}", f.mean, f.max));
                writeln!(text, " {peers} | {pairs} |")
            }
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

    #[test]
    fn layouts_are_pes_and_nodes() {
        assert_eq!(layout("16x4"), Ok(Layout { pes: 16, nodes: 4 }));
        assert_eq!(layout("2"), Ok(Layout { pes: 2, nodes: 1 }));
        for bad in ["", "x", "2x4", "4x0", "4x-1", "ax1"] {
            assert!(layout(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn others_run_on_one_node_where_they_can() {
        let parse =
            |words: &[&str]| Options::try_parse_from(["x", "--out", "x"].iter().chain(words));
        assert!(parse(&["--only", "npb-sp"]).is_err());
        let options = parse(&["--only", "sp", "is", "--beside", "run {kernel}.{class} {n}"]);
        let cases = cases(&options.expect("benchmarks that exist"));
        let others: Vec<_> = cases.iter().filter_map(|c| c.command.as_deref()).collect();
        assert_eq!(
            others,
            ["run is.A 1", "run is.A 2", "run sp.A 1", "run sp.A 2"]
        );
        assert_eq!(cases.len() - others.len(), 2 * 5);
    }

    #[test]
    fn both_reports_are_read() {
        let ours = "{\"name\":\"EP\",\"mops\":1043.5,\"mops_per_process\":3.0,\"verified\":true}";
        assert_eq!(number(ours, "\"mops\":"), Some(1043.5));
        let theirs = " Time in seconds =     3.99\n Mop/s total     =           134.67\n Mop/s/thread  = 1\n";
        assert_eq!(number(theirs, "Mop/s total"), Some(134.67));
        assert_eq!(number("", "Mop/s total"), None);
    }

    #[test]
    fn rows_have_as_many_cells_as_their_heads() {
        let options = Options::parse_from(["x", "--beside", "a", "--beside", "b", "--out", "x"]);
        let f = |mean, max| Figure {
            min: 0.0,
            mean,
            max,
            sum: 0.0,
        };
        let case = |whose, pes, rates: &[f64]| Case {
            kernel: KERNELS[2],
            class: "A".to_owned(),
            layout: Layout { pes, nodes: 1 },
            whose,
            command: None,
            rates: rates.to_vec(),
            counted: (pes > 1).then(|| [f(1.96875, 6.0), f(2.0, 6.0)]),
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
            rows[2..],
            [
                "| EP | A | 1 | 1 | 20 (10 to 30) | 5 (1 to 8) | – | 4.00 | – | – |",
                "| EP | A | 4 | 1 | 7 (7 to 7) | – | – | – | 1.97, 6 | 2.00, 6 |"
            ]
        );
        let cells = |row: &str| row.matches('|').count();
        assert!(
            rows.iter().all(|row| cells(row) == cells(rows[0])),
            "{text}"
        );
    }
}

//! The table of the NAS benchmarks: how fast, with the peers and queue pairs that `shmrun --report-json` counted; best of
//! several runs. Peers of a PE that has a node of its own: the figure `peers`.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use npb_ports::kernels::{KERNELS, Kernel};
use shmem_testkit::report::{Figure, Report};
use shmem_testkit::{Job, job, samples};

#[derive(Parser)]
#[command(about = "Rates of the NAS benchmarks")]
struct Options {
    /// Classes.
    #[arg(long, value_name = "CLASS", default_values_t = ["W".to_owned(), "A".to_owned()])]
    class: Vec<String>,
    /// Layouts: PEs, or PEs on nodes as 16x4. A benchmark that does not run
    /// on that many is left out.
    #[arg(long, value_name = "PES[xNODES]", value_parser = layout,
          default_values_t = DEFAULT_LAYOUTS.map(|(pes, nodes)| Layout { pes, nodes }))]
    layout: Vec<Layout>,
    /// Runs of each row; the best counts.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Benchmarks, by the names of the programs [default: all].
    #[arg(long, value_name = "PROGRAM", value_parser = kernel)]
    only: Vec<&'static Kernel>,
    /// Seconds after which a job is ended.
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Directory for the output of all jobs; made if need be.
    #[arg(long)]
    out: std::path::PathBuf,
}

const DEFAULT_LAYOUTS: [(usize, usize); 5] = [(1, 1), (2, 1), (4, 1), (4, 4), (16, 4)];

/// PEs and the nodes that they are spread over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    pes: usize,
    nodes: usize,
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

fn kernel(program: &str) -> Result<&'static Kernel, String> {
    let programs = || KERNELS.map(Kernel::program).join(", ");
    let found = KERNELS.into_iter().find(|k| k.program() == program);
    found.ok_or_else(|| format!("there are {}", programs()))
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("npb_table: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all jobs were good.
fn measure(options: &Options) -> io::Result<bool> {
    samples::directory(&options.out)?;
    let kernels: Vec<_> = KERNELS
        .iter()
        .filter(|k| options.only.is_empty() || options.only.iter().any(|o| o.name == k.name))
        .collect();
    let mut good = true;
    let mut text = String::from(RATES);
    for kernel in kernels {
        for class in &options.class {
            for layout in &options.layout {
                match best(kernel, class, *layout, options)? {
                    Outcome::Ran(run) => text.push_str(&rate_row(kernel, class, *layout, &run)),
                    Outcome::Refused => {}
                    Outcome::Failed => good = false,
                }
            }
        }
    }
    fs::write(options.out.join("table.md"), &text)?;
    print!("{text}");
    Ok(good)
}

/// What a job yielded.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    mops: f64,
    connections: Figure,
    queue_pairs: Figure,
}

enum Outcome {
    Ran(Run),
    /// The benchmark does not run on so many PEs.
    Refused,
    Failed,
}

/// The fastest of several runs.
fn best(kernel: &Kernel, class: &str, layout: Layout, options: &Options) -> io::Result<Outcome> {
    let mut best: Option<Run> = None;
    for number in 0..options.runs {
        match run(kernel, class, layout, number, options)? {
            Outcome::Ran(run) if best.is_none_or(|best| run.mops > best.mops) => best = Some(run),
            Outcome::Ran(_) => {}
            other => return Ok(other),
        }
    }
    Ok(best.map_or(Outcome::Failed, Outcome::Ran))
}

/// Runs one job, which leaves its files in the directory for output.
fn run(
    kernel: &Kernel,
    class: &str,
    layout: Layout,
    number: u32,
    options: &Options,
) -> io::Result<Outcome> {
    let name = format!("{}.{class}.{layout}.{number}", kernel.program());
    let file = |suffix: &str| options.out.join(format!("{name}.{suffix}"));
    let report = file("report.json");
    let program = job::built(&kernel.program())?;
    let words = [
        &report.to_string_lossy()[..],
        &program.to_string_lossy(),
        class,
        "--json",
    ];
    let shape = format!("-n {} --nodes {} --report-json", layout.pes, layout.nodes);
    let job = Job::new(job::built("shmrun")?, &shape, &words);
    let ended = job.run_within(Duration::from_secs(options.limit));
    fs::write(file("json"), &ended.stdout)?;
    fs::write(file("err"), &ended.stderr)?;
    if ended.stderr.contains("does not run on") {
        return Ok(Outcome::Refused);
    }
    if let Some(how) = ended.failure() {
        let said = show(&file("err"));
        eprintln!("npb_table: {name} failed: {how}; see {said}");
        return Ok(Outcome::Failed);
    }
    let report = Report::read(&report)?;
    let result = ended.stdout;
    let figure = |name| report.find(name);
    let run = (|| {
        Some(Run {
            mops: number_of(&result, "mops")?,
            connections: figure("connections")?,
            queue_pairs: figure("queue pairs")?,
        })
    })();
    Ok(run.map_or_else(
        || {
            eprintln!(
                "npb_table: {name} has no figures; see {}",
                show(&file("json"))
            );
            Outcome::Failed
        },
        Outcome::Ran,
    ))
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// The number called `name` in the one-line report of a benchmark.
fn number_of(json: &str, name: &str) -> Option<f64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next()?.trim().parse().ok()
}

const RATES: &str = "Mop/s of all PEs together, the best of the runs; peers on other nodes and queue \
    pairs of a PE: mean, largest\n\n\
    | benchmark | class | PEs | nodes | Mop/s | peers | queue pairs |\n\
    |---|---|---:|---:|---:|---:|---:|\n";

fn rate_row(kernel: &Kernel, class: &str, layout: Layout, run: &Run) -> String {
    format!(
        "| {} | {class} | {} | {} | {:.0} | {} | {} |\n",
        kernel.program(),
        layout.pes,
        layout.nodes,
        run.mops,
        both(run.connections),
        both(run.queue_pairs),
    )
}

fn both(figure: Figure) -> String {
    format!("{:.2}, {}", figure.mean, figure.max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use npb_ports::kernels;

    #[test]
    fn layouts_are_pes_and_nodes() {
        assert_eq!(layout("16x4"), Ok(Layout { pes: 16, nodes: 4 }));
        assert_eq!(layout("2"), Ok(Layout { pes: 2, nodes: 1 }));
        for bad in ["", "x", "2x4", "4x0", "4x-1", "ax1"] {
            assert!(layout(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_benchmarks_that_exist() {
        let only = |name| Options::try_parse_from(["npb_table", "--out", "x", "--only", name]);
        assert!(only("npb-sp").is_ok());
        assert!(only("sp").is_err());
    }

    #[test]
    fn rows_have_as_many_cells_as_their_heads() {
        let f = |mean, max| Figure {
            min: 0.0,
            mean,
            max,
            sum: 0.0,
        };
        let run = Run {
            mops: 1234.5,
            connections: f(1.96875, 6.0),
            queue_pairs: f(2.0, 6.0),
        };
        let kernel = &kernels::EP;
        assert_eq!(
            rate_row(kernel, "W", Layout { pes: 64, nodes: 8 }, &run),
            "| npb-ep | W | 64 | 8 | 1234 | 1.97, 6 | 2.00, 6 |\n"
        );
        let row = rate_row(kernel, "W", Layout { pes: 1, nodes: 1 }, &run);
        let line = RATES.lines().last().unwrap();
        assert_eq!(line.matches('|').count(), row.matches('|').count());
    }

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let json = "{\"mops\":12.5,\"mops_per_process\":3.0}";
        assert_eq!(number_of(json, "mops"), Some(12.5));
        assert_eq!(number_of(json, "mops_per_process"), Some(3.0));
        assert_eq!(number_of("{\"mops\":null}", "mops"), None);
    }
}

//! Queue pairs per PE of whole programs, under different settings.
//!
//! `qp_table --env SHMEM_TRANSPORT=rc --env SHMEM_TRANSPORT=xrc` runs the examples and the NAS
//! benchmarks, in the smallest classes that go, on 64 PEs of 8 nodes, once with each environment,
//! and prints what `shmrun --report-json` counted: for each program and environment the mean, the
//! largest and the sum over PEs. Counts depend little on how busy the machine is, but for
//! connections that both ends open at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use npb_ports::kernels::KERNELS;
use shmem_testkit::report::{Figure, Report};
use shmem_testkit::{Job, job, samples};

#[derive(Parser)]
#[command(about = "Queue pairs per PE of whole programs, under different settings")]
struct Options {
    /// PEs.
    #[arg(short = 'n', long, default_value_t = 64)]
    pes: u32,
    /// Nodes.
    #[arg(short = 'N', long, default_value_t = 8)]
    nodes: u32,
    /// An environment to compare: settings NAME=VALUE, with spaces between. Given several times,
    /// several environments; not given, the one that there is.
    #[arg(long, value_name = "SETTINGS")]
    env: Vec<String>,
    /// Figure of the report. Given several times, several tables.
    #[arg(long, value_name = "NAME", default_value = "queue pairs")]
    figure: Vec<String>,
    /// Seconds after which a job that hangs is ended.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// Directory for the reports of all jobs; made if need be.
    #[arg(long)]
    out: PathBuf,
}

/// Programs without arguments; beside them there are the NAS benchmarks.
const EXAMPLES: [&str; 4] = ["hello", "ring", "histogram", "heat2d"];

/// Paths of programs, each with arguments of which the first that goes counts: benchmarks run in the smallest
/// class that goes on so many PEs.
fn programs() -> Vec<(String, &'static [&'static str])> {
    let examples = EXAMPLES.map(|name| (format!("examples/{name}"), &[""][..]));
    let kernels = KERNELS.map(|kernel| (kernel.program(), &["S", "W", "A", "B"][..]));
    examples.into_iter().chain(kernels).collect()
}

/// What is said of an argument that does not go.
const DOES_NOT_GO: &str = "does not run on";

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("qp_table: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all jobs were good.
fn measure(options: &Options) -> io::Result<bool> {
    let environments = environments(&options.env).map_err(io::Error::other)?;
    check_settings(&environments)?;
    samples::directory(&options.out)?;
    let mut good = true;
    let mut reports = Vec::new();
    for (path, arguments) in programs() {
        let (mut argument, mut of_program) = (0, Vec::new());
        let name = path.trim_start_matches("examples/");
        for (number, environment) in environments.iter().enumerate() {
            let file = options.out.join(format!("{name}.{number}.json"));
            let ended = loop {
                let ended = run(&path, arguments[argument], environment, &file, options)?;
                let other = matches!(&ended, Err(why) if why.contains(DOES_NOT_GO));
                if !other || argument + 1 == arguments.len() {
                    break ended;
                }
                argument += 1;
            };
            of_program.push(match ended {
                Ok(report) => Some(report),
                Err(why) => {
                    good = false;
                    eprintln!("qp_table: {name} is left out: {why}");
                    None
                }
            });
        }
        let name = format!("{name} {}", arguments[argument]);
        reports.push((name.trim_end().to_owned(), of_program));
    }
    let mut tables = String::new();
    for name in &options.figure {
        let figures = reports
            .iter()
            .map(|(program, of_program)| {
                let figure = |report: &Option<Report>| report.as_ref()?.find(name);
                (&program[..], of_program.iter().map(figure).collect())
            })
            .collect::<Vec<Row<'_>>>();
        if figures.iter().flat_map(|row| &row.1).all(Option::is_none) {
            return Err(io::Error::other(format!("no report has a figure {name:?}")));
        }
        let title = format!("{name}, {} PEs on {} nodes", options.pes, options.nodes);
        tables.push_str(&table(&title, &environments, &figures));
    }
    fs::write(options.out.join("table.md"), &tables)?;
    print!("{tables}");
    Ok(good)
}

/// Settings of one environment.
type Environment<'a> = Vec<(&'a str, &'a str)>;

fn environments(texts: &[String]) -> Result<Vec<Environment<'_>>, String> {
    let setting = |text| {
        str::split_once(text, '=').ok_or_else(|| format!("--env: {text:?} is not NAME=VALUE"))
    };
    if texts.is_empty() {
        return Ok(vec![Vec::new()]);
    }
    texts
        .iter()
        .map(|text| text.split_whitespace().map(setting).collect())
        .collect()
}

/// A setting that `shmrun` does not know would change nothing, and the comparison be of equals.
fn check_settings(environments: &[Environment<'_>]) -> io::Result<()> {
    let output = Command::new(job::built("shmrun")?)
        .arg("--settings")
        .output()?;
    let known = String::from_utf8_lossy(&output.stdout);
    for (name, _) in environments.iter().flatten() {
        if !known
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == *name)
        {
            return Err(io::Error::other(format!("shmrun has no setting {name}")));
        }
    }
    Ok(())
}

/// Runs one job with its report in `file`. The inner error says how it failed.
fn run(
    program: &str,
    argument: &str,
    environment: &Environment<'_>,
    file: &Path,
    options: &Options,
) -> io::Result<Result<Report, String>> {
    let layout = format!("-n {} --nodes {} --report-json", options.pes, options.nodes);
    let path = job::built(program)?;
    let (json, path) = (file.to_string_lossy(), path.to_string_lossy());
    let mut words = vec![&json[..], &path];
    words.extend(argument.split_whitespace());
    let outcome = Job::new(job::built("shmrun")?, &layout, &words)
        .envs(environment.iter().copied())
        .run_within(Duration::from_secs(options.limit));
    let Some(how) = outcome.failure() else {
        return Report::read(file).map(Ok);
    };
    let messages = file.with_extension("err");
    fs::write(&messages, &outcome.stderr)?;
    let mut said = outcome.stderr.lines().rev();
    let last = said.find(|line| line.contains(DOES_NOT_GO));
    let last = last.or(outcome.messages().last().copied());
    let last = last.unwrap_or("nothing was said");
    Ok(Err(format!("{how} ({last}); see {}", messages.display())))
}

/// A program, and its figure in each environment.
type Row<'a> = (&'a str, Vec<Option<Figure>>);

/// A table in markdown: a line for each program, a column for each environment.
fn table(title: &str, environments: &[Environment<'_>], rows: &[Row<'_>]) -> String {
    let mut out = format!("{title}: mean, largest of a PE, sum\n\n| program |");
    for environment in environments {
        let settings: Vec<String> = environment
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        let head = match settings.as_slice() {
            [] => "as set".to_owned(),
            settings => settings.join(" "),
        };
        out.push_str(&format!(" {head} |"));
    }
    out.push_str("\n|---|");
    out.push_str(&"---:|".repeat(environments.len()));
    for (program, figures) in rows {
        out.push_str(&format!("\n| {program} |"));
        for figure in figures {
            out.push_str(&match figure {
                Some(f) => format!(" {:.2}, {}, {} |", f.mean, f.max, f.sum),
                None => " – |".to_owned(),
            });
        }
    }
    out.push_str("\n\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_lists_of_settings() {
        let texts = ["A=1 B=x=y".to_owned(), String::new()];
        let found = environments(&texts).unwrap();
        assert_eq!(found, [vec![("A", "1"), ("B", "x=y")], vec![]]);
        assert_eq!(environments(&[]).unwrap(), [vec![]]);
        assert!(
            environments(&["A".to_owned()])
                .unwrap_err()
                .contains("\"A\"")
        );
    }

    #[test]
    fn a_table_has_a_line_for_each_program() {
        let f = Figure {
            min: 0.0,
            mean: 2.125,
            max: 7.0,
            sum: 136.0,
        };
        let environments = [vec![("T", "rc")], vec![]];
        let figures = || vec![Some(f), None];
        let rows = [("ring", figures()), ("npb-ep S", figures())];
        let text = table("qp", &environments, &rows);
        assert!(
            text.contains("\n| program | T=rc | as set |\n|---|---:|---:|\n"),
            "{text}"
        );
        assert!(
            text.contains("\n| npb-ep S | 2.12, 7, 136 | – |\n"),
            "{text}"
        );
        assert_eq!(text.matches("136").count(), rows.len());
    }
}

//! Queue pairs per PE of whole programs, under different settings.
//!
//! `qp_table --env SHMEM_TRANSPORT=rc --env SHMEM_TRANSPORT=xrc` runs the examples and the NAS
//! benchmarks, in the smallest classes that go, on 64 PEs of 8 nodes, once with each environment,
//! and prints what `shmrun --report-json` counted: for each program and environment the mean, the
//! largest and the sum over PEs. Counts depend little on how busy the machine is, but for
//! connections that both ends open at once.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use shmem_benches::about::about;
use shmem_benches::job::{self, End};
use shmem_benches::report::{Figure, figure};

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

/// Programs and their arguments.
const PROGRAMS: &[&[&str]] = &[
    &["examples/hello"],
    &["examples/ring"],
    &["examples/histogram"],
    &["examples/heat2d"],
    &["npb-ep", "S"],
    &["npb-bt", "W"],
    &["npb-mg", "S"],
    &["npb-sp", "W"],
];

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
    fs::create_dir_all(&options.out)?;
    fs::write(options.out.join("about.txt"), about())?;
    let mut good = true;
    let mut reports = Vec::new();
    for program in PROGRAMS {
        let mut of_program = Vec::new();
        for (number, environment) in environments.iter().enumerate() {
            let name = program[0].rsplit('/').next().unwrap_or_default();
            let file = options.out.join(format!("{name}.{number}.json"));
            of_program.push(match run(program, environment, &file, options)? {
                Ok(json) => json,
                Err(why) => {
                    good = false;
                    eprintln!("qp_table: {} is left out: {why}", program.join(" "));
                    String::new()
                }
            });
        }
        reports.push(of_program);
    }
    let mut tables = String::new();
    for name in &options.figure {
        let figures = reports
            .iter()
            .map(|of_program| of_program.iter().map(|json| figure(json, name)).collect())
            .collect::<Vec<Vec<Option<Figure>>>>();
        if figures.iter().flatten().all(Option::is_none) {
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
    program: &[&str],
    environment: &Environment<'_>,
    file: &Path,
    options: &Options,
) -> io::Result<Result<String, String>> {
    let messages = file.with_extension("err");
    let mut command = Command::new(job::built("shmrun")?);
    command
        .args(["-n", &options.pes.to_string()])
        .args(["--nodes", &options.nodes.to_string(), "--report-json"])
        .arg(file)
        .arg(job::built(program[0])?)
        .args(&program[1..])
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&messages)?);
    let end = job::run(&mut command, Duration::from_secs(options.limit))?;
    if matches!(end, End::Exited(status) if status.success()) {
        fs::remove_file(&messages)?;
        return fs::read_to_string(file).map(Ok);
    }
    let how = match end {
        End::Exited(status) => status.to_string(),
        End::TimedOut => format!("ended after {} s", options.limit),
    };
    let said = fs::read_to_string(&messages)?;
    let last = said
        .lines()
        .rfind(|line| line.starts_with("shmrun:"))
        .unwrap_or("nothing was said");
    Ok(Err(format!("{how} ({last}); see {}", messages.display())))
}

/// A table in markdown: a line for each program, a column for each environment.
fn table(title: &str, environments: &[Environment<'_>], rows: &[Vec<Option<Figure>>]) -> String {
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
    for (program, figures) in PROGRAMS.iter().zip(rows) {
        let name = program.join(" ");
        out.push_str(&format!("\n| {} |", name.trim_start_matches("examples/")));
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
        let text = table(
            "qp",
            &environments,
            &vec![vec![Some(f), None]; PROGRAMS.len()],
        );
        assert!(
            text.contains("\n| program | T=rc | as set |\n|---|---:|---:|\n"),
            "{text}"
        );
        assert!(
            text.contains("\n| npb-ep S | 2.12, 7, 136 | – |\n"),
            "{text}"
        );
        assert_eq!(text.matches("136").count(), PROGRAMS.len());
    }
}

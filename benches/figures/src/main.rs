//! The figures of the works behind this runtime, from one command: `cargo xtask figures` builds this and all that it
//! runs. See `docs/results/README.md`.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use shmem_figures::sitting::{Options, Sitting};
use shmem_figures::{FIGURES, Figure, find, page, works};

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask figures",
    about = "Measure and draw the figures of the works behind this runtime"
)]
struct Arguments {
    /// Figures [default: all].
    #[arg(value_name = "NAME", value_parser = find)]
    figures: Vec<&'static Figure>,
    /// Small sizes and few rounds.
    #[arg(long)]
    quick: bool,
    /// Directory for pages, plots and samples; made if need be [default: docs/results].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Say what figures there are.
    #[arg(long)]
    list: bool,
    /// A command of a rival, for the shell, where n, nodes, program and arguments, each in braces, stand for those of a
    /// job.
    // In help `{n}` would be the end of a line.
    #[arg(long, value_name = "COMMAND")]
    vs: Vec<String>,
    /// Rounds, instead of each figure's own.
    #[arg(long, value_name = "N", value_parser = at_least_1)]
    rounds: Option<usize>,
    /// No jobs of more PEs.
    #[arg(long, value_name = "N", value_parser = at_least_1)]
    most: Option<usize>,
    /// Seconds after which a job is ended.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
}

fn at_least_1(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("at least 1".to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        list();
        return ExitCode::SUCCESS;
    }
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
    let options = Options {
        quick: arguments.quick,
        rounds: arguments.rounds,
        most: arguments.most,
        vs: arguments.vs,
        limit: Duration::from_secs(arguments.limit),
        out: arguments.out.unwrap_or_else(|| docs.into()),
    };
    let mut figures = arguments.figures;
    if figures.is_empty() {
        figures = FIGURES.iter().collect();
    }
    let mut failed = Vec::new();
    for figure in figures {
        let start = Instant::now();
        eprintln!("figures: {} …", figure.name);
        match draw(figure, &options) {
            Ok(()) => eprintln!(
                "figures: {} took {:.0} s",
                figure.name,
                start.elapsed().as_secs_f64()
            ),
            Err(e) => {
                eprintln!("figures: {}: {e}", figure.name);
                failed.push(figure.name);
            }
        }
    }
    println!("{}", options.out.join("README.md").display());
    if !failed.is_empty() {
        eprintln!("figures: failed: {}", failed.join(", "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn draw(figure: &Figure, options: &Options) -> io::Result<()> {
    let mut sitting = Sitting::begin(figure.name, options)?;
    if !options.vs.is_empty() && figure.rivals.is_none() {
        sitting
            .notes
            .push("Commands of rivals: there is nothing here that they could do.".to_owned());
    }
    let shown = (figure.measure)(&mut sitting)?;
    page::write(figure, &sitting, &shown, &options.out)
}

fn list() {
    for figure in FIGURES {
        println!("{:20} {}", figure.name, figure.title);
        for (work, which) in figure.of {
            println!("{:20}   {which} of {}", "", work.title);
        }
    }
    for (work, what, why) in works::NOT_MEASURED {
        println!("not measured: {what} of {}: {why}", work.title);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_called_by_name() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
        assert_eq!(
            parse("x init --quick").expect("it is one").figures[0].name,
            "init"
        );
        assert!(
            parse("x innit")
                .err()
                .expect("it is none")
                .to_string()
                .contains("init")
        );
        assert!(parse("x --most 0").is_err() && parse("x --rounds 0").is_err());
    }
}

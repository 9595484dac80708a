//! From the command line to the exit status: what the programs have in common.

use crate::class::Class;
use crate::cpu::Level;
use crate::error::Error;
use crate::report::{Report, banner};
use clap::{Args, Command, FromArgMatches};
use std::io::{self, Write};
use std::process::ExitCode;

/// What the user asked for.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Problem class: S, W, A, B, C, D, E or F [default: S]
    #[arg(value_name = "CLASS")]
    positional: Option<Class>,

    /// The same by name
    #[arg(long = "class", value_name = "CLASS", conflicts_with = "positional")]
    named: Option<Class>,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// Vector instructions to use: baseline, avx2 or avx512 [default: the best of this processor]
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    simd: Option<Level>,
}

fn level(name: &str) -> Result<Level, String> {
    Level::named(name).ok_or_else(|| {
        let names: Vec<_> = Level::supported()
            .iter()
            .map(|level| level.name())
            .collect();
        format!("this processor has {}", names.join(", "))
    })
}

impl Options {
    /// The problem class, S if none was given.
    #[must_use]
    pub fn class(&self) -> Class {
        self.positional.or(self.named).unwrap_or(Class::S)
    }

    /// Whether the report is to be JSON.
    #[must_use]
    pub fn json(&self) -> bool {
        self.json
    }

    /// The vector instructions to use.
    #[must_use]
    pub fn level(&self) -> Level {
        self.simd.unwrap_or_else(Level::best)
    }

    /// Parses the arguments of the program that runs `kernel`; the first is how it was called.
    ///
    /// # Errors
    /// What is wrong with them, or the help text if that was asked for.
    pub fn parse_from<I, T>(kernel: &str, about: &str, args: I) -> clap::error::Result<Self>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        let command = Self::augment_args(Command::new("npb"))
            .display_name(program(kernel))
            .bin_name(program(kernel))
            .about(format!("NAS benchmark {kernel}: {about}"));
        Self::from_arg_matches(&command.try_get_matches_from(args)?)
    }
}

/// The program that runs `kernel`: `npb-ep` for EP.
fn program(kernel: &str) -> String {
    format!("npb-{}", kernel.to_lowercase())
}

/// Runs the benchmark `kernel` (its name in capitals) as a program: parses the command line, joins
/// the job, calls `run` on every PE and prints its report on PE 0.
///
/// The status is a failure on every PE if the verification fails, the benchmark can't run on this
/// job, or the runtime fails, and 2 for a wrong command line.
pub fn main(
    kernel: &'static str,
    about: &str,
    run: impl FnOnce(&Options) -> Result<Report, Error>,
) -> ExitCode {
    let options = match Options::parse_from(kernel, about, std::env::args_os()) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    job(kernel, &options, run).unwrap_or_else(|error| {
        eprintln!("{}: {error}", program(kernel));
        ExitCode::FAILURE
    })
}

fn job(
    kernel: &str,
    options: &Options,
    run: impl FnOnce(&Options) -> Result<Report, Error>,
) -> Result<ExitCode, Error> {
    let _world = shmem::init()?;
    let speaks = shmem::my_pe() == 0;
    if speaks && !options.json() {
        show(&banner(kernel, options.class(), shmem::n_pes()));
    }
    let report = match run(options) {
        // Every PE finds the same; one voice is enough.
        Err(_) if !speaks => return Ok(ExitCode::FAILURE),
        outcome => outcome?,
    };
    if speaks {
        show(&if options.json() {
            report.json()
        } else {
            report.to_string()
        });
    }
    Ok(if report.verification.successful() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints a line or more. Output that nobody reads any longer (a closed pipe) is no reason to
/// leave the other PEs alone in the job.
fn show(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        let args = std::iter::once("npb-ep").chain(args.iter().copied());
        Options::parse_from("EP", "test", args).map_err(|error| error.to_string())
    }

    #[test]
    fn class_by_position_and_by_name() {
        assert_eq!(parse(&[]).unwrap().class(), Class::S);
        assert_eq!(parse(&["A"]).unwrap().class(), Class::A);
        assert_eq!(parse(&["b", "--json"]).unwrap().class(), Class::B);
        assert_eq!(parse(&["--class", "w"]).unwrap().class(), Class::W);
        assert_eq!(parse(&["--class=C"]).unwrap().class(), Class::C);
        assert!(!parse(&["A"]).unwrap().json());
        assert!(parse(&["A", "--json"]).unwrap().json());
    }

    #[test]
    fn errors_say_what_was_wrong() {
        let error = parse(&["Z"]).unwrap_err();
        assert!(
            error.contains("no problem class `Z`: use one of S, W, A"),
            "{error}"
        );
        assert!(
            parse(&["A", "--class", "B"])
                .unwrap_err()
                .contains("cannot be used with")
        );
        assert!(
            parse(&["A", "B"])
                .unwrap_err()
                .contains("unexpected argument 'B'")
        );
        assert!(
            parse(&["--simd", "mmx"])
                .unwrap_err()
                .contains("this processor has baseline")
        );
    }

    #[test]
    fn level_by_name() {
        assert_eq!(
            parse(&["--simd", "baseline"]).unwrap().level(),
            Level::BASELINE
        );
        assert_eq!(parse(&[]).unwrap().level(), Level::best());
    }
}

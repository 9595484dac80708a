//! From the command line to the exit status: what the programs have in common.

use crate::class::Class;
use crate::console::{Console, print};
use crate::cpu::Level;
use crate::error::Error;
use crate::job::Reduction;
use crate::report::Report;
use clap::{Args, Command, FromArgMatches};
use std::io;
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

    /// Print one JSON object on one line instead of text
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
            .about(format!("NAS benchmark {kernel}: {about}"))
            .after_help(AFTER_HELP.replace("PROGRAM", &program(kernel)));
        Self::from_arg_matches(&command.try_get_matches_from(args)?)
    }
}

/// What follows the options in the help text.
const AFTER_HELP: &str = "\
Start it as a job: shmrun -n 4 PROGRAM A
S and W are for tests, A to C for one machine, D to F for large ones. A number of PEs on which the
benchmark does not run, and a size that does not fit into memory, are told with what would do.
Exit status: 0 verified, 1 failed or could not run, 2 wrong command line.";

/// Exit status of a program that does not understand its command line.
const WRONG_COMMAND_LINE: u8 = 2;

/// The program that runs `kernel`: `npb-ep` for EP.
fn program(kernel: &str) -> String {
    format!("npb-{}", kernel.to_lowercase())
}

/// Runs the benchmark `kernel` (its name in capitals) as a program: parses the command line, joins
/// the job, calls `run` on every PE and prints its report on PE 0.
///
/// The status is a failure on every PE if the verification fails, the benchmark can't run on this
/// job, or the runtime fails, and 2 for a wrong command line. What can fail on one PE alone ends the
/// whole job, so that nobody waits for that PE.
pub fn main(
    kernel: &'static str,
    about: &str,
    run: impl FnOnce(&Options) -> Result<Report, Error>,
) -> ExitCode {
    let parsed = Options::parse_from(kernel, about, std::env::args_os());
    let world = match shmem::init() {
        Ok(world) => world,
        Err(error) => {
            // What the user has to know first, and help needs no job.
            if let Err(wrong) = parsed {
                wrong.exit();
            }
            tell(kernel, &error.into());
            return ExitCode::FAILURE;
        }
    };
    let outcome = agreed(parsed).and_then(|parsed| match parsed {
        Ok(options) => start(kernel, &options, run),
        Err(status) => Ok(status),
    });
    let status = match outcome {
        Ok(status) => status,
        Err(error) => {
            // It is said before anyone leaves: the launcher ends the job when the first PE has failed.
            if !error.is_everywhere() {
                tell(kernel, &error);
                shmem::global_exit(1);
            }
            if shmem::my_pe() == 0 {
                tell(kernel, &error);
            }
            1
        }
    };
    world.finalize();
    ExitCode::from(status)
}

/// The options if every PE understands its command line. If not, the first PE that does not says
/// why, and all get the status to leave with. PEs of one job have the same command line, and nobody
/// wants to read what is wrong with it, or the help text, as often as there are PEs.
fn agreed(parsed: clap::error::Result<Options>) -> Result<Result<Options, u8>, Error> {
    let (me, n_pes) = (shmem::my_pe(), shmem::n_pes());
    let all = Reduction::new(1)?;
    // 0 is good, and the first PE has the largest number.
    let worst = all.max(if parsed.is_err() {
        (n_pes - me) as f64
    } else {
        0.0
    });
    all.free()?;
    if worst == 0.0 {
        return Ok(parsed.map_err(|_| WRONG_COMMAND_LINE));
    }
    let Err(wrong) = parsed else {
        return Ok(Err(WRONG_COMMAND_LINE));
    };
    if worst == (n_pes - me) as f64 {
        // Nobody may read it any longer (a closed pipe).
        let _ = wrong.print();
    }
    Ok(Err(
        u8::try_from(wrong.exit_code()).unwrap_or(WRONG_COMMAND_LINE)
    ))
}

/// Runs the benchmark and reports. Gives the exit status.
fn start(
    kernel: &'static str,
    options: &Options,
    run: impl FnOnce(&Options) -> Result<Report, Error>,
) -> Result<u8, Error> {
    Console::new(options).title(kernel);
    let report = run(options)?;
    let mut good = report.verification.successful();
    if let Err(error) = show(&report, options) {
        eprintln!("{}: cannot print the report: {error}", program(kernel));
        good = false;
    }
    Ok(u8::from(!good))
}

fn tell(kernel: &str, error: &Error) {
    eprintln!("{}: {error}", program(kernel));
}

/// Prints the report on PE 0. It is no error if nobody wants to read it (a closed pipe).
fn show(report: &Report, options: &Options) -> io::Result<()> {
    if shmem::my_pe() != 0 {
        return Ok(());
    }
    let text = if options.json() {
        report.json()
    } else {
        report.to_string()
    };
    match print(format_args!("{text}")) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
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

//! From the command line to the exit status: what the programs have in common.

use crate::class::Class;
use crate::console::{Console, print};
use crate::error::Error;
use crate::job::Reduction;
use crate::options::{Options, program};
use crate::report::Report;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

/// Exit status of a program that does not understand its command line.
const WRONG_COMMAND_LINE: u8 = 2;

/// Runs the benchmark `kernel` (its name in capitals), whose largest class is `largest`, as a program: parses the command line, of which the
/// first is how it was called, joins the job, calls `run` on every PE and prints its report on PE 0.
///
/// The status is a failure on every PE if the verification fails, the benchmark can't run on this
/// job, or the runtime fails, and 2 for a wrong command line. What can fail on one PE alone ends the
/// whole job, so that nobody waits for that PE.
pub fn main(
    kernel: &'static str,
    about: &str,
    largest: Class,
    args: impl Iterator<Item = OsString>,
    run: impl FnOnce(&Options) -> Result<Report, Error>,
) -> ExitCode {
    let parsed = Options::parse_up_to(kernel, about, largest, args);
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

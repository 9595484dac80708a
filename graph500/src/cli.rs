//! From the command line to the exit status.

use crate::error::Error;
use crate::hybrid::Library;
use crate::options::Options;
use crate::report::Report;
use crate::run;
use shmem::Team;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Exit status of a program that does not understand its command line.
const WRONG_COMMAND_LINE: u8 = 2;

/// Runs the program: joins the job, runs the benchmark, and prints its results on PE 0.
///
/// The status is the same on every PE. What can fail on one PE alone ends the whole job, so that nobody waits for it.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let parsed = Options::from(args, |name| std::env::var_os(name).is_some());
    let hybrid = matches!(&parsed, Ok(options) if options.hybrid);
    // MPI comes first: then it and the job can share what some launchers give only once.
    let mpi = hybrid.then(Library::start).transpose();
    let world = match shmem::init() {
        Ok(world) => world,
        Err(error) => {
            // What the user has to know first, and help needs no job.
            if let Err(wrong) = parsed {
                wrong.exit();
            }
            tell(&error.into());
            return ExitCode::FAILURE;
        }
    };
    let status = match agreed(parsed) {
        Err(status) => status,
        Ok(options) => {
            let outcome = mpi.and_then(|mpi| {
                let report = run::run(&options, mpi.as_ref())?;
                if let Some(library) = mpi {
                    library.finish()?;
                }
                Ok(report)
            });
            match outcome {
                Ok(report) => show_all(&report, &options),
                Err(error) => failed(&error),
            }
        }
    };
    world.finalize();
    ExitCode::from(status)
}

/// Tells an error, once, and gives the status.
fn failed(error: &Error) -> u8 {
    if !error.is_everywhere() {
        tell(error);
        shmem::global_exit(1);
    }
    if shmem::my_pe() == 0 {
        tell(error);
    }
    1
}

fn tell(error: &Error) {
    eprintln!("graph500: {error}");
}

/// The options if every PE understands its command line. If not, the first PE that does not says why, and all get
/// the status to leave with: nobody wants to read it as often as there are PEs.
fn agreed(parsed: clap::error::Result<Options>) -> Result<Options, u8> {
    let (me, world) = (shmem::my_pe(), Team::world());
    let speaker = world.min(if parsed.is_err() { me } else { usize::MAX });
    match parsed {
        Ok(options) if speaker == usize::MAX => Ok(options),
        Ok(_) => Err(WRONG_COMMAND_LINE),
        Err(wrong) => {
            if speaker == me {
                // Nobody may read it any longer (a closed pipe).
                let _ = wrong.print();
            }
            Err(u8::try_from(wrong.exit_code()).unwrap_or(WRONG_COMMAND_LINE))
        }
    }
}

/// Shows the results on PE 0; gives the status of all.
fn show_all(report: &Report, options: &Options) -> u8 {
    let mut good = true;
    if shmem::my_pe() == 0
        && let Err((what, error)) = show(report, options.json.as_deref())
    {
        eprintln!("graph500: cannot write the results to {what}: {error}");
        good = false;
    }
    u8::from(!Team::world().broadcast_value(u8::from(good), 0).eq(&1))
}

/// It is no error if nobody wants to read the text (a closed pipe).
fn show(report: &Report, json: Option<&Path>) -> Result<(), (String, io::Error)> {
    let to_output = json == Some(Path::new("-"));
    if let Some(file) = json.filter(|_| !to_output) {
        std::fs::write(file, report.json() + "\n")
            .map_err(|error| (file.display().to_string(), error))?;
    }
    let text = if to_output {
        report.json() + "\n"
    } else {
        report.to_string()
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(("standard output".to_owned(), error))
        }
        _ => Ok(()),
    }
}

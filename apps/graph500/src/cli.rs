//! From the command line to the exit status.

use crate::error::Error;
use crate::hybrid::Library;
use crate::options::Options;
use crate::report::Report;
use crate::run::{run, say};
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
    // Nobody may read it any longer (a closed pipe).
    let parsed = agreed(parsed, |wrong| drop(wrong.print()));
    let status = match parsed {
        Err(wrong) => wrong.map_or(WRONG_COMMAND_LINE, |wrong| {
            u8::try_from(wrong.exit_code()).unwrap_or(WRONG_COMMAND_LINE)
        }),
        Ok(options) => match agreed(mpi.and_then(numbered_alike), tell) {
            Err(_) => 1,
            Ok(mpi) => match benchmark(&options, mpi) {
                Ok(report) => show_all(&report, &options),
                Err(error) => failed(&error),
            },
        },
    };
    world.finalize();
    ExitCode::from(status)
}

fn numbered_alike(mpi: Option<Library>) -> Result<Option<Library>, Error> {
    mpi.map(Library::numbered_alike).transpose()
}

/// Runs it, and ends MPI.
fn benchmark(options: &Options, mpi: Option<Library>) -> Result<Report, Error> {
    let report = run(options, mpi.as_ref())?;
    if let Some(library) = mpi {
        library.finish()?;
    }
    Ok(report)
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
    say(format_args!("graph500: {error}"));
}

/// What this PE has, if no PE has an error instead. If one has, the first of them tells it, and those that have one get it
/// back: nobody wants to read it as often as there are PEs.
fn agreed<T, E>(mine: Result<T, E>, tell: impl FnOnce(&E)) -> Result<T, Option<E>> {
    let (me, world) = (shmem::my_pe(), Team::world());
    let speaker = world.min(if mine.is_err() { me } else { usize::MAX });
    match mine {
        Ok(mine) if speaker == usize::MAX => Ok(mine),
        Ok(_) => Err(None),
        Err(wrong) => {
            if speaker == me {
                tell(&wrong);
            }
            Err(Some(wrong))
        }
    }
}

/// Shows the results on PE 0; gives the status of all.
fn show_all(report: &Report, options: &Options) -> u8 {
    let mut good = true;
    if shmem::my_pe() == 0
        && let Err((what, error)) = show(report, options.json.as_deref())
    {
        say(format_args!(
            "graph500: cannot write the results to {what}: {error}"
        ));
        good = false;
    }
    u8::from(Team::world().broadcast_value(u8::from(good), 0) == 0)
}

/// It is no error if nobody wants to read the text (a closed pipe). Where the file cannot be written the text is shown all the
/// same: it has cost hours.
fn show(report: &Report, json: Option<&Path>) -> Result<(), (String, io::Error)> {
    let file = json.filter(|file| *file != Path::new("-"));
    let filed = file.map_or(Ok(()), |file| {
        std::fs::write(file, report.json() + "\n")
            .map_err(|error| (file.display().to_string(), error))
    });
    let text = if json == file {
        report.to_string()
    } else {
        report.json() + "\n"
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(("standard output".to_owned(), error))
        }
        _ => filed,
    }
}

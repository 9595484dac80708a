//! Whole programs of the figures: the NAS benchmarks, each in a class that goes on the PEs there are, and others.

use std::io;

use npb_ports::kernels::KERNELS;

use super::sitting::{Case, Launch, Ran, Sitting};

/// A program.
#[derive(Debug, Clone)]
pub(super) struct Program {
    /// What it is called.
    pub(super) name: String,
    /// What was built.
    pub(super) built: String,
    /// Arguments, of which the first that go count.
    pub(super) arguments: &'static [&'static str],
}

/// What is said of an argument that does not go.
const DOES_NOT_GO: &str = "does not run on";

/// The NAS benchmarks from class S or A on.
pub(super) fn kernels(large: bool) -> Vec<Program> {
    let arguments: &[&str] = if large {
        &["A", "B"]
    } else {
        &["S", "W", "A", "B"]
    };
    let program = |kernel: &&npb_ports::kernels::Kernel| Program {
        name: kernel.name.to_owned(),
        built: kernel.program(),
        arguments,
    };
    KERNELS.iter().map(program).collect()
}

/// An example or an application, by where it was built.
pub(super) fn built(path: &str) -> Program {
    Program {
        name: path.trim_start_matches("examples/").to_owned(),
        built: path.to_owned(),
        arguments: &[""],
    }
}

/// Runs it with the first arguments that go.
///
/// # Errors
/// As [`Sitting::run`].
pub(super) fn run(
    sitting: &Sitting<'_>,
    case: &Case,
    program: &Program,
    pes: usize,
    nodes: usize,
) -> io::Result<Ran> {
    let (last, others) = program.arguments.split_last().expect("there are some");
    let job = |arguments: &str| {
        let launch = Launch {
            pes,
            nodes,
            program: &program.built,
            arguments: arguments.to_owned(),
        };
        sitting.run(case, &launch)
    };
    for arguments in others {
        match job(arguments) {
            Err(e) if e.to_string().contains(DOES_NOT_GO) => {}
            done => return done,
        }
    }
    job(last)
}

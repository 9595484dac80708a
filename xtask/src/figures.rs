//! Builds what figures are measured with, and hands over to the program that does it.
//!
//! That is `figures` of `shmem-figures`, beside all that it starts: linked into this program, which is built again for
//! every chore, it would have everybody build the whole runtime in order to install a library.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use crate::build::{cargo_build, product};
use crate::error::Error;

/// The packages whose programs are measured, or measure.
const PACKAGES: [&str; 7] = [
    "shmem-figures",
    "shmem-benches",
    "shmem-launch",
    "shmem-examples",
    "npb-ports",
    "graph500",
    "heat2d",
];

/// Measures and draws, as `arguments` say.
///
/// # Errors
/// If something cannot be built, or a figure fails; the reason has been told.
pub fn run(profile: &str, arguments: &[OsString]) -> Result<(), Error> {
    let files = cargo_build(profile, &["--bins", "--examples"], &PACKAGES)?;
    let program = product(&files, "figures")?;
    let status = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::null())
        .status()
        .map_err(|e| Error::io("run", &program, e))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Command(program, status)),
    }
}

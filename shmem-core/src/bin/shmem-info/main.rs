//! `shmem-info`: what this build can do, what the machine has, and what a PE would use here.
//!
//! Which device a PE talks over is decided when it starts, by settings and by what it finds. This
//! program makes the same decision and shows what it is made of.

mod facts;
mod json;
mod text;
#[path = "../../network/wanted.rs"]
mod wanted;

use std::io::Write;
use std::process::ExitCode;

const HELP: &str = "\
shmem-info: what PEs would use on this machine, and why

usage: shmem-info [--json]

  --json     for programs
  --help     this text
  --version  the version

SHMEM_HCA, SHMEM_GID_INDEX and SHMEM_TRANSPORT count as they do for a PE. Run it on each node of a job:
PEs of different nodes must use the same kind of device.
";

fn main() -> ExitCode {
    let mut json = false;
    for arg in std::env::args_os().skip(1) {
        match arg.to_string_lossy().as_ref() {
            "--json" => json = true,
            "--help" | "-h" => return say(HELP),
            "--version" | "-V" => {
                return say(concat!("shmem-info ", env!("CARGO_PKG_VERSION"), "\n"));
            }
            other => {
                eprintln!("shmem-info: {other} is not an option; --help tells which are");
                return ExitCode::from(2);
            }
        }
    }
    let facts = facts::Facts::gather();
    if json {
        say(&format!("{}\n", json::render(&facts)))
    } else {
        say(&text::render(&facts))
    }
}

/// Prints; whoever closes the pipe has read enough.
fn say(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("shmem-info: cannot write: {e}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

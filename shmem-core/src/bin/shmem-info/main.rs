//! `shmem-info`: what this build can do, what the machine has, and what a PE would use here.
//!
//! Which device a PE talks over is decided when it starts, by settings and by what it finds. This
//! program makes the same decision and shows what it is made of.

mod devices;
mod facts;
mod json;
mod text;
#[path = "../../network/wanted.rs"]
mod wanted;

use std::io::Write;
use std::process::ExitCode;

use shmem::UniqueId;
use shmem_node::settings;

/// The manual page is made from it, too.
const HELP: &str = include_str!("help.txt");

/// More on one machine are a mistake.
const MOST_PES: usize = 1 << 20;

fn main() -> ExitCode {
    let (mut json, mut devices) = (false, false);
    let mut pes = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        match arg.to_string_lossy().as_ref() {
            "--json" => json = true,
            "--devices" => devices = true,
            "--pes" => {
                let value = args.next().unwrap_or_default();
                match value.to_string_lossy().parse() {
                    Ok(n) if (1..=MOST_PES).contains(&n) => pes = n,
                    _ => {
                        eprintln!(
                            "shmem-info: --pes {} is no number from 1 to {MOST_PES}",
                            value.display()
                        );
                        return ExitCode::from(2);
                    }
                }
            }
            "--make-id" => return make_id(&args.next().unwrap_or_default().to_string_lossy()),
            "--settings" => return say(&settings::text(settings::Given::by_environment)),
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
    let facts = facts::Facts::gather(pes);
    if devices && !json {
        say(&devices::render(&facts))
    } else if json {
        say(&format!("{}\n", json::render(&facts)))
    } else {
        say(&text::render(&facts))
    }
}

/// Prints the id of a job whose PE 0 will listen at `HOST:PORT`.
fn make_id(at: &str) -> ExitCode {
    let parts = at.rsplit_once(':').and_then(|(host, port)| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some((host, port.parse().ok()?))
    });
    let Some((host, port)) = parts else {
        eprintln!(
            "shmem-info: --make-id takes HOST:PORT, where PE 0 of the job will listen, such as node1:4711, and not '{at}'"
        );
        return ExitCode::from(2);
    };
    match UniqueId::at(host, port) {
        Ok(id) => say(&format!("{}\n", id.to_text())),
        Err(e) => {
            eprintln!("shmem-info: {e}");
            ExitCode::FAILURE
        }
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

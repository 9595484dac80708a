//! Start-up beside the yardstick: runs commands in turn, several times, and prints for each the
//! wall and CPU times and the ratio to the first.
//!
//! `startup [--runs R] [--pes N]` compares `spawn-loop N /bin/true` with `shmrun -n N hello` on one
//! node and on N/16 nodes. Raw samples go to standard output, one JSON object a line, behind one that tells
//! where they were taken.

use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Parser;
use shmem_benches::cpu::{Whose, cpu_time};
use shmem_benches::stats::{median, min};
use shmem_testkit::job;
use shmem_testkit::samples::{Samples, quoted};

#[derive(Parser)]
#[command(about = "Start-up time of whole jobs beside a loop of posix_spawn")]
struct Options {
    /// Rounds; each runs every command once.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Processes.
    #[arg(long, default_value_t = 8192)]
    pes: usize,
}

struct Case {
    name: String,
    command: Vec<String>,
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    let tool = |name: &str| job::built(name).map(|path| path.to_string_lossy().into_owned());
    let (n, nodes) = (
        options.pes.to_string(),
        (options.pes / 16).max(1).to_string(),
    );
    let (shmrun, hello) = (tool("shmrun")?, tool("examples/hello")?);
    let case = |name: &str, command: &[&str]| Case {
        name: name.to_owned(),
        command: command.iter().map(|s| (*s).to_owned()).collect(),
        wall: Vec::new(),
        cpu: Vec::new(),
    };
    let mut cases = [
        case(
            "posix_spawn of /bin/true",
            &[&tool("spawn-loop")?, &n, "/bin/true"],
        ),
        case("hello, one node", &[&shmrun, "-n", &n, &hello]),
        case(
            "hello, 16 PEs a node",
            &[&shmrun, "-n", &n, "--nodes", &nodes, &hello],
        ),
    ];
    let mut samples = Samples::begin(io::stdout())?;
    for run in 0..options.runs {
        for case in &mut cases {
            let (wall, cpu) = measure(&case.command)?;
            samples.add(&[
                ("run", &run),
                ("case", &quoted(&case.name)),
                ("pes", &n),
                ("wall_s", &format_args!("{wall:.4}")),
                ("cpu_s", &format_args!("{cpu:.4}")),
            ])?;
            case.wall.push(wall);
            case.cpu.push(cpu);
        }
    }
    let base = median(&cases[0].wall);
    eprintln!(
        "{n} processes, {} runs: wall median (min), CPU median, wall ratio",
        options.runs
    );
    for case in &cases {
        let (wall, best, cpu) = (median(&case.wall), min(&case.wall), median(&case.cpu));
        eprintln!(
            "{:26} {wall:6.2} s ({best:5.2})  {cpu:6.2} s  {:5.2}",
            case.name,
            wall / base
        );
    }
    Ok(())
}

/// Wall and CPU seconds of a command with all its descendants that were waited for.
fn measure(command: &[String]) -> io::Result<(f64, f64)> {
    let before = cpu_time(Whose::Children);
    let start = Instant::now();
    let status = Command::new(&command[0])
        .args(&command[1..])
        .stdout(Stdio::null())
        .status()?;
    let wall = start.elapsed().as_secs_f64();
    if !status.success() {
        return Err(io::Error::other(format!(
            "{} failed: {status}",
            command.join(" ")
        )));
    }
    let cpu = cpu_time(Whose::Children) - before;
    Ok((wall, cpu.as_secs_f64()))
}

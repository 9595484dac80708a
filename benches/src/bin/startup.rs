//! Start-up beside the yardstick: runs commands in turn, several times, and prints for each wall and CPU
//! times, the memory that the machine had less meanwhile, and the ratios of both to the first.
//!
//! `startup [--runs R] [--pes N]` compares `spawn-loop N /bin/true` with `shmrun -n N hello` on one
//! node and on N/16 nodes. `--beside 'mpiexec.hydra -n {n} {program}'` adds another launcher; one that fails
//! has no row, and its first words are told. Raw samples go to standard output, one JSON object a line, behind one
//! that tells where they were taken.

use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Parser;
use shmem_benches::cpu::{Whose, cpu_time};
use shmem_benches::memory::taken_by;
use shmem_benches::stats::{median, min};
use shmem_testkit::job;
use shmem_testkit::samples::{Samples, quoted};

#[derive(Parser)]
#[command(about = "Start-up of whole jobs beside a loop of posix_spawn and other launchers")]
struct Options {
    /// Rounds; each runs every command once.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Processes.
    #[arg(long, default_value_t = 8192)]
    pes: usize,
    /// A command of another launcher, for the shell, in which {n} and {program} stand for those of the job.
    #[arg(long, value_name = "COMMAND")]
    beside: Vec<String>,
}

struct Case {
    name: String,
    command: Vec<String>,
    /// Of a launcher that is not ours, which may fail.
    other: bool,
    wall: Vec<f64>,
    cpu: Vec<f64>,
    memory: Vec<f64>,
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
        other: false,
        wall: Vec::new(),
        cpu: Vec::new(),
        memory: Vec::new(),
    };
    let mut cases = vec![
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
    for command in &options.beside {
        let line = command.replace("{n}", &n).replace("{program}", &hello);
        let mut case = case(command, &["/bin/sh", "-c", &line]);
        case.other = true;
        cases.push(case);
    }
    let mut samples = Samples::begin(io::stdout())?;
    for run in 0..options.runs {
        for case in &mut cases {
            let took = match measure(&case.command) {
                Ok(took) => took,
                Err(e) if case.other => {
                    eprintln!("{e}");
                    continue;
                }
                Err(e) => return Err(e),
            };
            samples.add(&[
                ("run", &run),
                ("case", &quoted(&case.name)),
                ("pes", &n),
                ("wall_s", &format_args!("{:.4}", took.wall)),
                ("cpu_s", &format_args!("{:.4}", took.cpu)),
                ("memory_mib", &format_args!("{:.0}", took.memory)),
            ])?;
            case.wall.push(took.wall);
            case.cpu.push(took.cpu);
            case.memory.push(took.memory);
        }
    }
    let (base, base_cpu) = (median(&cases[0].wall), median(&cases[0].cpu));
    eprintln!(
        "{n} processes, {} runs: wall median (min), CPU median, memory median, wall ratio, CPU ratio",
        options.runs
    );
    for case in cases.iter().filter(|case| !case.wall.is_empty()) {
        let (wall, best, cpu) = (median(&case.wall), min(&case.wall), median(&case.cpu));
        eprintln!(
            "{:26} {wall:6.2} s ({best:5.2})  {cpu:6.2} s  {:5.0} MiB  {:5.2}  {:5.2}",
            case.name,
            median(&case.memory),
            wall / base,
            cpu / base_cpu
        );
    }
    Ok(())
}

struct Took {
    /// Seconds.
    wall: f64,
    /// Seconds of all descendants that were waited for.
    cpu: f64,
    /// MiB.
    memory: f64,
}

/// Runs a command.
fn measure(command: &[String]) -> io::Result<Took> {
    let before = cpu_time(Whose::Children);
    let run = || {
        let start = Instant::now();
        let mut started = Command::new(&command[0]);
        started.args(&command[1..]).stdin(Stdio::null());
        let output = started.stdout(Stdio::null()).output();
        (output, start.elapsed().as_secs_f64())
    };
    let ((output, wall), taken) = taken_by(run);
    let output = output?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!(
            "{} failed: {}: {}",
            command.join(" "),
            output.status,
            said.lines().next().unwrap_or_default()
        )));
    }
    Ok(Took {
        wall,
        cpu: (cpu_time(Whose::Children) - before).as_secs_f64(),
        memory: taken as f64 / 1024.0,
    })
}

//! What waiting costs where other programs want the cores: jobs beside endless loops, with PEs that poll as `SHMEM_SPIN`
//! says, in turn.
//!
//! `busy_cores` prints a table: the microseconds of an operation, best and median of the rounds, by setting and by
//! number of loops. The operations: `barrier`; `signal`, a put with a signal to a PE and one back; `step`, about a
//! tenth of a millisecond of arithmetic and a barrier.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use shmem::{Cmp, SignalOp, alloc, barrier_all, put_signal, wait_until};
use shmem_benches::stats::{median, min};
use shmem_benches::turns::Turns;
use shmem_testkit::job::{self, Job};

#[derive(Parser)]
struct Options {
    /// Options of shmrun: PEs and nodes
    #[arg(long, default_value = "-n 2", allow_hyphen_values = true)]
    layout: String,
    /// Operations to measure
    #[arg(long, value_delimiter = ',', default_value = "barrier,signal,step")]
    operations: Vec<String>,
    /// Numbers of endless loops
    #[arg(long, value_delimiter = ',', default_value = "0,1,2")]
    loops: Vec<usize>,
    /// Values of SHMEM_SPIN
    #[arg(long, value_delimiter = ',', default_value = "auto,0,20000")]
    spins: Vec<String>,
    /// Rounds
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Milliseconds of each job
    #[arg(long, default_value_t = 500)]
    time: u64,
    /// Directory of other programs (shmrun and busy_cores) to take
    #[arg(long)]
    built: Option<String>,
    /// Be a PE that measures this
    #[arg(long)]
    pe: Option<String>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    match &options.pe {
        Some(operation) => measure(operation, Duration::from_millis(options.time))?,
        None => compare(&options)?,
    }
    Ok(())
}

/// Loops that want a core each, until this is dropped.
struct Loops(Vec<Child>);

impl Loops {
    fn start(n: usize) -> io::Result<Self> {
        let mut loops = Self(Vec::new());
        for _ in 0..n {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]);
            loops.0.push(shell.stdin(Stdio::null()).spawn()?);
        }
        Ok(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn compare(options: &Options) -> io::Result<()> {
    let (shmrun, program) = match &options.built {
        Some(dir) => (
            format!("{dir}/shmrun").into(),
            format!("{dir}/busy_cores").into(),
        ),
        None => (job::built("shmrun")?, std::env::current_exe()?),
    };
    let turns = Turns {
        rounds: options.rounds,
        warm_up: false,
    };
    println!("| operation, loops | {} |", options.spins.join(" | "));
    println!("|---|{}", "---|".repeat(options.spins.len()));
    for operation in &options.operations {
        for &n in &options.loops {
            let mut samples = vec![Vec::new(); options.spins.len()];
            turns.run(options.spins.len(), |at, _| {
                let time = options.time.to_string();
                let words = [
                    &program.to_string_lossy()[..],
                    "--pe",
                    operation,
                    "--time",
                    &time,
                ];
                let _loops = Loops::start(n)?;
                let outcome = Job::new(&shmrun, &options.layout, &words)
                    .env("SHMEM_SPIN", &options.spins[at])
                    .run_within(Duration::from_secs(300))
                    .well()?;
                samples[at].push(outcome.stdout.trim().parse().map_err(io::Error::other)?);
                Ok(())
            })?;
            let cells = samples
                .iter()
                .map(|times: &Vec<f64>| format!("{:.1} / {:.1}", min(times), median(times)));
            println!(
                "| {operation}, {n} | {} |",
                cells.collect::<Vec<_>>().join(" | ")
            );
        }
    }
    Ok(())
}

/// One PE. PE 0 prints the microseconds of an operation.
fn measure(operation: &str, time: Duration) -> Result<(), shmem::Error> {
    /// Operations between two looks at the clock.
    const CHUNK: u32 = 20;
    let world = shmem::init()?;
    let (me, n) = (world.my_pe(), world.n_pes());
    let (data, signal) = (alloc::<u64>(1)?, alloc::<u64>(1)?);
    let partner = (me ^ 1).min(n - 1);
    let mut turn = 0;
    let mut one = || match operation {
        "barrier" => barrier_all(),
        "step" => {
            arithmetic();
            barrier_all();
        }
        "signal" => {
            turn += 1;
            let there = || put_signal(data, &[turn], signal, turn, SignalOp::Set, partner);
            if me < partner {
                there();
            }
            if me != partner {
                wait_until(signal, Cmp::Ge, turn);
            }
            if me > partner {
                there();
            }
        }
        other => panic!("there is no operation called {other}"),
    };
    (0..CHUNK).for_each(|_| one());
    barrier_all();
    let (start, mut operations) = (Instant::now(), 0u32);
    let passed = loop {
        (0..CHUNK).for_each(|_| one());
        operations += CHUNK;
        let passed = world.max(start.elapsed().as_nanos() as u64);
        if passed >= time.as_nanos() as u64 {
            break passed;
        }
    };
    if me == 0 {
        println!("{:.3}", passed as f64 / 1000.0 / f64::from(operations));
    }
    Ok(())
}

/// About a tenth of a millisecond.
fn arithmetic() {
    let mut x = 1.0f64;
    for i in 0..40_000u32 {
        x = x * 0.999 + f64::from(i);
    }
    std::hint::black_box(x);
}

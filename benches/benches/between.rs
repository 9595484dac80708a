//! What it costs to reach another PE: operations between two PEs on one node, and on two emulated nodes.
//!
//! Wall time, as PE 0 sees it. Without a launcher this program is its own: it starts itself as `shmrun` with two PEs, once
//! for each layout. `shmrun -n 2 [--nodes 2] target/release/deps/between-HASH --bench` runs one layout.
//!
//! PE 0 runs criterion. Before each sample it broadcasts the number of calls, and PE 1 runs the same loop; 0 ends the row.
//! So PE 1 needs to know neither the rows that are selected nor the mode, and prints nothing.

mod setting;

use std::error::Error;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use shmem::{Sum, World, alloc, node_of};
use shmem_benches::stats::median;
use shmem_pmi::process::launchers::{Launcher, launcher};

/// Name of the process that is the launcher.
const LAUNCHER: &str = "shmrun";

/// Parts of a sample, of which the median counts: where other processes take a processor away, others do not.
const PARTS: u64 = 9;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if std::env::args_os()
        .next()
        .is_some_and(|name| name == LAUNCHER)
    {
        // SAFETY: nothing has started a thread yet.
        let status = unsafe { shmem_launch::main(std::env::args_os()) };
        return Ok(status.into());
    }
    match launcher(|name| std::env::var(name).ok())? {
        Launcher::Nobody => launch(),
        Launcher::Agent(_) | Launcher::Pmi | Launcher::Mpi => {
            let world = shmem::init()?;
            measure(&world)?;
            world.finalize();
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs this program as a job of two PEs, on one node and then on two.
fn launch() -> Result<ExitCode, Box<dyn Error>> {
    // Wrong arguments end this process here, and not one of two PEs.
    drop(setting::criterion(WallTime));
    let program = std::env::current_exe()?;
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    for nodes in ["1", "2"] {
        let status = Command::new(&program)
            .arg0(LAUNCHER)
            // In an allocation, too, the nodes are emulated here.
            .args(["-x", "SHMEM_ALLOCATION=none", "--launcher", "fork"])
            .args(["--stdin", "none", "-n", "2", "--nodes", nodes, "--"])
            .arg(&program)
            .args(&args)
            .status()?;
        if !status.success() {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.unwrap_or(1).into());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures this job's layout.
fn measure(world: &World) -> Result<(), Box<dyn Error>> {
    if world.n_pes() != 2 {
        return Err(format!("{} PEs: start it with `shmrun -n 2`", world.n_pes()).into());
    }
    let layout = match node_of(0) == node_of(1) {
        true => "one node",
        false => "two nodes",
    };
    let mut criterion = (world.my_pe() == 0).then(|| setting::criterion(WallTime));
    rows(Pair {
        world,
        group: criterion.as_mut().map(|c| c.benchmark_group(layout)),
    })?;
    if let Some(criterion) = criterion {
        criterion.final_summary();
    }
    Ok(())
}

fn rows(mut pair: Pair<'_>) -> Result<(), shmem::Error> {
    let world = pair.world;
    for bytes in [8, 64 << 10] {
        let (there, mut here) = (alloc::<u8>(bytes)?, vec![1; bytes]);
        pair.first(&format!("put, quiet/{bytes}"), || {
            shmem::put(there, &here, 1);
            shmem::quiet();
        });
        pair.first(&format!("get/{bytes}"), || shmem::get(&mut here, there, 1));
    }
    let word = alloc::<u64>(1)?;
    pair.first("fetch_add", || {
        shmem::atomic_fetch_add(word, 1, 1);
    });
    pair.both("barrier", || world.barrier());
    for words in [1, 8 << 10] {
        let (sum, part) = (alloc::<u64>(words)?, alloc::<u64>(words)?);
        pair.both(&format!("sum/{}", 8 * words), || {
            shmem::reduce(sum, part, Sum);
        });
    }
    Ok(())
}

/// Both PEs of a row; one of them has criterion.
struct Pair<'a> {
    world: &'a World,
    group: Option<BenchmarkGroup<'a, WallTime>>,
}

impl Pair<'_> {
    /// A row in which PE 0 calls, and PE 1 waits for it in a barrier.
    fn first(&mut self, name: &str, mut call: impl FnMut()) {
        let acts = self.group.is_some();
        self.row(name, |calls| {
            if acts {
                (0..calls).for_each(|_| call());
            }
        });
    }

    /// A row in which both call.
    fn both(&mut self, name: &str, mut call: impl FnMut()) {
        self.row(name, |calls| (0..calls).for_each(|_| call()));
    }

    /// A row of so many calls at a time.
    fn row(&mut self, name: &str, mut calls: impl FnMut(u64)) {
        let world = self.world;
        let mut sample = |n: u64| {
            let parts = n.min(PARTS);
            let mut time_of_one = |part: u64| {
                let n = n * (part + 1) / parts - n * part / parts;
                let start = Instant::now();
                calls(n);
                start.elapsed().as_secs_f64() / n as f64
            };
            world.barrier();
            let times: Vec<f64> = (0..parts).map(&mut time_of_one).collect();
            world.barrier();
            Duration::from_secs_f64(median(&times) * n as f64)
        };
        let agree = |n: u64| world.broadcast_value(n, 0);
        match &mut self.group {
            Some(group) => {
                group.bench_function(name, |b| b.iter_custom(|n| sample(agree(n))));
                agree(0);
            }
            None => loop {
                match agree(0) {
                    0 => return,
                    n => sample(n),
                };
            },
        }
    }
}

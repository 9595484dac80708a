//! An operation again and again, timed in batches of about 40 µs, or of one call where that takes longer, or
//! called a given number of times; and what is printed of it: see `p2p`.

use std::time::{Duration, Instant};

use crate::counts::{Count, Counters};
use crate::cpu::{Whose, cpu_time};
use crate::stats::{median, min};

const BATCH: Duration = Duration::from_micros(40);
const WARM_UP: Duration = Duration::from_millis(2);
const FEWEST: usize = 20;
const MOST: usize = 1 << 16;
/// Moved by a given number of calls at most.
const MOST_BYTES: usize = 8 << 20;

/// How a program measures its rows and prints them.
#[derive(Debug, Clone)]
pub struct Batches {
    /// Time of measurement per row.
    pub row_time: Duration,
    /// Instead: one batch of so many calls, or fewer that move 8 MiB, and one call before it.
    pub calls: Option<usize>,
    /// A table of medians, not the samples.
    pub table: bool,
    /// What is counted besides.
    pub counters: Counters,
}

/// What was measured of a row.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Operations in each batch.
    ops: usize,
    /// Nanoseconds of an operation in each batch.
    samples: Vec<f64>,
    /// CPU time of this process meanwhile.
    cpu: Duration,
    /// What was counted meanwhile.
    counts: Vec<Count>,
}

impl Batches {
    /// Prints the head.
    pub fn head(&self) {
        if self.table {
            println!(
                "{:18} {:>8} {:>12} {:>12} {:>12} {:>12}",
                "ns per operation", "bytes", "median", "best", "CPU PE 0", "CPU target"
            );
        } else {
            println!("row,bytes,what,ops,value");
        }
    }

    /// Calls until everything is warm; returns how many calls, each of which moves `bytes`, make a batch.
    pub fn warm_up(&self, bytes: usize, mut call: impl FnMut()) -> usize {
        if let Some(calls) = self.calls {
            call();
            return calls.min(MOST_BYTES / bytes).max(1);
        }
        let start = Instant::now();
        let mut calls = 0;
        let spent = loop {
            call();
            calls += 1;
            let spent = start.elapsed();
            if spent >= WARM_UP {
                break spent;
            }
        };
        let one = spent.as_secs_f64() / f64::from(calls);
        ((BATCH.as_secs_f64() / one) as usize).max(1)
    }

    /// Measures calls, each of which is `weight` operations.
    pub fn run(&self, per_batch: usize, weight: usize, mut call: impl FnMut()) -> Run {
        let ops = per_batch * weight;
        let fewest = self.calls.map_or(FEWEST, |_| 1);
        let mut samples = Vec::with_capacity(MOST);
        let counts = self.counters.read();
        let cpu = cpu_time(Whose::Own);
        let start = Instant::now();
        let mut before = start;
        while samples.len() < MOST && (samples.len() < fewest || before - start < self.row_time) {
            for _ in 0..per_batch {
                call();
            }
            let after = Instant::now();
            samples.push((after - before).as_nanos() as f64 / ops as f64);
            before = after;
        }
        let cpu = cpu_time(Whose::Own) - cpu;
        let counts = self.counters.since(&counts);
        Run {
            ops,
            samples,
            cpu,
            counts,
        }
    }

    /// Prints a row; `of_target` is the CPU time of the other end meanwhile.
    pub fn print(&self, row: &str, bytes: usize, run: &Run, of_target: Duration) {
        let Run {
            ops,
            samples,
            cpu,
            counts,
        } = run;
        let all = ops * samples.len();
        let [of_pe0, of_target] = [*cpu, of_target].map(|cpu| cpu.as_nanos() as f64 / all as f64);
        if self.table {
            let (mid, best) = (median(samples), min(samples));
            println!("{row:18} {bytes:8} {mid:12.1} {best:12.1} {of_pe0:12.1} {of_target:12.1}");
            return;
        }
        for sample in samples {
            println!("{row},{bytes},ns,{ops},{sample:.2}");
        }
        println!("{row},{bytes},cpu0_ns,{all},{of_pe0:.2}");
        println!("{row},{bytes},cpu1_ns,{all},{of_target:.2}");
        for Count { name, value } in counts {
            println!(
                "{row},{bytes},{name},{all},{:.3}",
                *value as f64 / all as f64
            );
        }
    }
}

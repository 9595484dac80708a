//! An operation again and again, timed in batches of about 40 µs, or of one call where that takes longer; and
//! what is printed of it: see `p2p`.

use std::time::{Duration, Instant};

use crate::cpu::{Whose, cpu_time};
use crate::stats::{median, min};

const BATCH: Duration = Duration::from_micros(40);
const WARM_UP: Duration = Duration::from_millis(2);
const FEWEST: usize = 20;
const MOST: usize = 1 << 16;

/// How a program measures its rows and prints them.
#[derive(Debug, Clone, Copy)]
pub struct Batches {
    /// Time of measurement per row.
    pub row_time: Duration,
    /// A table of medians, not the samples.
    pub table: bool,
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

    /// Calls until everything is warm; returns how many calls make a batch.
    pub fn warm_up(&self, mut call: impl FnMut()) -> usize {
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
        let mut samples = Vec::with_capacity(MOST);
        let cpu = cpu_time(Whose::Own);
        let start = Instant::now();
        let mut before = start;
        while samples.len() < MOST && (samples.len() < FEWEST || before - start < self.row_time) {
            for _ in 0..per_batch {
                call();
            }
            let after = Instant::now();
            samples.push((after - before).as_nanos() as f64 / ops as f64);
            before = after;
        }
        let cpu = cpu_time(Whose::Own) - cpu;
        Run { ops, samples, cpu }
    }

    /// Prints a row; `of_target` is the CPU time of the other end meanwhile.
    pub fn print(&self, row: &str, bytes: usize, run: &Run, of_target: Duration) {
        let Run { ops, samples, cpu } = run;
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
    }
}

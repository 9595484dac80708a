//! Time of collectives on all PEs.
//!
//! The twin of `rivals/collectives.c`: the same rows, the same method, the same output. Whoever
//! changes one changes the other.
//!
//! A call is the collective and a `barrier_all`, so that no PE runs ahead; in the rows `barrier_all`
//! and `sync_all` it is that alone. PE 0 takes the time, of batches of calls whose number it finds
//! beforehand, and tells the others. With `BENCH_BIND` in the environment, and enough cores, each PE
//! stays on the core of its number. Output is CSV as that of `p2p`; bytes are those of one PE's
//! contribution. All results are checked.

use std::time::{Duration, Instant};

use clap::Parser;
use shmem::{Sum, SymSlice, alloc, barrier_all, my_pe, n_pes};
use shmem_benches::cpu::{Whose, bind_if_asked, cpu_time};

const MOST: usize = 65_536 / 8;
const BATCHES: usize = 10;
const CALIBRATION: u32 = 5;

#[derive(Parser)]
#[command(about = "Time of collectives on all PEs")]
struct Options {
    /// Milliseconds of measurement per row.
    #[arg(default_value_t = 50.0)]
    milliseconds: f64,
}

/// The method, and what it needs.
struct Bench {
    me: usize,
    n: usize,
    row_time: Duration,
    calls: SymSlice<u64>,
    cpu_of_last: SymSlice<f64>,
}

impl Bench {
    /// Collective. Measures `call`, whose first result must be `good`.
    fn measure(&self, row: &str, bytes: usize, mut call: impl FnMut(), good: impl Fn() -> bool) {
        let mut run = |times: u64| (0..times).for_each(|_| call());
        barrier_all();
        run(1);
        assert!(
            good(),
            "PE {}: wrong result in {row} of {bytes} bytes",
            self.me
        );
        barrier_all();
        let start = Instant::now();
        run(CALIBRATION.into());
        let one = start.elapsed() / CALIBRATION;
        if self.me == 0 {
            let batch = self.row_time / BATCHES as u32;
            let times = (batch.as_secs_f64() / one.as_secs_f64()).max(1.0) as u64;
            (0..self.n).for_each(|pe| shmem::p(self.calls, times, pe));
        }
        barrier_all();
        let times = self.calls.read(0);
        run(times / 4 + 1);
        let mut samples = [0.0; BATCHES];
        let cpu = cpu_time(Whose::Own);
        let mut before = Instant::now();
        for sample in &mut samples {
            run(times);
            let after = Instant::now();
            *sample = (after - before).as_nanos() as f64 / times as f64;
            before = after;
        }
        let cpu = cpu_time(Whose::Own) - cpu;
        if self.me == self.n - 1 {
            shmem::p(self.cpu_of_last, cpu.as_nanos() as f64, 0);
        }
        barrier_all();
        if self.me == 0 {
            let all = times * BATCHES as u64;
            for sample in &samples {
                println!("{row},{bytes},ns,{times},{sample:.2}");
            }
            let of_pe0 = cpu.as_nanos() as f64 / all as f64;
            let of_last = self.cpu_of_last.read(0) / all as f64;
            println!("{row},{bytes},cpu0_ns,{all},{of_pe0:.2}");
            println!("{row},{bytes},cpu1_ns,{all},{of_last:.2}");
        }
        barrier_all();
    }
}

/// Word `i` that PE `pe` gives.
fn numbered(pe: usize, i: usize) -> u64 {
    (pe * 1_000_003 + i) as u64
}

/// The same as a number whose sums are exact.
fn small(pe: usize, i: usize) -> f64 {
    (numbered(pe, i) % 1024) as f64
}

fn main() -> Result<(), shmem::Error> {
    let options = Options::parse();
    let _world = shmem::init()?;
    let (me, n) = (my_pe(), n_pes());
    bind_if_asked(me, n);
    let bench = Bench {
        me,
        n,
        row_time: Duration::try_from_secs_f64(options.milliseconds / 1e3).unwrap_or_default(),
        calls: alloc(1)?,
        cpu_of_last: alloc(1)?,
    };
    let (source, dest) = (alloc::<u64>(MOST)?, alloc::<u64>(MOST.max(n))?);
    let (numbers, sums) = (alloc::<f64>(MOST)?, alloc::<f64>(MOST)?);
    let wide = alloc::<u64>(128 * n)?;
    let filled = |words: usize| {
        (0..words).for_each(|i| source.write(i, numbered(me, i)));
        source.at(..words)
    };
    if me == 0 {
        println!("row,bytes,what,ops,value");
    }

    bench.measure("barrier_all", 0, barrier_all, || true);
    bench.measure("sync_all", 0, shmem::sync_all, || true);
    for bytes in [8, 65_536] {
        let (from, to) = (filled(bytes / 8), dest.at(..bytes / 8));
        let call = || {
            shmem::broadcast(to, from, 0);
            barrier_all();
        };
        bench.measure("broadcast", bytes, call, || {
            to.to_vec()
                .into_iter()
                .enumerate()
                .all(|(i, v)| v == numbered(0, i))
        });
    }
    for bytes in [8, 32_768] {
        let (from, to) = (numbers.at(..bytes / 8), sums.at(..bytes / 8));
        (0..from.len()).for_each(|i| from.write(i, small(me, i)));
        let call = || {
            shmem::reduce(to, from, Sum);
            barrier_all();
        };
        bench.measure("sum_reduce", bytes, call, || {
            let sum = |i| (0..n).map(|pe| small(pe, i)).sum::<f64>();
            to.to_vec()
                .into_iter()
                .enumerate()
                .all(|(i, v)| v == sum(i))
        });
    }
    for bytes in [8, 1024] {
        let words = bytes / 8;
        let (from, to) = (filled(words), wide.at(..words * n));
        let call = || {
            shmem::fcollect(to, from);
            barrier_all();
        };
        bench.measure("fcollect", bytes, call, || {
            let good = |(i, v)| v == numbered(i / words, i % words);
            to.to_vec().into_iter().enumerate().all(good)
        });
    }
    let (from, to) = (wide.at(..n), dest.at(..n));
    (0..n).for_each(|i| from.write(i, numbered(me, i)));
    let call = || {
        shmem::alltoall(to, from, 1);
        barrier_all();
    };
    bench.measure("alltoall", 8, call, || {
        to.to_vec()
            .into_iter()
            .enumerate()
            .all(|(pe, v)| v == numbered(pe, me))
    });
    Ok(())
}

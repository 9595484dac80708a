//! Collectives by the bytes of a contribution: where one algorithm should give way to the next.
//!
//! `by_bytes [ROW=BYTES[,BYTES...] ...]`, rows `reduce`, `fcollect`, `broadcast`; without arguments some of each. Output is CSV
//! as that of `p2p`: the time of a call and a `barrier_all` in each batch, and CPU time of all PEs for a call (`cpu_ns`). All
//! results are checked.

use std::time::{Duration, Instant};

use shmem::{Sum, alloc, barrier_all, free, my_pe, n_pes};
use shmem_benches::cpu::{Whose, cpu_time};

const BATCHES: usize = 9;
const BATCH: Duration = Duration::from_millis(30);
const ALL: [&str; 3] = [
    "reduce=8,1024,4096,16384,65536,262144,1048576",
    "fcollect=8,64,1024,8192,65536",
    "broadcast=8,4096,32768,131072,524288,2097152",
];

/// Word `i` that PE `pe` gives. Sums are exact.
fn word(pe: usize, i: usize) -> u64 {
    (pe * 1_000_003 + i) as u64
}

/// Collective. Says how long `call` takes.
fn measure(row: &str, bytes: usize, call: impl Fn()) -> Result<(), shmem::Error> {
    let (me, n) = (my_pe(), n_pes());
    let (times, cpu) = (alloc::<u64>(1)?, alloc::<f64>(1)?);
    // First contacts are no part of what batches are measured by.
    call();
    barrier_all();
    let begun = Instant::now();
    for _ in 0..3 {
        call();
        barrier_all();
    }
    if me == 0 {
        let one = begun.elapsed().as_secs_f64() / 3.0;
        let fit = (BATCH.as_secs_f64() / one).max(1.0) as u64;
        (0..n).for_each(|pe| shmem::p(times, fit, pe));
    }
    barrier_all();
    let times = times.read(0);
    let cpu_before = cpu_time(Whose::Own);
    let batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..times {
                call();
                barrier_all();
            }
            begun.elapsed().as_nanos() as f64 / times as f64
        })
        .collect();
    cpu.write(0, (cpu_time(Whose::Own) - cpu_before).as_nanos() as f64);
    barrier_all();
    shmem::reduce(cpu, cpu, Sum);
    if me == 0 {
        for sample in batches {
            println!("{row},{bytes},ns,{times},{sample:.2}");
        }
        let all = times * BATCHES as u64;
        let cpu = cpu.read(0) / all as f64;
        println!("{row},{bytes},cpu_ns,{all},{cpu:.2}");
    }
    barrier_all();
    Ok(())
}

fn run(row: &str, bytes: usize) -> Result<(), shmem::Error> {
    let (me, n, len) = (my_pe(), n_pes(), bytes / 8);
    let source = alloc::<u64>(len)?;
    let dest = alloc::<u64>(if row == "fcollect" { len * n } else { len })?;
    source.write_from(&(0..len).map(|i| word(me, i)).collect::<Vec<_>>());
    let good: bool = match row {
        "reduce" => {
            measure(row, bytes, || shmem::reduce(dest, source, Sum))?;
            let sum = |i| (0..n).map(|pe| word(pe, i)).sum::<u64>();
            let step = len.div_ceil(1000).max(1);
            (0..len).step_by(step).all(|i| dest.read(i) == sum(i))
        }
        "fcollect" => {
            measure(row, bytes, || shmem::fcollect(dest, source))?;
            let all = dest.to_vec();
            (0..n * len).all(|i| all[i] == word(i / len, i % len))
        }
        "broadcast" => {
            measure(row, bytes, || shmem::broadcast(dest, source, n / 2))?;
            (0..len).all(|i| dest.read(i) == word(n / 2, i))
        }
        _ => panic!("there is no row {row}"),
    };
    assert!(good, "PE {me}: wrong result in {row} of {bytes} bytes");
    barrier_all();
    free(dest)?;
    free(source)
}

fn main() -> Result<(), shmem::Error> {
    let mut rows: Vec<String> = std::env::args().skip(1).collect();
    if rows.is_empty() {
        rows = ALL.map(str::to_owned).into();
    }
    let _world = shmem::init()?;
    if my_pe() == 0 {
        println!("row,bytes,what,ops,value");
    }
    for row in rows {
        let (row, sizes) = row.split_once('=').expect("ROW=BYTES");
        for bytes in sizes.split(',') {
            run(row, bytes.parse().expect("a number of bytes"))?;
        }
    }
    Ok(())
}

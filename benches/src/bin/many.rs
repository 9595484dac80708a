//! What synchronisation and collectives of small contributions cost a job of many PEs: seconds of the first
//! call of each, and page tables, of which a PE has one for each piece of memory that it reaches into.
//!
//! `many [BYTES...]`: contributions of so many bytes, multiples of 8; 8 and 64 without arguments. All results
//! are checked. What needs more memory for the program's arrays than the machine has is left out, with a
//! line that says so.

use std::time::Instant;

use shmem::{Cmp, Max, Sum, SymSlice, alloc, barrier_all, free, my_pe, n_pes, reduce};

/// A figure of `/proc`, in KiB.
fn kib(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{file}: {e}"));
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {file}"))
}

/// Word `i` that PE `pe` gives.
fn word(pe: usize, i: usize) -> u64 {
    (pe * 1_000_003 + i) as u64
}

/// Collective. One row of the output: `call`, and whether its results are `good`.
fn row(figures: SymSlice<u64>, name: &str, call: impl FnOnce(), good: impl FnOnce() -> bool) {
    barrier_all();
    let start = Instant::now();
    call();
    barrier_all();
    let seconds = start.elapsed().as_secs_f64();
    assert!(good(), "PE {}: wrong result of {name}", my_pe());
    figures.write_from(&[kib("/proc/self/status", "VmPTE:"); 2]);
    reduce(figures.at(..1), figures.at(..1), Sum);
    reduce(figures.at(1..), figures.at(1..), Max);
    if my_pe() == 0 {
        let (all, most) = (figures.read(0), figures.read(1));
        println!("{name},{},{seconds:.4},{all},{most}", n_pes());
    }
}

fn main() -> Result<(), shmem::Error> {
    let mut sizes: Vec<usize> = std::env::args()
        .skip(1)
        .map(|bytes| bytes.parse().expect("a number of bytes"))
        .collect();
    if sizes.is_empty() {
        sizes = vec![8, 64];
    }
    let _world = shmem::init()?;
    let (me, n) = (my_pe(), n_pes());
    let (figures, token, plenty) = (alloc::<u64>(2)?, alloc::<u64>(1)?, alloc::<u64>(1)?);
    if me == 0 {
        println!("row,PEs,seconds,page tables of all KiB,most of a PE KiB");
    }
    row(figures, "nothing", || {}, || true);
    let ring = || {
        if me > 0 {
            shmem::wait_until(token, Cmp::Eq, 1);
        }
        shmem::p(token, 1, (me + 1) % n);
        shmem::wait_until(token, Cmp::Eq, 1);
    };
    row(figures, "ring", ring, || true);
    let barriers = || (0..10).for_each(|_| barrier_all());
    row(figures, "ten barriers", barriers, || true);
    for &bytes in &sizes {
        let words = bytes / 8;
        let name = |what: &str| format!("{what} of {bytes} bytes");
        let gib = (2 * n * n * bytes) as f64 / f64::from(1 << 30);
        let there = kib("/proc/meminfo", "MemAvailable:") as f64 / f64::from(1 << 20);
        plenty.write(0, u64::from(gib <= there / 1.5));
        reduce(plenty, plenty, shmem::Min);
        if plenty.read(0) == 0 {
            if me == 0 {
                println!(
                    "# arrays of {n} blocks of {bytes} bytes take {gib:.1} GiB in all: left out"
                );
            }
            continue;
        }
        let (wide, result) = (alloc::<u64>(words * n)?, alloc::<u64>(words * n)?);
        let source = wide.at(..words);
        (0..words).for_each(|i| source.write(i, word(me, i)));
        let mut got = result.at(..words);
        let sum = || reduce(got, source, Sum);
        row(figures, &name("sum"), sum, || {
            let all = |i| (0..n).map(|pe| word(pe, i)).sum::<u64>();
            (0..words).all(|i| got.read(i) == all(i))
        });
        let root = n / 2;
        let broadcast = || shmem::broadcast(got, source, root);
        row(figures, &name("broadcast"), broadcast, || {
            (0..words).all(|i| got.read(i) == word(root, i))
        });
        got = result;
        let of_all = |i| word(i / words, i % words);
        let gathered = || (0..words * n).all(|i| got.read(i) == of_all(i));
        row(
            figures,
            &name("fcollect"),
            || shmem::fcollect(got, source),
            gathered,
        );
        barrier_all();
        got.fill(0);
        let collect = || _ = shmem::collect(got, source);
        row(figures, &name("collect"), collect, gathered);
        (0..words * n).for_each(|i| wide.write(i, word(me, i)));
        let alltoall = || shmem::alltoall(got, wide, words);
        row(figures, &name("alltoall"), alltoall, || {
            let from = |i| word(i / words, me * words + i % words);
            (0..words * n).all(|i| got.read(i) == from(i))
        });
        barrier_all();
        free(result)?;
        free(wide)?;
    }
    Ok(())
}

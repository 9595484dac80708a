//! What pages of the heap cost: puts of 1 MiB within a node, over an array that is larger than what
//! the processor's address translation remembers, the first time and again.
//!
//! `SHMEM_HEAP_PAGES=default shmrun -n 2 pages`, then the same with `huge` and `transparent`. PE 0
//! writes to PE 1, from an array of its own heap that it has filled before. Output is CSV: for the first
//! pass, which makes the target's pages, and for each later one the time of a put, of an 8-byte put to
//! another page each, and PE 0's page faults. Only minor faults count: nothing comes from disk.

use std::time::Instant;

use clap::Parser;
use shmem::{SymSlice, alloc, barrier_all, my_pe, p, put, quiet};

const MIB: usize = 1 << 20;
/// Elements of 8 bytes on the smallest page.
const PAGE: usize = 4096 / 8;

#[derive(Parser)]
#[command(about = "Time and page faults of puts within a node")]
struct Options {
    /// MiB that are written to.
    #[arg(default_value_t = 128)]
    mib: usize,
    /// Passes after the first.
    #[arg(long, default_value_t = 20)]
    passes: usize,
}

/// Page faults of this process so far that needed no disk.
fn faults() -> i64 {
    // SAFETY: an all-zero rusage is valid, and the call fills it in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_minflt
    }
}

fn main() -> Result<(), shmem::Error> {
    let options = Options::parse();
    let _world = shmem::init()?;
    let target = alloc::<u64>(options.mib * MIB / 8)?;
    let source = alloc::<u64>(MIB / 8)?;
    source.fill(7);
    barrier_all();
    if my_pe() == 0 {
        println!("pass,put_1mib_ns,put_8_ns,faults");
        let values = source.to_vec();
        for pass in 0..=options.passes {
            sweep(pass, target, &values);
        }
    }
    barrier_all();
    if my_pe() == 1 {
        assert!(target.to_vec().iter().all(|&v| v == 7));
    }
    Ok(())
}

/// Writes all of `target`, then a word on each of its pages in an order that no prefetcher guesses.
fn sweep(pass: usize, target: SymSlice<u64>, values: &[u64]) {
    let before = faults();
    let blocks = target.len() / values.len();
    let start = Instant::now();
    for i in 0..blocks {
        put(
            target.at(i * values.len()..(i + 1) * values.len()),
            values,
            1,
        );
    }
    quiet();
    let block = start.elapsed().as_nanos() as f64 / blocks as f64;
    let pages = target.len() / PAGE;
    let start = Instant::now();
    for i in 0..pages {
        // An odd factor: every page once, if their number is a power of two.
        p(target.elem(i.wrapping_mul(40_503) % pages * PAGE), 7, 1);
    }
    quiet();
    let word = start.elapsed().as_nanos() as f64 / pages as f64;
    println!("{pass},{block:.0},{word:.1},{}", faults() - before);
}

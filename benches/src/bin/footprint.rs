//! What a job takes of its machine's memory, kernel included: queue pairs of an RDMA device are no
//! process's memory, so that a PE's own figures do not show them.
//!
//! `footprint none|ring|all`: after init, and after some traffic (none, a put of each PE to the next one,
//! one `alltoall`), the last PE prints the machine's available memory. Whoever starts the job subtracts
//! from what was there before.

use std::time::Instant;

use clap::{Parser, ValueEnum};
use shmem::{Max, alloc, alltoall, barrier_all, my_pe, n_pes};
use shmem_benches::memory::available_kib;

/// Who talks to whom.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Nobody, but for barriers.
    None,
    /// Each PE to the next one.
    Ring,
    /// All to all.
    All,
}

#[derive(Parser)]
#[command(about = "Memory that a job takes of its machine")]
struct Options {
    /// Who talks to whom.
    pattern: Pattern,
}

fn main() -> Result<(), shmem::Error> {
    let options = Options::parse();
    let _world = shmem::init()?;
    let (me, n) = (my_pe(), n_pes());
    let (to, from, slowest) = (alloc::<u64>(n)?, alloc::<u64>(n)?, alloc::<u64>(1)?);
    barrier_all();
    // The last PE is no leader of its node unless it is alone there: it does least in a barrier.
    if me == n - 1 {
        println!("available after init: {} KiB", available_kib());
    }
    for pe in 0..n {
        from.write(pe, (me * n + pe) as u64);
    }
    barrier_all();
    let start = Instant::now();
    match options.pattern {
        Pattern::None => {}
        Pattern::Ring => {
            shmem::p(to.elem(0), me as u64, (me + 1) % n);
            barrier_all();
            assert_eq!(to.read(0), ((me + n - 1) % n) as u64);
        }
        Pattern::All => {
            alltoall(to, from, 1);
            for pe in 0..n {
                assert_eq!(to.read(pe), (pe * n + me) as u64, "from PE {pe}");
            }
        }
    }
    slowest.write(0, start.elapsed().as_micros() as u64);
    shmem::reduce(slowest, slowest, Max);
    if me == n - 1 {
        println!("traffic: {} us", slowest.read(0));
        println!("available after traffic: {} KiB", available_kib());
    }
    barrier_all();
    Ok(())
}

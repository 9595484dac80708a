//! Time per one-sided operation from PE 0 to the last PE, which does nothing.
//!
//! `shmrun -n 2 [--nodes 2] latency`: on one node the figures are those of shared memory, on two
//! those of the software HCA. Each figure is the median (and minimum) over batches.

use std::time::Instant;

use shmem::{SymSlice, barrier_all, my_pe, n_pes};
use shmem_benches::stats::{median, min};

const BATCHES: usize = 200;

/// Prints nanoseconds per operation of `op`, run `per_batch` times between two looks at the clock.
fn time(name: &str, bytes: usize, per_batch: usize, mut op: impl FnMut()) {
    for _ in 0..per_batch {
        op();
    }
    let samples: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..per_batch {
                op();
            }
            start.elapsed().as_nanos() as f64 / per_batch as f64
        })
        .collect();
    println!(
        "{name:24} {bytes:8} B  {:12.1} ns  (min {:.1})",
        median(&samples),
        min(&samples)
    );
}

fn main() -> Result<(), shmem::Error> {
    let _world = shmem::init()?;
    let area: SymSlice<u64> = shmem::alloc(1 << 17)?;
    let target = n_pes() - 1;
    let far = shmem::node_of(0) != shmem::node_of(target);
    if my_pe() == 0 {
        let source = vec![1u64; 1 << 17];
        let mut sink = vec![0u64; 1 << 17];
        for bytes in [8, 64, 1024, 4096, 65_536, 1 << 20] {
            let n = bytes / 8;
            let per_batch = if far {
                10
            } else {
                (200_000 / (bytes + 40)).max(1)
            };
            time("put", bytes, per_batch, || {
                shmem::put(area, &source[..n], target)
            });
            time("put + quiet", bytes, per_batch, || {
                shmem::put(area, &source[..n], target);
                shmem::quiet();
            });
            time("get", bytes, per_batch, || {
                shmem::get(&mut sink[..n], area, target)
            });
        }
        let per_batch = if far { 10 } else { 2000 };
        time("fetch_add", 8, per_batch, || {
            shmem::atomic_fetch_add(area, 1, target);
        });
        time("compare_swap", 8, per_batch, || {
            shmem::atomic_compare_swap(area, 0, 1, target);
        });
        time("1000 puts + quiet", 8000, per_batch.div_ceil(10), || {
            for i in 0..1000 {
                shmem::p(area.elem(i), 7, target);
            }
            shmem::quiet();
        });
        time(
            "1000 atomic adds + quiet",
            8000,
            per_batch.div_ceil(10),
            || {
                for i in 0..1000 {
                    shmem::atomic_add(area.elem(i), 1, target);
                }
                shmem::quiet();
            },
        );
    }
    barrier_all();
    Ok(())
}

//! What a call itself costs: the routines that programs call most, in a job of one PE, where nobody has to be
//! reached. Criterion repeats them, and says how they differ from the last time.
//!
//! `cargo bench -p shmem-benches --bench calls`. What it costs to reach somebody: `p2p`, `collectives`.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use shmem::{Sum, alloc};

fn main() -> Result<(), shmem::Error> {
    let world = shmem::init()?;
    let mut criterion = Criterion::default().configure_from_args();
    memory(&mut criterion)?;
    words(&mut criterion)?;
    meetings(&mut criterion)?;
    criterion.final_summary();
    world.finalize();
    Ok(())
}

/// Puts and gets by their length.
fn memory(criterion: &mut Criterion) -> Result<(), shmem::Error> {
    let mut group = criterion.benchmark_group("memory");
    for bytes in [8, 4096, 1 << 20] {
        let (there, mut here) = (alloc::<u8>(bytes)?, vec![1; bytes]);
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("put/{bytes}"), |b| {
            b.iter(|| shmem::put(there, black_box(&here), 0));
        });
        group.bench_function(format!("get/{bytes}"), |b| {
            b.iter(|| shmem::get(black_box(&mut here), there, 0));
        });
    }
    group.finish();
    Ok(())
}

/// Single words, atomics, and what orders them.
fn words(criterion: &mut Criterion) -> Result<(), shmem::Error> {
    let word = alloc::<u64>(1)?;
    let mut group = criterion.benchmark_group("words");
    group.bench_function("p", |b| b.iter(|| shmem::p(word, black_box(1), 0)));
    group.bench_function("g", |b| b.iter(|| shmem::g(word, black_box(0))));
    group.bench_function("fetch_add", |b| {
        b.iter(|| shmem::atomic_fetch_add(word, black_box(1), 0));
    });
    group.bench_function("fence", |b| b.iter(shmem::fence));
    group.bench_function("quiet", |b| b.iter(shmem::quiet));
    group.finish();
    Ok(())
}

/// Collectives of a team that is this PE.
fn meetings(criterion: &mut Criterion) -> Result<(), shmem::Error> {
    let (to, from) = (alloc::<u64>(1)?, alloc::<u64>(1)?);
    let mut group = criterion.benchmark_group("meetings");
    group.bench_function("barrier_all", |b| b.iter(shmem::barrier_all));
    group.bench_function("reduce", |b| {
        b.iter(|| shmem::reduce(to, from, Sum));
    });
    group.finish();
    Ok(())
}

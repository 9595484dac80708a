//! What a call itself costs: the routines that programs call most, in a job of one PE, where nobody has to be
//! reached; and the plans that collectives follow.
//!
//! Processor time. What it costs to reach another PE: the benchmarks `between`.

mod cpu_time;
mod setting;

use std::hint::black_box;

use cpu_time::CpuTime;
use criterion::{Criterion, Throughput};
use shmem::plans::{Places, partners};
use shmem::{Sum, alloc, alloc_aligned, free};
use shmem_node::waiting::Collective as Call;

fn main() -> Result<(), shmem::Error> {
    let world = shmem::init()?;
    let mut criterion = setting::criterion(CpuTime);
    memory(&mut criterion)?;
    words(&mut criterion)?;
    heap(&mut criterion)?;
    meetings(&mut criterion)?;
    plans(&mut criterion);
    criterion.final_summary();
    world.finalize();
    Ok(())
}

/// Puts and gets by their length.
fn memory(criterion: &mut Criterion<CpuTime>) -> Result<(), shmem::Error> {
    let mut group = criterion.benchmark_group("memory");
    for bytes in [8, 4096, 1 << 20] {
        // At the start of a page, as the other side is: how fast a copy is depends on it.
        let mut room = vec![1; bytes + 4096];
        let offset = room.as_ptr().align_offset(4096);
        let here = &mut room[offset..offset + bytes];
        let there = alloc_aligned::<u8>(bytes, 4096)?;
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("put/{bytes}"), |b| {
            b.iter(|| shmem::put(there, black_box(&*here), 0));
        });
        group.bench_function(format!("get/{bytes}"), |b| {
            b.iter(|| shmem::get(black_box(&mut *here), there, 0));
        });
    }
    group.finish();
    Ok(())
}

/// Single words, atomics, and what orders them.
fn words(criterion: &mut Criterion<CpuTime>) -> Result<(), shmem::Error> {
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

/// The symmetric heap's allocator: alone, and among many blocks of other sizes.
fn heap(criterion: &mut Criterion<CpuTime>) -> Result<(), shmem::Error> {
    let size = |n: usize| 8 << (n * 7 % 10);
    let mut group = criterion.benchmark_group("heap");
    group.bench_function("alloc, free", |b| {
        b.iter(|| free(alloc::<u8>(black_box(64))?));
    });
    let held = (0..512).map(|n| alloc::<u8>(size(n)));
    let held = held.collect::<Result<Vec<_>, _>>()?;
    for block in held.iter().skip(1).step_by(2) {
        free(*block)?;
    }
    group.bench_function("alloc, free: 64 in gaps", |b| {
        b.iter(|| {
            let blocks = (0..64).map(|n| alloc::<u8>(size(n)));
            let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
            // Others than were taken first are neighbours of gaps.
            (0..64).try_for_each(|n| free(blocks[n * 37 % 64]))
        });
    });
    group.finish();
    held.into_iter().step_by(2).try_for_each(free)
}

/// Collectives of a team that is this PE.
fn meetings(criterion: &mut Criterion<CpuTime>) -> Result<(), shmem::Error> {
    let (to, from) = (alloc::<u64>(1)?, alloc::<u64>(1)?);
    let mut group = criterion.benchmark_group("meetings");
    group.bench_function("barrier_all", |b| b.iter(shmem::barrier_all));
    group.bench_function("reduce", |b| {
        b.iter(|| shmem::reduce(to, from, Sum));
    });
    group.finish();
    Ok(())
}

/// Which leaders one leader of 512 nodes talks with.
fn plans(criterion: &mut Criterion<CpuTime>) {
    let places = Places {
        nodes: 512,
        per_node: 16,
    };
    let mut group = criterion.benchmark_group("plans");
    for (name, call, bytes) in [
        ("barrier", Call::Barrier, 0),
        ("sum of 8", Call::Reduce, 8),
        ("sum of 1 MiB", Call::Reduce, 1 << 20),
        ("fcollect of 8", Call::Fcollect, 8),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| partners(call, black_box(bytes), places, 77));
        });
    }
    group.finish();
}

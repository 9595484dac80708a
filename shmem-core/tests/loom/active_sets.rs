//! Collectives of active sets, whose PEs have an array of zeros in common.

use shmem_testkit::models::{model, noticed};

use crate::collectives::active::ActiveSet;
use crate::collectives::combine::combine;
use crate::collectives::op::Sum;
use crate::heap::address::SymAddr;
use crate::runtime::{Layout, Runtime, job};
use crate::sync::Ordering;

const PSYNC: usize = 0;
const SOURCE: usize = 4096;
const DEST: usize = 8192;

/// Of the array those that three members use.
fn words() -> Vec<usize> {
    let array = [0, 1, 2, 3, 4, 5, 22, 23, 40, 41].map(|word| PSYNC + 8 * word);
    let arrays = [SOURCE, DEST, DEST + 8, DEST + 16];
    array.into_iter().chain(arrays).collect()
}

fn all(rt: &Runtime) -> ActiveSet {
    ActiveSet::new(rt, 0, 0, rt.n_pes, SymAddr::new(PSYNC))
}

fn is_zero(rt: &Runtime) {
    for word in 0..64 {
        assert_eq!(
            rt.get(rt.me, PSYNC + 8 * word),
            0,
            "word {word} of PE {}",
            rt.me
        );
    }
}

/// Each writes to the one behind it, and finds what was written to it; twice.
fn barrier(layout: Layout, n: usize) {
    job(n, layout, &words(), |rt| {
        let set = all(rt);
        for round in 1..=2 {
            rt.put((rt.me + 1) % rt.n_pes, DEST + 8 * round, round as u64);
            rt.set_barrier(set);
            assert_eq!(rt.get(rt.me, DEST + 8 * round), round as u64);
        }
        is_zero(rt);
    });
}

#[test]
fn a_barrier_has_all_writes_before_it_seen() {
    for layout in [Layout::Together, Layout::Apart] {
        model(3, move || barrier(layout, 2));
        model(1, move || barrier(layout, 3));
    }
    model(2, || barrier(Layout::Together, 3));
    noticed(3, Ordering::Acquire, Ordering::Relaxed, || {
        barrier(Layout::Together, 2);
    });
}

/// From each of the two, one after the other, with a barrier between as the specification asks for.
fn broadcast(layout: Layout) {
    job(2, layout, &words(), |rt| {
        let set = all(rt);
        rt.put(rt.me, SOURCE, 70 + rt.me as u64);
        for root in 0..2 {
            rt.set_broadcast(set, SymAddr::new(DEST), SymAddr::new(SOURCE), 8, root, true);
            assert_eq!(rt.get(rt.me, DEST), 70 + root as u64);
            rt.set_barrier(set);
        }
        is_zero(rt);
    });
}

#[test]
fn what_is_broadcast_comes_before_its_number() {
    for layout in [Layout::Together, Layout::Apart] {
        model(2, move || broadcast(layout));
    }
    noticed(2, Ordering::Release, Ordering::Relaxed, || {
        broadcast(Layout::Together);
    });
    noticed(2, Ordering::Release, Ordering::Relaxed, || {
        broadcast(Layout::Apart);
    });
}

fn reduce(layout: Layout, n: usize) {
    job(n, layout, &words(), |rt| {
        let set = all(rt);
        rt.put(rt.me, SOURCE, 1 << rt.me);
        // SAFETY: an element on all PEs.
        unsafe {
            let combine = combine::<u64, _>(Sum);
            rt.set_reduce(set, SymAddr::new(DEST), SymAddr::new(SOURCE), 1, 8, combine);
        }
        assert_eq!(rt.get(rt.me, DEST), (1 << rt.n_pes) - 1);
        is_zero(rt);
    });
}

#[test]
fn a_sum_has_every_element() {
    for layout in [Layout::Together, Layout::Apart] {
        model(3, move || reduce(layout, 2));
        model(2, move || reduce(layout, 3));
    }
    noticed(3, Ordering::Release, Ordering::Relaxed, || {
        reduce(Layout::Together, 2);
    });
    noticed(3, Ordering::Acquire, Ordering::Relaxed, || {
        reduce(Layout::Together, 2);
    });
}

fn concatenate(n: usize) {
    job(n, Layout::Together, &words(), |rt| {
        let set = all(rt);
        rt.put(rt.me, SOURCE, 5 + rt.me as u64);
        rt.set_collect(set, SymAddr::new(DEST), SymAddr::new(SOURCE), 8);
        for pe in 0..rt.n_pes {
            assert_eq!(rt.get(rt.me, DEST + 8 * pe), 5 + pe as u64);
        }
        is_zero(rt);
    });
}

#[test]
fn blocks_of_all_come_to_all() {
    model(2, || concatenate(2));
    noticed(2, Ordering::Release, Ordering::Relaxed, || concatenate(2));
}

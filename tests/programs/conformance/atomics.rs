//! Atomics of every kind, by all PEs on the same words at once.

use shmem::{
    AtomicInt, alloc, atomic_add, atomic_and, atomic_compare_exchange, atomic_compare_swap,
    atomic_fetch, atomic_fetch_add, atomic_fetch_and, atomic_fetch_inc, atomic_fetch_or,
    atomic_fetch_xor, atomic_inc, atomic_or, atomic_set, atomic_swap, atomic_xor, barrier_all,
    free, my_pe, n_pes, quiet,
};

use crate::check::Check;

pub(crate) const CHECKS: &[Check] = &[
    ("sums", sums),
    ("fetch_add_is_unique", fetch_add_is_unique),
    ("compare_swap_counts", compare_swap_counts),
    ("swap_passes_every_value_on", swap_passes_every_value_on),
    ("bitwise", bitwise),
    ("set_and_fetch", set_and_fetch),
    ("neighbours_of_narrow_words", neighbours_of_narrow_words),
];

const EACH: usize = 40;

fn sums() {
    fn run<T: AtomicInt + TryFrom<usize> + std::fmt::Debug>()
    where
        T::Error: std::fmt::Debug,
    {
        let (me, n) = (my_pe(), n_pes());
        let cell = alloc::<T>(1).unwrap();
        for i in 0..EACH {
            atomic_inc(cell, (me + i) % n);
            atomic_add(cell, T::try_from(3).unwrap(), (me + i) % n);
        }
        barrier_all();
        let all: usize = (0..n).map(|pe| bits(atomic_fetch(cell, pe))).sum();
        assert_eq!(all, 4 * EACH * n);
        barrier_all();
        free(cell).unwrap();
    }
    fn bits<T: AtomicInt>(v: T) -> usize {
        v.to_bits() as usize
    }
    run::<u32>();
    run::<i32>();
    run::<u64>();
    run::<i64>();
    run::<usize>();
    run::<isize>();
}

/// Tickets drawn by all PEs from one counter are all different.
fn fetch_add_is_unique() {
    fn run<T: AtomicInt>() {
        let n = n_pes();
        let counter = alloc::<T>(1).unwrap();
        let drawn = alloc::<u64>(EACH * n).unwrap();
        let owner = n - 1;
        for i in 0..EACH {
            let ticket = if i % 2 == 0 {
                atomic_fetch_inc(counter, owner)
            } else {
                atomic_fetch_add(counter, T::from_bits(1), owner)
            };
            atomic_inc(drawn.elem(ticket.to_bits() as usize), 0);
        }
        barrier_all();
        if my_pe() == 0 {
            assert!(drawn.to_vec().iter().all(|&times| times == 1));
        }
        barrier_all();
        free(drawn).unwrap();
        free(counter).unwrap();
    }
    run::<u64>();
    run::<u32>();
}

/// An increment made of fetch and compare-and-swap loses nothing.
fn compare_swap_counts() {
    fn run<T: AtomicInt>() {
        let n = n_pes();
        let cells = alloc::<T>(3).unwrap();
        for round in 0..EACH {
            let cell = cells.elem(1);
            let mut seen = atomic_fetch(cell, 0);
            let next = |seen: T| T::from_bits(seen.to_bits() + 1);
            if round % 2 == 0 {
                while let Err(was) = atomic_compare_exchange(cell, seen, next(seen), 0) {
                    seen = was;
                }
                continue;
            }
            loop {
                let was = atomic_compare_swap(cell, seen, next(seen), 0);
                if was == seen {
                    break;
                }
                seen = was;
            }
        }
        barrier_all();
        assert_eq!(atomic_fetch(cells.elem(1), 0).to_bits(), (EACH * n) as u64);
        assert_eq!(atomic_fetch(cells.elem(0), 0).to_bits(), 0);
        assert_eq!(atomic_fetch(cells.elem(2), 0).to_bits(), 0);
        barrier_all();
        free(cells).unwrap();
    }
    run::<u64>();
    run::<i32>();
    // Of the whole width, and with a sign.
    let (me, pe) = (my_pe() as i32, (my_pe() + 1) % n_pes());
    let mine = alloc::<i32>(1).unwrap();
    mine.write(0, -1);
    barrier_all();
    assert_eq!(atomic_compare_exchange(mine, -2, me, pe), Err(-1));
    assert_eq!(atomic_compare_exchange(mine, -1, me, pe), Ok(-1));
    assert_eq!(atomic_compare_exchange(mine, -1, 7, pe), Err(me));
    barrier_all();
    free(mine).unwrap();
}

/// What is swapped in comes out exactly once, or is left at the end.
fn swap_passes_every_value_on() {
    let (me, n) = (my_pe(), n_pes());
    let cell = alloc::<i64>(1).unwrap();
    let sum = alloc::<i64>(1).unwrap();
    let mut given = 0;
    let mut taken = 0;
    for i in 0..EACH {
        let value = (me * EACH + i + 1) as i64;
        given += value;
        taken += atomic_swap(cell, value, 0);
    }
    atomic_add(sum, given - taken, 0);
    barrier_all();
    if me == 0 {
        assert_eq!(sum.read(0), cell.read(0), "{n} PEs");
    }
    barrier_all();
    free(sum).unwrap();
    free(cell).unwrap();
}

fn bitwise() {
    fn run<T: AtomicInt + std::fmt::Debug>(width: u32) {
        let (me, n) = (my_pe(), n_pes());
        let target = n / 2;
        let cells = alloc::<T>(6).unwrap();
        let all = T::from_bits(u64::MAX >> (64 - width));
        if me == target {
            cells.write(1, all);
            cells.write(4, all);
        }
        barrier_all();
        let bit = 1u64 << (me as u32 % width);
        let inverse = (u64::MAX >> (64 - width)) & !bit;
        atomic_or(cells.elem(0), T::from_bits(bit), target);
        atomic_and(cells.elem(1), T::from_bits(inverse), target);
        atomic_xor(cells.elem(2), T::from_bits(bit), target);
        let before = [
            atomic_fetch_or(cells.elem(3), T::from_bits(bit), target),
            atomic_fetch_and(cells.elem(4), T::from_bits(inverse), target),
            atomic_fetch_xor(cells.elem(5), T::from_bits(bit), target),
        ];
        if n as u32 <= width {
            assert_eq!(before[0].to_bits() & bit, 0);
            assert_eq!(before[1].to_bits() & bit, bit);
            assert_eq!(before[2].to_bits() & bit, 0);
        }
        barrier_all();
        let (mut ors, mut xors) = (0u64, 0u64);
        for pe in 0..n as u32 {
            ors |= 1 << (pe % width);
            xors ^= 1 << (pe % width);
        }
        let full = u64::MAX >> (64 - width);
        let want = [ors, full & !ors, xors, ors, full & !ors, xors];
        for (i, want) in want.into_iter().enumerate() {
            assert_eq!(
                atomic_fetch(cells.elem(i), target).to_bits(),
                want,
                "cell {i}"
            );
        }
        barrier_all();
        free(cells).unwrap();
    }
    run::<u32>(32);
    run::<u64>(64);
    run::<i64>(64);
}

fn set_and_fetch() {
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    let doubles = alloc::<f64>(2).unwrap();
    let floats = alloc::<f32>(2).unwrap();
    atomic_set(doubles.elem(1), -1.5 * me as f64, right);
    atomic_set(floats.elem(1), 0.25 * me as f32, right);
    quiet();
    assert_eq!(atomic_fetch(doubles.elem(1), right), -1.5 * me as f64);
    assert_eq!(atomic_fetch(floats.elem(1), right), 0.25 * me as f32);
    assert_eq!(atomic_swap(floats.elem(1), 7.0, right), 0.25 * me as f32);
    barrier_all();
    assert_eq!((floats.read(0), floats.read(1)), (0.0, 7.0));
    barrier_all();
    free(floats).unwrap();
    free(doubles).unwrap();
}

/// Two halves of one 64-bit word, changed at once by different PEs, do not disturb each other.
fn neighbours_of_narrow_words() {
    let (me, n) = (my_pe(), n_pes());
    let halves = alloc::<u32>(2).unwrap();
    for _ in 0..EACH {
        atomic_inc(halves.elem(me % 2), 0);
    }
    barrier_all();
    for half in 0..2 {
        let pes = (0..n).filter(|pe| pe % 2 == half).count();
        assert_eq!(atomic_fetch(halves.elem(half), 0) as usize, pes * EACH);
    }
    barrier_all();
    free(halves).unwrap();
}

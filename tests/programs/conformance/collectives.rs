//! Collectives of every kind and of lengths around their chunk size.

use std::fmt::Debug;

use shmem::{
    And, Max, Min, Number, Or, Prod, ReduceOp, Sum, SymSlice, Xor, alloc, alltoall, barrier_all,
    broadcast, collect, fcollect, free, my_pe, n_pes, reduce, sync_all,
};

use crate::check::{Check, noise};

pub(crate) const CHECKS: &[Check] = &[
    ("broadcast_from_everywhere", broadcast_from_everywhere),
    ("reductions", reductions),
    ("bit_reductions", bit_reductions),
    ("long_reductions", long_reductions),
    ("huge_elements", huge_elements),
    ("operands_are_private", operands_are_private),
    ("float_order_is_fixed", float_order_is_fixed),
    ("vectors_of_all_lengths", vectors_of_all_lengths),
    ("concatenations", concatenations),
    ("transpose", transpose),
    ("back_to_back", back_to_back),
    ("rounds_of_all_kinds", rounds_of_all_kinds),
    ("a_nan_loses", a_nan_loses),
    ("nothing_at_all", nothing_at_all),
];

fn broadcast_from_everywhere() {
    let (me, n) = (my_pe(), n_pes());
    for len in [1, 7, 8191, 8192, 8193, 30_000] {
        let source = alloc::<u64>(len).unwrap();
        let dest = alloc::<u64>(len).unwrap();
        for root in (0..n).step_by(1 + n / 6) {
            let value = |i: usize| (root * 1_000_000 + i) as u64;
            source.write_from(
                &(0..len)
                    .map(|i| value(i) + (me != root) as u64)
                    .collect::<Vec<_>>(),
            );
            barrier_all();
            broadcast(dest, source, root);
            let right = dest
                .to_vec()
                .into_iter()
                .enumerate()
                .all(|(i, v)| v == value(i));
            assert!(right, "{len} elements from {root}");
        }
        // In place.
        barrier_all();
        source.fill(me as u64 + 1);
        barrier_all();
        broadcast(source, source, n - 1);
        assert_eq!((source.read(0), source.read(len - 1)), (n as u64, n as u64));
        barrier_all();
        free(dest).unwrap();
        free(source).unwrap();
    }
}

fn reductions() {
    fn run<T: Number + PartialEq>(of: impl Fn(usize) -> T) {
        fn by<T: Number, O: ReduceOp<T> + Debug + Copy>(
            (dest, source): (SymSlice<T>, SymSlice<T>),
            of: &impl Fn(usize) -> T,
            op: O,
            f: fn(T, T) -> T,
        ) {
            let (me, n) = (my_pe(), n_pes());
            let mine = |pe: usize| (0..5).map(|i| of((pe * 7 + i) % 5 + 1)).collect::<Vec<T>>();
            source.write_from(&mine(me));
            barrier_all();
            reduce(dest, source, op);
            let want = (1..n).fold(mine(0), |acc, pe| {
                acc.into_iter()
                    .zip(mine(pe))
                    .map(|(a, b)| f(a, b))
                    .collect()
            });
            let name = std::any::type_name::<T>();
            assert_eq!(dest.to_vec(), want, "{op:?} of {name}");
            barrier_all();
            reduce(source, source, op);
            assert_eq!(source.to_vec(), want, "{op:?} in place");
            barrier_all();
        }
        let arrays = [(); 2].map(|()| alloc::<T>(5).unwrap());
        let on = (arrays[0], arrays[1]);
        by(on, &of, Sum, T::plus);
        by(on, &of, Prod, T::times);
        by(on, &of, Min, T::smaller);
        by(on, &of, Max, T::larger);
        for array in arrays {
            free(array).unwrap();
        }
    }
    run(|v| v as u8);
    run(|v| v as i8 - 3);
    run(|v| v as u16);
    run(|v| v as i16 - 3);
    run(|v| v as u32);
    run(|v| v as i32 - 3);
    run(|v| v as u64);
    run(|v| v as i64 - 3);
    run(|v| v as u128);
    run(|v| v);
    run(|v| v as isize - 3);
    // Small powers of two: exact in any order of additions and multiplications.
    run(|v| if v == 1 { 1.0f32 } else { 0.5 });
    run(|v| if v == 1 { 1.0f64 } else { 0.5 });
}

fn bit_reductions() {
    fn by(op: impl ReduceOp<u32> + Debug + Copy, f: fn(u32, u32) -> u32) {
        let (me, n) = (my_pe(), n_pes());
        let source = alloc::<u32>(3).unwrap();
        let dest = alloc::<u32>(3).unwrap();
        let mine = |pe: usize| {
            let mut next = noise(pe as u64);
            [next() as u32, next() as u32 | 1, next() as u32]
        };
        source.write_from(&mine(me));
        barrier_all();
        reduce(dest, source, op);
        let want = (1..n).fold(mine(0), |acc, pe| {
            let other = mine(pe);
            std::array::from_fn(|i| f(acc[i], other[i]))
        });
        assert_eq!(dest.to_vec(), want, "{op:?}");
        barrier_all();
        free(dest).unwrap();
        free(source).unwrap();
    }
    by(And, |a, b| a & b);
    by(Or, |a, b| a | b);
    by(Xor, |a, b| a ^ b);
    by(Max, u32::max);
}

/// Several chunks, with a remainder.
fn long_reductions() {
    let (me, n) = (my_pe(), n_pes());
    for len in [0, 8192, 8193, 50_001] {
        let cells = alloc::<i64>(len.max(1)).unwrap().at(..len);
        for i in 0..len {
            cells.write(i, (i * (me + 1)) as i64);
        }
        barrier_all();
        reduce(cells, cells, Sum);
        let factor = n * (n + 1) / 2;
        assert!(
            cells
                .to_vec()
                .into_iter()
                .enumerate()
                .all(|(i, v)| v == (i * factor) as i64)
        );
        barrier_all();
        free(cells).unwrap();
    }
}

/// An element of `N` words, of a program's own type: larger than what the library works on at a time.
#[derive(Clone, Copy, Debug, PartialEq, shmem::Datum)]
#[repr(transparent)]
struct Huge<const N: usize>([u64; N]);

impl<const N: usize> shmem::Arithmetic for Huge<N> {
    fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
    fn times(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] * other.0[i]))
    }
}

fn huge_elements() {
    fn run<const N: usize>() {
        let (me, n) = (my_pe(), n_pes());
        let value = |pe: usize, k: usize| Huge::<N>(std::array::from_fn(|i| (pe + i + k) as u64));
        let sum = |pes: std::ops::Range<usize>, k| {
            let (count, of_pes) = (pes.len(), pes.sum::<usize>());
            Huge::<N>(std::array::from_fn(|i| (count * (i + k) + of_pes) as u64))
        };
        for len in [1, 3] {
            let (source, dest) = (alloc(len).unwrap(), alloc(len).unwrap());
            source.write_from(&(0..len).map(|k| value(me, k)).collect::<Vec<_>>());
            barrier_all();
            let results = |pes: std::ops::Range<usize>| {
                let right = (0..len).all(|k| dest.read(k) == sum(pes.clone(), k));
                assert!(right, "{len} elements of {N} words, {pes:?}");
                barrier_all();
            };
            reduce(dest, source, Sum);
            results(0..n);
            shmem::sum_inscan(dest, source);
            results(0..me + 1);
            shmem::sum_exscan(dest, source);
            results(0..me);
            free(dest).unwrap();
            free(source).unwrap();
        }
    }
    run::<1024>();
    run::<1025>();
    run::<1600>();
    run::<3000>();
}

/// Memory that this process shares with others: what is mapped from the files of the node.
fn shared_memory() -> &'static [std::ops::Range<usize>] {
    static FOUND: std::sync::OnceLock<Vec<std::ops::Range<usize>>> = std::sync::OnceLock::new();
    FOUND.get_or_init(|| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let shared = maps.lines().filter(|line| line.contains("memfd:"));
        let found: Vec<_> = shared
            .map(|line| {
                let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
                let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16).unwrap());
                start..end
            })
            .collect();
        assert!(!found.is_empty(), "{maps}");
        found
    })
}

/// What elements are combined with is the library's own copy: nobody can change it meanwhile.
fn operands_are_private() {
    use shmem::raw;

    unsafe fn combine(into: *mut u8, from: *const u8, n: usize) {
        for range in shared_memory() {
            assert!(
                !range.contains(&into.addr()),
                "the result is in shared memory"
            );
            assert!(
                !range.contains(&from.addr()),
                "an operand is in shared memory"
            );
        }
        let (into, from) = (into.cast::<u64>(), from.cast::<u64>());
        for i in 0..n {
            // SAFETY: the caller gives `n` elements on both sides, aligned.
            unsafe { *into.add(i) += *from.add(i) };
        }
    }

    let n = n_pes() as u64;
    let psync = alloc::<u64>(raw::SYNC_SIZE).unwrap();
    for len in [1, 7, 8, 100, 2000, 30_000] {
        let (source, dest) = (alloc::<u64>(len).unwrap(), alloc::<u64>(len).unwrap());
        source.fill(my_pe() as u64 + 1);
        barrier_all();
        let world = shmem::Team::world();
        // SAFETY: the function is for elements of 8 bytes, of which both arrays have `len`.
        unsafe {
            let group = raw::Group::Team(world);
            raw::reduce(
                group,
                dest.addr(),
                source.addr(),
                len,
                8,
                raw::Combine::new(combine),
            );
            assert!(dest.to_vec().iter().all(|&sum| sum == n * (n + 1) / 2));
            barrier_all();
            if n_pes() > 1 && my_pe() > 0 {
                // All but PE 0, who meet by an array of theirs.
                let (start, log_stride, size) = (1, 0, n_pes() - 1);
                let psync = psync.addr();
                let others = raw::Group::ActiveSet {
                    start,
                    log_stride,
                    size,
                    psync,
                };
                raw::reduce(
                    others,
                    dest.addr(),
                    source.addr(),
                    len,
                    8,
                    raw::Combine::new(combine),
                );
                assert!(dest.to_vec().iter().all(|&sum| sum == n * (n + 1) / 2 - 1));
            }
            barrier_all();
            let combine = raw::Combine::new(combine);
            raw::scan(world, dest.addr(), source.addr(), len, 8, combine, false);
        }
        let me = my_pe() as u64 + 1;
        assert!(dest.to_vec().iter().all(|&sum| sum == me * (me + 1) / 2));
        barrier_all();
        free(dest).unwrap();
        free(source).unwrap();
    }
    free(psync).unwrap();
}

/// Sums of numbers that do not add exactly are the same on all PEs and every time.
fn float_order_is_fixed() {
    let me = my_pe();
    let cell = alloc::<f64>(1).unwrap();
    let all = alloc::<f64>(n_pes()).unwrap();
    let mut first = None;
    for _ in 0..5 {
        cell.write(0, 1.0 / (3.0 + me as f64));
        barrier_all();
        reduce(cell, cell, Sum);
        barrier_all();
        fcollect(all, cell);
        assert!(
            all.to_vec()
                .iter()
                .all(|v| v.to_bits() == cell.read(0).to_bits())
        );
        assert_eq!(
            *first.get_or_insert(cell.read(0).to_bits()),
            cell.read(0).to_bits()
        );
        barrier_all();
    }
    free(all).unwrap();
    free(cell).unwrap();
}

/// Around the lengths at which one algorithm gives way to the next, on any number of nodes: sums of numbers that do
/// not add exactly are the same bits on all PEs, every time and in place; broadcasts come from everywhere, whole.
fn vectors_of_all_lengths() {
    let (me, n) = (my_pe(), n_pes());
    const MOST: usize = 150_001;
    let [source, dest, again] = [(); 3].map(|()| alloc::<f64>(MOST).unwrap());
    let sum = alloc::<u64>(1).unwrap();
    let sums = alloc::<u64>(n).unwrap();
    for len in [
        1, 96, 97, 128, 200, 257, 384, 400, 513, 768, 769, 1536, 1537, 5000, 9000, 40_000, MOST,
    ] {
        let [source, dest, again] = [source, dest, again].map(|array| array.at(..len));
        let value = |pe: usize, i: usize| 1.0 / (3 + pe + i % 1000) as f64;
        let values: Vec<f64> = (0..len).map(|i| value(me, i)).collect();
        source.write_from(&values);
        again.write_from(&values);
        barrier_all();
        reduce(dest, source, Sum);
        reduce(again, again, Sum);
        let found = dest.to_vec();
        let near = |i: usize| {
            let want: f64 = (0..n).map(|pe| value(pe, i)).sum();
            (found[i] - want).abs() < 1e-9 * want
        };
        assert!(
            (0..len).step_by(len.div_ceil(500)).all(near),
            "{len} elements"
        );
        let bits = |all: &[f64]| {
            let mix = |sum: u64, v: &f64| sum.rotate_left(5).wrapping_mul(31) ^ v.to_bits();
            all.iter().fold(0, mix)
        };
        assert_eq!(
            bits(&found),
            bits(&again.to_vec()),
            "{len} elements in place"
        );
        sum.write(0, bits(&found));
        fcollect(sums, sum);
        let same = sums.to_vec().iter().all(|&theirs| theirs == sum.read(0));
        assert!(same, "{len} elements: the sums have different bits");
        for root in [0, n / 2, n - 1] {
            dest.fill(-1.0);
            barrier_all();
            broadcast(dest, source, root);
            let whole = dest.to_vec().into_iter().enumerate();
            let right = whole.into_iter().all(|(i, v)| v == value(root, i));
            assert!(right, "{len} elements from {root}");
            barrier_all();
        }
    }
    free(sums).unwrap();
    free(sum).unwrap();
    for array in [again, dest, source] {
        free(array).unwrap();
    }
}

fn concatenations() {
    let (me, n) = (my_pe(), n_pes());
    for len in [1, 3, 1000, 20_000] {
        let source = alloc::<u32>(len).unwrap();
        let dest = alloc::<u32>(len * n).unwrap();
        let value = |pe: usize, i: usize| (pe * 100_000 + i) as u32;
        source.write_from(&(0..len).map(|i| value(me, i)).collect::<Vec<_>>());
        barrier_all();
        fcollect(dest, source);
        let want: Vec<u32> = (0..n)
            .flat_map(|pe| (0..len).map(move |i| value(pe, i)))
            .collect();
        assert!(dest.to_vec() == want, "fcollect of {len}");
        barrier_all();
        // Different lengths, some of them 0.
        let count = |pe: usize| len * (pe % 3) / 2;
        dest.fill(u32::MAX);
        barrier_all();
        let total = collect(dest, source.at(..count(me)));
        let mut want: Vec<u32> = (0..n)
            .flat_map(|pe| (0..count(pe)).map(move |i| value(pe, i)))
            .collect();
        assert_eq!(total, want.len());
        want.resize(len * n, u32::MAX);
        assert!(dest.to_vec() == want, "collect of up to {len}");
        barrier_all();
        free(dest).unwrap();
        free(source).unwrap();
    }
}

fn transpose() {
    let (me, n) = (my_pe(), n_pes());
    for block in [1, 5, 3000] {
        let source = alloc::<u16>(block * n).unwrap();
        let dest = alloc::<u16>(block * n).unwrap();
        let value = |from: usize, to: usize, i: usize| (from * 251 + to * 17 + i) as u16;
        for to in 0..n {
            for i in 0..block {
                source.write(to * block + i, value(me, to, i));
            }
        }
        barrier_all();
        alltoall(dest, source, block);
        let got = dest.to_vec();
        for from in 0..n {
            for i in 0..block {
                assert_eq!(
                    got[from * block + i],
                    value(from, me, i),
                    "from {from}, element {i}"
                );
            }
        }
        barrier_all();
        free(dest).unwrap();
        free(source).unwrap();
    }
}

/// Different collectives follow each other without anything in between, on disjoint arrays.
fn back_to_back() {
    let (me, n) = (my_pe(), n_pes());
    const ROUNDS: usize = 30;
    let ours = alloc::<u64>(1).unwrap();
    ours.write(0, me as u64 + 1);
    let sums = alloc::<u64>(ROUNDS).unwrap();
    let casts = alloc::<u64>(ROUNDS).unwrap();
    let lists = alloc::<u64>(ROUNDS * n).unwrap();
    barrier_all();
    for r in 0..ROUNDS {
        reduce(sums.elem(r), ours, Sum);
        broadcast(casts.elem(r), ours, r % n);
        fcollect(lists.at(r * n..(r + 1) * n), ours);
    }
    for r in 0..ROUNDS {
        assert_eq!(sums.read(r) as usize, n * (n + 1) / 2);
        assert_eq!(casts.read(r) as usize, r % n + 1);
        assert!((0..n).all(|pe| lists.read(r * n + pe) as usize == pe + 1));
    }
    barrier_all();
    for array in [lists, casts, sums, ours] {
        free(array).unwrap();
    }
}

/// Minimum and maximum ignore what is not a number, unless there is nothing else.
fn a_nan_loses() {
    fn by(op: impl ReduceOp<f64> + Debug + Copy, want: f64) {
        let me = my_pe();
        let cells = alloc::<f64>(2).unwrap();
        cells.write(0, if me == 0 { f64::NAN } else { me as f64 });
        cells.write(1, f64::NAN);
        barrier_all();
        reduce(cells, cells, op);
        if n_pes() > 1 {
            assert_eq!(cells.read(0), want, "{op:?}");
        }
        assert!(cells.read(1).is_nan());
        barrier_all();
        free(cells).unwrap();
    }
    by(Min, 1.0);
    by(Max, n_pes() as f64 - 1.0);
}

/// Empty arrays are no special case.
fn nothing_at_all() {
    let n = n_pes();
    let some = alloc::<u64>(n).unwrap();
    let none = some.at(..0);
    for root in 0..n {
        broadcast(none, none, root);
    }
    reduce(none, none, Sum);
    fcollect(some, none);
    assert_eq!(collect(some, none), 0);
    alltoall(some, some, 0);
    for pe in 0..n {
        shmem::put(none, &[], pe);
        shmem::get(&mut [], none, pe);
    }
    barrier_all();
    assert!(some.to_vec().iter().all(|&v| v == 0));
    free(some).unwrap();
}

/// Collectives of all kinds and lengths in an order by chance, with nothing in between: buffers
/// between nodes go from one to the next, and some PEs are late.
fn rounds_of_all_kinds() {
    const ROUNDS: usize = 40;
    const ROOM: usize = 20_000;
    let (me, n) = (my_pe(), n_pes());
    let mut next = noise(n as u64);
    let source = alloc::<u64>(ROOM).unwrap();
    let value = |pe: usize, i: usize| (pe * ROOM + i) as u64;
    source.write_from(&(0..ROOM).map(|i| value(me, i)).collect::<Vec<_>>());
    let dest = alloc::<u64>(ROUNDS * ROOM).unwrap();
    barrier_all();
    let mut wanted = Vec::new();
    for round in 0..ROUNDS {
        // At most two and a half chunks, often one word.
        let len = match next() % 3 {
            0 => 1,
            1 => next() as usize % (ROOM / n / 2).max(1),
            _ => next() as usize % ROOM,
        };
        let root = next() as usize % n;
        let kind = next() % 5;
        let late = next() as usize % n;
        if me == late && round % 8 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let part = dest.at(round * ROOM..(round + 1) * ROOM);
        let from = source.at(..len);
        let each = len.min(ROOM / n);
        wanted.push(match kind {
            0 => {
                broadcast(part.at(..len), from, root);
                (0..len).map(|i| value(root, i)).collect()
            }
            1 => {
                reduce(part.at(..len), from, Sum);
                let pes = n * (n - 1) / 2 * ROOM;
                (0..len).map(|i| (pes + n * i) as u64).collect()
            }
            2 => {
                fcollect(part, source.at(..each));
                let all = (0..n).flat_map(|pe| (0..each).map(move |i| value(pe, i)));
                all.collect()
            }
            3 => {
                let count = |pe: usize| each * (pe % 2);
                collect(part, source.at(..count(me)));
                let all = (0..n).flat_map(|pe| (0..count(pe)).map(move |i| value(pe, i)));
                all.collect::<Vec<_>>()
            }
            _ => {
                sync_all();
                Vec::new()
            }
        });
    }
    for (round, want) in wanted.into_iter().enumerate() {
        let got = dest.at(round * ROOM..round * ROOM + want.len()).to_vec();
        assert!(got == want, "round {round}");
    }
    barrier_all();
    free(dest).unwrap();
    free(source).unwrap();
}

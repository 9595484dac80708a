//! Non-blocking atomics that give the old value, against a model and against each other.

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context as Wakers, Poll, Waker};

use shmem::raw::{self, AtomicOp};
use shmem::{
    Atomic, AtomicInt, SymSlice, alloc, alloc_from, atomic_add, atomic_fetch, barrier_all, free,
    my_pe, n_pes, nbi, quiet, start,
};

use crate::check::{Check, noise};

pub(crate) const CHECKS: &[Check] = &[
    ("nbi_atomics_give_old_values", nbi_atomics_give_old_values),
    ("nbi_tickets_are_unique", nbi_tickets_are_unique),
    ("nbi_swaps_of_floats", nbi_swaps_of_floats),
    ("many_plain_atomics", many_plain_atomics),
    ("more_old_values_than_buffers", more_old_values_than_buffers),
    (
        "requests_bring_what_scopes_do",
        requests_bring_what_scopes_do,
    ),
    (
        "requests_are_waited_for_in_any_order",
        requests_are_waited_for_in_any_order,
    ),
    (
        "futures_need_no_executor_of_ours",
        futures_need_no_executor_of_ours,
    ),
];

/// Words that only this PE works on: a PE's atomics on one word take effect in order, so every old
/// value is known beforehand.
fn nbi_atomics_give_old_values() {
    fn run<T: AtomicInt>() {
        const STEPS: usize = 120;
        const WORDS: usize = 3;
        let (me, n) = (my_pe(), n_pes());
        let area = alloc::<T>(WORDS * n).unwrap();
        let mask = T::from_bits(u64::MAX).to_bits();
        let mut random = noise(me as u64 + 99);
        let mut model = vec![[0u64; WORDS]; n];
        let mut old = vec![T::from_bits(0); STEPS];
        let mut want = Vec::new();
        nbi(|ops| {
            for fetch in &mut old {
                let (pe, w) = (random() as usize % n, random() as usize % WORDS);
                let word = area.elem(me * WORDS + w);
                let cell = &mut model[pe][w];
                want.push(*cell);
                let v = random() & mask;
                let value = T::from_bits(v);
                match random() % 8 {
                    0 => ops.atomic_fetch(fetch, word, pe),
                    1 => {
                        ops.atomic_swap(fetch, word, value, pe);
                        *cell = v;
                    }
                    2 => {
                        ops.atomic_compare_swap(fetch, word, T::from_bits(*cell), value, pe);
                        *cell = v;
                    }
                    3 => {
                        ops.atomic_fetch_inc(fetch, word, pe);
                        *cell = cell.wrapping_add(1) & mask;
                    }
                    4 => {
                        ops.atomic_fetch_add(fetch, word, value, pe);
                        *cell = cell.wrapping_add(v) & mask;
                    }
                    5 => {
                        ops.atomic_fetch_and(fetch, word, value, pe);
                        *cell &= v;
                    }
                    6 => {
                        ops.atomic_fetch_or(fetch, word, value, pe);
                        *cell |= v;
                    }
                    _ => {
                        ops.atomic_fetch_xor(fetch, word, value, pe);
                        *cell ^= v;
                    }
                }
            }
        });
        let old: Vec<u64> = old.into_iter().map(T::to_bits).collect();
        assert_eq!(old, want);
        for (pe, model) in model.iter().enumerate() {
            for (w, &value) in model.iter().enumerate() {
                assert_eq!(atomic_fetch(area.elem(me * WORDS + w), pe).to_bits(), value);
            }
        }
        barrier_all();
        free(area).unwrap();
    }
    run::<u64>();
    run::<i64>();
    run::<u32>();
}

/// Executes `op` on `word` of `pe`; the old value lies in `old` after quiet.
///
/// # Safety
/// Nobody looks at `old` before.
unsafe fn atomic_nbi<T: Atomic>(old: &mut T, word: SymSlice<T>, op: AtomicOp, pe: usize) {
    let (ctx, old) = (raw::Ctx::default_ctx(), (&raw mut *old).cast());
    // SAFETY: by the caller; the word has this width.
    unsafe { raw::atomic_nbi(ctx, old, word.addr(), raw::width::<T>(), op, pe) };
}

fn swap<T: Atomic>(value: T) -> AtomicOp {
    AtomicOp::Swap(value.to_bits())
}

/// All PEs draw from one counter without waiting for each ticket.
fn nbi_tickets_are_unique() {
    fn run<T: AtomicInt>() {
        const EACH: usize = 60;
        let (me, n) = (my_pe(), n_pes());
        let counter = alloc::<T>(3).unwrap();
        let drawn = alloc::<u64>(EACH * n).unwrap();
        let mut tickets = vec![T::from_bits(0); EACH];
        for ticket in &mut tickets {
            // SAFETY: nobody looks at the tickets before quiet.
            unsafe { atomic_nbi(ticket, counter.elem(1), AtomicOp::Add(1), n - 1) };
        }
        quiet();
        let tickets: Vec<u64> = tickets.into_iter().map(T::to_bits).collect();
        assert_eq!(tickets.iter().collect::<HashSet<_>>().len(), EACH);
        shmem::put(drawn.at(me * EACH..), &tickets, 0);
        barrier_all();
        if me == 0 {
            let mut all = drawn.to_vec();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..(EACH * n) as u64));
        }
        let neighbours = [0, 2].map(|i| atomic_fetch(counter.elem(i), n - 1).to_bits());
        assert_eq!(neighbours, [0, 0]);
        barrier_all();
        free(drawn).unwrap();
        free(counter).unwrap();
    }
    run::<u64>();
    run::<u32>();
}

fn nbi_swaps_of_floats() {
    let (me, n) = (my_pe(), n_pes());
    let (wide, narrow) = (alloc::<f64>(n).unwrap(), alloc::<f32>(n).unwrap());
    let right = (me + 1) % n;
    let (mut first, mut second, mut short) = (-1.0, -1.0, -1.0);
    // SAFETY: nobody looks at the results before quiet.
    unsafe {
        atomic_nbi(&mut first, wide.elem(me), swap(1.5f64), right);
        atomic_nbi(&mut second, wide.elem(me), swap(2.5f64), right);
        atomic_nbi(&mut short, narrow.elem(me), swap(-0.5f32), right);
    }
    quiet();
    assert_eq!((first, second, short), (0.0, 1.5, 0.0));
    assert_eq!(atomic_fetch(wide.elem(me), right), 2.5);
    assert_eq!(atomic_fetch(narrow.elem(me), right), -0.5);
    barrier_all();
    free(narrow).unwrap();
    free(wide).unwrap();
}

/// More old values on their way at once than there are buffers for.
fn more_old_values_than_buffers() {
    const WORDS: usize = 24;
    const EACH: usize = 50;
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    let counters = alloc::<u32>(WORDS).unwrap();
    let mut old = vec![u32::MAX; WORDS * EACH];
    nbi(|ops| {
        for (i, fetch) in old.iter_mut().enumerate() {
            ops.atomic_fetch_inc(fetch, counters.elem(i % WORDS), right);
        }
    });
    let want = (0..WORDS * EACH).map(|i| (i / WORDS) as u32);
    assert!(old.into_iter().eq(want));
    barrier_all();
    free(counters).unwrap();
}

/// More atomics of several steps at once than there are buffers for, on few words and on many.
fn many_plain_atomics() {
    const WORDS: usize = 64;
    let (me, n) = (my_pe(), n_pes());
    let sums = alloc::<i32>(WORDS).unwrap();
    for i in 0..1500 {
        let word = if i % 3 == 0 { 5 } else { i % WORDS };
        atomic_add(sums.elem(word), 1, (me + i / 50) % n);
    }
    barrier_all();
    let total = alloc::<i64>(1).unwrap();
    let mine: i64 = sums.to_vec().into_iter().map(i64::from).sum();
    atomic_add(total, mine, 0);
    barrier_all();
    assert_eq!(atomic_fetch(total, 0), 1500 * n as i64);
    barrier_all();
    free(total).unwrap();
    free(sums).unwrap();
}

/// Every operation that a request may be, to every PE.
fn requests_bring_what_scopes_do() {
    // The last length reaches over a border of parts, where the heap has some.
    for len in [0, 1, 100, 5000, 140_000] {
        let (me, n) = (my_pe(), n_pes());
        let area = alloc::<u64>(len).unwrap();
        let copy = alloc::<u64>(len).unwrap();
        area.fill(me as u64);
        barrier_all();
        let right = (me + 1) % n;
        let theirs = start().get(area, right).wait();
        assert_eq!(theirs, vec![right as u64; len]);
        start().get_sym(copy, area, right).wait();
        assert_eq!(copy.to_vec(), theirs);
        barrier_all();
        let source = vec![!(me as u64); len];
        assert_eq!(start().put(area, source.clone(), right).wait(), source);
        assert_eq!(shmem::get_vec(area, right), source);
        start().put_sym(area, copy, right).wait();
        assert_eq!(shmem::get_vec(area, right), theirs);
        barrier_all();
        free(copy).unwrap();
        free(area).unwrap();
    }
    let words = alloc::<u32>(n_pes()).unwrap();
    let mine = words.elem(my_pe());
    for pe in 0..n_pes() {
        let s = start();
        assert_eq!(s.atomic_fetch_add(mine, 6, pe).wait(), 0);
        assert_eq!(s.atomic_fetch_or(mine, 9, pe).wait(), 6);
        assert_eq!(s.atomic_fetch_and(mine, 5, pe).wait(), 15);
        assert_eq!(s.atomic_fetch_xor(mine, 1, pe).wait(), 5);
        assert_eq!(s.atomic_swap(mine, 7, pe).wait(), 4);
        assert_eq!(s.atomic_compare_swap(mine, 0, 1, pe).wait(), 7);
        assert_eq!(s.atomic_compare_swap(mine, 7, 8, pe).wait(), 7);
        assert_eq!(s.atomic_fetch(mine, pe).wait(), 8);
    }
    barrier_all();
    free(words).unwrap();
}

/// Many are under way, to all PEs and of two contexts; whichever is waited for has come, and a dropped one has
/// been waited for.
fn requests_are_waited_for_in_any_order() {
    const ROUNDS: usize = 40;
    let (me, n) = (my_pe(), n_pes());
    let area = alloc_from(
        &(0..2000)
            .map(|i| (me * 10_000 + i) as u64)
            .collect::<Vec<_>>(),
    )
    .unwrap();
    let own = shmem::context().create().unwrap();
    let mut random = noise(me as u64 + 7);
    let mut under_way = Vec::new();
    for round in 0..ROUNDS {
        let (pe, from) = (random() as usize % n, random() as usize % 1000);
        let len = 1 + random() as usize % 900;
        let starter = if round % 2 == 0 { start() } else { own.start() };
        under_way.push((pe, from, starter.get(area.at(from..from + len), pe)));
        if random().is_multiple_of(3) {
            let chosen = random() as usize % under_way.len();
            let (pe, from, mut request) = under_way.swap_remove(chosen);
            match random() % 3 {
                0 => drop(request),
                1 => {
                    while !request.is_done() {
                        std::thread::yield_now();
                    }
                    assert!(request.is_done());
                    came(pe, from, &request.wait());
                }
                _ => came(pe, from, &request.wait()),
            }
        }
    }
    for (pe, from, request) in under_way {
        came(pe, from, &request.wait());
    }
    drop(own);
    barrier_all();
    free(area).unwrap();
}

fn came(pe: usize, from: usize, words: &[u64]) {
    for (i, &word) in words.iter().enumerate() {
        assert_eq!(word, (pe * 10_000 + from + i) as u64);
    }
}

/// All futures of a task are under way together, and the simplest of executors will do.
fn futures_need_no_executor_of_ours() {
    let (me, n) = (my_pe(), n_pes());
    let counter = alloc::<u64>(1).unwrap();
    let task = async {
        let tickets: Vec<_> = (0..n)
            .map(|pe| start().atomic_fetch_add(counter, 1, pe))
            .collect();
        let mut all = Vec::new();
        for ticket in tickets {
            all.push(ticket.await);
        }
        all
    };
    let mut task = pin!(task);
    let mut waker = Wakers::from_waker(Waker::noop());
    let tickets = loop {
        match task.as_mut().poll(&mut waker) {
            Poll::Ready(tickets) => break tickets,
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert!(
        tickets.iter().all(|&ticket| ticket < n as u64),
        "{tickets:?}"
    );
    barrier_all();
    assert_eq!(counter.read(0), n as u64, "PE {me}");
    barrier_all();
    free(counter).unwrap();
}

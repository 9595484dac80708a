//! Locks: one PE at a time, first come first served, and complete when let go.

use std::sync::atomic::{AtomicU32, Ordering};

use shmem::{
    Cmp, Lock, Mutex, alloc, atomic_fetch, atomic_set, barrier_all, free, g, get, my_pe, n_pes, p,
    put, quiet, wait_until,
};

use crate::check::{Check, noise};

pub(crate) const CHECKS: &[Check] = &[
    ("locks_exclude", locks_exclude),
    ("mutexes_exclude", mutexes_exclude),
    ("locks_are_complete", locks_are_complete),
    (
        "locks_are_first_come_first_served",
        locks_are_first_come_first_served,
    ),
    ("locks_are_tried", locks_are_tried),
    ("locks_side_by_side", locks_side_by_side),
    ("locks_between_threads", locks_between_threads),
    (
        "locks_are_dropped_by_other_threads",
        locks_are_dropped_by_other_threads,
    ),
];

/// What one PE has put back, the next one gets.
fn mutexes_exclude() {
    const ROUNDS: usize = 20;
    let (me, n) = (my_pe(), n_pes());
    // Every PE gives a value, and that of PE 0 counts.
    let mutex = Mutex::new([100 * me, me, 0]).unwrap();
    for round in 0..ROUNDS {
        let mut held = match round % 4 {
            0 => std::iter::repeat_with(|| mutex.try_lock())
                .flatten()
                .next()
                .unwrap(),
            _ => mutex.lock(),
        };
        let [sum, last, _] = *held;
        assert!(last < n && sum >= round - round / 5, "{held:?}");
        if round % 5 != 4 {
            *held = [sum + 1, me, held[2] + me];
        }
    }
    barrier_all();
    let each = ROUNDS - ROUNDS / 5;
    let [sum, _, pes] = *mutex.lock();
    assert_eq!((sum, pes), (each * n, each * n * (n - 1) / 2));
    barrier_all();
    mutex.free().unwrap();
}

/// Reading and writing in two steps is an increment only if nobody comes between.
fn locks_exclude() {
    const ROUNDS: u64 = 30;
    let (me, n) = (my_pe(), n_pes());
    let lock = Lock::new().unwrap();
    let count = alloc::<u64>(n).unwrap();
    for round in 0..ROUNDS {
        let on = (round as usize + me) % n;
        let held = lock.lock();
        let old = g(count.elem(0), on);
        p(count.elem(0), old + 1, on);
        if round % 3 == 0 {
            held.unlock();
        }
    }
    barrier_all();
    let all: u64 = (0..n).map(|pe| g(count.elem(0), pe)).sum();
    assert_eq!(all, n as u64 * ROUNDS);
    barrier_all();
    free(count).unwrap();
    lock.free().unwrap();
}

/// The next holder finds all of what the one before has put, also on a third PE, without any more
/// synchronisation.
fn locks_are_complete() {
    const LEN: usize = 3000;
    let (me, n) = (my_pe(), n_pes());
    let lock = Lock::new().unwrap();
    let data = alloc::<u64>(LEN).unwrap();
    let mut seen = vec![0; LEN];
    for round in 0..10 {
        let on = round % n;
        let held = lock.lock();
        get(&mut seen, data, on);
        let first = seen[0];
        assert!(seen.iter().all(|&v| v == first), "PE {me}, round {round}");
        put(data, &[first + 1; LEN], on);
        drop(held);
    }
    barrier_all();
    let all: u64 = (0..n).map(|pe| g(data.elem(LEN - 1), pe)).sum();
    assert_eq!(all, 10 * n as u64);
    barrier_all();
    free(data).unwrap();
    lock.free().unwrap();
}

/// While PE 0 holds the lock, the others come one after another in an order of every round's own;
/// they get it in that order.
fn locks_are_first_come_first_served() {
    let (me, n) = (my_pe(), n_pes());
    let word = alloc::<u64>(1).unwrap();
    let lock = Lock::at(word);
    // On PE 0: who has had the lock, in order; and how many.
    let served = alloc::<u64>(n).unwrap();
    let count = alloc::<u64>(1).unwrap();
    let go = alloc::<u64>(1).unwrap();
    let mut random = noise(17);
    for round in 1..=5 {
        // The same on all PEs.
        let mut order: Vec<usize> = (1..n).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random() as usize % (i + 1));
        }
        if me == 0 {
            count.write(0, 0);
            let held = lock.lock();
            barrier_all();
            let home_tail = |pe: usize| {
                // Whoever came last stands in the tail, on some PE. Others hold 0 there.
                while !(0..n).any(|on| atomic_fetch(word, on) & 0xffff_ffff == pe as u64 + 1) {
                    std::thread::yield_now();
                }
            };
            for &pe in &order {
                p(go, round, pe);
                home_tail(pe);
            }
            drop(held);
        } else {
            barrier_all();
            wait_until(go, Cmp::Eq, round);
            let held = lock.lock();
            let place = g(count, 0);
            p(served.elem(place as usize), me as u64, 0);
            p(count, place + 1, 0);
            held.unlock();
        }
        barrier_all();
        if me == 0 {
            let got: Vec<usize> = served.to_vec().iter().map(|&pe| pe as usize).collect();
            assert_eq!(got[..n - 1], order, "round {round}");
        }
        assert_eq!(word.read(0), 0, "a free lock is 0 everywhere");
        barrier_all();
    }
    free(go).unwrap();
    free(count).unwrap();
    free(served).unwrap();
    free(word).unwrap();
}

/// Trying takes a free lock, and only a free one.
fn locks_are_tried() {
    let (me, n) = (my_pe(), n_pes());
    let lock = Lock::new().unwrap();
    let count = alloc::<u64>(1).unwrap();
    for holder in 0..n {
        let held = (me == holder).then(|| lock.try_lock().expect("nobody has it"));
        barrier_all();
        assert!(lock.try_lock().is_none(), "PE {me}: PE {holder} holds it");
        barrier_all();
        drop(held);
        barrier_all();
    }
    for _ in 0..10 {
        let held = loop {
            match lock.try_lock() {
                Some(held) => break held,
                None => std::thread::yield_now(),
            }
        };
        let old = atomic_fetch(count, 0);
        atomic_set(count, old + 1, 0);
        drop(held);
    }
    barrier_all();
    assert_eq!(g(count, 0), 10 * n as u64);
    barrier_all();
    free(count).unwrap();
    lock.free().unwrap();
}

/// Locks of one array know nothing of each other; one PE may hold several.
fn locks_side_by_side() {
    const LOCKS: usize = 9;
    let (me, n) = (my_pe(), n_pes());
    let words = alloc::<u64>(LOCKS).unwrap();
    let counts = alloc::<u64>(LOCKS).unwrap();
    let mut random = noise(me as u64);
    let mut taken = [0; LOCKS];
    for _ in 0..30 {
        // In ascending order, or PEs would wait for each other for ever.
        let a = random() as usize % LOCKS;
        let b = a + 1 + random() as usize % LOCKS;
        let held = [a, b].map(|i| (i < LOCKS).then(|| Lock::at(words.elem(i)).lock()));
        for i in [a, b].into_iter().filter(|&i| i < LOCKS) {
            let at = counts.elem(i);
            p(at, g(at, i % n) + 1, i % n);
            taken[i] += 1;
        }
        drop(held);
    }
    let all = alloc::<u64>(LOCKS).unwrap();
    let mine = alloc::<u64>(LOCKS).unwrap();
    mine.write_from(&taken);
    shmem::reduce(all, mine, shmem::Sum);
    barrier_all();
    for i in 0..LOCKS {
        assert_eq!(g(counts.elem(i), i % n), all.read(i), "lock {i}");
    }
    barrier_all();
    assert_eq!(words.to_vec(), [0; LOCKS]);
    free(mine).unwrap();
    free(all).unwrap();
    free(counts).unwrap();
    free(words).unwrap();
}

/// Threads of all PEs want one lock.
fn locks_between_threads() {
    const THREADS: usize = 3;
    const ROUNDS: usize = 10;
    let n = n_pes();
    let lock = Lock::new().unwrap();
    let count = alloc::<u64>(1).unwrap();
    let inside = AtomicU32::new(0);
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                for round in 0..ROUNDS {
                    let held = match round % 3 {
                        0 => lock.try_lock().unwrap_or_else(|| lock.lock()),
                        _ => lock.lock(),
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    let old = g(count, n - 1);
                    p(count, old + 1, n - 1);
                    quiet();
                    inside.fetch_sub(1, Ordering::Relaxed);
                    drop(held);
                }
            });
        }
    });
    barrier_all();
    assert_eq!(g(count, n - 1) as usize, n * THREADS * ROUNDS);
    barrier_all();
    free(count).unwrap();
    lock.free().unwrap();
}

/// A thread that gave its guard to another thread may ask for the lock again before that one has dropped it.
fn locks_are_dropped_by_other_threads() {
    const ROUNDS: u64 = 10;
    let n = n_pes();
    let lock = Lock::new().unwrap();
    let count = alloc::<u64>(1).unwrap();
    let (to, from) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        s.spawn(move || {
            for held in from {
                std::thread::yield_now();
                p(count, g(count, n - 1) + 1, n - 1);
                drop(held);
            }
        });
        for _ in 0..ROUNDS {
            to.send(lock.lock()).expect("the thread takes it");
        }
        drop(to);
    });
    barrier_all();
    assert_eq!(g(count, n - 1), n as u64 * ROUNDS);
    barrier_all();
    free(count).unwrap();
    lock.free().unwrap();
}

//! Several threads of each PE communicate at once.

use shmem::{
    Cmp, alloc, atomic_add, atomic_fetch_inc, atomic_inc, barrier_all, free, g, my_pe, n_pes, nbi,
    p, put, quiet, wait_until,
};

use crate::check::Check;

pub(crate) const CHECKS: &[Check] = &[
    (
        "threads_do_not_disturb_each_other",
        threads_do_not_disturb_each_other,
    ),
    (
        "threads_wait_while_others_work",
        threads_wait_while_others_work,
    ),
];

const THREADS: usize = 4;
const ROUNDS: u64 = 25;

/// Every kind of operation from every thread, each on words of its own and on shared counters.
fn threads_do_not_disturb_each_other() {
    const LEN: usize = 1500;
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    let area = alloc::<u64>(THREADS * LEN).unwrap();
    let counts = alloc::<u32>(2).unwrap();
    std::thread::scope(|s| {
        for t in 0..THREADS {
            s.spawn(move || {
                let own = area.at(t * LEN..(t + 1) * LEN);
                for round in 1..=ROUNDS {
                    let value = round * 100 + (t * n + me) as u64;
                    put(own, &[value; LEN], right);
                    atomic_inc(counts.elem(0), (me + t) % n);
                    atomic_fetch_inc(counts.elem(1), right);
                    quiet();
                    let mut back = [0; LEN];
                    nbi(|ops| {
                        let (a, b) = back.split_at_mut(LEN / 3);
                        ops.get(a, own, right);
                        ops.get(b, own.at(LEN / 3..), right);
                    });
                    assert_eq!(back, [value; LEN], "thread {t}, round {round}");
                }
            });
        }
    });
    barrier_all();
    let all: u32 = (0..n).map(|pe| g(counts, pe)).sum();
    assert_eq!(all as usize, n * THREADS * ROUNDS as usize);
    assert_eq!(counts.read(1) as usize, THREADS * ROUNDS as usize);
    barrier_all();
    free(counts).unwrap();
    free(area).unwrap();
}

/// Threads pass tokens round the PEs, one ring a thread, and sleep meanwhile, while another thread
/// keeps the network busy and so takes in what the sleepers wait for.
fn threads_wait_while_others_work() {
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    let tokens = alloc::<u64>(THREADS).unwrap();
    let work = alloc::<i64>(1).unwrap();
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let done = &done;
            s.spawn(move || {
                for round in 1..=ROUNDS {
                    if me == 0 {
                        p(tokens.elem(t), round, right);
                    }
                    wait_until(tokens.elem(t), Cmp::Ge, round);
                    if me != 0 {
                        p(tokens.elem(t), round, right);
                    }
                }
                done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            });
        }
        while done.load(std::sync::atomic::Ordering::Relaxed) < THREADS {
            atomic_add(work, 1, right);
            atomic_add(work, -1, right);
            quiet();
            std::thread::yield_now();
        }
    });
    barrier_all();
    assert_eq!(work.read(0), 0);
    barrier_all();
    free(work).unwrap();
    free(tokens).unwrap();
}

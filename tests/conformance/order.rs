//! Fence, quiet, and waiting.

use shmem::{
    Cmp, alloc, atomic_inc, barrier_all, fence, free, g, my_pe, n_pes, p, put, quiet, sync_all,
    test, wait_until,
};

use crate::Check;

pub(crate) const CHECKS: &[Check] = &[
    ("flag_after_data", flag_after_data),
    ("comparisons", comparisons),
    ("quiet_completes", quiet_completes),
    ("test_polls", test_polls),
    ("barriers_separate", barriers_separate),
];

/// Data, fence, flag: whoever sees the flag sees the data. Both directions, many times.
fn flag_after_data() {
    const LEN: usize = 600;
    let (me, n) = (my_pe(), n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let data = alloc::<u64>(LEN).unwrap();
    let flag = alloc::<u64>(1).unwrap();
    let seen = alloc::<u64>(1).unwrap();
    for round in 1..=50u64 {
        put(data, &[round * 100 + me as u64; LEN], right);
        fence();
        p(flag, round, right);
        wait_until(flag, Cmp::Eq, round);
        assert!(
            data.to_vec()
                .iter()
                .all(|&v| v == round * 100 + left as u64),
            "round {round}"
        );
        // Tell the writer that the data may be overwritten.
        p(seen, round, left);
        wait_until(seen, Cmp::Ge, round);
    }
    barrier_all();
    free(seen).unwrap();
    free(flag).unwrap();
    free(data).unwrap();
}

fn comparisons() {
    let (me, n) = (my_pe(), n_pes());
    let cell = alloc::<i32>(1).unwrap();
    let right = (me + 1) % n;
    let mut steps = [
        (Cmp::Ne, 0, 5),
        (Cmp::Gt, 5, 6),
        (Cmp::Ge, 7, 7),
        (Cmp::Lt, 0, -1),
        (Cmp::Le, -4, -4),
        (Cmp::Eq, 9, 9),
    ]
    .into_iter();
    for (cmp, value, next) in steps.by_ref() {
        barrier_all();
        p(cell, next, right);
        assert_eq!(wait_until(cell, cmp, value), next);
        assert!(test(cell, cmp, value));
    }
    barrier_all();
    let single = alloc::<f64>(1).unwrap();
    p(single, 2.5, right);
    assert_eq!(wait_until(single, Cmp::Gt, 2.0), 2.5);
    barrier_all();
    free(single).unwrap();
    free(cell).unwrap();
}

/// After quiet a put is readable by everybody, also through a third PE.
fn quiet_completes() {
    let (me, n) = (my_pe(), n_pes());
    let cell = alloc::<u64>(n).unwrap();
    let target = (me + n / 2) % n;
    for round in 1..=30 {
        p(cell.elem(me), round, target);
        quiet();
        assert_eq!(g(cell.elem(me), target), round);
    }
    barrier_all();
    free(cell).unwrap();
}

fn test_polls() {
    let (me, n) = (my_pe(), n_pes());
    let cell = alloc::<u64>(1).unwrap();
    assert!(!test(cell, Cmp::Ge, n as u64 + 1));
    barrier_all();
    for pe in 0..n {
        atomic_inc(cell, (me + pe) % n);
    }
    while !test(cell, Cmp::Eq, n as u64) {
        std::thread::yield_now();
    }
    barrier_all();
    free(cell).unwrap();
}

/// Nobody leaves a barrier before everybody has entered it.
fn barriers_separate() {
    let n = n_pes();
    let count = alloc::<u64>(1).unwrap();
    for round in 1..=20u64 {
        atomic_inc(count, 0);
        if round % 2 == 0 {
            barrier_all();
        } else {
            quiet();
            sync_all();
        }
        assert_eq!(g(count, 0), round * n as u64);
        sync_all();
    }
    free(count).unwrap();
}

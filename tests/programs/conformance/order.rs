//! Fence, quiet, and waiting.

use shmem::raw::{Completion, Ctx};
use shmem::{
    Cmp, alloc, atomic_add, atomic_inc, atomic_or, atomic_set, barrier_all, fence, free, g, my_pe,
    n_pes, node_of, p, put, quiet, sync_all, test, wait_until,
};

use crate::check::Check;

pub(crate) const CHECKS: &[Check] = &[
    ("flag_after_data", flag_after_data),
    ("atomic_flag_after_data", atomic_flag_after_data),
    ("comparisons", comparisons),
    ("quiet_completes", quiet_completes),
    ("flag_after_atomics", flag_after_atomics),
    ("quiet_is_complete_for_both", quiet_is_complete_for_both),
    ("barrier_completes", barrier_completes),
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

/// The same with atomics for flags: those that an HCA has, and those that are composed.
fn atomic_flag_after_data() {
    const LEN: usize = 3000;
    let (me, n) = (my_pe(), n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let data = alloc::<u32>(LEN).unwrap();
    let added = alloc::<u64>(1).unwrap();
    let set = alloc::<i32>(1).unwrap();
    let bits = alloc::<u32>(2).unwrap();
    let value = |pe: usize, step: u32| step * 1000 + pe as u32;
    let mut step = 0;
    let mut send = |flag: &dyn Fn()| {
        step += 1;
        put(data, &[value(me, step); LEN], right);
        fence();
        flag();
        step
    };
    let arrived = |step: u32| {
        assert!(
            data.to_vec().iter().all(|&v| v == value(left, step)),
            "{step}"
        );
        barrier_all();
    };
    for round in 1..=10 {
        let step = send(&|| atomic_inc(added, right));
        wait_until(added, Cmp::Eq, round);
        arrived(step);
        let step = send(&|| atomic_set(set, round as i32, right));
        wait_until(set, Cmp::Eq, round as i32);
        arrived(step);
        let step = send(&|| atomic_or(bits.elem(1), 1 << round, right));
        wait_until(bits.elem(1), Cmp::Ge, 1 << round);
        arrived(step);
    }
    free(bits).unwrap();
    free(set).unwrap();
    free(added).unwrap();
    free(data).unwrap();
}

/// Atomics, fence, flag: whoever sees the flag sees what the atomics have done, whoever executes them.
fn flag_after_atomics() {
    const WORDS: usize = 40;
    let (me, n) = (my_pe(), n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let sums = alloc::<u64>(WORDS).unwrap();
    let flag = alloc::<u64>(1).unwrap();
    let seen = alloc::<u64>(1).unwrap();
    for round in 1..=100u64 {
        for i in 0..WORDS {
            atomic_add(sums.elem(i), i as u64, right);
        }
        fence();
        p(flag, round, right);
        wait_until(flag, Cmp::Eq, round);
        let want = (0..WORDS as u64).map(|i| i * round);
        assert!(sums.to_vec().into_iter().eq(want), "round {round}");
        p(seen, round, left);
        wait_until(seen, Cmp::Ge, round);
    }
    barrier_all();
    free(seen).unwrap();
    free(flag).unwrap();
    free(sums).unwrap();
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

/// Two PEs each put, quiet, and read what the other has put: at least one of them sees it, since
/// the later quiet has returned after the earlier one.
fn quiet_is_complete_for_both() {
    let (me, n) = (my_pe(), n_pes());
    let partner = me ^ 1;
    let near = partner < n && node_of(partner) == node_of(me);
    let rounds = if near { 5000 } else { 100 };
    let cell = alloc::<u64>(1).unwrap();
    let go = alloc::<u64>(1).unwrap();
    let theirs = alloc::<u8>(rounds.max(5000)).unwrap();
    if partner < n {
        let mut seen = vec![0u8; rounds];
        for (round, seen) in (1u64..).zip(&mut seen) {
            p(go, round, partner);
            wait_until(go, Cmp::Ge, round);
            p(cell, round, partner);
            quiet();
            *seen = u8::from(cell.read(0) >= round);
        }
        put(theirs, &seen, partner);
        barrier_all();
        for (round, (mine, theirs)) in seen.into_iter().zip(theirs.to_vec()).enumerate() {
            assert!(
                mine + theirs > 0,
                "round {round}: neither PE saw the other's put"
            );
        }
    } else {
        barrier_all();
    }
    barrier_all();
    free(theirs).unwrap();
    free(go).unwrap();
    free(cell).unwrap();
}

/// A barrier completes what was started without waiting: at the target, and here.
fn barrier_completes() {
    const LEN: usize = 20_000;
    let (me, n) = (my_pe(), n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let (there, here) = (alloc::<u64>(LEN).unwrap(), alloc::<u64>(LEN).unwrap());
    let count = alloc::<u64>(1).unwrap();
    here.fill(me as u64 + 1);
    barrier_all();
    let source = vec![me as u64 + 7; LEN];
    let mut got = vec![0; LEN];
    // SAFETY: the buffers are left alone until the barrier.
    unsafe {
        let (ctx, bytes) = (Ctx::default_ctx(), size_of_val(&source[..]));
        let until = Completion::AtQuiet;
        ctx.put_bytes(there.addr(), source.as_ptr().cast(), bytes, right, until);
        ctx.get_bytes(got.as_mut_ptr().cast(), here.addr(), bytes, right, until);
    }
    for pe in 0..n {
        atomic_inc(count, pe);
    }
    barrier_all();
    assert!(there.to_vec().iter().all(|&v| v == left as u64 + 7));
    assert!(got.iter().all(|&v| v == right as u64 + 1));
    assert_eq!(count.read(0), n as u64);
    barrier_all();
    free(count).unwrap();
    free(here).unwrap();
    free(there).unwrap();
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

//! Allocations that go beyond what is registered so far, where heaps are registered in parts
//! (`SHMEM_HEAP_REGISTER=grow`). With whole heaps these are just large arrays.
//!
//! Parts begin at multiples of a page and are at least 1 MiB, the first 1 MiB of the heap is one, and
//! others begin 5, 21 and 85 MiB behind its start: allocations of some MiB cross borders.

use std::sync::atomic::{AtomicBool, Ordering};

use shmem::{
    SymSlice, alloc, atomic_add, atomic_fetch, atomic_fetch_add, barrier_all, free, get, my_pe,
    n_pes, nbi, put, quiet,
};

use crate::check::{Check, noise};

pub(crate) const CHECKS: &[Check] = &[
    ("first_contact_after_growth", first_contact_after_growth),
    ("growth_while_connected", growth_while_connected),
    ("growth_is_used_again", growth_is_used_again),
    ("large_copies_across_borders", large_copies_across_borders),
    ("growth_while_others_put", growth_while_others_put),
];

const MIB: usize = 1 << 20;
/// Words on a page.
const PAGE: usize = 4096 / 8;

/// Puts to, gets from, and adds to `area` on the PE to the right, over every place where a part may
/// begin.
fn cross_everywhere(area: SymSlice<u64>, seed: u64) {
    let (me, n) = (my_pe(), n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let of = |pe: usize, i: usize| seed ^ ((pe as u64) << 40) ^ i as u64;
    let starts = move || (0..area.len() - 2 * PAGE).step_by(PAGE);
    // Longer than a page: crosses one border of pages at least, wherever the array lies.
    let values = |pe, at: usize| -> Vec<u64> { (at..at + PAGE + 9).map(|i| of(pe, i)).collect() };
    for at in starts() {
        let values = values(me, at);
        put(area.at(at..at + values.len()), &values, right);
    }
    barrier_all();
    for at in starts().step_by(7) {
        let want = values(left, at);
        let mut mine = vec![0; want.len()];
        area.at(at..at + want.len()).read_to(&mut mine);
        assert_eq!(mine, want, "at {at}");
        let mut back = vec![0; want.len()];
        get(&mut back, area.at(at..at + want.len()), right);
        assert_eq!(back, values(me, at), "at {at}");
    }
    barrier_all();
    for at in starts().step_by(31) {
        let word = area.elem(at);
        let old = atomic_fetch_add(word, 5, right);
        assert_eq!(old, of(me, at), "at {at}");
        atomic_add(word, 1, right);
        quiet();
        assert_eq!(atomic_fetch(word, right), old.wrapping_add(6));
    }
    barrier_all();
}

/// Nobody but leaders is connected yet, if this is the first check.
fn first_contact_after_growth() {
    let area = alloc::<u64>(2 * MIB / 8).unwrap();
    cross_everywhere(area, 0x1111);
    free(area).unwrap();
}

/// Word of a new part has to reach peers over open connections, and those who are faster than it
/// wait.
fn growth_while_connected() {
    let (me, n) = (my_pe(), n_pes());
    let first = alloc::<u64>(n).unwrap();
    for pe in 0..n {
        put(first.elem(me), &[7], pe);
    }
    barrier_all();
    let areas: Vec<_> = [1, 5, 17]
        .into_iter()
        .map(|mib| {
            let area = alloc::<u64>(mib * MIB / 8).unwrap();
            let last = area.len() - n + me;
            // At once, to everybody.
            for pe in 0..n {
                put(area.elem(last), &[mib as u64 + me as u64], pe);
            }
            area
        })
        .collect();
    barrier_all();
    for (area, mib) in areas.into_iter().zip([1, 5, 17]) {
        for pe in 0..n {
            assert_eq!(area.read(area.len() - n + pe), (mib + pe) as u64);
        }
        free(area).unwrap();
    }
    free(first).unwrap();
}

/// What was registered once stays so, and is zero when it is allocated again.
fn growth_is_used_again() {
    for round in 0..3u64 {
        let small = alloc::<u8>(100).unwrap();
        let area = alloc::<u64>((2 + 4 * round as usize) * MIB / 8).unwrap();
        assert!(area.to_vec().iter().all(|&word| word == 0), "round {round}");
        barrier_all();
        let last = area.elem(area.len() - 1);
        put(last, &[round + 1], (my_pe() + 1) % n_pes());
        barrier_all();
        assert_eq!(last.read(0), round + 1);
        free(small).unwrap();
        free(area).unwrap();
    }
}

/// One operation over several parts, of private and of symmetric buffers, blocking and not.
fn large_copies_across_borders() {
    const LEN: usize = 3 * MIB / 8;
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    let area = alloc::<u64>(LEN).unwrap();
    let source = alloc::<u64>(LEN).unwrap();
    let values = |pe: usize| -> Vec<u64> {
        let mut next = noise(pe as u64);
        (0..LEN).map(|_| next()).collect()
    };
    let mine = values(me);
    put(area, &mine, right);
    barrier_all();
    assert!(area.to_vec() == values((me + n - 1) % n));
    let mut back = vec![0; LEN];
    get(&mut back, area, right);
    assert!(back == mine);
    barrier_all();

    // The sources themselves lie across borders.
    source.write_from(&mine);
    // SAFETY: nobody else writes `source`.
    let symmetric = unsafe { source.as_slice() };
    nbi(|ops| ops.put(area, symmetric, right));
    barrier_all();
    assert!(area.to_vec() == values((me + n - 1) % n));
    back.fill(0);
    let (low, high) = back.split_at_mut(LEN / 3);
    nbi(|ops| {
        ops.get(low, area, right);
        ops.get(high, area.at(LEN / 3..), right);
    });
    assert!(back == mine);
    barrier_all();
    free(source).unwrap();
    free(area).unwrap();
}

/// One thread keeps connections busy while another makes the heap grow.
fn growth_while_others_put() {
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    let count = alloc::<u64>(2).unwrap();
    let stop = AtomicBool::new(false);
    let added = std::thread::scope(|s| {
        let busy = s.spawn(|| {
            let mut added = 0;
            while added < 10 || !stop.load(Ordering::Relaxed) {
                atomic_add(count.elem(0), 1, right);
                put(count.elem(1), &[added], right);
                quiet();
                added += 1;
                std::thread::yield_now();
            }
            added
        });
        for mib in [1, 3, 7] {
            let area = alloc::<u64>(mib * MIB / 8).unwrap();
            put(area.elem(area.len() - 1), &[me as u64], right);
            barrier_all();
            assert_eq!(area.read(area.len() - 1), ((me + n - 1) % n) as u64);
            barrier_all();
            free(area).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        busy.join().expect("the other thread")
    });
    barrier_all();
    assert_eq!(atomic_fetch(count.elem(0), right), added);
    barrier_all();
    free(count).unwrap();
}

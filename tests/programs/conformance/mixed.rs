//! Every way to change a word, on one word at once: PEs of other nodes through the HCA of the owner,
//! PEs of the owner's node and the owner with the processor's atomics, in both widths. Nothing is lost,
//! and every value that an operation returns is one that was there.
//!
//! Words are divided into fields, each changed in ways that leave the others alone, so that the end of
//! each is known exactly although the operations on the whole word interleave.

use std::sync::atomic::{AtomicU64, Ordering};

use shmem::{
    AtomicInt, SymSlice, alloc, atomic_add, atomic_compare_swap, atomic_fetch, atomic_fetch_add,
    atomic_fetch_and, atomic_fetch_or, atomic_fetch_xor, atomic_inc, atomic_swap, barrier_all,
    free, my_pe, n_pes, quiet,
};

use crate::check::Check;

pub(crate) const CHECKS: &[Check] = &[
    ("all_operations_on_one_wide_word", wide),
    ("all_operations_on_two_halves_of_a_word", halves),
    ("swaps_against_additions", swaps_against_additions),
    (
        "additions_against_a_busy_owner",
        additions_against_a_busy_owner,
    ),
];

const EACH: usize = 40;

/// Where each value of a field may be returned once; lies on PE 0.
struct Tickets(SymSlice<u32>);

impl Tickets {
    fn new(len: usize) -> Self {
        Self(alloc(len).unwrap())
    }

    fn drawn(&self, ticket: u64) {
        atomic_inc(self.0.elem(ticket as usize), 0);
    }

    /// Collective: `n` tickets were drawn in all, no two the same.
    fn judge(self, n: usize) {
        barrier_all();
        if my_pe() == 0 {
            let times = self.0.to_vec();
            assert!(
                times.iter().all(|t| *t <= 1),
                "a value came twice: {times:?}"
            );
            assert_eq!(times.iter().sum::<u32>() as usize, n);
        }
        barrier_all();
        free(self.0).unwrap();
    }
}

/// The owner's own view of the 8 bytes at the start of an array.
fn whole<T: AtomicInt>(cells: SymSlice<T>) -> &'static AtomicU64 {
    let at = cells.as_ptr().cast::<u64>();
    assert!(at.is_aligned() && size_of::<T>() * cells.len() >= 8);
    // SAFETY: symmetric memory, mapped until the program ends, and aligned; everybody accesses these
    // bytes with atomics only.
    unsafe { AtomicU64::from_ptr(at) }
}

/// Sets, flips and clears a bit that only this PE touches, and knows it each time.
fn exercise_bit<T: AtomicInt>(word: SymSlice<T>, bit: u64, owner: usize) {
    let has = |old: T| old.to_bits() & bit != 0;
    assert!(!has(atomic_fetch_or(word, T::from_bits(bit), owner)));
    assert!(has(atomic_fetch_xor(word, T::from_bits(bit), owner)));
    assert!(!has(atomic_fetch_xor(word, T::from_bits(bit), owner)));
    assert!(has(atomic_fetch_and(word, T::from_bits(!bit), owner)));
}

/// Adds `step` by compare-and-swap; gives the value that was replaced.
fn add_by_swapping<T: AtomicInt>(word: SymSlice<T>, step: u64, owner: usize) -> u64 {
    let mut seen = atomic_fetch(word, owner);
    loop {
        let next = T::from_bits(seen.to_bits().wrapping_add(step));
        let was = atomic_compare_swap(word, seen, next, owner);
        if was == seen {
            return seen.to_bits();
        }
        seen = was;
    }
}

/// Bits 0 to 31 are added to, bits 32 to 47 are raised by compare-and-swap, and each of the others
/// belongs to a PE.
fn wide() {
    let (me, n) = (my_pe(), n_pes());
    for owner in [0, n - 1] {
        let word = alloc::<u64>(1).unwrap();
        let (adds, raises) = (Tickets::new(3 * EACH * n), Tickets::new(EACH * n));
        barrier_all();
        for _ in 0..EACH {
            adds.drawn(atomic_fetch_add(word, 1, owner) & 0xffff_ffff);
            raises.drawn(add_by_swapping(word, 1 << 32, owner) >> 32 & 0xffff);
            if me < 16 {
                exercise_bit(word, 1 << (48 + me), owner);
            }
            atomic_add(word, 1, owner);
            if me == owner {
                let old = whole(word).fetch_add(1, Ordering::AcqRel);
                adds.drawn(old & 0xffff_ffff);
            }
        }
        barrier_all();
        let (added, raised) = ((2 * n + 1) * EACH, n * EACH);
        let want = added as u64 | (raised as u64) << 32;
        assert_eq!(atomic_fetch(word, owner), want, "on PE {owner}");
        adds.judge((n + 1) * EACH);
        raises.judge(raised);
        free(word).unwrap();
    }
}

/// As [`wide`], with operations of 4 bytes on the halves, which PEs elsewhere make of compare-and-swap
/// on the whole word; the owner also adds to the lower half by adding to the whole.
fn halves() {
    let (me, n) = (my_pe(), n_pes());
    for owner in [0, n - 1] {
        let cells = alloc::<u32>(2).unwrap();
        let (low, high) = (cells.elem(0), cells.elem(1));
        let (adds, raises) = (Tickets::new(3 * EACH * n), Tickets::new(EACH * n));
        barrier_all();
        for _ in 0..EACH {
            adds.drawn(atomic_fetch_add(low, 1, owner).into());
            raises.drawn(add_by_swapping(high, 1, owner) & 0xffff);
            if me < 16 {
                exercise_bit(high, 1 << (16 + me), owner);
            }
            atomic_add(low, 1, owner);
            if me == owner {
                let old = whole(cells).fetch_add(1_u64.to_le(), Ordering::AcqRel);
                adds.drawn(u64::from_le(old) & 0xffff_ffff);
            }
        }
        barrier_all();
        let (added, raised) = ((2 * n + 1) * EACH, n * EACH);
        let found = [low, high].map(|half| atomic_fetch(half, owner) as usize);
        assert_eq!(found, [added, raised], "on PE {owner}");
        adds.judge((n + 1) * EACH);
        raises.judge(raised);
        free(cells).unwrap();
    }
}

/// What is added is either there at the end, or somebody took it away when the word was emptied.
fn swaps_against_additions() {
    fn run<T: AtomicInt>() {
        let (me, n) = (my_pe(), n_pes());
        let word = alloc::<T>(1).unwrap();
        let balance = alloc::<u64>(1).unwrap();
        barrier_all();
        let nothing = T::from_bits(0);
        let (mut added, mut taken) = (0, 0);
        for i in 0..EACH {
            let amount = (me * EACH + i + 1) as u64;
            added += amount;
            atomic_add(word, T::from_bits(amount), 0);
            taken += match i % 4 {
                0 => atomic_swap(word, nothing, 0).to_bits(),
                1 => atomic_fetch_and(word, nothing, 0).to_bits(),
                2 => {
                    let seen = atomic_fetch(word, 0);
                    let was = atomic_compare_swap(word, seen, nothing, 0);
                    if was == seen { was.to_bits() } else { 0 }
                }
                _ => 0,
            };
        }
        quiet();
        atomic_add(balance, added.wrapping_sub(taken), 0);
        barrier_all();
        if me == 0 {
            let left = atomic_fetch(word, 0).to_bits();
            assert_eq!(balance.read(0), left, "{n} PEs");
        }
        barrier_all();
        free(balance).unwrap();
        free(word).unwrap();
    }
    run::<u64>();
    run::<u32>();
}

/// The owner adds to a word as fast as its processor can, for as long as the others change it from
/// where they are. An HCA which read and wrote the word in two steps would lose some of this at once.
fn additions_against_a_busy_owner() {
    let (me, n) = (my_pe(), n_pes());
    let word = alloc::<u64>(1).unwrap();
    let done = alloc::<u64>(1).unwrap();
    let count = alloc::<u64>(1).unwrap();
    barrier_all();
    if me == 0 {
        let (word, done) = (whole(word), whole(done));
        let mut own = 0;
        while done.load(Ordering::Acquire) < n as u64 - 1 {
            for _ in 0..1000 {
                word.fetch_add(1, Ordering::Relaxed);
            }
            own += 1000;
            std::thread::yield_now();
        }
        atomic_add(count, own, 0);
    } else {
        for _ in 0..10 * EACH {
            atomic_fetch_add(word, 1, 0);
            // Seldom succeeds: the word changes all the time.
            let seen = atomic_fetch(word, 0);
            let was = atomic_compare_swap(word, seen, seen.wrapping_add(1), 0);
            atomic_add(count, 1 + u64::from(was == seen), 0);
        }
        quiet();
        atomic_inc(done, 0);
    }
    barrier_all();
    if me == 0 {
        assert_eq!(word.read(0), count.read(0), "with {n} PEs");
    }
    barrier_all();
    free(count).unwrap();
    free(done).unwrap();
    free(word).unwrap();
}

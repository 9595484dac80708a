//! Waiting for and testing many words at once, and words of all widths.

use std::fmt::Debug;

use shmem::raw::{self, Mask, Values, Words};
use shmem::{
    Cmp, Datum, Waitable, alloc, atomic_inc, barrier_all, fence, free, my_pe, n_pes, p, put,
    signal_wait_until, test, test_all, test_any, test_some, wait_until, wait_until_all,
    wait_until_any, wait_until_some,
};

use crate::check::Check;

pub(crate) const CHECKS: &[Check] = &[
    ("words_of_every_type", words_of_every_type),
    ("all_of_many", all_of_many),
    ("any_of_many", any_of_many),
    ("some_of_many", some_of_many),
    ("empty_sets", empty_sets),
    ("any_is_fair", any_is_fair),
    ("tests_of_many", tests_of_many),
    ("words_by_address", words_by_address),
    ("signal_words", signal_words),
];

/// Every PE sends a value to its right neighbour, which waits for it by each comparison.
fn word<T: Waitable + Datum + Debug>(low: T, value: T, high: T) {
    let right = (my_pe() + 1) % n_pes();
    let cell = alloc::<T>(1).unwrap();
    cell.write(0, low);
    barrier_all();
    assert!(test(cell, Cmp::Eq, low) && !test(cell, Cmp::Ge, value));
    barrier_all();
    p(cell, value, right);
    for (cmp, with) in [
        (Cmp::Ne, low),
        (Cmp::Gt, low),
        (Cmp::Ge, value),
        (Cmp::Eq, value),
        (Cmp::Lt, high),
        (Cmp::Le, value),
    ] {
        assert_eq!(wait_until(cell, cmp, with), value);
        assert!(test(cell, cmp, with), "{cmp:?}");
    }
    for (cmp, with) in [
        (Cmp::Ne, value),
        (Cmp::Gt, value),
        (Cmp::Ge, high),
        (Cmp::Eq, low),
        (Cmp::Lt, value),
        (Cmp::Le, low),
    ] {
        assert!(!test(cell, cmp, with), "{cmp:?}");
    }
    barrier_all();
    free(cell).unwrap();
}

fn words_of_every_type() {
    // Signed numbers compare as such, unsigned ones too.
    word::<i16>(i16::MIN, -1, 1);
    word::<u16>(1, 0x7fff, 0x8000);
    word::<i32>(i32::MIN, -1, 1);
    word::<u32>(1, 0x7fff_ffff, 0x8000_0000);
    word::<i64>(i64::MIN, -1, 1);
    word::<u64>(1, u64::MAX / 2, u64::MAX / 2 + 1);
    word::<isize>(-3, -2, -1);
    word::<usize>(1, 2, 3);
    word::<f32>(-1.5, -0.5, 0.25);
    word::<f64>(-1.5, -0.5, 0.25);
}

/// Each PE tells all PEs; who waits for all finds what each had put before.
fn all_of_many() {
    let (me, n) = (my_pe(), n_pes());
    let data = alloc::<u64>(n * 100).unwrap();
    let flags = alloc::<i32>(n).unwrap();
    for round in 1..=10 {
        for pe in (0..n).map(|i| (me + i) % n) {
            put(data.at(me * 100..), &[round * 7 + me as u64; 100], pe);
            fence();
            p(flags.elem(me), round as i32 * (me as i32 + 1), pe);
        }
        let values: Vec<i32> = (1..=n as i32).map(|pe| pe * round as i32).collect();
        wait_until_all(flags, None, Cmp::Eq, &values);
        assert!(test_all(flags, None, Cmp::Eq, &values));
        wait_until_all(flags, None, Cmp::Ge, round as i32);
        assert!(test_all(flags, None, Cmp::Ge, round as i32));
        for (pe, part) in data.to_vec().chunks(100).enumerate() {
            assert!(part.iter().all(|&v| v == round * 7 + pe as u64));
        }
        barrier_all();
    }
    // Of who is left out nothing is expected.
    let mut skip = vec![false; n];
    skip[n - 1] = true;
    let mut values = vec![0; n];
    values[n - 1] = -1;
    wait_until_all(flags, Some(&skip), Cmp::Gt, &values);
    assert!(test_all(flags, Some(&skip), Cmp::Gt, 0));
    barrier_all();
    free(flags).unwrap();
    free(data).unwrap();
}

/// Each PE is served once, in the order in which its word changes.
fn any_of_many() {
    let (me, n) = (my_pe(), n_pes());
    let words = alloc::<u64>(n).unwrap();
    for round in 1..=10 {
        for i in 0..n {
            p(words.elem(me), round, (me + i) % n);
        }
        let mut served = vec![false; n];
        let values = vec![round; n];
        loop {
            let next = if round % 2 == 0 {
                wait_until_any(words, Some(&served), Cmp::Eq, round)
            } else {
                wait_until_any(words, Some(&served), Cmp::Eq, &values)
            };
            let Some(pe) = next else { break };
            assert!(!served[pe], "PE {pe} is served twice");
            assert_eq!(words.read(pe), round);
            served[pe] = true;
        }
        assert_eq!(served, vec![true; n]);
        barrier_all();
    }
    free(words).unwrap();
}

fn some_of_many() {
    let (me, n) = (my_pe(), n_pes());
    let words = alloc::<u32>(n).unwrap();
    let mut found = vec![99; 3];
    for round in 1..=10 {
        for i in 0..n {
            p(words.elem(me), round, (me + i) % n);
        }
        let mut served = vec![false; n];
        let values = vec![round; n];
        let mut left = n;
        while left > 0 {
            let count = if round % 2 == 0 {
                wait_until_some(words, &mut found, Some(&served), Cmp::Eq, round)
            } else {
                wait_until_some(words, &mut found, Some(&served), Cmp::Eq, &values)
            };
            assert_eq!(count, found.len());
            assert!(count >= 1 && count <= left);
            for &pe in &found {
                assert!(!served[pe], "PE {pe} is served twice");
                assert_eq!(words.read(pe), round);
                served[pe] = true;
            }
            left -= count;
        }
        assert_eq!(
            wait_until_some(words, &mut found, Some(&served), Cmp::Eq, round),
            0
        );
        assert!(found.is_empty());
        barrier_all();
    }
    free(words).unwrap();
}

/// Nothing to wait for: nobody waits, though no word compares as asked.
fn empty_sets() {
    let words = alloc::<i64>(5).unwrap();
    let none = words.at(..0);
    let (all, mut found) = ([true; 5], vec![1, 2]);
    for (words, skip) in [(none, None), (none, Some(&[][..])), (words, Some(&all[..]))] {
        let values = vec![1; words.len()];
        wait_until_all(words, skip, Cmp::Eq, 1);
        wait_until_all(words, skip, Cmp::Eq, &values);
        assert_eq!(wait_until_any(words, skip, Cmp::Eq, 1), None);
        assert_eq!(wait_until_any(words, skip, Cmp::Eq, &values), None);
        assert_eq!(wait_until_some(words, &mut found, skip, Cmp::Eq, 1), 0);
        assert_eq!(
            wait_until_some(words, &mut found, skip, Cmp::Eq, &values),
            0
        );
        assert!(test_all(words, skip, Cmp::Eq, 1));
        assert!(test_all(words, skip, Cmp::Eq, &values));
        assert_eq!(test_any(words, skip, Cmp::Eq, 1), None);
        assert_eq!(test_any(words, skip, Cmp::Eq, &values), None);
        assert_eq!(test_some(words, &mut found, skip, Cmp::Eq, 1), 0);
        assert_eq!(test_some(words, &mut found, skip, Cmp::Eq, &values), 0);
        assert!(found.is_empty());
    }
    barrier_all();
    free(words).unwrap();
}

/// Where several words hold all the time, each is given; also when calls for two arrays alternate.
fn any_is_fair() {
    let wide = alloc::<u64>(64).unwrap();
    let narrow = alloc::<i32>(2).unwrap();
    let (mut of_wide, mut of_narrow) = ([0; 64], [0; 2]);
    for _ in 0..5000 {
        of_wide[wait_until_any(wide, None, Cmp::Eq, 0).unwrap()] += 1;
        of_narrow[test_any(narrow, None, Cmp::Eq, 0).unwrap()] += 1;
    }
    assert!(of_wide.iter().all(|&count| count > 0), "{of_wide:?}");
    assert!(of_narrow.iter().all(|&count| count > 0), "{of_narrow:?}");
    barrier_all();
    free(narrow).unwrap();
    free(wide).unwrap();
}

/// Testing alone makes progress: what others send comes in, and nobody waits.
fn tests_of_many() {
    let (me, n) = (my_pe(), n_pes());
    let counts = alloc::<u64>(n).unwrap();
    let mut found = Vec::new();
    let want: Vec<u64> = (1..=n as u64).collect();
    assert_eq!(test_any(counts, None, Cmp::Gt, n as u64), None);
    assert_eq!(test_some(counts, &mut found, None, Cmp::Gt, n as u64), 0);
    assert!(!test_all(counts, None, Cmp::Gt, n as u64));
    for pe in 0..n {
        for _ in 0..=me {
            atomic_inc(counts.elem(me), pe);
        }
    }
    let mut done = vec![false; n];
    while done.contains(&false) {
        match test_any(counts, Some(&done), Cmp::Eq, &want) {
            Some(pe) => done[pe] = true,
            None => std::thread::yield_now(),
        }
    }
    assert!(test_all(counts, None, Cmp::Eq, &want));
    assert_eq!(test_some(counts, &mut found, None, Cmp::Eq, &want), n);
    assert!(found.iter().copied().eq(0..n));
    assert_eq!(test_any(counts, None, Cmp::Eq, n as u64), Some(n - 1));
    assert!(!test_all(counts, None, Cmp::Lt, n as u64));
    barrier_all();
    free(counts).unwrap();
}

fn signal_words() {
    let (me, n) = (my_pe(), n_pes());
    let signal = alloc::<u64>(1).unwrap();
    for pe in (0..n).map(|i| (me + i) % n) {
        atomic_inc(signal, pe);
    }
    assert_eq!(signal_wait_until(signal, Cmp::Ge, n as u64), n as u64);
    barrier_all();
    free(signal).unwrap();
}

/// What C has: addresses, status arrays of `int`, and null for none.
fn words_by_address() {
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    let array = alloc::<i16>(4).unwrap();
    let status = [0, 7, 0, -1];
    let values = [1, -1, 3, -1];
    let words = |mask, values| Words {
        at: array.as_ptr().cast_const(),
        n: 4,
        mask,
        cmp: Cmp::Eq,
        values,
    };
    let masked = words(
        Mask::from_status(status.as_ptr()),
        Values::Each(values.as_ptr()),
    );
    let all = words(Mask::from_status(std::ptr::null()), Values::One(0));
    let mut found = Vec::new();
    // SAFETY: an array of 4 in this PE's heap; status and values have 4 elements each.
    unsafe {
        assert!(raw::test_all(all));
        assert_eq!(raw::test_any(masked), None);
        assert_eq!(raw::test_some(masked, |i| found.push(i)), 0);
        barrier_all();
        put(array.at(..3), &[1, 2, 3], right);
        assert_eq!(raw::wait_until(array.as_ptr(), Cmp::Ne, 0), 1);
        raw::wait_until_all(masked);
        assert!(matches!(raw::wait_until_any(masked), Some(0 | 2)));
        assert_eq!(raw::wait_until_some(masked, |i| found.push(i)), 2);
        assert_eq!(found, [0, 2]);
        assert_eq!(raw::wait_until(array.as_ptr().add(1), Cmp::Gt, 0), 2);
        assert!(raw::test(array.as_ptr().add(1), Cmp::Eq, 2));
        assert!(raw::test_all(masked) && !raw::test_all(all));
        assert_eq!(raw::test_any(all), Some(3));
    }
    barrier_all();
    free(array).unwrap();
}

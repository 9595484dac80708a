//! The queue of PEs that want a lock.

use shmem_testkit::models::{model, noticed};

use crate::runtime::{Layout, Runtime, job};
use crate::sync::Ordering;

const LOCK: usize = 0;
/// A counter of PE 0, read and written by whoever holds the lock.
const COUNTER: usize = 64;

fn add_one(rt: &Runtime) {
    let before = rt.get(0, COUNTER);
    rt.put(0, COUNTER, before + 1);
}

fn holders_take_turns() {
    job(2, Layout::Together, &[LOCK, COUNTER], |rt| {
        for _ in 0..2 {
            rt.lock_set(LOCK);
            add_one(rt);
            assert!(rt.lock_clear(LOCK));
        }
        if rt.me == 0 {
            rt.lock_set(LOCK);
            let all = rt.get(0, COUNTER);
            assert!((2..=4).contains(&all), "{all}");
            assert!(rt.lock_clear(LOCK));
        }
    });
}

#[test]
fn the_next_holder_finds_what_the_last_one_wrote() {
    model(2, holders_count);
    noticed(2, Ordering::Acquire, Ordering::Relaxed, holders_count);
    noticed(2, Ordering::AcqRel, Ordering::Relaxed, holders_count);
}

fn holders_count() {
    holders_take_turns();
    assert_eq!(all_counted(), 4);
}

/// After all PEs have ended.
fn all_counted() -> u64 {
    let mut value = 0u64;
    // SAFETY: a local word.
    unsafe {
        crate::memory::copy(
            crate::memory::address(0, COUNTER),
            (&raw mut value).cast(),
            8,
        );
    }
    value
}

#[test]
fn three_stand_in_the_queue() {
    model(2, || {
        job(3, Layout::Together, &[LOCK, COUNTER], |rt| {
            rt.lock_set(LOCK);
            add_one(rt);
            assert!(rt.lock_clear(LOCK));
        });
        assert_eq!(all_counted(), 3);
    });
}

#[test]
fn who_tries_has_it_or_not() {
    model(3, || {
        job(2, Layout::Together, &[LOCK, COUNTER], |rt| match rt.me {
            0 => {
                rt.lock_set(LOCK);
                add_one(rt);
                assert!(rt.lock_clear(LOCK));
            }
            _ => {
                if rt.lock_test(LOCK) {
                    add_one(rt);
                    assert!(rt.lock_clear(LOCK));
                } else {
                    assert!(!rt.lock_clear(LOCK));
                }
            }
        });
        assert!((1..=2).contains(&all_counted()));
    });
}

//! Which thread of this PE took a lock, so that a thread that asks for its own lock panics instead of waiting for itself.
//!
//! The table is small and never searched. A lock whose entry another lock overwrites is forgotten: its owner then
//! waits. No thread is taken for an owner that it is not, because only the owner writes its number.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries of the table.
const ENTRIES: usize = 64;
/// Bits of an entry that hold the thread's number. The lock's word fills the rest.
const THREAD_BITS: u32 = 24;

/// Locks that threads of this PE hold. An entry orders nothing (relaxed): a thread compares it with what it wrote itself.
static OWNERS: [AtomicU64; ENTRIES] = [const { AtomicU64::new(0) }; ENTRIES];

/// Number of the calling thread, from 1. No other thread of the process ever has it.
fn this_thread() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: u32 = 1 + LAST.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|&number| number)
}

fn entry_of(at: usize) -> &'static AtomicU64 {
    &OWNERS[word(at) as usize % ENTRIES]
}

/// Number of the lock's word in the segment.
fn word(at: usize) -> u64 {
    (at / size_of::<u64>()) as u64
}

/// What stands for the lock at `at` in the hands of the calling thread, if both numbers fit.
fn own_mark(at: usize) -> Option<u64> {
    let (word, thread) = (word(at), u64::from(this_thread()));
    let fits = word >> (u64::BITS - THREAD_BITS) == 0 && thread >> THREAD_BITS == 0;
    fits.then_some(word << THREAD_BITS | thread)
}

/// The calling thread has taken the lock at `at`.
pub(super) fn take(at: usize) {
    if let Some(mark) = own_mark(at) {
        entry_of(at).store(mark, Ordering::Relaxed);
    }
}

/// The calling thread lets go of the lock at `at`, whichever thread took it.
pub(super) fn release(at: usize) {
    let entry = entry_of(at);
    if entry.load(Ordering::Relaxed) >> THREAD_BITS == word(at) {
        entry.store(0, Ordering::Relaxed);
    }
}

/// Whether the calling thread took the lock at `at`, and no thread has let go of it since.
pub(super) fn took(at: usize) -> bool {
    own_mark(at) == Some(entry_of(at).load(Ordering::Relaxed))
}

/// Forgets the locks of the PE's last life.
pub(crate) fn begin() {
    for entry in &OWNERS {
        entry.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_its_takers_until_any_thread_releases_it() {
        let at = 8 * 1000;
        assert!(!took(at));
        take(at);
        assert!(took(at) && !took(at + 8));
        let elsewhere = |f: fn(usize) -> bool| std::thread::spawn(move || f(at)).join().unwrap();
        assert!(!elsewhere(took));
        elsewhere(|at| {
            release(at);
            true
        });
        assert!(!took(at));
    }

    #[test]
    fn a_lock_with_the_same_entry_is_another_lock() {
        let (first, second) = (8 * 2001, 8 * (2001 + ENTRIES));
        take(first);
        assert!(!took(second));
        take(second);
        assert!(took(second) && !took(first));
        release(first);
        assert!(took(second));
        take(usize::MAX);
        assert!(!took(usize::MAX));
    }
}

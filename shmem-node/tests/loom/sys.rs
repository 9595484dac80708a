//! The system calls of the protocols, as loom sees them.

use std::ptr;
use std::time::Duration;

use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Condvar, Mutex};

loom::lazy_static! {
    /// The futex sleepers: address of the word, and a ticket.
    static ref SLEEPERS: Mutex<(Vec<(usize, u64)>, u64)> = Mutex::new((Vec::new(), 0));
    static ref WOKEN: Condvar = Condvar::new();
}

/// Never times out.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, _max: Option<Duration>) -> bool {
    let mut sleepers = SLEEPERS.lock().unwrap();
    if word.load(Ordering::SeqCst) == expected {
        sleepers.1 += 1;
        let own = (ptr::from_ref(word).addr(), sleepers.1);
        sleepers.0.push(own);
        while sleepers.0.contains(&own) {
            sleepers = WOKEN.wait(sleepers).unwrap();
        }
    }
    false
}

pub(crate) fn futex_wake(word: &AtomicU32, n: u32) {
    let mut sleepers = SLEEPERS.lock().unwrap();
    let mut left = n;
    let address = ptr::from_ref(word).addr();
    sleepers.0.retain(|(at, _)| {
        let woken = *at == address && left > 0;
        left -= u32::from(woken);
        !woken
    });
    WOKEN.notify_all();
}

/// The two halves of an asymmetric fence order as two sequentially consistent fences do. (Two cheap
/// halves would not; no two writers rely on that.)
pub(crate) fn barrier_everywhere() -> bool {
    fence(Ordering::SeqCst);
    true
}

pub(crate) fn barrier_by_others() {
    fence(Ordering::SeqCst);
}

/// Time stands still.
pub(crate) fn monotonic_ns() -> u64 {
    0
}

//! Sleeping until somebody changes this PE's memory.
//!
//! OpenSHMEM lets a PE wait for a word that others write with plain stores. A store cannot tell
//! that somebody sleeps, and a fence after every 8-byte put would cost more than the put. So the
//! fence is on the other side: a writer stores and then looks at `waiting` with a plain load; a
//! sleeper announces itself and then has the kernel run a full memory barrier on every processor
//! (`membarrier`). Whatever writer has not seen the announcement has its store visible by then, and
//! the sleeper, which looks at its condition once more, sees it. Nobody is missed, and putting
//! costs nothing while nobody sleeps.
//!
//! Where the kernel refuses `membarrier`, a bell can be missed, and sleeps are bounded to
//! [`SHORT_NAP`] instead.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use crate::sys;

/// Longest sleep where no bell can be missed. Only a safeguard.
pub const LONG_NAP: Duration = Duration::from_secs(2);
/// Longest sleep where one can.
pub const SHORT_NAP: Duration = Duration::from_millis(5);

/// One PE's bell, in shared memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Doorbell {
    /// Number of threads of the owner that sleep or are about to.
    waiting: AtomicU32,
    /// Futex word: counts rings.
    rings: AtomicU32,
}

impl Doorbell {
    /// Wakes the owner if it sleeps. Called by a writer after its store.
    #[inline]
    pub fn ring(&self) {
        // ORDERING(doorbell): not even a compiler may move the load before the store; the
        // processor's part is done by the sleeper's barrier.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.ring_now();
        }
    }

    #[cold]
    fn ring_now(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&self.rings, u32::MAX);
    }

    /// Sleeps until the bell rings unless `ready()` already holds. May return early for no reason.
    pub fn sleep(&self, ready: impl Fn() -> bool) {
        let seen = self.rings.load(Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // ORDERING(doorbell): after this every store whose writer saw no sleeper is visible.
        let nap = if sys::barrier_everywhere() {
            LONG_NAP
        } else {
            fence(Ordering::SeqCst);
            SHORT_NAP
        };
        if !ready() {
            sys::futex_wait(&self.rings, seen, Some(nap));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    /// Two threads hand a counter to and fro with plain stores. A missed bell would cost
    /// [`LONG_NAP`] each time.
    #[test]
    fn no_bell_is_missed() {
        sys::register_barrier_everywhere();
        const TURNS: u64 = 2000;
        let bells = [Doorbell::default(), Doorbell::default()];
        let turn = AtomicU64::new(0);
        let start = Instant::now();
        std::thread::scope(|s| {
            for me in 0..2 {
                let (bells, turn) = (&bells, &turn);
                s.spawn(move || {
                    for t in (me..TURNS).step_by(2) {
                        while turn.load(Ordering::Acquire) != t {
                            bells[me as usize].sleep(|| turn.load(Ordering::Acquire) == t);
                        }
                        turn.store(t + 1, Ordering::Release);
                        bells[1 - me as usize].ring();
                    }
                });
            }
        });
        let most = TURNS as u32 / 20 * LONG_NAP;
        assert!(
            start.elapsed() < most,
            "{TURNS} turns took {:?}",
            start.elapsed()
        );
    }
}

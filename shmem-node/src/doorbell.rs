//! Sleeping until somebody changes this PE's memory.
//!
//! OpenSHMEM lets a PE wait for a word that others write with plain stores. A store cannot tell
//! that somebody sleeps, and a fence after every 8-byte put would cost more than the put. So the
//! fence is on the other side: a writer stores and then looks at `waiting` with a plain load; a
//! sleeper announces itself and then has the kernel run a full memory barrier on every processor
//! (`membarrier`). Whatever writer has not seen the announcement has its store visible by then, and
//! the sleeper, which looks at its condition once more, sees it. Nobody is missed, and putting
//! costs nothing while nobody sleeps. Who rings takes the announcement away and wakes all who
//! announced, so of many stores only the first rings, however long the sleeper takes to wake.
//!
//! Sleepers look for what nobody rings for, too; how often, all of a node together decide
//! ([`Turns`]). Where the kernel refuses `membarrier` a bell can be missed, so they look more often
//! ([`Pace::WITHOUT_BARRIER`], or in their turn, if that is later).

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, fence};
use crate::sys;
use crate::turns::Turns;

/// How often who sleeps looks by itself: after `first`, then each time after twice as long, up to
/// `last`; or when its turn comes, if that is later. On machines where bells can be missed no time is
/// longer than [`Pace::WITHOUT_BARRIER`] or that turn, whatever is set here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Time to the first look.
    pub first: Duration,
    /// Longest time from one look to the next.
    pub last: Duration,
}

impl Pace {
    /// For what changes only with a bell. A safeguard.
    pub const RUNG: Self = Self {
        first: Duration::from_secs(10),
        last: Duration::from_secs(10),
    };

    /// Longest time without a look where the kernel refuses `membarrier`, so that a bell can be missed;
    /// or the sleeper's turn, if that is later.
    pub const WITHOUT_BARRIER: Duration = Duration::from_millis(5);
}

/// One PE's bell, in shared memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Doorbell {
    /// Not 0 while threads of the owner sleep or are about to, and nobody has rung for them. It may
    /// stay so when they have gone: then somebody rings for nobody, once.
    waiting: AtomicU32,
    /// Futex word: counts rings.
    rings: AtomicU32,
}

impl Doorbell {
    /// Wakes the owner if it sleeps. Called by a writer after its store.
    #[inline]
    pub fn ring(&self) {
        // ORDERING(doorbell): after the store; pairs with `barrier_everywhere` in `sleep`.
        sys::barrier_by_others();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.ring_now();
        }
    }

    #[cold]
    fn ring_now(&self) {
        // ORDERING(bell): who announced before this is woken by the wake below, or has looked at
        // `rings` before the addition and does not fall asleep.
        if self.waiting.swap(0, Ordering::SeqCst) != 0 {
            self.rings.fetch_add(1, Ordering::SeqCst);
            sys::futex_wake(&self.rings, u32::MAX);
        }
    }

    /// Announces a sleep; gives the count of rings before it.
    fn announce(&self) -> u32 {
        // ORDERING(bell): the count first, so that a ring for this announcement is after it.
        let seen = self.rings.load(Ordering::SeqCst);
        self.waiting.store(1, Ordering::SeqCst);
        seen
    }

    /// Sleeps until the bell rings, at most `max`, unless `ready()` already holds: for what may
    /// change without a bell, so that a bell that is missed matters no more. Returns whether it
    /// slept as long as it may.
    pub fn nap(&self, max: Duration, mut ready: impl FnMut() -> bool) -> bool {
        let seen = self.announce();
        // ORDERING(doorbell): makes a missed bell rare; `sleep`'s barrier on all processors would
        // cost more than the naps are worth.
        fence(Ordering::SeqCst);
        !ready() && sys::futex_wait(&self.rings, seen, Some(max))
    }

    /// Sleeps until the bell rings, or `ready()` holds when it looks, which it does at first and then
    /// at `pace`. May return early for no reason. Returns how often it looked by itself.
    pub fn sleep(&self, turns: Turns<'_>, pace: Pace, mut ready: impl FnMut() -> bool) -> u64 {
        // Announced once: to interrupt every processor for every look would cost those who compute. The
        // announcement stands until somebody rings, who changes the count, on which nobody sleeps then.
        let (seen, bound) = self.announce_everywhere();
        let mut looks = 0;
        if ready() {
            return looks;
        }
        let (turn, mut nap) = (turns.take(), pace.first);
        while sys::futex_wait(&self.rings, seen, Some(turn.after(nap.min(bound)))) {
            looks += 1;
            if ready() {
                break;
            }
            nap = (nap * 2).min(pace.last);
        }
        looks
    }

    /// Announces a sleep to all who write from now on; gives the count of rings before it, and how long
    /// a sleep may be at most.
    fn announce_everywhere(&self) -> (u32, Duration) {
        let seen = self.announce();
        // ORDERING(doorbell): after this every store whose writer saw no sleeper is visible.
        let bound = if sys::barrier_everywhere() {
            Duration::MAX
        } else {
            fence(Ordering::SeqCst);
            Pace::WITHOUT_BARRIER
        };
        (seen, bound)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crossbeam_utils::CachePadded;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_nap_ends_by_the_bell_by_time_or_at_once() {
        let bell = Doorbell::default();
        assert!(!bell.nap(Duration::from_secs(10), || true));
        assert!(bell.nap(Duration::from_millis(1), || false));
        let rung = std::thread::scope(|s| {
            let sleeper = s.spawn(|| !bell.nap(Duration::from_secs(60), || false));
            while !sleeper.is_finished() {
                bell.ring();
                std::thread::yield_now();
            }
            sleeper.join().expect("no panic")
        });
        assert!(rung);
    }

    /// A change without a bell is found, and a bell ends the sleep.
    #[test]
    fn who_looks_sees_what_nobody_rings_for() {
        let (bell, done) = (&Doorbell::default(), &AtomicU64::new(0));
        let sleepers = AtomicU32::new(0);
        let turns = Turns::new(&sleepers, 1);
        let pace = |first| Pace { first, last: first };
        std::thread::scope(|s| {
            let soon = pace(Duration::from_micros(100));
            let looks = s.spawn(move || {
                bell.sleep(turns, soon, || done.load(Ordering::Acquire) == 1);
            });
            while bell.waiting.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            done.store(1, Ordering::Release);
            looks.join().expect("no panic");
        });
        std::thread::scope(|s| {
            let never = pace(Duration::from_secs(3600));
            let rung = s.spawn(move || bell.sleep(turns, never, || false));
            while !rung.is_finished() {
                bell.ring();
                std::thread::yield_now();
            }
            assert_eq!(rung.join().expect("no panic"), 0);
        });
        assert_eq!(sleepers.into_inner(), 0);
    }

    /// Two threads hand a counter to and fro with plain stores, and count the bells that they miss.
    #[test]
    fn no_bell_is_missed() {
        if !(sys::register_barrier_everywhere() && sys::barrier_everywhere()) {
            return; // then bells are missed by design
        }
        const TURNS: u64 = 5000;
        // On cache lines of their own, so that a store can linger while a load goes ahead.
        let bells = [CachePadded::<Doorbell>::default(), CachePadded::default()];
        let turn = CachePadded::new(AtomicU64::new(0));
        let missed = AtomicU64::new(0);
        let sleepers = AtomicU32::new(0);
        let turns = Turns::new(&sleepers, 1);
        std::thread::scope(|s| {
            for me in 0..2 {
                let (bells, missed, turn) = (&bells, &missed, &turn);
                s.spawn(move || {
                    for t in (me..TURNS).step_by(2) {
                        let ready = || turn.load(Ordering::Acquire) == t;
                        while !ready() && missed.load(Ordering::Relaxed) == 0 {
                            let bell = &bells[me as usize];
                            if bell.sleep(turns, Pace::RUNG, ready) > 0 && ready() {
                                missed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        // The store is to come while the other one falls asleep, at all moments.
                        for _ in 0..t * 7 % 1000 {
                            std::hint::spin_loop();
                        }
                        turn.store(t + 1, Ordering::Release);
                        bells[1 - me as usize].ring();
                    }
                });
            }
        });
        assert_eq!(missed.into_inner(), 0, "of {TURNS} bells");
    }
}

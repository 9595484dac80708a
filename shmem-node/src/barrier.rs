//! The meeting point of a node's PEs.
//!
//! It has two halves, because most collectives do something in between: all PEs *arrive*, one of
//! them, who *leads*, acts for all (talks to other nodes, reduces), and *releases* them. Where there
//! are other nodes, always the same PE leads, because the connections are its own; it waits for the
//! others. On a single node the last to arrive leads, so that nobody has to be woken for that.
//!
//! Each wait is for one word, and a bit in it says that somebody sleeps: a meeting of PEs that poll
//! makes no system call, and the release of any number of sleepers makes one.
//!
//! Where PEs read, after the release, what one of them shows, they tell it by *departing*, and only
//! that one must wait.
//!
//! Who waits here sleeps at once. Polling before that, where PEs do not outnumber cores, is the
//! caller's business, since it has a network to poll as well.

use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU32, Ordering};
use crate::sys;

/// Set in a word while somebody sleeps on it.
const ASLEEP: u32 = 1 << 31;

/// A count that one PE may sleep on until it is full.
#[repr(C)]
#[derive(Debug, Default)]
struct Tally(AtomicU32);

impl Tally {
    /// Counts one more, and wakes the sleeper with the `full`th.
    #[inline]
    fn add(&self, full: u32) -> u32 {
        // ORDERING(node-arrive): what a PE did before comes before what the one that sees the full
        // count does next; the chain of read-modify-writes carries every PE's.
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        if before == (full - 1) | ASLEEP {
            sys::futex_wake(&self.0, 1);
        }
        (before & !ASLEEP) + 1
    }

    #[inline]
    fn is_full(&self, full: u32) -> bool {
        // ORDERING(node-arrive): pairs with `add`.
        self.0.load(Ordering::Acquire) & !ASLEEP == full
    }

    /// Sleeps up to `max` for more. One read-modify-write announces the sleep, another one counts:
    /// whichever is later sees the other.
    fn sleep(&self, full: u32, max: Option<Duration>) {
        let seen = self.0.fetch_or(ASLEEP, Ordering::Relaxed) & !ASLEEP;
        if seen != full {
            sys::futex_wait(&self.0, seen | ASLEEP, max);
        }
    }

    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Shared state, in memory of the node.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct NodeBarrier {
    arrived: Tally,
    departed: Tally,
    /// Counts releases, in the lower bits. On lines of its own: all PEs but the last look at it while others arrive.
    release: CachePadded<AtomicU32>,
}

/// Proof of an arrival, needed to wait for the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Arrival(u32);

impl NodeBarrier {
    /// Announces a PE that is not the leader, where `n` PEs meet.
    #[inline]
    pub fn arrive(&self, n: u32) -> Arrival {
        let arrival = self.present();
        self.arrived.add(n - 1);
        arrival
    }

    /// Announces a PE where the last of `n` to come leads. `None` for that one: all are there, and
    /// it must [`release`](Self::release) them.
    #[inline]
    pub fn arrive_or_lead(&self, n: u32) -> Option<Arrival> {
        let arrival = self.present();
        (self.arrived.add(n) != n).then_some(arrival)
    }

    fn present(&self) -> Arrival {
        Arrival(self.release.load(Ordering::Relaxed) & !ASLEEP)
    }

    /// Whether the release that `arrival` waits for has come.
    #[inline]
    pub fn released(&self, arrival: Arrival) -> bool {
        // ORDERING(node-release): pairs with `release`.
        self.release.load(Ordering::Acquire) & !ASLEEP != arrival.0
    }

    /// Sleeps up to `max` for the release.
    pub fn sleep_unreleased(&self, arrival: Arrival, max: Option<Duration>) {
        let (word, asleep) = (&*self.release, arrival.0 | ASLEEP);
        let announced =
            word.compare_exchange(arrival.0, asleep, Ordering::Relaxed, Ordering::Relaxed);
        if announced.is_ok() || announced == Err(asleep) {
            sys::futex_wait(word, asleep, max);
        }
    }

    /// For the leader: whether the other `n - 1` PEs have arrived.
    #[inline]
    pub fn complete(&self, n: u32) -> bool {
        self.arrived.is_full(n - 1)
    }

    /// For the leader: sleeps up to `max` for further arrivals.
    pub fn sleep_incomplete(&self, n: u32, max: Option<Duration>) {
        self.arrived.sleep(n - 1, max);
    }

    /// For who leads, when all have arrived: lets the others go.
    #[inline]
    pub fn release(&self) {
        self.arrived.reset();
        let word = &*self.release;
        let next = (word.load(Ordering::Relaxed).wrapping_add(1)) & !ASLEEP;
        // ORDERING(node-release): what the leader did comes before what the released PEs do next.
        if word.swap(next, Ordering::AcqRel) & ASLEEP != 0 {
            sys::futex_wake(word, u32::MAX);
        }
    }

    /// Says that a PE no longer needs what another shows it, without waiting for anybody. That one
    /// must be the only one of `n` that does not call this, and it must wait for the departures
    /// before it arrives again.
    #[inline]
    pub fn depart(&self, n: u32) {
        self.departed.add(n - 1);
    }

    /// Whether the other `n - 1` PEs have departed.
    #[inline]
    pub fn all_departed(&self, n: u32) -> bool {
        self.departed.is_full(n - 1)
    }

    /// Sleeps up to `max` for further departures.
    pub fn sleep_undeparted(&self, n: u32, max: Option<Duration>) {
        self.departed.sleep(n - 1, max);
    }

    /// Begins to count departures anew, once all have been seen.
    #[inline]
    pub fn departures_seen(&self) {
        self.departed.reset();
    }

    /// PEs other than the leader that have arrived and wait.
    pub fn arrived(&self) -> u32 {
        self.arrived.0.load(Ordering::Relaxed) & !ASLEEP
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn nobody_passes_before_the_last_one_came() {
        const N: u32 = 5;
        let barrier = NodeBarrier::default();
        let count = AtomicUsize::new(0);
        // As callers do: poll for a while, then sleep.
        let meet = |leader: bool, spins: u32| {
            if leader {
                if !(0..spins).any(|_| barrier.complete(N)) {
                    while !barrier.complete(N) {
                        barrier.sleep_incomplete(N, None);
                    }
                }
                barrier.release();
            } else {
                let arrival = barrier.arrive(N);
                if !(0..spins).any(|_| barrier.released(arrival)) {
                    while !barrier.released(arrival) {
                        barrier.sleep_unreleased(arrival, None);
                    }
                }
            }
        };
        std::thread::scope(|s| {
            for pe in 0..N {
                let (count, meet) = (&count, &meet);
                s.spawn(move || {
                    for round in 1..=200 {
                        count.fetch_add(1, Ordering::Relaxed);
                        meet(pe == 0, 10);
                        assert_eq!(count.load(Ordering::Relaxed), round * N as usize);
                        meet(pe == 0, 0);
                    }
                });
            }
        });
    }

    /// The last to come leads; a PE that shows something waits for departures.
    #[test]
    fn what_is_shown_stays_until_all_have_departed() {
        const N: u32 = 4;
        let barrier = NodeBarrier::default();
        // Each PE shows in a place of its own.
        let shown = [const { AtomicUsize::new(0) }; N as usize];
        std::thread::scope(|s| {
            for pe in 0..N {
                let (barrier, shown) = (&barrier, &shown);
                s.spawn(move || {
                    for round in 1..=300 {
                        let shows = round as u32 % N == pe;
                        let shown = &shown[round % N as usize];
                        if shows {
                            shown.store(round, Ordering::Relaxed);
                        }
                        match barrier.arrive_or_lead(N) {
                            None => barrier.release(),
                            Some(arrival) => {
                                while !barrier.released(arrival) {
                                    barrier.sleep_unreleased(arrival, None);
                                }
                            }
                        }
                        assert_eq!(shown.load(Ordering::Relaxed), round);
                        if shows {
                            while !barrier.all_departed(N) {
                                barrier.sleep_undeparted(N, None);
                            }
                            barrier.departures_seen();
                            shown.store(0, Ordering::Relaxed);
                        } else {
                            barrier.depart(N);
                        }
                    }
                });
            }
        });
    }
}

//! The meeting point of a node's PEs.
//!
//! It has two halves, because most collectives do something in between: all PEs *arrive*, the
//! leader (local PE 0) waits for them, acts for the node (talks to other nodes, reduces), and
//! *releases* them. A plain node barrier is both halves with nothing in between. However many PEs
//! wait, the last arrival wakes one sleeper and the release is one system call.
//!
//! Who waits here sleeps at once. Polling before that, where PEs do not outnumber cores, is the
//! caller's business, since it has a network to poll as well.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering};
use crate::sys;

/// Shared state, in the first page of the heap memory.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct NodeBarrier {
    /// Futex word of the leader: PEs other than the leader that have arrived.
    arrived: AtomicU32,
    /// Futex word of all others: counts releases.
    generation: AtomicU32,
}

/// Proof of an arrival, needed to wait for the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Arrival(u32);

impl NodeBarrier {
    /// Announces a PE that is not the leader, where `n` PEs meet.
    pub fn arrive(&self, n: u32) -> Arrival {
        let generation = self.generation.load(Ordering::Relaxed);
        // ORDERING(node-arrive): what a PE did before comes before what the leader does next; the
        // chain of read-modify-writes carries every arrival.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 2 == n {
            sys::futex_wake(&self.arrived, 1);
        }
        Arrival(generation)
    }

    /// Whether the release that `arrival` waits for has come.
    #[inline]
    pub fn released(&self, arrival: Arrival) -> bool {
        // ORDERING(node-release): pairs with `release`.
        self.generation.load(Ordering::Acquire) != arrival.0
    }

    /// Sleeps until the release.
    pub fn wait_release(&self, arrival: Arrival) {
        while !self.released(arrival) {
            sys::futex_wait(&self.generation, arrival.0, None);
        }
    }

    /// For the leader: whether the other `n - 1` PEs have arrived.
    #[inline]
    pub fn complete(&self, n: u32) -> bool {
        // ORDERING(node-arrive): pairs with `arrive`.
        self.arrived.load(Ordering::Acquire) + 1 == n
    }

    /// For the leader: sleeps until the others have arrived.
    pub fn wait_complete(&self, n: u32) {
        while !self.complete(n) {
            self.sleep_incomplete(n, None);
        }
    }

    /// For the leader: sleeps up to `max` for further arrivals.
    pub fn sleep_incomplete(&self, n: u32, max: Option<Duration>) {
        let seen = self.arrived.load(Ordering::Relaxed);
        if seen + 1 != n {
            sys::futex_wait(&self.arrived, seen, max);
        }
    }

    /// For the leader, after completion: lets the others go.
    pub fn release(&self, n: u32) {
        self.arrived.store(0, Ordering::Relaxed);
        // ORDERING(node-release): what the leader did comes before what the released PEs do next.
        self.generation.fetch_add(1, Ordering::Release);
        if n > 1 {
            sys::futex_wake(&self.generation, u32::MAX);
        }
    }

    /// PEs other than the leader that have arrived and wait.
    pub fn arrived(&self) -> u32 {
        self.arrived.load(Ordering::Relaxed)
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
                    barrier.wait_complete(N);
                }
                barrier.release(N);
            } else {
                let arrival = barrier.arrive(N);
                if !(0..spins).any(|_| barrier.released(arrival)) {
                    barrier.wait_release(arrival);
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
}

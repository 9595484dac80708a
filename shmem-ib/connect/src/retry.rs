//! When something is said again, and when that is given up: the one policy for all messages.
//!
//! Datagrams are lost, and peers may be slow, so whatever asks for an answer is repeated at intervals
//! that double, each changed by up to a quarter so that PEs which started together do not keep
//! colliding. A peer that gives no sign of life for [`RetryPolicy::silence`] is given up.

#![forbid(unsafe_code)]

use std::hash::{Hash, Hasher};

use shmem_verbs::rng::Rng;

/// When to send again, and when to give up. All in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryPolicy {
    /// From the first request to the second; doubles with each.
    pub initial: u64,
    /// Longest interval. Each interval is changed by up to a quarter in either direction.
    pub max: u64,
    /// A peer that gives no sign of life for so long makes a wanted connection fail.
    pub silence: u64,
    /// From the first BYE to the second; doubles with each, up to four times as long: so short that
    /// some of them must be lost in a row before who lingers takes a peer for gone.
    pub bye: u64,
}

impl RetryPolicy {
    /// Of what is asked for while both sides stay.
    pub(crate) const fn request(&self) -> Backoff {
        Backoff {
            first: self.initial,
            longest: self.max,
        }
    }

    /// Of what a side says before it goes.
    pub(crate) const fn farewell(&self) -> Backoff {
        Backoff {
            first: self.bye,
            longest: 4 * self.bye,
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial: 1_000_000,
            max: 250_000_000,
            silence: 60_000_000_000,
            bye: 20_000_000,
        }
    }
}

/// The first and the longest interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: u64,
    longest: u64,
}

/// Something that was said, and is said again until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Repeater {
    /// Time of the peer's last sign of life, or of the beginning.
    pub(crate) heard: u64,
    /// When it was said last.
    pub(crate) said: u64,
    /// When to say it again.
    pub(crate) next: u64,
    interval: u64,
    /// How often it was said.
    pub(crate) sent: u32,
}

impl Hash for Repeater {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // Without `sent`, which only error messages tell: who explores all states knows them by
        // their hashes, and a count would make them infinitely many.
        (self.heard, self.said, self.next, self.interval).hash(hasher);
    }
}

impl Repeater {
    /// It is said now for the first time.
    pub(crate) fn start(now: u64, backoff: Backoff, rng: &mut Rng) -> Self {
        let mut new = Self {
            heard: now,
            said: now,
            next: now,
            interval: 0,
            sent: 1,
        };
        new.pause(now, backoff.first, rng);
        new
    }

    /// It is said again now.
    pub(crate) fn again(&mut self, now: u64, backoff: Backoff, rng: &mut Rng) {
        self.sent = self.sent.saturating_add(1);
        self.said = now;
        let doubled = self.interval.saturating_mul(2).min(backoff.longest);
        self.pause(now, doubled, rng);
    }

    /// The peer lives but cannot answer yet. It will by itself; asking again only covers the loss of
    /// that.
    pub(crate) fn rest(&mut self, now: u64, backoff: Backoff, rng: &mut Rng) {
        self.heard = now;
        self.pause(now, backoff.longest, rng);
    }

    /// The peer lives, and will be able to answer soon.
    pub(crate) fn hurry(&mut self, now: u64, backoff: Backoff, rng: &mut Rng) {
        self.heard = now;
        self.pause(now, backoff.first, rng);
    }

    fn pause(&mut self, now: u64, interval: u64, rng: &mut Rng) {
        self.interval = interval;
        let jittered = match interval {
            // Draws nothing, so that who explores all states finds finitely many.
            0 => 0,
            _ => interval - interval / 4 + rng.below(interval / 2 + 1),
        };
        self.next = now.saturating_add(jittered);
    }

    /// When something has to be done: it is said again or given up.
    pub(crate) fn deadline(&self, silence: u64) -> u64 {
        self.next.min(self.heard.saturating_add(silence))
    }

    /// For how long the peer was silent, if that is too long.
    pub(crate) fn given_up(&self, now: u64, silence: u64) -> Option<u64> {
        let silent = now.saturating_sub(self.heard);
        (silent >= silence).then_some(silent)
    }
}

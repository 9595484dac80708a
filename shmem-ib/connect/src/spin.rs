//! How long a waiting thread polls before it sleeps, on a machine that others may use as well.
//!
//! Polling pays while the core would be idle otherwise. Whoever polls on a core that another thread
//! wants is stopped when its time slice is over, and comes back milliseconds late; who sleeps is
//! run as soon as it is woken. So a poller that finds itself stopped sleeps at once, and polls
//! only half as long the next time; waits that end well give it more polls again step by step.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often a thread that has polled long enough offers its core to others before it sleeps.
pub(crate) const YIELD_ROUNDS: u32 = 16;
/// Polls between two looks at the clock.
const LOOK_EVERY: u32 = 32;
/// So many polls take a few microseconds, a time slice takes milliseconds.
const STOPPED: Duration = Duration::from_millis(1);
/// Fewest polls that a wait may have, if the limit allows them: several round trips.
const LEAST: u32 = 100;

/// How many polls a wait may have, for all threads of one process.
#[derive(Debug)]
pub struct SpinLimit {
    limit: u32,
    /// Only a heuristic, so relaxed: an update that is lost does no harm.
    now: AtomicU32,
}

impl SpinLimit {
    /// At most `limit` polls without an event; 0: never poll.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self {
            limit,
            now: AtomicU32::new(limit),
        }
    }

    /// Begins a wait.
    #[must_use]
    pub fn spin(&self) -> Spin {
        let polls = self.now.load(Ordering::Relaxed);
        Spin {
            polls,
            left: polls,
            looked: None,
            stopped: false,
        }
    }

    /// Whether `spin` may poll once more.
    #[inline]
    pub fn again(&self, spin: &mut Spin) -> bool {
        if spin.left == 0 {
            return false;
        }
        spin.left -= 1;
        !spin.left.is_multiple_of(LOOK_EVERY) || self.look(spin, Instant::now())
    }

    fn look(&self, spin: &mut Spin, now: Instant) -> bool {
        let before = spin.looked.replace(now);
        if before.is_some_and(|before| now.saturating_duration_since(before) > STOPPED) {
            let less = (spin.polls / 2).max(LEAST.min(self.limit));
            self.now.store(less, Ordering::Relaxed);
            spin.left = 0;
            spin.stopped = true;
            return false;
        }
        true
    }

    /// What `spin` waited for has come.
    #[inline]
    pub fn ended_well(&self) {
        let now = self.now.load(Ordering::Relaxed);
        if now < self.limit {
            let more = now.saturating_add(self.limit / 256 + 1).min(self.limit);
            self.now.store(more, Ordering::Relaxed);
        }
    }
}

/// One wait.
#[derive(Debug)]
pub struct Spin {
    polls: u32,
    left: u32,
    looked: Option<Instant>,
    stopped: bool,
}

impl Spin {
    /// Something has happened: waiting begins anew.
    #[inline]
    pub fn renew(&mut self) {
        if !self.stopped {
            self.left = self.polls;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_limited_and_renewed_by_events() {
        let limit = SpinLimit::new(50);
        let mut spin = limit.spin();
        assert_eq!((0..100).filter(|_| limit.again(&mut spin)).count(), 50);
        let mut spin = limit.spin();
        assert!((0..49).all(|_| limit.again(&mut spin)));
        spin.renew();
        assert_eq!((0..100).filter(|_| limit.again(&mut spin)).count(), 50);
        let never = SpinLimit::new(0);
        assert!(!never.again(&mut never.spin()));
    }

    #[test]
    fn who_is_stopped_polls_less_and_recovers() {
        let limit = SpinLimit::new(20_000);
        let start = Instant::now();
        let mut spin = limit.spin();
        assert!(limit.look(&mut spin, start));
        assert!(limit.look(&mut spin, start + STOPPED));
        assert!(!limit.look(&mut spin, start + 3 * STOPPED));
        assert!(!limit.again(&mut spin));
        spin.renew();
        assert!(!limit.again(&mut spin), "this wait is over");
        assert_eq!(limit.spin().left, 10_000);
        for _ in 0..20 {
            let mut spin = limit.spin();
            limit.look(&mut spin, start);
            limit.look(&mut spin, start + 2 * STOPPED);
        }
        assert_eq!(limit.spin().left, LEAST);
        for _ in 0..300 {
            limit.ended_well();
        }
        assert_eq!(limit.spin().left, 20_000);
    }
}

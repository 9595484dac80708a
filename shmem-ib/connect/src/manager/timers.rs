//! The one table of a manager's deadlines, and its clock, which does not count the time in which the
//! process was stopped.
//!
//! A process that was stopped has heard nobody and repeated nothing, which is no silence of its peers.
//! So if a deadline is looked at far too late, the clock goes on from that deadline. One that is always
//! late would wait too long for a peer that is gone: after a late look, one has to come in time before
//! another is forgiven.

use std::collections::BTreeSet;

use hashbrown::HashMap;

/// Who looks so much too late, in nanoseconds, was stopped.
const STOPPED: u64 = 1_000_000_000;

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// Whoever is waited for while this PE leaves has been silent for too long.
    Linger,
    /// The line of those who want a queue pair is to be looked at again.
    Room,
    /// Something is to be said to this peer again, or to be given up.
    Peer(u32),
}

/// What is due when.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    queue: BTreeSet<(u64, Timer)>,
    set: HashMap<Timer, u64>,
    /// The latest time that it was told, without the time in which the process was stopped.
    now: u64,
    stopped: u64,
    /// The deadline that was looked at too late, until one is looked at in time.
    forgiven: Option<u64>,
}

impl Timers {
    /// It is `reading` on the driver's clock, which does not go back. Returns the time that counts.
    pub(super) fn look(&mut self, reading: u64) -> u64 {
        let mut now = reading.saturating_sub(self.stopped);
        debug_assert!(now >= self.now, "time went back from {} to {now}", self.now);
        if let Some((at, _)) = self.queue.first()
            && let Some(late) = now.checked_sub(*at)
        {
            if late >= STOPPED && self.forgiven.is_none() {
                self.forgiven = Some(*at);
                let resumed = self.now.max(*at);
                self.stopped += now - resumed;
                now = resumed;
            } else if late < STOPPED && self.forgiven.is_some_and(|before| *at > before) {
                self.forgiven = None;
            }
        }
        self.now = now;
        now
    }

    /// Sets a deadline in the time that counts, or unsets it. One in the past is due now: whoever finds it
    /// so was not stopped.
    pub(super) fn set(&mut self, timer: Timer, at: Option<u64>) {
        let at = at.map(|at| at.max(self.now));
        let before = match at {
            Some(at) => self.set.insert(timer, at),
            None => self.set.remove(&timer),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.queue.remove(&(before, timer));
        }
        if let Some(at) = at {
            self.queue.insert((at, timer));
        }
    }

    /// When the first deadline is, on the driver's clock.
    pub(super) fn next(&self) -> Option<u64> {
        let (at, _) = self.queue.first()?;
        Some(at.saturating_add(self.stopped))
    }

    /// What is due. Each is there once: one that is set anew for the same instant fires the next time.
    pub(super) fn due(&self) -> Vec<Timer> {
        let due = self.queue.iter().take_while(|(at, _)| *at <= self.now);
        due.map(|(_, timer)| *timer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_moved_and_unset() {
        let mut timers = Timers::default();
        timers.set(Timer::Peer(1), Some(5));
        timers.set(Timer::Peer(2), Some(3));
        timers.set(Timer::Peer(1), Some(2));
        assert_eq!(timers.next(), Some(2));
        timers.look(2);
        assert_eq!(timers.due(), [Timer::Peer(1)]);
        timers.look(3);
        assert_eq!(timers.due(), [Timer::Peer(1), Timer::Peer(2)]);
        timers.set(Timer::Peer(1), None);
        assert_eq!(
            (timers.next(), timers.due()),
            (Some(3), vec![Timer::Peer(2)])
        );
    }

    #[test]
    fn a_deadline_in_the_past_is_due_now() {
        let mut timers = Timers::default();
        assert_eq!(timers.look(100 * STOPPED), 100 * STOPPED);
        timers.set(Timer::Room, Some(0));
        assert_eq!(timers.next(), Some(100 * STOPPED));
        assert_eq!(timers.due(), [Timer::Room]);
    }

    #[test]
    fn the_time_of_a_stop_does_not_count_once() {
        let mut timers = Timers::default();
        timers.set(Timer::Linger, Some(10));
        assert_eq!(timers.look(5 + STOPPED), 5 + STOPPED, "not late enough");
        let (stop, after) = (100 * STOPPED, 5 + STOPPED);
        assert_eq!(timers.look(stop), after);
        assert_eq!(timers.next(), Some(10 + stop - after));
        // Late again without having been in time: it is slow, and was not stopped.
        timers.set(Timer::Linger, Some(after + 1));
        assert_eq!(timers.look(2 * stop), after + stop);
        timers.set(Timer::Linger, Some(after + stop + 1));
        assert_eq!(timers.look(2 * stop + 2), after + stop + 2);
        timers.set(Timer::Linger, Some(after + stop + 3));
        assert_eq!(timers.look(3 * stop), after + stop + 3);
    }
}

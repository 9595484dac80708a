//! How threads sleep on one HCA: who sleeps on what, until when, and who has to be told.
//!
//! The decisions alone, over the traits [`Host`] and [`Desk`]: `hca` supplies descriptors and a
//! mutex, the model in `tests/loom` supplies loom's, and there every interleaving is tried with
//! sleeps that never end by themselves too early.
//!
//! *The progress thread must not fight with a polling application.* If it slept on the socket,
//! each packet for a spinning application would wake it as well, and the two would quarrel
//! about the mutex. Therefore every poll of a CQ bumps the counter [`Polls`]:
//! ```text
//!            packet, `polls` unchanged
//!      .---> ASLEEP on socket, event, timer ---------------------> handle it, return Work
//!      |        | packet, but `polls` has changed: the application is awake and sees it
//!      |        v
//!      |     NAP on the event only, 250 us to 1 ms  <---.
//!      |        |            `polls` changed meanwhile  |
//!      '--------+---------------------------------------'
//!        `polls` unchanged: look at the socket once, then sleep on it again
//! ```
//! So an active application costs the progress thread a short wake-up per millisecond, and a
//! peer of an application that has stopped polling waits a millisecond at most.
//!
//! *Timers.* A sleeper knows the engine's next deadline and sleeps no longer. If a post makes
//! an earlier one than any sleeper expects, the poster arms a timer descriptor that all sleepers
//! watch: cheaper than waking one, and not needed again before that timer is due. Application
//! threads sleep here, too, so whoever stops sleeping looks after those that go on.

#![forbid(unsafe_code)]

use std::time::Duration;

use smallvec::SmallVec;

use crate::sync::{AtomicU64, Ordering};
use crate::verbs::Wake;

/// First and longest nap while the application polls.
const NAP: Duration = Duration::from_micros(250);
const NAP_MAX: Duration = Duration::from_millis(1);

/// What a sleeper watches beside the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Watch {
    /// Socket and timer too.
    All,
    /// Nothing else.
    Event,
}

/// What ended a sleep; nothing of it: time is over, or no reason.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ready {
    pub(super) packet: bool,
    pub(super) event: bool,
    pub(super) timer: bool,
}

/// The HCA around the protocol.
pub(super) trait Host {
    /// The locked HCA.
    type Desk<'a>: Desk
    where
        Self: 'a;

    /// Nanoseconds.
    fn now(&self) -> u64;
    /// Waits for the mutex.
    fn lock(&self) -> Self::Desk<'_>;
    /// Counts polls.
    fn polls(&self) -> &Polls;
    /// Sleeps without the mutex.
    fn sleep(&self, watch: Watch, time: Duration) -> Ready;
    /// Lets the timer fire once after `delay`; says whether there is one.
    fn arm(&self, delay: Duration) -> bool;
    /// Takes the firing of the timer, if nobody has, and it was not armed anew.
    fn take_timer(&self) -> bool;
    /// Raises the event.
    fn signal(&self);
    /// Takes the event, if nobody has.
    fn take_event(&self) -> bool;
}

/// What the mutex protects.
pub(super) trait Desk {
    /// The sleepers.
    fn rest(&mut self) -> &mut Rest;
    /// The engine's next deadline.
    fn next_timeout(&mut self) -> Option<u64>;
    /// Whether there are completions for somebody.
    fn has_unpolled(&self) -> bool;
    /// Moves the wire; says whether anything happened.
    fn pump(&mut self) -> bool;
    /// By when somebody has to look after idle memory, if there is any.
    fn tidy_at(&self, now: u64) -> Option<u64>;
    /// After a sleep without packets up to the time that `tidy_at` gave.
    fn tidy(&mut self);
}

/// Counts polls of CQs.
#[derive(Debug, Default)]
pub(super) struct Polls(AtomicU64);

impl Polls {
    /// An application thread polls.
    #[inline]
    pub(super) fn bump(&self) {
        // Relaxed: the counter only tells that somebody polls, and orders nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn seen(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Who sleeps, under the mutex.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Until when threads sleep on the socket, one entry each.
    sleepers: SmallVec<[u64; 2]>,
    /// When the timer descriptor fires.
    armed: Option<u64>,
}

impl Rest {
    /// Whether a thread sleeps on the socket.
    #[inline]
    pub(super) fn anybody(&self) -> bool {
        !self.sleepers.is_empty()
    }

    /// The earliest time at which some sleeper wakes by itself; `None` if nobody sleeps.
    fn wakes_at(&self) -> Option<u64> {
        let first = self.sleepers.iter().copied().min()?;
        Some(self.armed.map_or(first, |at| at.min(first)))
    }

    fn leave(&mut self, until: u64) {
        if let Some(own) = self.sleepers.iter().position(|at| *at == until) {
            self.sleepers.swap_remove(own);
        }
    }
}

/// Lets sleeping threads know of a deadline that none of them expects.
pub(super) fn announce<H: Host>(host: &H, desk: &mut H::Desk<'_>, now: u64) {
    let Some(wakes_at) = desk.rest().wakes_at() else {
        return;
    };
    let Some(at) = desk.next_timeout().filter(|at| *at < wakes_at) else {
        return;
    };
    if host.arm(Duration::from_nanos(at.saturating_sub(now))) {
        desk.rest().armed = Some(at);
    } else {
        host.signal();
    }
}

/// Sleeps until there is something to do or `max` has passed, and does it.
pub(super) fn wait<H: Host>(host: &H, max: Duration) -> Wake {
    let end = host
        .now()
        .saturating_add(u64::try_from(max.as_nanos()).unwrap_or(u64::MAX));
    loop {
        let seen = host.polls().seen();
        let mut desk = host.lock();
        if desk.has_unpolled() {
            // Whoever has to take these completions may be busy with something that needs the
            // wire: held-back posts wait for acknowledgements, lost packets for timers.
            desk.pump();
            announce(host, &mut desk, host.now());
            return Wake::Work;
        }
        let now = host.now();
        let mut until = desk.next_timeout().map_or(end, |at| at.min(end));
        let tidy_at = desk.tidy_at(now);
        if let Some(at) = tidy_at {
            until = until.min(at);
        }
        desk.rest().sleepers.push(until);
        drop(desk);
        let time = Duration::from_nanos(until.saturating_sub(now));
        let ready = host.sleep(Watch::All, time);
        let mut desk = host.lock();
        desk.rest().leave(until);
        // Not if another thread has taken it, or has armed it anew since.
        if ready.timer && host.take_timer() {
            desk.rest().armed = None;
        }
        if tidy_at.is_some_and(|at| !ready.packet && host.now() >= at) {
            desk.tidy();
        }
        announce(host, &mut desk, host.now());
        drop(desk);
        if ready.event && host.take_event() {
            return Wake::Woken;
        }
        if host.polls().seen() != seen && nap(host, end) {
            return Wake::Woken;
        }
        let mut desk = host.lock();
        let busy = desk.pump();
        announce(host, &mut desk, host.now());
        if busy || desk.has_unpolled() {
            return Wake::Work;
        }
        if host.now() >= end {
            return Wake::Timeout;
        }
    }
}

/// Sleeps in short turns for as long as the application polls, but not beyond `end`.
/// Returns whether it was woken.
fn nap<H: Host>(host: &H, end: u64) -> bool {
    let mut time = NAP;
    loop {
        let seen = host.polls().seen();
        if host.sleep(Watch::Event, time).event && host.take_event() {
            return true;
        }
        if host.polls().seen() == seen || host.now() >= end {
            return false;
        }
        time = (time * 2).min(NAP_MAX);
    }
}

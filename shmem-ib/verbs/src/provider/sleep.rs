//! How threads sleep on one HCA: who sleeps on what, until when, and who has to be told.
//!
//! The decisions alone, over the traits [`Host`] and [`Desk`]: an HCA supplies descriptors and a
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
//! *Timers.* Two parties set them: the engine of the HCA, and whoever uses the HCA, with
//! [`set_alarm`]. A sleeper knows the earlier of the two deadlines and sleeps no longer. If another
//! thread makes an earlier one than any sleeper expects, it arms a timer descriptor that all sleepers
//! watch: cheaper than waking one, and not needed again before that timer is due. Application
//! threads sleep here, too, so whoever stops sleeping looks after those that go on.
//!
//! *Wake-ups* are counted. A sleeper carries the count that it has seen, and a later one ends
//! its sleep; so a wake-up reaches all who slept when it came, and each of them once. The event
//! descriptor only brings them to look: it stays up until the last of them has left, or else one
//! that is quick to sleep again would take it from one that has not got the processor yet.
//! Whoever goes to sleep meanwhile does so briefly and without watching it.

#![forbid(unsafe_code)]

use std::time::Duration;

use smallvec::SmallVec;

use crate::Wake;
use crate::sync::{AtomicU64, Ordering};

/// First and longest nap while the application polls.
const NAP: Duration = Duration::from_micros(250);
const NAP_MAX: Duration = Duration::from_millis(1);

/// What a sleeper watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// Socket and timer.
    pub wire: bool,
    /// What other threads signal.
    pub event: bool,
}

/// What ended a sleep; nothing of it: time is over, or no reason.
#[derive(Clone, Copy, Default, Debug)]
pub struct Ready {
    /// A packet came.
    pub packet: bool,
    /// Another thread has signalled.
    pub event: bool,
    /// The timer has fired.
    pub timer: bool,
}

/// The HCA around the protocol.
pub trait Host {
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
    /// Puts the event up.
    fn raise(&self);
    /// Takes the event down.
    fn lower(&self);
}

/// What the mutex protects.
pub trait Desk {
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
pub struct Polls(AtomicU64);

impl Polls {
    /// An application thread polls.
    #[inline]
    pub fn bump(&self) {
        // Relaxed: the counter only tells that somebody polls, and orders nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn seen(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Who sleeps, under the mutex.
#[derive(Debug, Default)]
pub struct Rest {
    sleepers: SmallVec<[Sleeper; 2]>,
    /// When the user of the HCA wants its turn. It stays until the user sets another.
    alarm: Option<u64>,
    /// When the timer descriptor fires.
    armed: Option<u64>,
    /// Wake-ups so far.
    wakes: u64,
    /// How many there were when a thread last returned for one.
    answered: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sleeper {
    /// When it wakes for a deadline; `None` for a nap, which nobody can count on.
    until: Option<u64>,
    /// Wake-ups that it knows of.
    seen: u64,
}

impl Rest {
    /// Whether a thread sleeps on the socket.
    #[inline]
    pub fn anybody(&self) -> bool {
        !self.sleepers.is_empty()
    }

    /// The earliest time at which some sleeper wakes by itself; `None` if nobody sleeps.
    fn wakes_at(&self) -> Option<u64> {
        let first = self.sleepers.iter().filter_map(|s| s.until).min()?;
        Some(self.armed.map_or(first, |at| at.min(first)))
    }

    /// A wake-up; says whether the event has to be put up for a sleeper.
    pub fn call(&mut self) -> bool {
        self.wakes += 1;
        self.anybody()
    }

    /// Whether the event is up for some sleeper.
    fn is_up(&self) -> bool {
        self.sleepers.iter().any(|s| s.seen != self.wakes)
    }

    /// A wake-up that a thread which knows of `seen` has to return for.
    fn answer(&mut self, seen: u64) -> bool {
        let woken = seen != self.wakes;
        if woken {
            self.answered = self.wakes;
        }
        woken
    }
}

/// A time in the unit of the clock.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The next time at which somebody has to be awake.
fn deadline<D: Desk>(desk: &mut D) -> Option<u64> {
    let engine = desk.next_timeout();
    engine.into_iter().chain(desk.rest().alarm).min()
}

/// The user of the HCA wants its turn `after` so long from now, or has nothing to do at any time.
pub fn set_alarm<H: Host>(host: &H, after: Option<Duration>) {
    let mut desk = host.lock();
    let now = host.now();
    desk.rest().alarm = after.map(|time| now.saturating_add(nanos(time)));
    announce(host, &mut desk, now);
}

/// Lets sleeping threads know of a deadline that none of them expects.
pub fn announce<H: Host>(host: &H, desk: &mut H::Desk<'_>, now: u64) {
    let Some(wakes_at) = desk.rest().wakes_at() else {
        return;
    };
    let Some(at) = deadline(desk).filter(|at| *at < wakes_at) else {
        return;
    };
    if host.arm(Duration::from_nanos(at.saturating_sub(now))) {
        desk.rest().armed = Some(at);
    } else {
        host.raise();
    }
}

/// Wake-ups so far, for [`wait`].
pub fn wakes<H: Host>(host: &H) -> u64 {
    host.lock().rest().wakes
}

/// Ends every sleep that knows of fewer wake-ups than there are with this one.
pub fn wake<H: Host>(host: &H) {
    let mut desk = host.lock();
    if desk.rest().call() {
        host.raise(); // under the mutex, as `lower` is
    }
}

/// Sleeps until there is something to do or `max` has passed, and does it. A wake-up ends it
/// which is not among the first `seen`; or, without that number, which no thread has returned for.
pub fn wait<H: Host>(host: &H, seen: Option<u64>, max: Duration) -> Wake {
    let end = host.now().saturating_add(nanos(max));
    let mut desk = host.lock();
    let seen = seen.unwrap_or(desk.rest().answered);
    loop {
        let polls = host.polls().seen();
        let now = host.now();
        let rung = desk.rest().alarm.is_some_and(|at| at <= now);
        if desk.has_unpolled() || rung {
            // Whoever has to take these completions may be busy with something that needs the
            // wire: held-back posts wait for acknowledgements, lost packets for timers.
            desk.pump();
            announce(host, &mut desk, host.now());
            return Wake::Work;
        }
        // Not by `map_or`: that is compiled to a jump which memcheck takes for one by a value that was never written.
        let mut until = deadline(&mut desk).unwrap_or(u64::MAX).min(end);
        let tidy_at = desk.tidy_at(now);
        if let Some(at) = tidy_at {
            until = until.min(at);
        }
        let Some((slept, ready)) = sleep(host, desk, true, seen, now, until) else {
            return Wake::Woken;
        };
        desk = slept;
        // Not if another thread has taken it, or has armed it anew since.
        if ready.timer && host.take_timer() {
            desk.rest().armed = None;
        }
        if tidy_at.is_some_and(|at| !ready.packet && host.now() >= at) {
            desk.tidy();
        }
        announce(host, &mut desk, host.now());
        if desk.rest().answer(seen) {
            return Wake::Woken;
        }
        if host.polls().seen() != polls {
            let Some(napped) = nap(host, desk, seen, end) else {
                return Wake::Woken;
            };
            desk = napped;
        }
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

/// Sleeps in short turns for as long as the application polls, but not beyond `end`. Returns
/// `None` if it was woken.
fn nap<'a, H: Host>(
    host: &'a H,
    mut desk: H::Desk<'a>,
    seen: u64,
    end: u64,
) -> Option<H::Desk<'a>> {
    let mut time = NAP;
    loop {
        let polls = host.polls().seen();
        let now = host.now();
        let until = now.saturating_add(time.as_nanos() as u64);
        (desk, _) = sleep(host, desk, false, seen, now, until)?;
        if desk.rest().answer(seen) {
            return None;
        }
        if host.polls().seen() == polls || host.now() >= end {
            return Some(desk);
        }
        time = (time * 2).min(NAP_MAX);
    }
}

/// One sleep, without the mutex; `None` if a wake-up has come already.
fn sleep<'a, H: Host>(
    host: &'a H,
    mut desk: H::Desk<'a>,
    wire: bool,
    seen: u64,
    now: u64,
    mut until: u64,
) -> Option<(H::Desk<'a>, Ready)> {
    if desk.rest().answer(seen) {
        return None;
    }
    let event = !desk.rest().is_up();
    if !event {
        until = until.min(now.saturating_add(NAP.as_nanos() as u64));
    }
    let own = Sleeper {
        until: wire.then_some(until),
        seen,
    };
    desk.rest().sleepers.push(own);
    drop(desk);
    let watch = Watch { wire, event };
    let ready = host.sleep(watch, Duration::from_nanos(until.saturating_sub(now)));
    let mut desk = host.lock();
    let rest = desk.rest();
    if let Some(i) = rest.sleepers.iter().position(|s| *s == own) {
        rest.sleepers.swap_remove(i);
    }
    if ready.event && !rest.is_up() {
        host.lower();
    }
    Some((desk, ready))
}

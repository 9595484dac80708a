//! How long a waiting thread polls before it sleeps, on a machine that others may use as well.
//!
//! Polling pays while the core would be idle otherwise. A thread that polls on a core that another thread wants is
//! stopped when its time slice is over, and comes back milliseconds late; or it keeps the very PE from the core for
//! which it waits. A thread that sleeps is run as soon as it is woken. So a thread that finds its core taken does not
//! poll for a while, then tries again; the while doubles each time that the core is taken again.
//!
//! A thread that polls in vain again and again, and sleeps in the end, gains nothing either. What it waits for may be
//! another thread that waits for a core, which the system would have moved to this one, had this thread slept.
//!
//! `Policy` decides, from times alone; each thread has its own, for all its waits. A thread learns in three ways that
//! its core is taken:
//! * Between two looks at the clock, some microseconds apart, milliseconds have passed.
//! * It has polled in vain and offered its core before it sleeps, and another thread has taken the offer.
//! * It has had less processor time than has passed, though it has slept nowhere ([`Usage`]). This shows what happens
//!   while the program computes, and in waits that are shorter than the distance of two looks. It takes two system
//!   calls, at most once in `EVERY_NS`, and none in a wait of fewer than `LOOK_EVERY` polls.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use shmem_verbs::usage::Usage;

/// How often a thread that has polled long enough offers its core to others before it sleeps.
pub(crate) const YIELD_ROUNDS: u32 = 16;
/// Polls between two looks at the clock.
const LOOK_EVERY: u32 = 32;
/// So many polls take a few microseconds, a time slice takes milliseconds.
const STOPPED_NS: u64 = 1_000_000;
/// A thread that is without its core for so long after it offered the core has made room for another one that computes
/// or polls. Threads of the library and of the kernel need less.
const OFFERED_NS: u64 = 100_000;
/// Time between two looks at the processor time.
const EVERY_NS: u64 = 1_000_000;
/// Time after which processor time is compared from a new beginning.
const WINDOW_NS: u64 = 4_000_000;
/// A core is taken if a thread is without it for [`STOPPED_NS`] and for one in so many nanoseconds.
const SHARE: u64 = 16;
/// So many waits in a row that poll in vain are too many.
const MOST_VAIN: u32 = 3;
/// How long a thread does not poll after its core was taken, at first and at most. A try costs a time slice.
const FIRST_PENALTY_NS: u64 = 20_000_000;
const LAST_PENALTY_NS: u64 = 1_000_000_000;
/// How long at most because it polled in vain. A try costs less than a millisecond, and the program may wait for
/// something else soon.
const LAST_PENALTY_OF_VAIN_NS: u64 = 160_000_000;

/// Whether polling pays, for one thread. Times are nanoseconds of any clock.
#[derive(Debug, Clone, Copy)]
struct Policy {
    /// Polling does not pay before this time.
    pays_from: u64,
    /// How long it did not, the last time.
    penalty: u64,
    /// When to look at the processor time.
    compare_at: u64,
    /// When that was looked at to compare with, and what it was.
    since: Option<(u64, Usage)>,
    /// Waits that have polled in vain since one has not.
    vain: u32,
}

impl Policy {
    const NEW: Self = Self {
        pays_from: 0,
        penalty: 0,
        compare_at: 0,
        since: None,
        vain: 0,
    };

    /// Whether a wait that begins now is to poll.
    fn polls(&self, now: u64) -> bool {
        now >= self.pays_from
    }

    /// A poller looked at the clock before and now. Returns whether it goes on.
    fn looked(&mut self, before: Option<u64>, now: u64) -> bool {
        let stopped = before.is_some_and(|before| now.saturating_sub(before) > STOPPED_NS);
        if stopped {
            self.rest(LAST_PENALTY_NS, now);
        }
        !stopped
    }

    /// The thread has offered its core, and has it again after so long.
    fn offered(&mut self, took: u64, now: u64) {
        if took > OFFERED_NS && self.polls(now) {
            self.rest(LAST_PENALTY_NS, now);
        }
    }

    /// A wait has polled as often as it may.
    fn in_vain(&mut self, now: u64) {
        self.vain = self.vain.saturating_add(1);
        if self.vain >= MOST_VAIN {
            self.rest(LAST_PENALTY_OF_VAIN_NS, now);
        }
    }

    /// The thread has used so much. Returns whether it goes on polling.
    fn used(&mut self, usage: Usage, now: u64) -> bool {
        self.compare_at = now + EVERY_NS;
        let Some((then, before)) = self.since.filter(|(_, u)| u.sleeps == usage.sleeps) else {
            // The time in which the thread slept says nothing of its core.
            self.since = Some((now, usage));
            return true;
        };
        let passed = now.saturating_sub(then);
        let without = passed.saturating_sub(usage.cpu_ns.saturating_sub(before.cpu_ns));
        if without > STOPPED_NS && without > passed / SHARE {
            self.rest(LAST_PENALTY_NS, now);
            return false;
        }
        if passed > WINDOW_NS {
            self.since = Some((now, usage));
        }
        true
    }

    /// Polling does not pay for a while, which is `most` at most.
    fn rest(&mut self, most: u64, now: u64) {
        let again = self.penalty > 0 && now < self.pays_from + 2 * self.penalty;
        self.penalty = match again {
            true => (2 * self.penalty).min(most.max(self.penalty)),
            false => FIRST_PENALTY_NS,
        };
        self.pays_from = now + self.penalty;
        self.since = None;
    }
}

thread_local! {
    static POLICY: Cell<Policy> = const { Cell::new(Policy::NEW) };
}

/// Changes this thread's policy.
fn with<R>(f: impl FnOnce(&mut Policy) -> R) -> R {
    POLICY.with(|cell| {
        let mut policy = cell.get();
        let result = f(&mut policy);
        cell.set(policy);
        result
    })
}

/// Nanoseconds since the first call.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Offers the core to other threads, after polls in vain.
pub fn offer_core() {
    let before = now();
    std::thread::yield_now();
    let after = now();
    with(|policy| policy.offered(after - before, after));
}

/// The core was offered, and the thread has it again after `took`.
pub fn offered_core(took: Duration) {
    with(|policy| policy.offered(took.as_nanos() as u64, now()));
}

/// How many polls a wait may have.
#[derive(Debug)]
pub struct SpinLimit(u32);

impl SpinLimit {
    /// At most `limit` polls without an event; 0: never poll.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self(limit)
    }

    /// How many polls a wait may have, whatever the thread has seen of its core.
    #[must_use]
    pub const fn most(&self) -> u32 {
        self.0
    }

    /// Begins a wait.
    #[must_use]
    #[inline]
    pub fn spin(&self) -> Spin {
        let Policy {
            pays_from, vain, ..
        } = POLICY.with(Cell::get);
        let polls = match self.0 > 0 && pays_from > 0 {
            true => self.after_rest(),
            false => self.0,
        };
        Spin {
            polls,
            left: polls,
            looked: None,
            after_vain: vain > 0,
        }
    }

    #[cold]
    fn after_rest(&self) -> u32 {
        let now = now();
        match with(|policy| policy.polls(now)) {
            true => self.0,
            false => 0,
        }
    }

    /// Whether `spin` may poll once more.
    #[inline]
    pub fn again(&self, spin: &mut Spin) -> bool {
        if spin.left == 0 {
            return false;
        }
        spin.left -= 1;
        !spin.left.is_multiple_of(LOOK_EVERY) || spin.look()
    }
}

/// One wait.
#[derive(Debug)]
pub struct Spin {
    /// How many it may have; 0 if polling does not pay.
    polls: u32,
    left: u32,
    /// The last look at the clock.
    looked: Option<u64>,
    /// Whether an earlier wait has polled in vain.
    after_vain: bool,
}

impl Spin {
    #[inline(never)]
    fn look(&mut self) -> bool {
        let now = now();
        let before = self.looked.replace(now);
        let goes_on = with(|policy| {
            policy.looked(before, now)
                && (now < policy.compare_at || policy.used(Usage::of_this_thread(), now))
        });
        if !goes_on {
            (self.polls, self.left) = (0, 0);
        } else if self.left == 0 {
            with(|policy| policy.in_vain(now));
        }
        goes_on
    }

    /// What the wait was for has come while it polled, or soon after.
    #[inline]
    pub fn succeeded(&self) {
        if self.after_vain && self.left > 0 {
            with(|policy| policy.vain = 0);
        }
    }

    /// Whether the wait may not poll any more, though polling pays.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.left == 0 && self.polls > 0
    }

    /// Something has happened: waiting begins anew.
    #[inline]
    pub fn renew(&mut self) {
        self.left = self.polls;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn usage(cpu_ns: u64, sleeps: u64) -> Usage {
        Usage { cpu_ns, sleeps }
    }

    #[test]
    fn polls_are_limited_and_renewed_by_events() {
        let limit = SpinLimit::new(31);
        let mut spin = limit.spin();
        assert_eq!((0..100).filter(|_| limit.again(&mut spin)).count(), 31);
        let mut spin = limit.spin();
        assert!((0..30).all(|_| limit.again(&mut spin)));
        spin.renew();
        assert_eq!((0..100).filter(|_| limit.again(&mut spin)).count(), 31);
        let never = SpinLimit::new(0);
        assert!(!never.again(&mut never.spin()));
    }

    #[test]
    fn a_thread_that_is_stopped_while_it_polls_does_not_poll_for_a_while() {
        let mut policy = Policy::NEW;
        assert!(policy.polls(0));
        assert!(policy.looked(None, 5 * MS));
        assert!(policy.looked(Some(5 * MS), 5 * MS + 2000));
        assert!(policy.looked(Some(5 * MS), 6 * MS));
        assert!(!policy.looked(Some(6 * MS), 10 * MS));
        assert!(!policy.polls(10 * MS + FIRST_PENALTY_NS - 1));
        assert!(policy.polls(10 * MS + FIRST_PENALTY_NS));
    }

    #[test]
    fn the_while_doubles_if_the_core_is_taken_again_and_is_short_again_later() {
        let mut policy = Policy::NEW;
        let mut now = 0;
        let mut penalties = Vec::new();
        for _ in 0..8 {
            // It tries again, and is stopped at once.
            assert!(!policy.looked(Some(now), now + 4 * MS));
            penalties.push(policy.penalty / MS);
            now = policy.pays_from;
            assert!(policy.polls(now));
        }
        assert_eq!(penalties, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        // For two seconds all went well.
        now += 2 * LAST_PENALTY_NS;
        assert!(!policy.looked(Some(now), now + 4 * MS));
        assert_eq!(policy.penalty, FIRST_PENALTY_NS);
    }

    #[test]
    fn a_thread_that_polls_in_vain_again_and_again_stops() {
        let mut policy = Policy::NEW;
        policy.in_vain(MS);
        policy.in_vain(2 * MS);
        assert!(policy.polls(2 * MS));
        policy.vain = 0;
        policy.in_vain(3 * MS);
        policy.in_vain(4 * MS);
        assert!(policy.polls(4 * MS));
        policy.in_vain(5 * MS);
        // Now one try is enough, and there is one again and again.
        let mut now = 5 * MS;
        for _ in 0..10 {
            assert!(!policy.polls(now));
            now = policy.pays_from;
            assert!(policy.polls(now));
            policy.in_vain(now);
        }
        assert_eq!(policy.penalty, LAST_PENALTY_OF_VAIN_NS);
    }

    #[test]
    fn a_wait_that_ends_well_makes_good_for_those_that_did_not() {
        let limit = SpinLimit::new(10);
        let fail = || {
            let mut spin = limit.spin();
            while limit.again(&mut spin) {}
        };
        for _ in 0..2 * MOST_VAIN {
            fail();
            let mut spin = limit.spin();
            assert!(limit.again(&mut spin));
            spin.succeeded();
        }
        (0..MOST_VAIN).for_each(|_| fail());
        assert!(!limit.again(&mut limit.spin()));
    }

    #[test]
    fn an_offer_that_others_take_ends_polling_and_others_do_not() {
        let mut policy = Policy::NEW;
        policy.offered(OFFERED_NS, 5 * MS);
        assert!(policy.polls(5 * MS));
        policy.offered(MS / 2, 6 * MS);
        assert!(!policy.polls(6 * MS));
        // A thread that does not poll offers its core as well. That says nothing of polling.
        policy.offered(4 * MS, 10 * MS);
        assert!(policy.polls(6 * MS + FIRST_PENALTY_NS));
        policy.offered(4 * MS, 30 * MS);
        assert_eq!(policy.penalty, 2 * FIRST_PENALTY_NS);
    }

    #[test]
    fn processor_time_that_is_missing_tells_of_others() {
        let mut policy = Policy::NEW;
        assert!(policy.used(usage(50 * MS, 7), 100 * MS));
        assert_eq!(policy.compare_at, 101 * MS);
        // Two PEs on one core, each of which polls for half a millisecond until the other one runs.
        assert!(policy.used(usage(50 * MS + MS / 2, 7), 101 * MS));
        assert!(policy.used(usage(51 * MS, 7), 102 * MS));
        assert!(!policy.used(usage(51 * MS + MS / 2, 7), 103 * MS));
        assert!(!policy.polls(103 * MS));
        // After the while there is a new beginning.
        assert!(policy.used(usage(52 * MS, 7), 200 * MS));
        assert!(policy.used(usage(53 * MS, 7), 201 * MS));
    }

    #[test]
    fn time_asleep_and_short_interruptions_tell_nothing() {
        let mut policy = Policy::NEW;
        let mut cpu = 0;
        for ms in 1..1000 {
            // A thread of the library has its turn each millisecond, for some microseconds.
            cpu += MS - MS / 50;
            assert!(policy.used(usage(cpu, 7), ms * MS), "{ms}");
        }
        assert!(policy.used(usage(cpu, 8), 5000 * MS));
        assert!(policy.used(usage(cpu + MS, 8), 5001 * MS));
        // The program has computed for long, and was without the core a little.
        assert!(policy.used(usage(cpu + 500 * MS, 8), 5510 * MS));
        // Or much.
        assert!(!policy.used(usage(cpu + 900 * MS, 8), 6010 * MS));
    }
}

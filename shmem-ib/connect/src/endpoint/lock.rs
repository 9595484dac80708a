//! The endpoint's lock, and how threads wait for something that needs progress.
//!
//! A thread that waits makes progress itself. First it looks for completions again and again:
//! on a free core the answer takes a few microseconds. Then it offers its core to others: with
//! more PEs than cores, the peer that has to answer may need it. Then it sleeps in the
//! completion channel. The lock is never held while yielding or sleeping, so other threads post
//! and poll meanwhile.
//!
//! If thread A sleeps there and thread B finds the completion that A waits for, nothing would
//! wake A before its sleep ends. Therefore a thread that releases the lock after any
//! event wakes sleepers ([`Hca::wake`]): most waits are for a number of operations, for room or for a slot, and so
//! every completion may be the one. A has read the number of wake-ups under the lock, so it
//! learns of that one even if it is not asleep yet, or another thread has returned for it.
//!
//! A thread that polls gives the lock up for nanoseconds only, and another thread that sleeps for the lock would come
//! too late each time. Therefore threads that wait for the lock stand in a line, and while there is a line nobody passes
//! it: a thread waits for what others do with the lock once, not again and again.
//!
//! Nobody asks how long a sleep may last because of connection timers: whoever releases the lock
//! tells the HCA the next deadline ([`Hca::set_alarm`]) if it has changed, so that the sleepers of
//! that moment hear of it, too. It is told under the lock, or else an older deadline could come last.
//!
//! The models in `tests/loom` compile this file against loom's locks.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};
use std::task::Waker;
use std::time::Duration;

use super::asleep::Asleep;
use super::awaited::{Awaited, Told, Watch};
use super::driver::Driver;
use super::error::ConnError;
use super::operations::accounts::Gauge;
use crate::spin::{self, Spin, SpinLimit, YIELD_ROUNDS};
use crate::sync::{AtomicBool, AtomicU32, Condvar, Mutex, MutexGuard, Ordering};
use shmem_verbs::Hca;

/// Shortest and longest sleep. Completions, timers and other threads end it, so the longest is only a
/// safeguard: thousands of PEs that wait for one must not look again and again.
const FIRST_SLEEP: Duration = Duration::from_micros(250);
const LAST_SLEEP: Duration = Duration::from_secs(1);

/// Told of the failure of an HCA.
pub(super) type Tell = Box<dyn Fn(&ConnError) + Send + Sync>;

/// The network side of one PE. See the [module](super).
pub struct Endpoint<H: Hca> {
    pub(super) hca: Arc<H>,
    locked: Mutex<Inside<H>>,
    line: Line,
    /// Who executes atomics.
    pub(super) by_owner: bool,
    /// Whether an HCA's writes and atomics, and the processor's, exclude each other on a word.
    pub(super) coherent: bool,
    /// Atomics of several steps that have not ended.
    pub(super) composed: Gauge,
    /// Threads that sleep in the completion channel while they wait for something.
    pub(super) asleep: Asleep,
    /// Signalled when the endpoint is closed.
    pub(super) gone: Condvar,
    pub(super) on_failure: OnceLock<Tell>,
    pub(super) on_wait: OnceLock<Box<dyn Watch>>,
    pub(super) on_fetch: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(super) spin_limit: SpinLimit,
    /// Whoever makes progress next is to close this endpoint: it is a branch, and the one that it belongs to
    /// is being closed.
    pub(super) parting: AtomicBool,
}

/// What the lock protects.
struct Inside<H: Hca> {
    driver: Driver<H>,
    /// Other endpoints of this PE that begin connections, and are closed with this one.
    branches: Vec<Arc<Endpoint<H>>>,
}

/// The threads that wait for the lock.
#[derive(Debug, Default)]
struct Line {
    length: AtomicU32,
    /// Held by the first one.
    first: Mutex<()>,
}

/// The locked endpoint.
pub(super) struct Locked<'a, H: Hca> {
    endpoint: &'a Endpoint<H>,
    guard: Option<MutexGuard<'a, Inside<H>>>,
    /// What it says of the endpoint was true of this opening.
    opening: u64,
}

impl<H: Hca> Endpoint<H> {
    pub(super) fn with(
        hca: Arc<H>,
        driver: Driver<H>,
        composed: Gauge,
        by_owner: bool,
        coherent: bool,
        spin_limit: SpinLimit,
    ) -> Self {
        Self {
            hca,
            locked: Mutex::new(Inside {
                driver,
                branches: Vec::new(),
            }),
            line: Line::default(),
            by_owner,
            coherent,
            composed,
            asleep: Asleep::default(),
            gone: Condvar::new(),
            on_failure: OnceLock::new(),
            on_wait: OnceLock::new(),
            on_fetch: OnceLock::new(),
            spin_limit,
            parting: AtomicBool::new(false),
        }
    }

    pub(super) fn lock(&self) -> Locked<'_, H> {
        let guard = self.guard();
        Locked {
            endpoint: self,
            opening: guard.driver.life.opening,
            guard: Some(guard),
        }
    }

    fn guard(&self) -> MutexGuard<'_, Inside<H>> {
        // Relaxed: a thread that does not see yet that another one waits passes it once.
        if self.line.length.load(Ordering::Relaxed) > 0 {
            return self.guard_in_turn();
        }
        match self.locked.try_lock() {
            Ok(guard) => guard,
            // The driver keeps its invariants at every point where it could panic.
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => self.guard_in_turn(),
        }
    }

    #[cold]
    fn guard_in_turn(&self) -> MutexGuard<'_, Inside<H>> {
        self.line.length.fetch_add(1, Ordering::Relaxed);
        let first = self.line.first.lock();
        let guard = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        self.line.length.fetch_sub(1, Ordering::Relaxed);
        drop(first);
        guard
    }
}

impl<H: Hca> Deref for Locked<'_, H> {
    type Target = Driver<H>;
    fn deref(&self) -> &Driver<H> {
        &self.inside().driver
    }
}

impl<H: Hca> DerefMut for Locked<'_, H> {
    fn deref_mut(&mut self) -> &mut Driver<H> {
        &mut self.inside_mut().driver
    }
}

impl<H: Hca> Drop for Locked<'_, H> {
    fn drop(&mut self) {
        self.unlock();
    }
}

impl<'a, H: Hca> Locked<'a, H> {
    fn inside(&self) -> &Inside<H> {
        self.guard.as_ref().expect("taken only inside `unlocked`")
    }

    fn inside_mut(&mut self) -> &mut Inside<H> {
        self.guard.as_mut().expect("taken only inside `unlocked`")
    }

    /// The endpoint's branches.
    pub(super) fn branches(&mut self) -> &mut Vec<Arc<Endpoint<H>>> {
        &mut self.inside_mut().branches
    }

    fn unlock(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            guard.driver.set_alarm();
            let notices = &mut guard.driver.notices;
            let happened = std::mem::take(&mut notices.happened);
            let fetched = std::mem::take(&mut notices.fetched);
            let wakers = match happened {
                true => std::mem::take(&mut notices.wakers),
                false => Vec::new(),
            };
            let failure = happened.then(|| notices.failure.take()).flatten();
            drop(guard);
            if happened && self.endpoint.asleep.anybody() {
                self.endpoint.hca.wake();
            }
            wakers.into_iter().for_each(Waker::wake);
            if let Some(tell) = self.endpoint.on_fetch.get().filter(|_| fetched) {
                tell();
            }
            if let (Some(error), Some(tell)) = (failure, self.endpoint.on_failure.get()) {
                tell(&error);
            }
        }
    }

    /// Runs `f` without the lock.
    ///
    /// # Panics
    /// If the endpoint was opened anew meanwhile: nothing that the caller knows is true any more.
    pub(super) fn unlocked<R>(&mut self, f: impl FnOnce(&Endpoint<H>) -> R) -> R {
        self.unlock();
        let result = f(self.endpoint);
        let guard = self.endpoint.guard();
        assert!(
            guard.driver.life.opening == self.opening,
            "an operation was under way in an endpoint that was closed and opened again: no thread may \
             use the library during the last finalize and the init after it"
        );
        self.guard = Some(guard);
        result
    }

    /// Makes progress until `condition` yields something. `what` says what that is, to who is told of
    /// long waits.
    pub(super) fn wait_until<R>(
        &mut self,
        what: impl Fn(&Driver<H>) -> Awaited,
        mut condition: impl FnMut(&mut Driver<H>) -> Option<R>,
    ) -> R {
        let mut backoff = self.backoff();
        loop {
            if let Some(result) = condition(self) {
                backoff.spin.succeeded();
                return result;
            }
            if self.poll() {
                backoff.renew();
            } else {
                self.pause(&mut backoff, &what);
            }
        }
    }

    /// Begins a wait.
    pub(super) fn backoff(&self) -> Backoff<'a> {
        Backoff {
            spin: self.endpoint.spin_limit.spin(),
            yields: YIELD_ROUNDS,
            sleep: FIRST_SLEEP,
            told: None,
        }
    }

    /// Tells of a wait for `what`, if somebody wants to know, until the result is dropped.
    pub(super) fn tell(&self, what: Awaited) -> Option<Told<'a>> {
        let watch = self.endpoint.on_wait.get()?;
        Told::begin(&**watch, what)
    }

    /// Lets others have the lock, later the core, and in the end sleeps until the HCA has work.
    pub(super) fn pause(
        &mut self,
        backoff: &mut Backoff<'a>,
        what: impl Fn(&Driver<H>) -> Awaited,
    ) {
        if self.endpoint.spin_limit.again(&mut backoff.spin) {
            // No pause: the poll before was a system call, and the answer may be here.
            self.unlocked(|_| ());
        } else if backoff.yields > 0 {
            backoff.yields -= 1;
            self.unlocked(|_| spin::offer_core());
        } else {
            match &backoff.told {
                Some(told) => told.go_on(what(self)),
                None => backoff.told = self.tell(what(self)),
            }
            let time = backoff.sleep;
            backoff.sleep = (backoff.sleep * 2).min(LAST_SLEEP);
            self.sleep(time);
        }
    }

    /// Sleeps until the HCA has work or another thread has done it, at most `time`.
    pub(super) fn sleep(&mut self, time: Duration) {
        self.endpoint.asleep.enter();
        let wakes = self.endpoint.hca.wakes();
        self.unlocked(|endpoint| {
            endpoint.hca.wait_since(wakes, time);
            endpoint.asleep.leave();
        });
    }

    /// Sleeps until another thread has closed the endpoint; at most `max`, or longer for no reason.
    pub(super) fn until_closed(&mut self, max: Duration) {
        if let Some(mut guard) = self.guard.take() {
            guard.driver.life.await_end += 1;
            let gone = &self.endpoint.gone;
            let mut over = false;
            while !over && !guard.driver.life.closed && guard.driver.life.opening == self.opening {
                let (woken, time) = gone
                    .wait_timeout(guard, max)
                    .unwrap_or_else(PoisonError::into_inner);
                (guard, over) = (woken, time.timed_out());
            }
            guard.driver.life.await_end -= 1;
            self.opening = guard.driver.life.opening;
            self.guard = Some(guard);
        }
    }

    /// Destroys everything, and wakes those who wait for that.
    pub(super) fn end(&mut self) {
        if !self.life.closed {
            self.tear_down();
        }
        if self.life.await_end > 0 {
            self.endpoint.gone.notify_all();
        }
    }
}

/// How long a waiting thread still does what, before it sleeps.
pub(super) struct Backoff<'a> {
    spin: Spin,
    yields: u32,
    sleep: Duration,
    told: Option<Told<'a>>,
}

impl Backoff<'_> {
    /// Something has happened.
    fn renew(&mut self) {
        self.spin.renew();
        self.yields = YIELD_ROUNDS;
        self.sleep = FIRST_SLEEP;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use crate::job::Job;

    /// The first thread of the line has not got a processor yet, although the lock is free.
    #[test]
    fn nobody_passes_a_thread_that_waits_for_the_lock() {
        let mut job = Job::new(1);
        job.pes[0].pause();
        let endpoint = &*job.pes[0].endpoint;
        let got = AtomicBool::new(false);
        thread::scope(|scope| {
            endpoint.line.length.fetch_add(1, Ordering::Relaxed);
            let first = endpoint.line.first.lock().unwrap();
            scope.spawn(|| {
                let _locked = endpoint.lock();
                got.store(true, Ordering::Relaxed);
            });
            let stands_in_line = || endpoint.line.length.load(Ordering::Relaxed) == 2;
            while !stands_in_line() && !got.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            assert!(!got.load(Ordering::Relaxed));
            endpoint.line.length.fetch_sub(1, Ordering::Relaxed);
            drop(first);
        });
        assert_eq!(endpoint.line.length.load(Ordering::Relaxed), 0);
    }
}

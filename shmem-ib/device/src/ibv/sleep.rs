//! How threads sleep on a device. The decisions are those of [`shmem_verbs::provider::sleep`]; here is
//! what they are about.
//!
//! All completion queues report to one channel, which sleepers watch. Before a thread sleeps it asks
//! each of these queues for an announcement, and then looks whether a completion came before that: the
//! only way to look is to take it, so it goes to the queue's stash. A completion after the question is
//! announced, and ends the sleep.
//!
//! While the application polls it finds completions itself, and announcements would only wake a progress
//! thread for nothing; [`shmem_verbs::provider::sleep`] lets that nap without the channel, and
//! announcements that were asked for come at most once.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use super::hca::VerbsHca;
use super::sleepers::{State, ask};
use shmem_verbs::Completion;
use shmem_verbs::provider::Timer;
use shmem_verbs::provider::sleep::{Desk, Host, Polls, Ready, Rest, Watch};

/// The locked state.
pub(crate) struct Locked<'a> {
    hca: &'a VerbsHca,
    state: MutexGuard<'a, State>,
}

impl Desk for Locked<'_> {
    fn rest(&mut self) -> &mut Rest {
        &mut self.state.rest
    }

    /// The device keeps its timers itself. Only a port that is down has a time of ours, and the look
    /// at it is made by whoever asks for a failure.
    fn next_timeout(&mut self) -> Option<u64> {
        let left = self.hca.port.events.left()?;
        Some(Sleeper(self.hca).now() + left)
    }

    fn has_unpolled(&self) -> bool {
        // Each is asked, even if an earlier one has something already. That one cannot be polled is a
        // failure, which may be found here.
        let look = |any: bool, number: &u32| self.hca.ask_and_look(*number) | any;
        let any = self.state.queues.iter().fold(false, look);
        any || self.hca.failure_is_news()
    }

    /// Takes announcements. That completions are there shows when they are looked for. Those who
    /// sleep on have asked for announcements, too, and are to get the next ones.
    fn pump(&mut self) -> bool {
        let mut announced = SmallVec::<[u32; 4]>::new();
        while let Some(number) = self.hca.bell.take_event() {
            if let Some(cq) = self.hca.cqs.get(number) {
                // Relaxed: changed and read only under this mutex.
                cq.armed.store(false, Ordering::Relaxed);
            }
            announced.push(number);
        }
        if self.state.rest.anybody() {
            for cq in announced.iter().filter_map(|n| self.hca.cqs.get(*n)) {
                ask(&cq);
            }
        }
        std::mem::take(&mut self.state.event)
    }

    fn tidy_at(&self, _now: u64) -> Option<u64> {
        None
    }

    fn tidy(&mut self) {}
}

impl VerbsHca {
    /// Whether a failure has to end this sleep.
    fn failure_is_news(&self) -> bool {
        let told = &self.found.failure_told;
        self.port.events.failed().is_some() && !told.swap(true, Ordering::Relaxed)
    }

    /// Asks a queue to announce its next completion, and says whether it has one already.
    fn ask_and_look(&self, number: u32) -> bool {
        // Alone: a poller which came between taking a completion and putting it into the stash
        // would get later ones first.
        let Some(cq) = self.cqs.alone(number) else {
            return false;
        };
        if !cq.stash.is_empty() {
            return true;
        }
        ask(&cq);
        let mut one = [Completion::EMPTY];
        if self.take_from_device(&cq, &mut one) == 0 {
            return false;
        }
        cq.stash.put(&one);
        true
    }
}

/// A device as its sleepers see it.
pub(crate) struct Sleeper<'h>(pub(crate) &'h VerbsHca);

impl Host for Sleeper<'_> {
    type Desk<'a>
        = Locked<'a>
    where
        Self: 'a;

    fn now(&self) -> u64 {
        self.0.sleepers.started.elapsed().as_nanos() as u64
    }

    fn lock(&self) -> Locked<'_> {
        Locked {
            hca: self.0,
            state: self.0.sleepers.lock(),
        }
    }

    fn polls(&self) -> &Polls {
        &self.0.sleepers.polls
    }

    fn sleep(&self, watch: Watch, time: Duration) -> Ready {
        let sleepers = &self.0.sleepers;
        let bell = watch.wire.then(|| self.0.bell.fd());
        let event = watch.event.then(|| sleepers.event.as_fd());
        let timer = sleepers.timer.as_ref().filter(|_| watch.wire);
        let timer = timer.map(AsFd::as_fd);
        // A device that is gone would not let anybody sleep.
        let events = &self.0.port.events;
        let alive = events.failed().is_none();
        let asynchronous = alive.then(|| events.fd());
        let found = sleep([bell, event, timer, asynchronous], time);
        let [bell, event, timer, asynchronous] = found.map(|events| events != 0);
        if asynchronous {
            let any = events.take();
            if !any && found[3] & (libc::POLLERR | libc::POLLHUP) != 0 {
                events.fail("it is gone, or was taken from this process".to_owned());
            }
            sleepers.lock().event = true;
        }
        Ready {
            packet: bell | asynchronous,
            event,
            timer,
        }
    }

    fn arm(&self, delay: Duration) -> bool {
        let timer = self.0.sleepers.timer.as_ref();
        timer.inspect(|timer| timer.arm(delay)).is_some()
    }

    fn take_timer(&self) -> bool {
        self.0.sleepers.timer.as_ref().is_some_and(Timer::take)
    }

    fn raise(&self) {
        self.0.sleepers.event.signal();
    }

    fn lower(&self) {
        self.0.sleepers.event.take();
    }
}

/// Sleeps until one of these is readable or the time is over; returns what is to be said of each.
fn sleep(fds: [Option<BorrowedFd<'_>>; 4], max: Duration) -> [libc::c_short; 4] {
    // A negative descriptor is skipped by the kernel.
    let mut polled = fds.map(|fd| libc::pollfd {
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    });
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(max.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: max.subsec_nanos().into(),
    };
    let n = polled.len() as libc::nfds_t;
    // SAFETY: `polled` and `time` are alive; no signal mask is given.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), n, &raw const time, ptr::null()) };
    // Nothing: time is over, or a signal came, and the caller looks.
    polled.map(|p| if ready > 0 { p.revents } else { 0 })
}

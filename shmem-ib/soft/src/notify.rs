//! Descriptors that tell a program when to look: of completion channels, and of asynchronous events.
//!
//! A program that sleeps in `poll` on such a descriptor is the only one who moves the wire, perhaps.
//! So the descriptor has to become readable not only for an event, but also for a packet (which may
//! turn into one) and for a timer (a lost packet has to be sent again). It is an epoll instance over
//! three descriptors: the HCA's socket, a timer, and an eventfd of its own. [`get_cq_event`] and
//! [`poll_async`] move the wire when they find nothing.
//!
//! *The eventfd* is raised exactly while its queue of events is not empty. That is made so whenever
//! the HCA is unlocked, by whichever thread: see [`SoftHca::tell`].
//!
//! *The timer* is one for all descriptors, and apart from the one of threads in [`wait`], whose
//! sleep is known to the HCA while sleeps on these descriptors are not: it has to be right at any time
//! once such a descriptor exists. It is only ever set to an earlier time; a deadline that has moved on
//! costs one look for nothing.
//!
//! Descriptors are closed with the HCA and not before, so that nobody holds one that has become
//! another file: a channel that is destroyed leaves its descriptor to the next one.
//!
//! [`get_cq_event`]: shmem_verbs::Hca::get_cq_event
//! [`poll_async`]: shmem_verbs::Hca::poll_async
//! [`wait`]: shmem_verbs::Hca::wait

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use super::hca::{Inner, Locked, Sleeper, SoftHca};
use shmem_verbs::provider::{Epoll, Event, Timer, sleep};
use shmem_verbs::{AsyncEvent, CompChannel, Cq, VerbsError};

/// When to look whether the kernel has room for what is to be sent: its buffers hold less than a link
/// sends in so long.
const ROOM_AGAIN_NS: u64 = 1_000_000;

/// A descriptor, and the eventfd in it.
#[derive(Debug)]
struct Sign {
    epoll: Epoll,
    event: Event,
}

/// A sign, and those made after it.
#[derive(Debug)]
struct Link {
    sign: Sign,
    next: Signs,
}

/// A list that only grows, so that what it holds can be lent.
#[derive(Debug, Default)]
struct Signs(OnceLock<Box<Link>>);

impl Signs {
    fn iter(&self) -> impl Iterator<Item = &Sign> {
        let links = std::iter::successors(self.0.get(), |link| link.next.0.get());
        links.map(|link| &link.sign)
    }

    /// The place behind the last.
    fn end(&self) -> &OnceLock<Box<Link>> {
        let mut end = &self.0;
        while let Some(link) = end.get() {
            end = &link.next.0;
        }
        end
    }
}

/// What an HCA has of these descriptors.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    /// By number of the channel.
    channels: Signs,
    asynchronous: OnceLock<Sign>,
    timer: OnceLock<Timer>,
}

/// What is known of them under the lock.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// When the timer fires.
    armed: Option<u64>,
    /// Which channels' eventfds are raised.
    channels: Vec<bool>,
    asynchronous: bool,
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> VerbsError {
    let what = what.to_owned();
    move |source| VerbsError::Io { what, source }
}

impl SoftHca {
    fn sign(&self) -> io::Result<Sign> {
        if self.notifier.timer.get().is_none() {
            // Should another thread be faster, its timer is the one.
            let _ = self.notifier.timer.set(Timer::new()?);
        }
        let sign = Sign {
            epoll: Epoll::new()?,
            event: Event::new()?,
        };
        sign.epoll.add(self.socket.as_fd())?;
        sign.epoll.add(sign.event.as_fd())?;
        if let Some(timer) = self.notifier.timer.get() {
            sign.epoll.add(timer.as_fd())?;
        }
        Ok(sign)
    }

    pub(super) fn new_channel(&self) -> Result<CompChannel, VerbsError> {
        let mut inner = self.lock();
        let channel = inner.engine.create_comp_channel()?;
        let wanted = channel.0 as usize;
        while self.notifier.channels.iter().count() <= wanted {
            match self.sign() {
                // Under the lock, so that nobody else adds one here.
                Ok(sign) => {
                    let next = Signs::default();
                    let _ = self
                        .notifier
                        .channels
                        .end()
                        .set(Box::new(Link { sign, next }));
                    inner.told.channels.push(false);
                }
                Err(source) => {
                    inner.engine.destroy_comp_channel(channel)?;
                    return Err(failed("cannot make the descriptor of a channel")(source));
                }
            }
        }
        Ok(channel)
    }

    pub(super) fn channel_fd(&self, channel: CompChannel) -> Result<BorrowedFd<'_>, VerbsError> {
        self.lock().engine.check_comp_channel(channel)?;
        let sign = self.notifier.channels.iter().nth(channel.0 as usize);
        let sign = sign.ok_or(VerbsError::NoSuchChannel(channel))?;
        Ok(sign.epoll.as_fd())
    }

    pub(super) fn event_fd(&self) -> Result<BorrowedFd<'_>, VerbsError> {
        let _inner = self.lock(); // Events that are there already are told when it is released.
        if self.notifier.asynchronous.get().is_none() {
            let sign = self
                .sign()
                .map_err(failed("cannot make the descriptor of events"))?;
            let _ = self.notifier.asynchronous.set(sign);
        }
        match self.notifier.asynchronous.get() {
            Some(sign) => Ok(sign.epoll.as_fd()),
            None => Err(VerbsError::Unsupported {
                what: "a descriptor for asynchronous events",
            }),
        }
    }

    pub(super) fn next_cq_event(&self, channel: CompChannel) -> Option<Cq> {
        let mut inner = self.lock();
        if !inner.engine.has_cq_event(channel) {
            self.look(&mut inner);
        }
        inner.engine.get_cq_event(channel)
    }

    pub(super) fn next_async(&self) -> Option<AsyncEvent> {
        let mut inner = self.lock();
        if !inner.engine.has_async() {
            self.look(&mut inner);
        }
        inner.engine.poll_async()
    }

    /// Moves the wire for somebody who was woken by a descriptor.
    fn look<'a>(&'a self, inner: &mut Locked<'a>) {
        if let Some(timer) = self.notifier.timer.get()
            && timer.take()
        {
            inner.told.armed = None;
        }
        self.pump(inner);
        if inner.rest.anybody() {
            let now = self.now();
            sleep::announce(&Sleeper(self), inner, now);
        }
    }

    /// Brings the descriptors up to date. Called before every unlocking.
    #[inline]
    pub(super) fn tell(&self, inner: &mut Inner) {
        if let Some(timer) = self.notifier.timer.get() {
            self.tell_signs(inner, timer);
        }
    }

    fn tell_signs(&self, inner: &mut Inner, timer: &Timer) {
        let Inner {
            engine,
            told,
            outbox,
            cut_short,
            ..
        } = inner;
        let set = |sign: &Sign, raised: &mut bool, wanted: bool| {
            match (*raised, wanted) {
                (false, true) => sign.event.signal(),
                (true, false) => sign.event.take(),
                _ => {}
            }
            *raised = wanted;
        };
        let signs = self.notifier.channels.iter().zip(&mut told.channels);
        for (channel, (sign, raised)) in (0..).map(CompChannel).zip(signs) {
            set(sign, raised, engine.has_cq_event(channel));
        }
        if let Some(sign) = self.notifier.asynchronous.get() {
            set(sign, &mut told.asynchronous, engine.has_async());
        }
        let mut next = engine.next_timeout();
        if !outbox.waiting().is_empty() {
            // These descriptors do not tell when the kernel has room again.
            let soon = self.now() + ROOM_AGAIN_NS;
            next = Some(next.map_or(soon, |at| at.min(soon)));
        } else if *cut_short {
            next = Some(0);
        }
        if let Some(at) = next
            && told.armed.is_none_or(|armed| at < armed)
        {
            timer.arm(Duration::from_nanos(at.saturating_sub(self.now())));
            told.armed = Some(at);
        }
    }
}

//! Descriptors that wake sleepers: an event of another thread, and a timer.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// An event that wakes a sleeper.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// One that has not happened.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
        )?))
    }

    /// It has happened.
    pub fn signal(&self) {
        // The only failure is a full counter, which is a signal.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Takes the signal, if there is one.
    pub fn take(&self) {
        drain(&self.0);
    }
}

/// Takes what an eventfd or timerfd has counted; says whether that was anything.
fn drain(fd: &OwnedFd) -> bool {
    rustix::io::read(fd, &mut [0; 8]) == Ok(8)
}

/// A timer that ends a sleep, for a thread which is not the sleeper.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// One that never fires.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Fires once after `delay`.
    pub fn arm(&self, delay: Duration) {
        // Zero would disarm it.
        let delay = delay.max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: delay.as_secs().min(i32::MAX as u64) as i64,
                tv_nsec: delay.subsec_nanos().into(),
            },
        };
        // Nothing of it can be wrong.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }

    /// Takes that it has fired, if it has.
    pub fn take(&self) -> bool {
        drain(&self.0)
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

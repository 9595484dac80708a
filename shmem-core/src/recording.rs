//! Recording what this PE calls, where `shmrun --trace` or a page asked for it.
//!
//! A routine begins a record ([`begin`]) and says at its end what it was ([`end`]). Only the outermost routine of a
//! thread counts: a barrier is one call, whatever it is made of.

use std::cell::Cell;

use shmem_ib::connect::endpoint::{Endpoint, LinkChange};
use shmem_ib::device::Device;
use shmem_node::recording::{Event, Recorder, Routine};
use shmem_node::sys::monotonic_ns;

use crate::heap::address::SymAddr;

thread_local! {
    /// Whether this thread is in a routine that is recorded.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// When a routine began that is to be recorded; 0 if it is not. One that ends by a panic is not recorded.
#[must_use = "a call that begins ends"]
pub(crate) struct Begun(u64);

impl Begun {
    pub(crate) const UNRECORDED: Self = Self(0);

    /// Whether the routine is recorded.
    #[inline(always)]
    pub(crate) fn is_recorded(&self) -> bool {
        self.0 != 0
    }
}

impl Drop for Begun {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0 != 0 {
            INSIDE.set(false);
        }
    }
}

#[cold]
#[inline(never)]
pub(crate) fn begin(recorder: &Recorder) -> Begun {
    if !recorder.is_on() || INSIDE.replace(true) {
        return Begun::UNRECORDED;
    }
    Begun(monotonic_ns())
}

#[cold]
#[inline(never)]
pub(crate) fn end(recorder: &Recorder, begun: &Begun, call: &RecordedCall) {
    recorder.add(&Event {
        pe: call.pe,
        bytes: call.bytes as u64,
        at: call.at as u64,
        ..Event::of(call.routine, begun.0, monotonic_ns())
    });
}

/// What a call was.
pub(crate) struct RecordedCall {
    pub(crate) routine: Routine,
    /// The other PE, by its number in the job.
    pub(crate) pe: u32,
    pub(crate) bytes: usize,
    /// See [`Event::at`].
    pub(crate) at: usize,
}

impl RecordedCall {
    /// One that has to do with no PE and no word.
    pub(crate) const fn of(routine: Routine) -> Self {
        Self {
            routine,
            pe: Event::NOBODY,
            bytes: 0,
            at: 0,
        }
    }

    /// A one-sided operation on `pe` of the job.
    pub(crate) fn on(routine: Routine, pe: usize, bytes: usize, at: SymAddr) -> Self {
        Self {
            routine,
            pe: pe as u32,
            bytes,
            at: at.offset(),
        }
    }
}

/// A call that ends when this is dropped.
pub(crate) struct Scope {
    recorder: Recorder,
    begun: Begun,
    call: RecordedCall,
}

impl Scope {
    #[cold]
    pub(crate) fn begin(recorder: &Recorder, call: RecordedCall) -> Option<Self> {
        let begun = begin(recorder);
        (begun.0 != 0).then(|| Self {
            recorder: *recorder,
            begun,
            call,
        })
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        end(&self.recorder, &self.begun, &self.call);
    }
}

/// Records what becomes of an endpoint's connections.
pub(crate) fn watch_connections(recorder: Recorder, endpoint: &Endpoint<Device>) {
    endpoint.on_link(move |pe, change, queue_pairs| {
        let now = monotonic_ns();
        let (routine, took) = match change {
            LinkChange::Opened { took } => (Routine::Connect, took.unwrap_or(0)),
            LinkChange::Closed => (Routine::Disconnect, 0),
        };
        if recorder.is_on() {
            recorder.add(&Event {
                pe,
                bytes: queue_pairs.into(),
                ..Event::of(routine, now.saturating_sub(took), now)
            });
        }
    });
}

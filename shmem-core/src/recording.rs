//! Recording what this PE calls, where `shmrun --trace` or a page asked for it.
//!
//! A routine asks at its beginning ([`Runtime::call_begins`]) and tells at its end what it was. Only the outermost
//! routine of a thread counts: a barrier is one call, whatever it is made of. Operations on memory of
//! the own node take a few nanoseconds, and do not ask: where calls are recorded, no PE is near
//! ([`Runtime::plain_node`]), and they come by the way that those to other nodes take.

use std::cell::Cell;

use shmem_ib::connect::endpoint::{Endpoint, LinkChange};
use shmem_ib::device::Device;
use shmem_node::recording::{Event, Recorder, Routine};
use shmem_node::sys::monotonic_ns;

use crate::heap::address::Sym;
use crate::rma::Completion;
use crate::runtime::{Place, Runtime, try_rt};

thread_local! {
    /// Whether this thread is in a routine that is recorded.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// When a routine began that is to be recorded; 0 if it is not. One that ends by a panic is not recorded.
#[must_use = "a call that begins ends"]
pub(crate) struct Begun(u64);

impl Begun {
    const UNRECORDED: Self = Self(0);
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
fn begin(recorder: &Recorder) -> Begun {
    if !recorder.is_on() || INSIDE.replace(true) {
        return Begun::UNRECORDED;
    }
    Begun(monotonic_ns())
}

#[cold]
#[inline(never)]
fn end(recorder: &Recorder, begun: &Begun, call: &Call) {
    recorder.add(&Event {
        pe: call.pe,
        bytes: call.bytes as u64,
        at: call.at as u64,
        ..Event::of(call.routine, begun.0, monotonic_ns())
    });
}

/// What a call was.
pub(crate) struct Call {
    pub(crate) routine: Routine,
    /// The other PE, by its number in the job.
    pub(crate) pe: u32,
    pub(crate) bytes: usize,
    /// See [`Event::at`].
    pub(crate) at: usize,
}

impl Call {
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
    pub(crate) fn on(routine: Routine, pe: usize, bytes: usize, at: Sym) -> Self {
        Self {
            routine,
            pe: pe as u32,
            bytes,
            at: at.offset(),
        }
    }
}

/// The routine's form that completes so.
pub(crate) fn form(completion: Completion, blocking: Routine, nbi: Routine) -> Routine {
    match completion {
        Completion::OnReturn => blocking,
        Completion::AtRelease | Completion::AtQuiet => nbi,
    }
}

impl Runtime {
    /// A routine begins.
    #[inline(always)]
    pub(crate) fn call_begins(&self) -> Begun {
        match &self.recorder {
            None => Begun::UNRECORDED,
            Some(recorder) => begin(recorder),
        }
    }

    /// It has ended.
    #[inline(always)]
    pub(crate) fn call_ends(&self, begun: Begun, call: impl FnOnce() -> Call) {
        if begun.0 != 0
            && let Some(recorder) = &self.recorder
        {
            end(recorder, &begun, &call());
        }
    }

    /// Does an operation of the program on `pe` that is no plain access to memory, and records it if any is.
    #[inline]
    #[track_caller]
    pub(crate) fn watched<R>(
        &'static self,
        pe: usize,
        offset: usize,
        call: impl FnOnce() -> Call,
        act: impl FnOnce(Place) -> R,
    ) -> R {
        let begun = self.call_begins();
        let done = act(self.real_place(pe, offset));
        self.call_ends(begun, call);
        done
    }

    /// Records what lasts until the result is dropped, whatever becomes of the runtime meanwhile.
    #[inline(always)]
    pub(crate) fn scope(&self, call: impl FnOnce() -> Call) -> Option<Scope> {
        match &self.recorder {
            None => None,
            Some(recorder) => Scope::begin(recorder, call()),
        }
    }
}

/// A call that ends when this is dropped.
pub(crate) struct Scope {
    recorder: Recorder,
    begun: Begun,
    call: Call,
}

impl Scope {
    #[cold]
    fn begin(recorder: &Recorder, call: Call) -> Option<Self> {
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

/// Says what a profiling tool is to see of the calls that follow, of all threads of this PE: with level 0 nothing,
/// with any other all of them. `shmrun --trace` and `shmrun --report FILE.html` are such tools; where nobody records,
/// and before init and after finalize, this does nothing.
///
/// ```
/// # let _world = shmem::init().unwrap();
/// shmem::pcontrol(0);
/// // What is not to be seen: setting up, warming up.
/// shmem::barrier_all();
/// shmem::pcontrol(1);
/// ```
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_pcontrol`.
pub fn pcontrol(level: i32) {
    if let Some(recorder) = try_rt().and_then(|rt| rt.recorder) {
        recorder.pause(level == 0);
    }
}

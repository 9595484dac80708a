//! How routines record what they are ([`crate::recording`]).
//!
//! A routine asks at its beginning ([`Runtime::call_begins`]) and says at its end what it was. Operations on memory
//! of the own node take a few nanoseconds, and do not ask: where calls are recorded, no PE is near
//! ([`Nodes::plain`](super::Nodes::plain)), and they take the same way as operations on other nodes.

use super::place::Place;
use super::{Runtime, try_rt};
use crate::heap::address::SymAddr;
use crate::recording::{self, Begun, RecordedCall, Scope};

impl Runtime {
    /// A routine begins.
    #[inline(always)]
    pub(crate) fn call_begins(&self) -> Begun {
        match &self.recorder {
            None => Begun::UNRECORDED,
            Some(recorder) => recording::begin(recorder),
        }
    }

    /// The routine has ended.
    #[inline(always)]
    pub(crate) fn call_ends(&self, begun: Begun, call: impl FnOnce() -> RecordedCall) {
        if begun.is_recorded()
            && let Some(recorder) = &self.recorder
        {
            recording::end(recorder, &begun, &call());
        }
    }

    /// Does an operation of the program on `pe` that is no plain access to memory, and records it if any is. It uses all
    /// of these addresses; `act` gets where the first one is.
    ///
    /// # Panics
    /// If `pe` has other static data there.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn watched<R, const N: usize>(
        &'static self,
        pe: usize,
        at: [SymAddr; N],
        call: impl FnOnce() -> RecordedCall,
        act: impl FnOnce(Place) -> R,
    ) -> R {
        let begun = self.call_begins();
        for sym in at {
            self.check_statics(pe, sym.offset());
        }
        let done = act(self.real_place(pe, at[0].offset()));
        self.call_ends(begun, call);
        done
    }

    /// Records what lasts until the result is dropped, whatever becomes of the runtime meanwhile.
    #[inline(always)]
    pub(crate) fn scope(&self, call: impl FnOnce() -> RecordedCall) -> Option<Scope> {
        match &self.recorder {
            None => None,
            Some(recorder) => Scope::begin(recorder, call()),
        }
    }
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

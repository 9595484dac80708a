//! How every collective begins, and how it says what it is: [`Team::enter`], for one of a team, and
//! [`collective`], for one of all PEs. There is no other way to the runtime for a collective, so none
//! can forget to say it.
//!
//! What it says serves two purposes. Which collective it is, and where the program calls it, is noted
//! always, for those who ask what a PE waits for. All the rest is put together only where members compare
//! what they call ([`agree`](super::agree)).

use std::ops::Deref;
use std::panic::Location;
use std::sync::atomic::Ordering;

use shmem_node::recording::Routine;
use shmem_node::waiting::{Collective, Wait};

use super::announce::Announcement;
use crate::recording::{RecordedCall, Scope};
use crate::runtime::{Runtime, rt};
use crate::team::{Guard, Team};

impl Team {
    /// Begins a collective, which only the thread is in that does so. `say` adds to the announcement what all
    /// members have to have alike.
    ///
    /// # Panics
    /// If another thread is in one, or the PE is not initialised, or is again.
    #[inline]
    #[track_caller]
    pub(crate) fn enter(
        &self,
        call: Collective,
        say: impl FnOnce(Announcement) -> Announcement,
    ) -> (&'static Runtime, Guard<'_>) {
        let rt = rt();
        let mut guard = self.occupy(rt);
        let at = Location::caller();
        let number = self.begin(call, at);
        if self.is_world() {
            rt.block.begun.store(number, Ordering::Relaxed);
        }
        guard.recorded = rt.scope(|| RecordedCall {
            at: self.collective_number(number),
            ..RecordedCall::of(call.into())
        });
        if rt.checks {
            rt.agree(self, &say(Announcement::new(call, at)));
        }
        (rt, guard)
    }

    /// Records a collective of the team that is made of other calls, until the result is dropped: those are not recorded
    /// then. The number of the first one stands for it.
    #[track_caller]
    pub(crate) fn composed(&self, routine: Routine) -> Option<Scope> {
        rt().scope(|| RecordedCall {
            at: self.collective_number(self.begun().1.wrapping_add(1)),
            ..RecordedCall::of(routine)
        })
    }
}

/// The runtime in the hands of the one thread that may be in a collective of all PEs.
pub(crate) struct WorldCollective(&'static Runtime, #[allow(dead_code)] Guard<'static>);

/// The runtime, for a collective of all PEs: see [`Team::enter`].
///
/// # Panics
/// If the PE is not initialised, or another thread is in a collective of the world team.
#[inline]
#[track_caller]
pub(crate) fn collective(
    call: Collective,
    say: impl FnOnce(Announcement) -> Announcement,
) -> WorldCollective {
    let (rt, guard) = Team::world().enter(call, say);
    WorldCollective(rt, guard)
}

impl Deref for WorldCollective {
    type Target = Runtime;
    fn deref(&self) -> &Runtime {
        self.0
    }
}

impl Runtime {
    /// For what this PE waits in a collective of `team`.
    pub(super) fn in_collective(&self, team: &Team) -> Wait {
        let (call, number, at) = team.begun();
        Wait::Collective {
            call,
            team: team.told(),
            number,
            at,
        }
    }
}

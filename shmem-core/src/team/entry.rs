//! Only one thread of a PE at a time is in a collective of a team.

use std::sync::atomic::Ordering;

use super::Team;
use crate::recording::Scope;
use crate::runtime::Runtime;

/// The thread that is in a collective of a team.
pub(crate) struct Guard<'a> {
    team: &'a Team,
    /// Set by who enters.
    pub(crate) recorded: Option<Scope>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // ORDERING(collective): pairs with `Team::occupy`.
        self.team.meeting.store(false, Ordering::Release);
    }
}

impl Team {
    /// Marks this thread as the one that is in a collective of the team.
    ///
    /// Two at once would mix up rounds and, in a leader, write the same buffers. That is a mistake of
    /// the program (OpenSHMEM 1.6, thread support: the program orders the collectives of its
    /// threads), so it has to be found, not obeyed.
    ///
    /// # Panics
    /// If another thread is, or the PE is initialised again.
    #[inline]
    #[track_caller]
    pub(crate) fn occupy(&self, rt: &Runtime) -> Guard<'_> {
        if self.life.is_some_and(|life| life != rt.life()) {
            self.outlived();
        }
        // ORDERING(collective): a thread sees what the one before it has done in collectives.
        if self.meeting.swap(true, Ordering::Acquire) {
            self.crowded();
        }
        Guard {
            team: self,
            recorded: None,
        }
    }

    #[cold]
    #[track_caller]
    fn outlived(&self) -> ! {
        panic!("{self} ended with the finalize that came after it was made; make it anew")
    }

    #[cold]
    #[track_caller]
    fn crowded(&self) -> ! {
        panic!(
            "two threads of PE {} are in collectives of {self} at once; let one thread call them, \
             lock, or use a team for each",
            self.members.world_pe(self.my_pe).unwrap_or_default()
        )
    }
}

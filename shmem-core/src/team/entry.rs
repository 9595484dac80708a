//! Only one thread of a PE at a time is in a collective of a team.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use shmem_node::sys;

use super::Team;
use crate::fault;
use crate::recording::Scope;
use crate::runtime::Runtime;

/// The thread that is in a collective of a team.
pub(crate) struct Guard<'a> {
    team: &'a Team,
    /// What is recorded of the collective, set when the thread enters.
    pub(crate) recorded: Option<Scope>,
}

thread_local! {
    /// An operation has panicked: the collective that it is part of is left half done.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// An operation of the program, which combines elements in a collective. Dropped if that panics.
pub(crate) struct ProgramOperation;

impl Drop for ProgramOperation {
    fn drop(&mut self) {
        PANICKED.set(true);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && PANICKED.take() {
            self.team.broken.store(true, Ordering::Relaxed);
        }
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
    /// If another thread is, the PE is initialised again, or an operation of the program has panicked in a reduction of the
    /// team.
    #[inline]
    #[track_caller]
    pub(crate) fn occupy(&self, rt: &Runtime) -> Guard<'_> {
        if self.life.is_some_and(|life| life != rt.life()) {
            self.outlived();
        }
        if sys::was_forked() {
            fault::is_no_pe();
        }
        // ORDERING(collective): a thread sees what the one before it has done in collectives.
        if self.meeting.swap(true, Ordering::Acquire) {
            self.crowded();
        }
        // What panicked before belongs to another group: an active set has no guard that takes the mark.
        PANICKED.set(false);
        let guard = Guard {
            team: self,
            recorded: None,
        };
        if self.broken.load(Ordering::Relaxed) {
            self.half_done();
        }
        guard
    }

    #[cold]
    #[track_caller]
    fn half_done(&self) -> ! {
        panic!(
            "an operation of the program panicked on this PE in a reduction or scan over {self}, whose other members may \
             wait for ever: the team is of no more use"
        )
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
            "this PE calls a collective of {self} while it is in another one: the operation of a reduction can call none, \
             and of several threads one at a time (let one thread call them, lock, or use a team for each)"
        )
    }
}

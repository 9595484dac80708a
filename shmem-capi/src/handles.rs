//! `shmem_ctx_t` and `shmem_team_t`.
//!
//! A handle is a pointer to a box, or one of the small numbers that `shmem.h` gives to what always
//! exists. So the predefined handles are constants in C, without a variable that a library and a
//! program would have to share, and to tell them apart costs a comparison.
//!
//! All boxes are listed, to be freed with their team or after the last finalize.

use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use shmem::raw;

use crate::check::refuse;

/// `shmem_ctx_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Ctx(*mut CtxBody);

/// A context that the program has made.
#[derive(Debug)]
pub(crate) struct CtxBody {
    engine: raw::Ctx,
    team: Team,
}

/// `shmem_team_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Team(*mut TeamBody);

/// A team that the program has made.
#[derive(Debug)]
pub(crate) struct TeamBody {
    engine: raw::Team,
    /// How many contexts the program means to have on it: what `shmem_team_get_config` tells again.
    num_contexts: c_int,
}

/// The boxes that exist.
struct Live {
    contexts: Vec<Ctx>,
    teams: Vec<Team>,
}

static LIVE: Mutex<Live> = Mutex::new(Live {
    contexts: Vec::new(),
    teams: Vec::new(),
});

// SAFETY: the boxes hold what may be used and dropped by any thread.
unsafe impl Send for Live {}

fn live() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ctx {
    /// `SHMEM_CTX_INVALID`.
    pub(crate) const INVALID: Self = Self(ptr::null_mut());
    /// `SHMEM_CTX_DEFAULT`.
    pub(crate) const DEFAULT: Self = Self(ptr::without_provenance_mut(1));

    /// The context; `None` for the invalid handle.
    ///
    /// # Safety
    /// The context has not been destroyed.
    #[inline(always)]
    pub(crate) unsafe fn find(self) -> Option<&'static raw::Ctx> {
        if self == Self::DEFAULT {
            Some(raw::Ctx::default_ctx())
        } else {
            // SAFETY: null or a live box, by the caller.
            unsafe { self.0.as_ref() }.map(|body| &body.engine)
        }
    }

    /// The context, for a routine that has no use for the invalid handle.
    ///
    /// # Safety
    /// As for [`Ctx::find`].
    #[inline(always)]
    pub(crate) unsafe fn get(self, name: &str) -> &'static raw::Ctx {
        // SAFETY: by the caller.
        match unsafe { self.find() } {
            Some(ctx) => ctx,
            None => no_context(name),
        }
    }

    /// Gives the program a handle.
    pub(crate) fn new(engine: raw::Ctx, team: Team) -> Self {
        let ctx = Self(Box::into_raw(Box::new(CtxBody { engine, team })));
        live().contexts.push(ctx);
        ctx
    }

    /// The team that it is for; `None` for the invalid handle.
    ///
    /// # Safety
    /// As for [`Ctx::find`].
    pub(crate) unsafe fn team(self) -> Option<Team> {
        if self == Self::DEFAULT {
            return Some(Team::WORLD);
        }
        // SAFETY: null or a live box, by the caller.
        unsafe { self.0.as_ref() }.map(|body| body.team)
    }

    /// Completes and frees a context that the program has made. Without effect on a handle that is
    /// not listed.
    pub(crate) fn destroy(self) {
        let mut live = live();
        let Some(at) = live.contexts.iter().position(|ctx| *ctx == self) else {
            return;
        };
        live.contexts.swap_remove(at);
        drop(live);
        // SAFETY: it was listed, so it came from a box, and nobody else frees it.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

#[cold]
fn no_context(name: &str) -> ! {
    refuse(name, format_args!("the context is SHMEM_CTX_INVALID"))
}

impl Team {
    /// `SHMEM_TEAM_INVALID`.
    pub(crate) const INVALID: Self = Self(ptr::null_mut());
    /// `SHMEM_TEAM_WORLD`.
    pub(crate) const WORLD: Self = Self(ptr::without_provenance_mut(1));
    /// `SHMEM_TEAM_SHARED`.
    pub(crate) const SHARED: Self = Self(ptr::without_provenance_mut(2));

    /// The team; `None` for the invalid handle.
    ///
    /// # Safety
    /// The team has not been destroyed.
    #[inline]
    pub(crate) unsafe fn find(self) -> Option<&'static raw::Team> {
        if self == Self::WORLD {
            Some(raw::Team::world())
        } else if self == Self::SHARED {
            Some(raw::Team::shared())
        } else {
            // SAFETY: null or a live box, by the caller.
            unsafe { self.0.as_ref() }.map(|body| &body.engine)
        }
    }

    /// How many contexts the program has said that it will have on the team; `None` for the invalid handle.
    ///
    /// # Safety
    /// As for [`Team::find`].
    pub(crate) unsafe fn num_contexts(self) -> Option<c_int> {
        if [Self::WORLD, Self::SHARED].contains(&self) {
            return Some(0);
        }
        // SAFETY: null or a live box, by the caller.
        unsafe { self.0.as_ref() }.map(|body| body.num_contexts)
    }

    /// The team, for a routine that has no use for the invalid handle.
    ///
    /// # Safety
    /// As for [`Team::find`].
    #[inline]
    pub(crate) unsafe fn get(self, name: &str) -> &'static raw::Team {
        // SAFETY: by the caller.
        match unsafe { self.find() } {
            Some(team) => team,
            None => refuse(name, format_args!("the team is SHMEM_TEAM_INVALID")),
        }
    }

    /// Gives the program a handle.
    pub(crate) fn new(engine: raw::Team, num_contexts: c_int) -> Self {
        let body = TeamBody {
            engine,
            num_contexts,
        };
        let team = Self(Box::into_raw(Box::new(body)));
        live().teams.push(team);
        team
    }

    /// Destroys the contexts of a team that the program has made, and takes the team itself out of
    /// its handle. `None` for a handle that is not listed.
    pub(crate) fn take(self) -> Option<raw::Team> {
        let mut live = live();
        let at = live.teams.iter().position(|team| *team == self)?;
        live.teams.swap_remove(at);
        // A private context is its thread's to destroy.
        let (of_team, others) = live.contexts.drain(..).partition(|ctx| {
            // SAFETY: what is listed is a live box.
            let body = unsafe { &*ctx.0 };
            body.team == self && !body.engine.options().private
        });
        live.contexts = others;
        drop(live);
        free_contexts(of_team);
        // SAFETY: it was listed, so it came from a box, and nobody else frees it.
        let body = unsafe { Box::from_raw(self.0) };
        Some(body.engine)
    }
}

/// Frees all boxes, after the last finalize has ended what was in them.
pub(crate) fn clear() {
    let mut live = live();
    let (contexts, teams) = (
        std::mem::take(&mut live.contexts),
        std::mem::take(&mut live.teams),
    );
    drop(live);
    free_contexts(contexts);
    for team in teams {
        // SAFETY: it was listed, so it came from a box, and nobody else frees it.
        drop(unsafe { Box::from_raw(team.0) });
    }
}

fn free_contexts(contexts: Vec<Ctx>) {
    for ctx in contexts {
        // SAFETY: it was listed, so it came from a box, and nobody else frees it.
        drop(unsafe { Box::from_raw(ctx.0) });
    }
}

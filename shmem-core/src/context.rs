//! Communication contexts: separate streams of one-sided operations.
//!
//! [`quiet`](Context::quiet) of a context waits for the operations of that context alone, and PEs are
//! numbered as in the team that it was made for. [`Ctx`] is the engine's object, for addresses and
//! byte counts; [`Context`] is the same with types, and says in its type how many threads may use it.
//! The free functions of the crate are the default context's.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use shmem_ib::connect::endpoint::ContextId;

use crate::error::Error;
use crate::runtime::{Place, Runtime, rt, try_rt};
use crate::team::{Members, Team};

/// Most contexts of a PE at a time, with the default one. Each costs a few words; a program that
/// needs more has most likely forgotten to destroy them.
pub const MAX_CONTEXTS: u16 = 1024;

/// What a program promises about a context, so that the library may take short cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CtxOptions {
    /// Only the thread that makes it uses it.
    pub private: bool,
    /// Threads use it one after the other.
    pub serialized: bool,
    /// Its quiet and fence need not order what the program writes to memory itself.
    pub nostore: bool,
}

/// The engine's context. All its routines may be called by all threads, whatever its options say.
///
/// Dropping it waits for its operations as [`quiet`](Ctx::quiet) does. One that is dropped after
/// finalize does nothing: finalize has completed and ended all contexts.
#[derive(Debug)]
pub struct Ctx {
    id: ContextId,
    /// Whose numbers are used; `None` for those of the job.
    members: Option<Members>,
    options: CtxOptions,
    /// Of which initialisation of the library it is.
    era: u64,
}

static DEFAULT: Context<Shareable> = Context {
    ctx: Ctx {
        id: ContextId::DEFAULT,
        members: None,
        options: CtxOptions {
            private: false,
            serialized: false,
            nostore: false,
        },
        era: 0,
    },
    mode: PhantomData,
};

/// The numbers of contexts in use, from one init to the finalize.
#[derive(Debug)]
pub(crate) struct Contexts {
    era: u64,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    /// Numbers from here on were never used. 0 is the default context.
    next: u16,
    given_back: Vec<u16>,
}

impl Contexts {
    pub(crate) fn new() -> Self {
        static ERAS: AtomicU64 = AtomicU64::new(1);
        Self {
            era: ERAS.fetch_add(1, Ordering::Relaxed),
            slots: Mutex::new(Slots {
                next: 1,
                given_back: Vec::new(),
            }),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<ContextId> {
        let mut slots = self.slots();
        let number = slots.given_back.pop().or_else(|| {
            let fresh = slots.next;
            (fresh < MAX_CONTEXTS).then(|| {
                slots.next += 1;
                fresh
            })
        });
        number.map(ContextId::new)
    }

    fn give_back(&self, id: ContextId) {
        self.slots().given_back.push(id.number());
    }
}

impl Ctx {
    /// The context that exists from init to finalize, over all PEs of the job.
    #[inline]
    pub fn default_ctx() -> &'static Self {
        &DEFAULT.ctx
    }

    /// Makes a context for these PEs. Not collective.
    ///
    /// # Errors
    /// [`Error::TooManyContexts`] if [`MAX_CONTEXTS`] exist.
    ///
    /// # Panics
    /// Before init and after finalize.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_create`, `shmem_team_create_ctx`.
    #[track_caller]
    pub fn create(members: Members, options: CtxOptions) -> Result<Self, Error> {
        let rt = rt();
        let id = rt.contexts.take().ok_or(Error::TooManyContexts {
            most: MAX_CONTEXTS.into(),
        })?;
        let everybody = members == Members::all(rt.n_pes);
        Ok(Self {
            id,
            members: (!everybody).then_some(members),
            options,
            era: rt.contexts.era,
        })
    }

    /// What the program has promised.
    #[inline]
    pub fn options(&self) -> CtxOptions {
        self.options
    }

    /// The number in the job of PE `pe` of this context, if there is one.
    #[inline]
    pub fn world_pe(&self, pe: usize) -> Option<usize> {
        match &self.members {
            None => (pe < rt().n_pes).then_some(pe),
            Some(members) => members.world_pe(pe),
        }
    }

    /// The PEs of this context: those of its team.
    pub fn members(&self) -> Members {
        self.members.unwrap_or_else(|| Members::all(rt().n_pes))
    }

    /// How many PEs this context reaches.
    #[inline]
    pub fn n_pes(&self) -> usize {
        self.members
            .as_ref()
            .map_or_else(|| rt().n_pes, Members::len)
    }

    #[inline]
    pub(crate) fn id(&self) -> ContextId {
        self.id
    }

    /// The number in the job of PE `pe` of this context, which may still be out of range if that is
    /// the job's.
    #[inline]
    #[track_caller]
    pub(crate) fn in_job(&self, pe: usize) -> usize {
        match &self.members {
            None => pe,
            Some(members) => match members.world_pe(pe) {
                Some(pe) => pe,
                None => no_such_member(pe, members.len()),
            },
        }
    }

    /// Where the byte at `offset` of PE `pe` of this context is.
    ///
    /// # Panics
    /// If there is no such PE.
    #[inline]
    #[track_caller]
    pub(crate) fn place(&self, rt: &Runtime, pe: usize, offset: usize) -> Place {
        rt.place(self.in_job(pe), offset)
    }

    /// Hints that a stretch of operations begins (`batch`: they may be sent together, late) which has
    /// about `total` operations. This library sends operations as they come, and the network
    /// packs those that follow each other closely, so there is nothing that a hint could change.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_session_start`.
    #[inline]
    pub fn session_start(&self, _batch: bool, _total: Option<usize>) {}

    /// Ends what [`session_start`](Self::session_start) has begun; without such it does nothing.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_session_stop`.
    #[inline]
    pub fn session_stop(&self) {}
}

#[cold]
#[track_caller]
fn no_such_member(pe: usize, n: usize) -> ! {
    panic!(
        "PE {pe} does not exist: the team of this context has PEs 0 to {}",
        n.saturating_sub(1)
    )
}

impl Drop for Ctx {
    fn drop(&mut self) {
        if let Some(rt) = try_rt()
            && rt.contexts.era == self.era
        {
            self.quiet_in(rt);
            rt.contexts.give_back(self.id);
        }
    }
}

/// How many threads may use a [`Context`]: [`Shareable`], [`Serialized`] or [`Private`].
pub trait Mode: sealed::Mode {}

mod sealed {
    pub trait Mode {
        /// What is said to the engine.
        const OPTIONS: super::CtxOptions;
    }
}

macro_rules! modes {
    ($($(#[$doc:meta])* $name:ident($marker:ty) { $($option:ident: $value:literal),* })*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(PhantomData<$marker>);
        impl Mode for $name {}
        impl sealed::Mode for $name {
            const OPTIONS: CtxOptions = CtxOptions { $($option: $value),* };
        }
    )* };
}

modes! {
    /// All threads may use the context at the same time.
    Shareable(()) { private: false, serialized: false, nostore: false }
    /// One thread after the other may use the context: it can be sent to another, not shared.
    /// `SHMEM_CTX_SERIALIZED`.
    Serialized(std::cell::Cell<()>) { private: false, serialized: true, nostore: false }
    /// Only the thread that made the context may use it. `SHMEM_CTX_PRIVATE`.
    Private(*const ()) { private: true, serialized: false, nostore: false }
}

/// A communication context: a stream of one-sided operations that completes by itself.
///
/// It has all routines that the crate has as free functions, which are those of the default context.
/// [`quiet`](Self::quiet) waits for its own operations and for no others, [`fence`](Self::fence)
/// orders its own, and the numbers of PEs are those of its team. A barrier completes the default
/// context's operations alone.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// let _world = shmem::init()?;
/// let cell = shmem::alloc::<u64>(2)?;
/// let (halo, bulk) = (shmem::context().create()?, shmem::context().private().create()?);
/// bulk.put(cell.elem(1), &[2], 0);
/// halo.put(cell, &[1], 0);
/// halo.quiet(); // waits for the first element only
/// assert_eq!(shmem::g(cell, 0), 1);
/// # bulk.quiet(); shmem::barrier_all();
/// # Ok(())
/// # }
/// ```
///
/// Dropping it completes its operations (`shmem_ctx_destroy`). A private context cannot leave its
/// thread,
///
/// ```compile_fail,E0277
/// let ctx = shmem::context().private().create().unwrap();
/// std::thread::spawn(move || ctx.quiet());
/// ```
///
/// and a serialized one cannot be used by two at once:
///
/// ```compile_fail,E0277
/// let ctx = shmem::context().serialized().create().unwrap();
/// std::thread::scope(|s| {
///     s.spawn(|| ctx.quiet());
///     ctx.fence();
/// });
/// ```
///
/// # Spec
/// OpenSHMEM 1.6, section 9.5.
#[derive(Debug)]
pub struct Context<M: Mode = Shareable> {
    pub(crate) ctx: Ctx,
    mode: PhantomData<M>,
}

/// The context of the free functions.
#[inline]
pub(crate) fn default_context() -> &'static Context<Shareable> {
    &DEFAULT
}

impl<M: Mode> Context<M> {
    /// The engine's object behind it.
    #[inline]
    pub fn as_raw(&self) -> &Ctx {
        &self.ctx
    }

    /// The PEs that it reaches: those of its team.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_get_team`.
    pub fn members(&self) -> Members {
        self.ctx.members()
    }

    /// [`Ctx::session_start`](crate::raw::Ctx::session_start), which see.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_session_start`.
    #[inline]
    pub fn session_start(&self, batch: bool, total: Option<usize>) {
        self.ctx.session_start(batch, total);
    }

    /// Ends what [`session_start`](Self::session_start) has begun; without such it does nothing.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_session_stop`.
    #[inline]
    pub fn session_stop(&self) {
        self.ctx.session_stop();
    }

    /// How many PEs it reaches: those of its team.
    #[inline]
    pub fn n_pes(&self) -> usize {
        self.ctx.n_pes()
    }
}

/// Says what a new context is to be like; ends with [`create`](Self::create). See [`context`].
#[derive(Clone, Debug)]
#[must_use = "no context is made before `create`"]
pub struct ContextBuilder<M: Mode = Shareable> {
    members: Option<Members>,
    nostore: bool,
    mode: PhantomData<M>,
}

/// Begins to make a [`Context`]: shareable by all threads, over all PEs, unless told otherwise.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// # let _world = shmem::init()?;
/// let ctx = shmem::context().serialized().nostore().create()?;
/// assert_eq!(ctx.n_pes(), shmem::n_pes());
/// # Ok(())
/// # }
/// ```
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_ctx_create`.
pub fn context() -> ContextBuilder {
    ContextBuilder {
        members: None,
        nostore: false,
        mode: PhantomData,
    }
}

impl<M: Mode> ContextBuilder<M> {
    fn with<N: Mode>(self) -> ContextBuilder<N> {
        ContextBuilder {
            members: self.members,
            nostore: self.nostore,
            mode: PhantomData,
        }
    }

    /// Only the thread that makes the context will use it (`SHMEM_CTX_PRIVATE`).
    pub fn private(self) -> ContextBuilder<Private> {
        self.with()
    }

    /// Threads will use the context one after the other (`SHMEM_CTX_SERIALIZED`).
    pub fn serialized(self) -> ContextBuilder<Serialized> {
        self.with()
    }

    /// Quiet and fence of the context need not order what the program writes to memory itself
    /// (`SHMEM_CTX_NOSTORE`).
    pub fn nostore(mut self) -> Self {
        self.nostore = true;
        self
    }

    /// The context is for the PEs of a team, by their numbers there. It may outlive the team.
    ///
    /// ```
    /// # fn main() -> Result<(), shmem::Error> {
    /// # let _world = shmem::init()?;
    /// let node = shmem::context().team(shmem::Team::shared()).create()?;
    /// assert_eq!(node.n_pes(), shmem::Team::shared().n_pes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_create_ctx`.
    pub fn team(mut self, team: &Team) -> Self {
        self.members = Some(*team.members());
        self
    }

    /// Makes the context. Not collective.
    ///
    /// # Errors
    /// [`Error::TooManyContexts`] if [`MAX_CONTEXTS`] exist.
    ///
    /// # Panics
    /// Before init and after finalize.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_create`, `shmem_team_create_ctx`.
    #[track_caller]
    pub fn create(self) -> Result<Context<M>, Error> {
        let members = self.members.unwrap_or_else(|| Members::all(rt().n_pes));
        let options = CtxOptions {
            nostore: self.nostore,
            ..M::OPTIONS
        };
        Ok(Context {
            ctx: Ctx::create(members, options)?,
            mode: PhantomData,
        })
    }
}

/// Defines routines twice: as methods of [`Context`], and as free functions for the default context.
/// In brackets stands `unsafe`, or nothing. The body gets the engine's context.
macro_rules! routines {
    ($(
        $(#[$meta:meta])*
        [$($safety:tt)?] fn $name:ident $(<$t:ident: $bound:ident>)? (
            &$ctx:ident $(, $arg:ident: $ty:ty)* $(,)?
        ) $(-> $ret:ty)? $body:block
    )*) => {
        $(
            $(#[$meta])*
            #[inline]
            #[track_caller]
            #[allow(unused_unsafe)]
            pub $($safety)? fn $name $(<$t: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller promises the same, if there is anything to promise.
                unsafe { $crate::context::default_context().$name($($arg),*) }
            }
        )*
        impl<M: $crate::context::Mode> $crate::context::Context<M> {
            $(
                $(#[$meta])*
                #[inline]
                #[track_caller]
                pub $($safety)? fn $name $(<$t: $bound>)? (&self $(, $arg: $ty)*) $(-> $ret)? {
                    let $ctx = &self.ctx;
                    $body
                }
            )*
        }
    };
}
pub(crate) use routines;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_run_out_and_come_back() {
        let contexts = Contexts::new();
        let all: Vec<ContextId> = std::iter::from_fn(|| contexts.take()).collect();
        assert_eq!(all.len(), usize::from(MAX_CONTEXTS) - 1);
        assert!(all.iter().all(|id| *id != ContextId::DEFAULT));
        contexts.give_back(all[7]);
        assert_eq!(contexts.take(), Some(all[7]));
        assert_eq!(contexts.take(), None);
        assert_ne!(Contexts::new().era, contexts.era);
    }

    #[test]
    fn threads_may_use_what_the_type_says() {
        fn sent<T: Send>() {}
        fn shared<T: Sync>() {}
        sent::<Context<Shareable>>();
        shared::<Context<Shareable>>();
        sent::<Context<Serialized>>();
        sent::<Ctx>();
        shared::<Ctx>();
    }
}

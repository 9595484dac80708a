//! Communication contexts: separate streams of one-sided operations.
//!
//! [`quiet`](Context::quiet) of a context completes the operations of that context, and PEs are
//! numbered as in the team that it was made for. [`Ctx`] is the engine's object, for addresses and
//! byte counts; [`Context`] is the same with types, and says in its type how many threads may use it.
//! The free functions of the crate are the default context's.

mod numbers;
mod typed;

use shmem_ib::connect::endpoint::ContextId;

use self::numbers::NUMBERS;

use crate::error::Error;
use crate::network::Stream;
use crate::runtime::{Runtime, rt, try_rt};
use crate::team::Members;

pub use self::numbers::MAX_CONTEXTS;
pub(crate) use self::typed::routines;
pub use self::typed::{Context, ContextBuilder, Mode, Private, Serialized, Shareable, context};

/// Whether a context is to share its connections to other nodes with other contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Connections {
    /// One that is private or serialized has its own if `SHMEM_CTX_QPS` is a number, as long as that lasts;
    /// others share.
    #[default]
    AsSet,
    /// It has its own, as far as `SHMEM_CTX_QPS` allows.
    Own,
    /// It shares.
    Shared,
}

/// What a program promises about a context, so that the library may take short cuts, and what it asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CtxOptions {
    /// Only the thread that makes it uses it.
    pub private: bool,
    /// Threads use it one after the other.
    pub serialized: bool,
    /// Its quiet and fence need not order what the program writes to memory itself.
    pub nostore: bool,
    /// Whose connections it uses.
    pub connections: Connections,
}

/// The engine's context. All its routines may be called by all threads, whatever its options say; they
/// panic after the finalize that has completed and ended it.
///
/// Dropping it waits for its operations as [`quiet`](Ctx::quiet) does, and does nothing after that
/// finalize.
#[derive(Debug)]
pub struct Ctx {
    stream: Stream,
    /// Whose numbers are used; `None` for those of the job.
    members: Option<Members>,
    options: CtxOptions,
    /// The [life](Runtime::life) in which it was made; 0 for the default one, which is there in each.
    life: u32,
}

/// Only the default context exists from now on, at the beginning of a life.
pub(crate) fn begin() {
    NUMBERS.renew();
}

static DEFAULT: Ctx = Ctx {
    stream: Stream::new(ContextId::DEFAULT, None),
    members: None,
    options: CtxOptions {
        private: false,
        serialized: false,
        nostore: false,
        connections: Connections::Shared,
    },
    life: 0,
};

impl Ctx {
    /// The context that exists from init to finalize, over all PEs of the job.
    #[inline]
    pub fn default_ctx() -> &'static Self {
        &DEFAULT
    }

    /// Makes a context for these PEs. Not collective. Nothing is sent, whatever connections it uses: these are made
    /// at first contact.
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
        let id = NUMBERS.take().ok_or(Error::TooManyContexts {
            most: MAX_CONTEXTS.into(),
        })?;
        let everybody = members == Members::all(rt.n_pes);
        let branch = rt.network.as_ref().and_then(|network| {
            let one_thread = options.private || options.serialized;
            let own = match options.connections {
                Connections::AsSet => one_thread && network.branches.unasked(),
                Connections::Own => true,
                Connections::Shared => false,
            };
            own.then(|| network.branch()).flatten()
        });
        Ok(Self {
            stream: Stream::new(id, branch),
            members: (!everybody).then_some(members),
            options,
            life: rt.life(),
        })
    }

    /// Whether this is the one that is there whenever the library is initialised. Told by the address, so
    /// that the compiler knows it where a routine of the default context is inlined.
    #[inline(always)]
    fn is_default(&self) -> bool {
        std::ptr::eq(self, Self::default_ctx())
    }

    /// The runtime, for an operation of this context.
    ///
    /// # Panics
    /// Before init, and if the context ended with a finalize.
    #[inline]
    #[track_caller]
    pub(crate) fn rt(&self) -> &'static Runtime {
        let rt = rt();
        if !self.is_default() && self.life != rt.life() {
            self.outlived();
        }
        rt
    }

    /// The runtime, unless the context has ended.
    pub(crate) fn living(&self) -> Option<&'static Runtime> {
        try_rt().filter(|rt| self.is_default() || self.life == rt.life())
    }

    #[cold]
    #[track_caller]
    fn outlived(&self) -> ! {
        panic!(
            "a context that ended with the finalize that came after it was made is used; make it anew"
        )
    }

    /// Whether this context has its connections to other nodes for itself.
    #[inline]
    #[must_use]
    pub fn owns_connections(&self) -> bool {
        self.stream.branch().is_some()
    }

    /// What the program has promised.
    #[inline]
    pub fn options(&self) -> CtxOptions {
        self.options
    }

    /// The number in the job of PE `pe` of this context, if there is one.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn world_pe(&self, pe: usize) -> Option<usize> {
        let rt = self.rt();
        match &self.members {
            None => (pe < rt.n_pes).then_some(pe),
            Some(members) => members.world_pe(pe),
        }
    }

    /// The PEs of this context: those of its team.
    #[track_caller]
    #[must_use]
    pub fn members(&self) -> Members {
        let rt = self.rt();
        self.members.unwrap_or_else(|| Members::all(rt.n_pes))
    }

    /// How many PEs this context reaches.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn n_pes(&self) -> usize {
        let rt = self.rt();
        self.members.as_ref().map_or(rt.n_pes, Members::len)
    }

    #[inline]
    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// The number in the job of PE `pe` of this context, which may still be out of range if that is
    /// the job's.
    #[inline]
    #[track_caller]
    pub(crate) fn in_job(&self, pe: usize) -> usize {
        match &self.members {
            _ if self.is_default() => pe,
            None => pe,
            Some(members) => match members.world_pe(pe) {
                Some(pe) => pe,
                None => no_such_member(pe, members.len()),
            },
        }
    }

    /// Gives back what the context has, when its operations are complete.
    pub(crate) fn give_back(&self, rt: &Runtime) {
        if let (Some(branch), Some(network)) = (self.stream.branch(), &rt.network) {
            network.branches.give_back(branch);
        }
        NUMBERS.release(self.stream.id());
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

/// Does a one-sided operation of the program on a PE of a context, at symmetric addresses of which the first is where
/// most happens: `Near` says what is done if that is memory of this node, `Far` what on another, with the runtime and the
/// PE's number in the job. `call` gets that number and says what is recorded, if anything is.
///
/// This is the only way of operations to memory. Inlined is the case that the memory is plainly that of a PE of this
/// node; all others, in which more has to be asked, are out of line. Therefore a macro: a closure for `Near` would have
/// two callers, and the compiler would inline it in none.
///
/// # Panics
/// If there is no such PE.
macro_rules! operate {
    ($ctx:expr, $pe:expr, [$at:expr $(, $more:expr)*], $call:expr, {
        Near($near:ident) => $here:expr,
        Far($rt:ident, $far:ident) => $there:expr $(,)?
    }) => {{
        let rt = $ctx.rt();
        match rt.place($ctx.in_job($pe), $at.offset()) {
            $crate::runtime::Place::Near($near) => $here,
            $crate::runtime::Place::Far(pe) => {
                let call = $call;
                rt.watched(pe, [$at $(, $more)*], move || call(pe), move |place| match place {
                    $crate::runtime::Place::Near($near) => $here,
                    $crate::runtime::Place::Far($far) => {
                        let $rt = rt;
                        $there
                    }
                })
            }
        }
    }};
}
pub(crate) use operate;

#[cold]
#[track_caller]
fn no_such_member(pe: usize, n: usize) -> ! {
    panic!(
        "PE {pe} does not exist: the team of this context has PEs 0 to {}",
        n.saturating_sub(1)
    )
}

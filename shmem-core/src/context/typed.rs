//! Contexts with types: [`Context`], whose type says how many threads may use it, and what makes routines
//! both its methods and free functions.

use std::marker::PhantomData;

use super::{Connections, Ctx, CtxOptions};
use crate::error::Error;
use crate::runtime::rt;
use crate::team::{Members, Team};

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
            const OPTIONS: CtxOptions = CtxOptions {
                $($option: $value,)*
                connections: Connections::AsSet,
            };
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

/// A communication context: a stream of one-sided operations with a completion of its own.
///
/// It has all routines that the crate has as free functions, which are those of the default context.
/// [`quiet`](Self::quiet) waits for its own operations, [`fence`](Self::fence) orders its own, and the
/// numbers of PEs are those of its team. A barrier completes the default context's operations alone.
///
/// # Connections
/// Contexts share the connections to other nodes, so there quiet also waits for what other contexts
/// sent to a PE before this one's last operation towards it, and threads take turns in sending. What was
/// sent to other PEs, or to the same one later, it does not wait for.
///
/// A context can have its connections for itself, made at its first contact with each PE. Then its quiet, fence,
/// gets and atomics wait for its own operations alone, and threads that use different contexts share no lock.
/// It takes a socket or queues of the device, a thread that sleeps, and a queue pair here and there for each PE
/// that the context is used with. [`own_connections`](ContextBuilder::own_connections) asks for it; with
/// the setting `SHMEM_CTX_QPS=N` up to N private and serialized contexts at a time have it unasked. What a dropped
/// context has had serves the next one that is made.
///
/// Operations of different contexts are in no order without a quiet, whatever connections they use.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// let _world = shmem::init()?;
/// let cell = shmem::alloc::<u64>(2)?;
/// let (halo, bulk) = (shmem::context().create()?, shmem::context().private().create()?);
/// bulk.put(cell.elem(1), &[2], 0);
/// halo.put(cell, &[1], 0);
/// halo.quiet(); // completes the first element; the second one may take longer
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

impl Context<Shareable> {
    /// The engine's object behind it, which all threads may use; so there is none for a context that
    /// promises less:
    ///
    /// ```compile_fail,E0599
    /// let ctx = shmem::context().private().create().unwrap();
    /// let _ = ctx.as_raw();
    /// ```
    #[inline]
    pub fn as_raw(&self) -> &Ctx {
        &self.ctx
    }
}

impl<M: Mode> Context<M> {
    /// The PEs that it reaches: those of its team.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_get_team`.
    #[track_caller]
    #[must_use]
    pub fn members(&self) -> Members {
        self.ctx.members()
    }

    /// Whether it has its connections to other nodes for itself: no context has in a job on one node.
    #[inline]
    #[must_use]
    pub fn owns_connections(&self) -> bool {
        self.ctx.owns_connections()
    }

    /// How many PEs it reaches: those of its team.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn n_pes(&self) -> usize {
        self.ctx.n_pes()
    }
}

/// Says what a new context is to be like; ends with [`create`](Self::create). See [`context`].
#[derive(Debug)]
#[must_use = "no context is made before `create`"]
pub struct ContextBuilder<M: Mode = Shareable> {
    members: Option<Members>,
    connections: Connections,
    mode: PhantomData<M>,
}

impl<M: Mode> Clone for ContextBuilder<M> {
    fn clone(&self) -> Self {
        self.with()
    }
}

/// Begins to make a [`Context`]: shareable by all threads, over all PEs, unless told otherwise.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// # let _world = shmem::init()?;
/// let ctx = shmem::context().serialized().create()?;
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
        connections: Connections::AsSet,
        mode: PhantomData,
    }
}

impl<M: Mode> ContextBuilder<M> {
    fn with<N: Mode>(&self) -> ContextBuilder<N> {
        ContextBuilder {
            members: self.members,
            connections: self.connections,
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

    /// The context gets connections to other nodes for itself, if there are any left for it: see
    /// [`Context`]. Without the setting `SHMEM_CTX_QPS` 16 contexts at a time may have them, and none where
    /// `SHMEM_MAX_QPS` is set; with XRC none has. It shares those of others otherwise, which
    /// [`Context::owns_connections`] tells.
    ///
    /// ```
    /// # fn main() -> Result<(), shmem::Error> {
    /// # let _world = shmem::init()?;
    /// let halo = shmem::context().private().own_connections().create()?;
    /// # let _ = halo.owns_connections();
    /// # Ok(())
    /// # }
    /// ```
    pub fn own_connections(mut self) -> Self {
        self.connections = Connections::Own;
        self
    }

    /// The context shares connections with others, whatever `SHMEM_CTX_QPS` says: for one that is seldom used.
    pub fn shared_connections(mut self) -> Self {
        self.connections = Connections::Shared;
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
    /// [`Error::TooManyContexts`] if [`MAX_CONTEXTS`](crate::raw::MAX_CONTEXTS) exist.
    ///
    /// # Panics
    /// Before init and after finalize.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_create`, `shmem_team_create_ctx`.
    #[track_caller]
    pub fn create(self) -> Result<Context<M>, Error> {
        let everybody = Members::all(rt().n_pes);
        let members = self.members.unwrap_or(everybody);
        let options = CtxOptions {
            connections: self.connections,
            ..M::OPTIONS
        };
        Ok(Context {
            ctx: Ctx::create(members, options)?,
            mode: PhantomData,
        })
    }
}

/// Defines routines twice: as methods of [`Context`], and as free functions for the default context. The
/// first parameter of each is the engine's context, which the body gets.
macro_rules! routines {
    () => {};
    (
        $(#[$meta:meta])*
        pub fn $name:ident $(<$t:ident: $bound:ident>)? ($($params:tt)*) $(-> $ret:ty)? $body:block
        $($rest:tt)*
    ) => {
        $crate::context::routines! {
            @ $(#[$meta])* $name $(<$t: $bound>)? ($($params)*) $(-> $ret)? $body
        }
        $crate::context::routines! { $($rest)* }
    };
    (
        @ $(#[$meta:meta])*
        $name:ident $(<$t:ident: $bound:ident>)? (&$ctx:ident $(, $arg:ident: $ty:ty)* $(,)?)
        $(-> $ret:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[inline]
        #[track_caller]
        pub fn $name $(<$t: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
            let $ctx = $crate::context::Ctx::default_ctx();
            $body
        }

        impl<M: $crate::context::Mode> $crate::context::Context<M> {
            $(#[$meta])*
            #[inline]
            #[track_caller]
            pub fn $name $(<$t: $bound>)? (&self $(, $arg: $ty)*) $(-> $ret)? {
                let $ctx = &self.ctx;
                $body
            }
        }
    };
}
pub(crate) use routines;

#[cfg(test)]
mod tests {
    use super::*;

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

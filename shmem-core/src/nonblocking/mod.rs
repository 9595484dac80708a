//! Scopes for non-blocking operations: their buffers are borrowed until the scope is done with them.
//!
//! What a scope waits for at its end is its [`End`]: delivery, or that the sources may be used again. Operations that
//! own their buffers need no scope; see [`start`].

mod operations;
mod request;

use std::marker::PhantomData;

use crate::context::{Context, Ctx, Mode, Shareable};
use crate::rma::Completion;

pub use self::request::{Buffer, Old, Request, Start, start};

/// Non-blocking operations, complete when the function returns.
///
/// `f` starts any number of operations through the handle; they proceed together, and `nbi` returns
/// after all of them (and everything else this PE has outstanding) are complete. Buffers are
/// borrowed until then, which makes this the safe form of `shmem_put_nbi` and `shmem_get_nbi`.
///
/// That wait is a round trip to every PE that was used. A PE that only puts, and learns of others' puts by
/// signals, as in a halo exchange, does not need it: [`nbi_local`] waits for no more than its sources, which
/// for what is short (16 KiB, for instance) is nothing.
///
/// ```no_run
/// # fn main() -> Result<(), shmem::Error> {
/// let world = shmem::init()?;
/// let field = shmem::alloc::<f64>(100)?;
/// let (mut left, mut right) = ([0.0; 10], [0.0; 10]);
/// let n = shmem::n_pes();
/// shmem::nbi(|ops| {
///     ops.get(&mut left, field.at(..10), (shmem::my_pe() + n - 1) % n);
///     ops.get(&mut right, field.at(90..), (shmem::my_pe() + 1) % n);
/// });
/// // `left` and `right` hold the data here.
/// # drop(world); Ok(())
/// # }
/// ```
///
/// The compiler refuses a buffer that is used too early,
///
/// ```compile_fail,E0502
/// # let field = shmem::alloc::<f64>(10).unwrap();
/// let mut halo = [0.0; 10];
/// shmem::nbi(|ops| {
///     ops.get(&mut halo, field, 1);
///     println!("{}", halo[0]); // may not have arrived yet
/// });
/// ```
///
/// one that is changed while it is sent,
///
/// ```compile_fail,E0506
/// # let field = shmem::alloc::<f64>(10).unwrap();
/// let mut row = [0.0; 10];
/// shmem::nbi(|ops| {
///     ops.put(field, &row, 1);
///     row[0] = 1.0;
/// });
/// ```
///
/// one that dies with the closure,
///
/// ```compile_fail,E0597
/// # let field = shmem::alloc::<f64>(10).unwrap();
/// shmem::nbi(|ops| {
///     let row = [0.0; 10];
///     ops.put(field, &row, 1);
/// });
/// ```
///
/// and a handle that outlives the call:
///
/// ```compile_fail
/// # let field = shmem::alloc::<f64>(10).unwrap();
/// let row = [0.0; 10];
/// let ops = shmem::nbi(|ops| ops);
/// ops.put(field, &row, 1);
/// ```
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_put_nbi`, `shmem_get_nbi`, `shmem_quiet`.
#[inline]
pub fn nbi<'env, R>(f: impl for<'scope> FnOnce(&'scope Nbi<'scope, 'env>) -> R) -> R {
    within(Ctx::default_ctx(), f)
}

/// Puts, whose sources may be used again when the function returns.
///
/// As [`nbi`], but it ends with local completion:
/// * On return every source may be changed, as after a blocking [`put`](crate::put). Short ones are copied
///   while they are posted and not waited for, as long as there is room for the copies (64 of up to 16 KiB that have
///   not arrived, for instance; the next one waits); long ones are sent from where they are, all together, and waited
///   for once, where blocking puts wait for each.
/// * Nothing is said of delivery, as after a blocking put: that takes [`quiet`](crate::quiet), a barrier,
///   or a signal. A PE that sees the signal of a [`put_signal`](Nbi::put_signal) of the scope sees its data.
/// * Nothing is ordered that would not be outside. A [`fence`](crate::fence), within the scope or after it, orders its puts
///   as it orders blocking ones, and a put and the signal behind it stay together.
/// * What brings something back (gets, atomics that fetch) is not there: it would have to be waited for.
///   Operations of other kinds may be called within, as anywhere.
///
/// So it fits where a PE sends to several others and they tell each other by signals:
///
/// ```
/// use shmem::{Cmp, SignalOp::Add};
///
/// # fn main() -> Result<(), shmem::Error> {
/// let _world = shmem::init()?;
/// let (me, n) = (shmem::my_pe(), shmem::n_pes());
/// let (left, right) = ((me + n - 1) % n, (me + 1) % n);
/// let field = [1.0; 100];
/// let halo = shmem::alloc::<f64>(20)?;
/// let come = shmem::alloc::<u64>(1)?;
/// shmem::nbi_local(|puts| {
///     puts.put_signal(halo.at(..10), &field[90..], come, 1, Add, right);
///     puts.put_signal(halo.at(10..), &field[..10], come, 1, Add, left);
/// });
/// // `field` may be changed here.
/// shmem::wait_until(come, Cmp::Ge, 2);
/// assert_eq!(halo.to_vec(), [1.0; 20]);
/// # Ok(())
/// # }
/// ```
///
/// A get is no part of it:
///
/// ```compile_fail,E0599
/// # let field = shmem::alloc::<f64>(10).unwrap();
/// let mut halo = [0.0; 10];
/// shmem::nbi_local(|puts| puts.get(&mut halo, field, 1));
/// ```
///
/// Sources are borrowed until it returns, as those of [`nbi`] are:
///
/// ```compile_fail,E0506
/// # let field = shmem::alloc::<f64>(10).unwrap();
/// let mut row = [0.0; 10];
/// shmem::nbi_local(|puts| {
///     puts.put(field, &row, 1);
///     row[0] = 1.0;
/// });
/// ```
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_put` and `shmem_put_signal` say when a source may be used again.
#[inline]
pub fn nbi_local<'env, R>(
    f: impl for<'scope> FnOnce(&'scope Nbi<'scope, 'env, Shareable, Released>) -> R,
) -> R {
    within(Ctx::default_ctx(), f)
}

/// What a scope of non-blocking operations waits for at its end: [`Delivered`] or [`Released`].
pub trait End: sealed::End {}

mod sealed {
    pub trait End {
        /// How long its operations may use their buffers.
        const UNTIL: super::Completion;
    }
}

/// Everything is delivered: the end of [`nbi`].
#[derive(Debug)]
pub struct Delivered(());

/// Sources may be used again: the end of [`nbi_local`].
#[derive(Debug)]
pub struct Released(());

impl End for Delivered {}
impl sealed::End for Delivered {
    const UNTIL: Completion = Completion::AtQuiet;
}

impl End for Released {}
impl sealed::End for Released {
    const UNTIL: Completion = Completion::AtRelease;
}

impl<M: Mode> Context<M> {
    /// Non-blocking operations on this context, complete when the function returns: see [`nbi`].
    ///
    /// ```
    /// # fn main() -> Result<(), shmem::Error> {
    /// # let _world = shmem::init()?;
    /// let ctx = shmem::context().create()?;
    /// let counter = shmem::alloc::<u32>(1)?;
    /// let (mut first, mut second) = (0, 0);
    /// ctx.nbi(|ops| {
    ///     ops.atomic_fetch_add(&mut first, counter, 5, 0);
    ///     ops.atomic_fetch_add(&mut second, counter, 5, 0);
    /// });
    /// assert_eq!(first.abs_diff(second) % 5, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Threads share the handle as they may share the context, that is not where it is private,
    ///
    /// ```compile_fail,E0277
    /// # let cell = shmem::alloc::<u64>(1).unwrap();
    /// let ctx = shmem::context().private().create().unwrap();
    /// ctx.nbi(|ops| {
    ///     std::thread::scope(|s| {
    ///         s.spawn(|| ops.put(cell, &[1], 0));
    ///     });
    /// });
    /// ```
    ///
    /// nor where it is serialized:
    ///
    /// ```compile_fail,E0277
    /// # let cell = shmem::alloc::<u64>(1).unwrap();
    /// let ctx = shmem::context().serialized().create().unwrap();
    /// ctx.nbi(|ops| {
    ///     std::thread::scope(|s| {
    ///         s.spawn(|| ops.put(cell, &[1], 0));
    ///     });
    /// });
    /// ```
    pub fn nbi<'env, R>(&self, f: impl for<'scope> FnOnce(&'scope Nbi<'scope, 'env, M>) -> R) -> R {
        within(&self.ctx, f)
    }

    /// Puts on this context, whose sources may be used again when the function returns: see
    /// [`nbi_local`].
    pub fn nbi_local<'env, R>(
        &self,
        f: impl for<'scope> FnOnce(&'scope Nbi<'scope, 'env, M, Released>) -> R,
    ) -> R {
        within(&self.ctx, f)
    }
}

#[inline(always)]
fn within<'env, M: Mode, E: End, R>(
    ctx: &Ctx,
    f: impl for<'scope> FnOnce(&'scope Nbi<'scope, 'env, M, E>) -> R,
) -> R {
    /// Waits also when `f` panics: the buffers are about to go.
    struct Scope<'a, E: End>(&'a Ctx, PhantomData<E>);
    impl<E: End> Drop for Scope<'_, E> {
        fn drop(&mut self) {
            // Finalize, if `f` has called it, has completed them.
            if let Some(rt) = self.0.living() {
                match E::UNTIL {
                    Completion::OnReturn => {}
                    Completion::AtRelease => self.0.release_sources_in(rt),
                    Completion::AtQuiet => self.0.quiet_in(rt),
                }
            }
        }
    }
    let scope = Scope::<E>(ctx, PhantomData);
    f(&Nbi {
        ctx: scope.0,
        end: PhantomData,
        context: PhantomData,
        scope: PhantomData,
        env: PhantomData,
    })
}

/// Starts non-blocking operations; see [`nbi`] and [`nbi_local`]. The threads that may use its context may
/// use it.
#[derive(Debug)]
pub struct Nbi<'scope, 'env: 'scope, M: Mode = Shareable, E: End = Delivered> {
    pub(crate) ctx: &'scope Ctx,
    end: PhantomData<E>,
    context: PhantomData<&'scope Context<M>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

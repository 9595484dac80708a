//! A scope for non-blocking operations: their buffers are borrowed until it has completed them.

use std::marker::PhantomData;

use crate::atomics::{AtomicOp, width};
use crate::context::{Context, Ctx, Mode, Shareable, default_context};
use crate::datum::{Atomic, AtomicInt, Datum};
use crate::rma::Completion;
use crate::signal::{Signal, SignalOp};
use crate::symmetric::array::SymSlice;

/// Non-blocking operations, complete when the function returns.
///
/// `f` starts any number of operations through the handle; they proceed together, and `nbi` returns
/// after all of them (and everything else this PE has outstanding) are complete. Buffers are
/// borrowed until then, which makes this the safe form of `put_nbi` and `get_nbi`.
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
    complete(default_context(), f)
}

impl<M: Mode> Context<M> {
    /// Non-blocking operations on this context, complete when the function returns: [`nbi`], which
    /// see, of this context.
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
        complete(self, f)
    }
}

#[inline(always)]
fn complete<'env, M: Mode, R>(
    context: &Context<M>,
    f: impl for<'scope> FnOnce(&'scope Nbi<'scope, 'env, M>) -> R,
) -> R {
    /// Completes the operations also when `f` panics: their buffers are about to go.
    struct Completed<'a>(&'a Ctx);
    impl Drop for Completed<'_> {
        fn drop(&mut self) {
            // Finalize, if `f` has called it, has completed them.
            if let Some(rt) = self.0.living() {
                self.0.quiet_in(rt);
            }
        }
    }
    let completed = Completed(&context.ctx);
    f(&Nbi {
        ctx: completed.0,
        context: PhantomData,
        scope: PhantomData,
        env: PhantomData,
    })
}

/// Starts non-blocking operations; see [`nbi`]. The threads that may use its context may use it.
#[derive(Debug)]
pub struct Nbi<'scope, 'env: 'scope, M: Mode = Shareable> {
    pub(crate) ctx: &'scope Ctx,
    context: PhantomData<&'scope Context<M>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'env, M: Mode> Nbi<'_, 'env, M> {
    /// Starts to copy `source` into the first elements of `dest` on `pe`.
    ///
    /// # Panics
    /// If `source` is longer than `dest`, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn put<T: Datum>(&self, dest: SymSlice<T>, source: &'env [T], pe: usize) {
        let (dest, bytes) = (dest.at(..source.len()).sym(), size_of_val(source));
        // SAFETY: `source` outlives the scope, which ends with a quiet; the handle lies inside the
        // segment.
        unsafe {
            self.ctx
                .put_bytes(dest, source.as_ptr().cast(), bytes, pe, Completion::AtQuiet)
        };
    }

    /// Starts to copy the first elements of `source` on `pe` into `dest`.
    ///
    /// # Panics
    /// If `dest` is longer than `source`, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn get<T: Datum>(&self, dest: &'env mut [T], source: SymSlice<T>, pe: usize) {
        let (source, bytes) = (source.at(..dest.len()).sym(), size_of_val(dest));
        // SAFETY: `dest` is borrowed until after the scope, which ends with a quiet; the handle lies
        // inside the segment.
        unsafe {
            self.ctx.get_bytes(
                dest.as_mut_ptr().cast(),
                source,
                bytes,
                pe,
                Completion::AtQuiet,
            )
        };
    }

    /// Starts to copy `source` into the first elements of `dest` on `pe`, and to update the first
    /// element of `signal` there when that is done; see [`put_signal`](crate::put_signal).
    ///
    /// # Panics
    /// If `source` is longer than `dest`, `signal` is empty, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn put_signal<T: Datum>(
        &self,
        dest: SymSlice<T>,
        source: &'env [T],
        signal: SymSlice<u64>,
        value: u64,
        op: SignalOp,
        pe: usize,
    ) {
        let (dest, bytes) = (dest.at(..source.len()).sym(), size_of_val(source));
        let signal = Signal {
            at: signal.elem(0).sym(),
            value,
            op,
        };
        // SAFETY: `source` outlives the scope, which ends with a quiet; the handles lie inside the
        // segment.
        unsafe {
            let from = source.as_ptr().cast();
            self.ctx
                .put_signal_bytes(dest, from, bytes, signal, pe, Completion::AtQuiet);
        }
    }
}

macro_rules! fetching {
    ($($(#[$doc:meta])* $name:ident<$bound:ident>($($arg:ident),*) => $op:expr;)*) => {
        impl<'env, M: Mode> Nbi<'_, 'env, M> { $(
            $(#[$doc])*
            /// The old value lands in `fetch`.
            ///
            /// # Panics
            /// If the array is empty, or there is no such PE.
            #[inline]
            #[track_caller]
            pub fn $name<T: $bound>(
                &self,
                fetch: &'env mut T,
                dest: SymSlice<T>,
                $($arg: T,)*
                pe: usize,
            ) {
                let (at, fetch) = (dest.elem(0).sym(), (&raw mut *fetch).cast());
                let op = $op;
                // SAFETY: `fetch` is borrowed until after the scope, which ends with a quiet; it has
                // the width of `T`, and any bits are a value.
                unsafe { self.ctx.atomic_into(fetch, at, width::<T>(), op, pe) };
            }
        )* }
    };
}

fetching! {
    /// Starts to read the first element of `dest` on `pe`, atomically.
    atomic_fetch<Atomic>() => AtomicOp::Fetch;
    /// Starts to replace the first element of `dest` on `pe`.
    atomic_swap<Atomic>(value) => AtomicOp::Swap(value.to_bits());
    /// Starts to replace the first element of `dest` on `pe` by `value` if it equals `cond`.
    atomic_compare_swap<AtomicInt>(cond, value) => AtomicOp::CompareSwap {
        compare: cond.to_bits(),
        new: value.to_bits(),
    };
    /// Starts to add 1 to the first element of `dest` on `pe`. Integers wrap.
    atomic_fetch_inc<AtomicInt>() => AtomicOp::Add(1);
    /// Starts to add to the first element of `dest` on `pe`. Integers wrap.
    atomic_fetch_add<AtomicInt>(value) => AtomicOp::Add(value.to_bits());
    /// Starts to combine the first element of `dest` on `pe` with `value` by bitwise and.
    atomic_fetch_and<AtomicInt>(value) => AtomicOp::And(value.to_bits());
    /// Starts to combine the first element of `dest` on `pe` with `value` by bitwise or.
    atomic_fetch_or<AtomicInt>(value) => AtomicOp::Or(value.to_bits());
    /// Starts to combine the first element of `dest` on `pe` with `value` by exclusive or.
    atomic_fetch_xor<AtomicInt>(value) => AtomicOp::Xor(value.to_bits());
}

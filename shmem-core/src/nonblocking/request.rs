//! Requests: non-blocking operations that own their buffers, of which each can be waited for by itself, polled, or
//! awaited as a [`Future`].
//!
//! A scope ([`nbi`](crate::nbi)) borrows its buffers and ends with one wait for all. A request may outlive the
//! function that started it, lie in a queue, and be waited for before those that were started after it.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as Wakers, Poll};

use shmem_ib::connect::endpoint::Point;

use crate::atomics::{AtomicOp, width};
use crate::context::{Context, Ctx, Mode, Shareable};
use crate::datum::{Atomic, AtomicInt, Datum};
use crate::rma::{Completion, GET, PUT};
use crate::runtime::Runtime;
use crate::symmetric::array::SymSlice;
use crate::symmetric::element::Element;

/// Begins non-blocking operations that own their buffers: `start().get(array, pe)` gives a [`Request`].
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// let _world = shmem::init()?;
/// let block = shmem::alloc_from(&[shmem::my_pe() as u64; 1000])?;
/// let next = (shmem::my_pe() + 1) % shmem::n_pes();
/// let mut coming = shmem::start().get(block.at(..500), next);
/// for part in [block.at(500..750), block.at(750..)] {
///     // The next part is on its way while this one is worked with.
///     let here = std::mem::replace(&mut coming, shmem::start().get(part, next)).wait();
///     assert!(here.iter().all(|&word| word == next as u64));
/// }
/// assert_eq!(coming.wait().len(), 250);
/// # Ok(())
/// # }
/// ```
#[inline]
pub fn start() -> Start<'static> {
    Start(Ctx::default_ctx(), PhantomData)
}

impl<M: Mode> Context<M> {
    /// Begins non-blocking operations on this context that own their buffers: see [`start`].
    #[inline]
    pub fn start(&self) -> Start<'_, M> {
        Start(&self.ctx, PhantomData)
    }
}

/// Starts operations that own their buffers; see [`start`].
#[derive(Debug)]
#[must_use = "nothing is started yet"]
pub struct Start<'c, M: Mode = Shareable>(&'c Ctx, PhantomData<&'c Context<M>>);

/// A non-blocking operation that is under way, with the buffer that it uses.
///
/// [`wait`](Self::wait) gives what the operation brings: elements, an old value, or the buffer of a put, which may
/// be used again. [`is_done`](Self::is_done) asks without waiting. It is a [`Future`], too, of any executor: while
/// the operation is not complete it asks to be polled again at once, as often as waits poll before they sleep
/// (`SHMEM_SPIN`), and after that when the network has completed something. So the executor's thread may sleep.
///
/// Complete means what [`quiet`](crate::quiet) means, of this operation and of those that the context has started
/// towards the same PE before it. Of later ones nothing is said, unless they are atomics that the network
/// executes in several steps.
///
/// Dropping a request waits for it. One that is forgotten (`std::mem::forget`) completes at quiet, and its buffer is
/// never freed. It is bound to its context, and to threads as its context is:
///
/// ```compile_fail,E0277
/// # let array = shmem::alloc::<f64>(10).unwrap();
/// let ctx = shmem::context().private().create().unwrap();
/// let request = ctx.start().get(array, 0);
/// std::thread::scope(|s| { s.spawn(|| request.wait()); });
/// ```
///
/// ```compile_fail,E0505
/// # let array = shmem::alloc::<f64>(10).unwrap();
/// let ctx = shmem::context().create().unwrap();
/// let request = ctx.start().get(array, 0);
/// drop(ctx);
/// request.wait();
/// ```
#[derive(Debug)]
#[must_use = "dropping a request waits for it"]
pub struct Request<'c, B: Buffer, M: Mode = Shareable> {
    ctx: &'c Ctx,
    context: PhantomData<&'c Context<M>>,
    /// The [life](Runtime::life) in which it was started: the finalize that ended it has completed it.
    life: u32,
    /// What has to be reached; nothing, if it is complete.
    until: Option<Point>,
    /// Gone when it was given to the program.
    buffer: Option<B>,
    /// As a [`Future`]: how often it still asks to be polled at once. The time between two polls is that of other tasks, so it
    /// says nothing of the thread's core.
    polls_left: Option<u32>,
}

/// What a [`Request`] holds while its operation is under way.
pub trait Buffer: sealed::Buffer + Unpin {
    /// What it brings.
    type Result;
    /// Gives that, when the operation is complete.
    #[doc(hidden)]
    fn into_result(self) -> Self::Result;
}

mod sealed {
    pub trait Buffer {}
}

/// The elements of a put, or those that a get brings.
impl<T: Datum + Unpin> Buffer for Vec<T> {
    type Result = Self;
    fn into_result(self) -> Self {
        self
    }
}
impl<T: Datum> sealed::Buffer for Vec<T> {}

/// Of copies between symmetric arrays, which need none.
impl Buffer for () {
    type Result = ();
    fn into_result(self) {}
}
impl sealed::Buffer for () {}

/// The old value of an atomic.
#[derive(Debug)]
pub struct Old<T>(Vec<T>);
impl<T: Datum + Unpin> Buffer for Old<T> {
    type Result = T;
    fn into_result(self) -> T {
        self.0[0]
    }
}
impl<T> sealed::Buffer for Old<T> {}

impl<B: Buffer, M: Mode> Request<'_, B, M> {
    /// Whether the operation is complete, so that [`wait`](Self::wait) would not. Takes in what has come over the
    /// network.
    #[must_use]
    pub fn is_done(&mut self) -> bool {
        if let Some(point) = &self.until
            && self
                .rt()
                .is_none_or(|rt| rt.far(self.ctx.stream(), |net| net.is_past(point)))
        {
            self.until = None;
        }
        self.until.is_none()
    }

    /// Waits until the operation is complete; gives what it brings.
    pub fn wait(mut self) -> B::Result {
        self.complete();
        self.take()
    }

    fn complete(&mut self) {
        if let Some(point) = self.until.take()
            && let Some(rt) = self.rt()
        {
            rt.far(self.ctx.stream(), |net| net.wait_for(&point));
        }
    }

    /// The runtime, if the operation may still be under way.
    fn rt(&self) -> Option<&'static Runtime> {
        let rt = self.ctx.living()?;
        (rt.life() == self.life).then_some(rt)
    }

    fn take(&mut self) -> B::Result {
        let buffer = self.buffer.take();
        buffer
            .expect("a request gives its result once")
            .into_result()
    }
}

/// See [`Request`].
///
/// # Panics
/// If it is polled again after it was ready.
impl<B: Buffer, M: Mode> Future for Request<'_, B, M> {
    type Output = B::Result;

    fn poll(self: Pin<&mut Self>, wakers: &mut Wakers<'_>) -> Poll<B::Result> {
        let request = self.get_mut();
        if let (Some(point), Some(rt)) = (&request.until, request.rt()) {
            let left = request
                .polls_left
                .get_or_insert_with(|| rt.waits.polls.most());
            let spins = *left > 0;
            *left = left.saturating_sub(1);
            let (stream, waker) = (request.ctx.stream(), wakers.waker());
            let done = rt.far(stream, |net| match spins {
                true => net.is_past(point),
                false => net.is_past_or_wakes(point, waker),
            });
            if !done {
                if spins {
                    waker.wake_by_ref();
                }
                return Poll::Pending;
            }
        }
        request.until = None;
        Poll::Ready(request.take())
    }
}

impl<B: Buffer, M: Mode> Drop for Request<'_, B, M> {
    fn drop(&mut self) {
        self.complete();
    }
}

impl<'c, M: Mode> Start<'c, M> {
    /// The request of what was started last towards `pe`, with its buffer.
    #[inline]
    #[track_caller]
    fn request<B: Buffer>(&self, buffer: B, pe: usize) -> Request<'c, B, M> {
        let ctx = self.0;
        let (rt, pe) = (ctx.rt(), ctx.in_job(pe));
        let until = match rt.is_near(pe) {
            true => None,
            false => rt.far(ctx.stream(), |net| Ok(net.point(pe as u32))),
        };
        Request {
            ctx,
            context: PhantomData,
            life: rt.life(),
            until,
            buffer: Some(buffer),
            polls_left: None,
        }
    }

    /// Starts to copy `source` into the first elements of `dest` on `pe`. The request gives it back.
    ///
    /// # Panics
    /// If `source` is longer than `dest`, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn put<T: Datum + Unpin>(
        &self,
        dest: SymSlice<T>,
        source: Vec<T>,
        pe: usize,
    ) -> Request<'c, Vec<T>, M> {
        let dest = dest.up_to(source.len(), PUT).addr();
        let (from, bytes) = (source.as_ptr().cast(), size_of_val(&source[..]));
        // SAFETY: the request keeps the elements until the operation is complete; the handle lies inside the
        // segment.
        unsafe { self.0.put_bytes(dest, from, bytes, pe, Completion::AtQuiet) };
        self.request(source, pe)
    }

    /// Starts to copy `source` on `pe`; the request gives its elements.
    ///
    /// # Panics
    /// If there is no such PE.
    #[inline]
    #[track_caller]
    pub fn get<T: Datum + Unpin>(&self, source: SymSlice<T>, pe: usize) -> Request<'c, Vec<T>, M> {
        let mut room = Vec::<T>::with_capacity(source.len());
        let (to, from, bytes) = (room.as_mut_ptr().cast(), source.addr(), source.bytes());
        // SAFETY: the vector has room for the array, any bytes are values, and the request shows them to nobody
        // until the operation is complete; the handle lies inside the segment.
        unsafe {
            self.0.get_bytes(to, from, bytes, pe, Completion::AtQuiet);
            room.set_len(source.len());
        }
        self.request(room, pe)
    }

    /// Starts to copy this PE's `source`, a symmetric array, into the first elements of `dest` on `pe`; see
    /// [`put_sym_nbi`](crate::put_sym_nbi).
    ///
    /// # Panics
    /// If `source` is longer than `dest`, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn put_sym<T: Datum>(
        &self,
        dest: SymSlice<T>,
        source: SymSlice<T>,
        pe: usize,
    ) -> Request<'c, (), M> {
        let dest = dest.up_to(source.len(), PUT);
        let (from, bytes) = (source.as_ptr().cast(), source.bytes());
        // SAFETY: both handles lie inside the segment, which stays mapped.
        unsafe {
            self.0
                .put_bytes(dest.addr(), from, bytes, pe, Completion::AtQuiet)
        };
        self.request((), pe)
    }

    /// Starts to copy the first elements of `source` on `pe` into this PE's `dest`, a symmetric array; see
    /// [`get_sym_nbi`](crate::get_sym_nbi).
    ///
    /// # Panics
    /// If `dest` is longer than `source`, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn get_sym<T: Datum>(
        &self,
        dest: SymSlice<T>,
        source: SymSlice<T>,
        pe: usize,
    ) -> Request<'c, (), M> {
        let source = source.up_to(dest.len(), GET);
        let (to, bytes) = (dest.as_ptr().cast(), dest.bytes());
        // SAFETY: both handles lie inside the segment, which stays mapped.
        unsafe {
            self.0
                .get_bytes(to, source.addr(), bytes, pe, Completion::AtQuiet)
        };
        self.request((), pe)
    }
}

macro_rules! fetching {
    ($($(#[$doc:meta])* $name:ident<$bound:ident>($($arg:ident),*) => $op:expr;)*) => {
        impl<'c, M: Mode> Start<'c, M> { $(
            $(#[$doc])*
            /// The request gives the old value.
            ///
            /// # Panics
            /// If `dest` is an array of another number of elements than one, or there is no such PE.
            #[inline]
            #[track_caller]
            pub fn $name<T: $bound + Unpin>(
                &self,
                dest: impl Element<T>,
                $($arg: T,)*
                pe: usize,
            ) -> Request<'c, Old<T>, M> {
                let (at, op) = (dest.one().addr(), $op);
                let mut old = vec![T::from_bits(0)];
                let fetch = old.as_mut_ptr().cast();
                // SAFETY: the request keeps the word until the operation is complete, and shows it to nobody
                // before; it has the width of `T`, and any bits are a value.
                unsafe { self.0.atomic_into(fetch, at, width::<T>(), op, pe) };
                self.request(Old(old), pe)
            }
        )* }
    };
}

fetching! {
    /// Starts to read `dest` on `pe`, atomically.
    atomic_fetch<Atomic>() => AtomicOp::Fetch;
    /// Starts to replace `dest` on `pe`.
    atomic_swap<Atomic>(value) => AtomicOp::Swap(value.to_bits());
    /// Starts to replace `dest` on `pe` by `value` if it equals `cond`.
    atomic_compare_swap<AtomicInt>(cond, value) => AtomicOp::CompareSwap {
        compare: cond.to_bits(),
        new: value.to_bits(),
    };
    /// Starts to add to `dest` on `pe`. Integers wrap.
    atomic_fetch_add<AtomicInt>(value) => AtomicOp::Add(value.to_bits());
    /// Starts to combine `dest` on `pe` with `value` by bitwise and.
    atomic_fetch_and<AtomicInt>(value) => AtomicOp::And(value.to_bits());
    /// Starts to combine `dest` on `pe` with `value` by bitwise or.
    atomic_fetch_or<AtomicInt>(value) => AtomicOp::Or(value.to_bits());
    /// Starts to combine `dest` on `pe` with `value` by exclusive or.
    atomic_fetch_xor<AtomicInt>(value) => AtomicOp::Xor(value.to_bits());
}

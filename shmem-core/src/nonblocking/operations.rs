//! What a scope starts: puts whatever its end, and what brings something back where that is delivery.

use super::{End, Nbi};
use crate::atomics::{AtomicOp, width};
use crate::context::Mode;
use crate::datum::{Atomic, AtomicInt, Datum};
use crate::rma::typed::fitting;
use crate::rma::{Completion, GET, PUT, get_blocks, put_blocks, put_blocks_signal};
use crate::signal::{Signal, SignalOp};
use crate::symmetric::array::SymSlice;
use crate::symmetric::element::Element;

impl<'env, M: Mode, E: End> Nbi<'_, 'env, M, E> {
    /// Starts to copy `source` into the first elements of `dest` on `pe`.
    ///
    /// # Panics
    /// If `source` is longer than `dest`, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn put<T: Datum>(&self, dest: SymSlice<T>, source: &'env [T], pe: usize) {
        let (dest, bytes) = (dest.up_to(source.len(), PUT).addr(), size_of_val(source));
        // SAFETY: `source` outlives the scope, which ends with a wait for it; the handle lies inside the
        // segment.
        unsafe {
            self.ctx
                .put_bytes(dest, source.as_ptr().cast(), bytes, pe, E::UNTIL)
        };
    }

    /// Starts to copy `source` into the first elements of `dest` on `pe`, and to update
    /// `signal` there when that is done; see [`put_signal`](crate::put_signal).
    ///
    /// # Panics
    /// If `source` is longer than `dest`, `signal` is an array of another number of elements than one, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn put_signal<T: Datum>(
        &self,
        dest: SymSlice<T>,
        source: &'env [T],
        signal: impl Element<u64>,
        value: u64,
        op: SignalOp,
        pe: usize,
    ) {
        let (dest, bytes) = (dest.up_to(source.len(), PUT).addr(), size_of_val(source));
        let signal = Signal {
            at: signal.one().addr(),
            value,
            op,
        };
        // SAFETY: `source` outlives the scope, which ends with a wait for it; the handles lie inside the
        // segment.
        unsafe {
            let from = source.as_ptr().cast();
            self.ctx
                .put_signal_bytes(dest, from, bytes, signal, pe, E::UNTIL);
        }
    }

    /// Starts to copy `n` elements of `source`, `source_stride` apart, to `dest` on `pe`, `dest_stride`
    /// apart; see [`iput`](crate::iput).
    ///
    /// # Panics
    /// If a stride is 0, an array is too short, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn iput<T: Datum>(
        &self,
        dest: SymSlice<T>,
        source: &'env [T],
        dest_stride: usize,
        source_stride: usize,
        n: usize,
        pe: usize,
    ) {
        self.ibput(dest, source, dest_stride, source_stride, (1, n), pe);
    }

    /// Starts to copy blocks of `source`, of `block.0` elements each and `block.1` of them, to `dest` on
    /// `pe`; see [`ibput`](crate::ibput).
    ///
    /// # Panics
    /// If a stride is less than a block or 0, an array is too short, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn ibput<T: Datum>(
        &self,
        dest: SymSlice<T>,
        source: &'env [T],
        dest_stride: usize,
        source_stride: usize,
        block: (usize, usize),
        pe: usize,
    ) {
        let (to, from) = ((dest.len(), dest_stride), (source.len(), source_stride));
        let blocks = fitting::<T>(to, from, block.0, block.1);
        let (dest, from) = (dest.addr(), source.as_ptr().cast());
        // SAFETY: `source` outlives the scope, which ends with a wait for it; the blocks fit into both.
        unsafe { put_blocks(self.ctx, dest, from, blocks, pe, E::UNTIL) };
    }

    /// [`iput`](Self::iput), and an update of `signal` on `pe` when that is done; see
    /// [`iput_signal`](crate::iput_signal).
    ///
    /// # Panics
    /// As [`iput`](Self::iput), and if `signal` is an array of another number of elements than one.
    #[inline]
    #[track_caller]
    #[expect(clippy::too_many_arguments, reason = "those of iput and put_signal")]
    pub fn iput_signal<T: Datum>(
        &self,
        dest: SymSlice<T>,
        source: &'env [T],
        dest_stride: usize,
        source_stride: usize,
        n: usize,
        signal: impl Element<u64>,
        value: u64,
        op: SignalOp,
        pe: usize,
    ) {
        let (to, from) = ((dest.len(), dest_stride), (source.len(), source_stride));
        let blocks = fitting::<T>(to, from, 1, n);
        let (dest, from) = (dest.addr(), source.as_ptr().cast());
        let signal = Signal {
            at: signal.one().addr(),
            value,
            op,
        };
        // SAFETY: `source` outlives the scope, which ends with a wait for it; the blocks fit into both.
        unsafe { put_blocks_signal(self.ctx, dest, from, blocks, signal, pe, E::UNTIL) };
    }
}

impl<'env, M: Mode> Nbi<'_, 'env, M> {
    /// Starts to copy the first elements of `source` on `pe` into `dest`.
    ///
    /// # Panics
    /// If `dest` is longer than `source`, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn get<T: Datum>(&self, dest: &'env mut [T], source: SymSlice<T>, pe: usize) {
        let (source, bytes) = (source.up_to(dest.len(), GET).addr(), size_of_val(dest));
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

    /// Starts to copy `n` elements of `source` on `pe`, `source_stride` apart, to `dest`, `dest_stride`
    /// apart; see [`iget`](crate::iget). Where gaps between the elements are read, too, because that is
    /// quicker (gaps of up to 1 KiB), this waits for it.
    ///
    /// # Panics
    /// If a stride is 0, an array is too short, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn iget<T: Datum>(
        &self,
        dest: &'env mut [T],
        source: SymSlice<T>,
        dest_stride: usize,
        source_stride: usize,
        n: usize,
        pe: usize,
    ) {
        self.ibget(dest, source, dest_stride, source_stride, (1, n), pe);
    }

    /// Starts to copy blocks of `source` on `pe`, of `block.0` elements each and `block.1` of them, to
    /// `dest`; see [`ibget`](crate::ibget) and [`iget`](Self::iget).
    ///
    /// # Panics
    /// If a stride is less than a block or 0, an array is too short, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn ibget<T: Datum>(
        &self,
        dest: &'env mut [T],
        source: SymSlice<T>,
        dest_stride: usize,
        source_stride: usize,
        block: (usize, usize),
        pe: usize,
    ) {
        let (to, from) = ((dest.len(), dest_stride), (source.len(), source_stride));
        let blocks = fitting::<T>(to, from, block.0, block.1);
        let (dest, source) = (dest.as_mut_ptr().cast(), source.addr());
        // SAFETY: `dest` is borrowed until after the scope, which ends with a quiet; the blocks fit into
        // both.
        unsafe { get_blocks(self.ctx, dest, source, blocks, pe, Completion::AtQuiet) };
    }
}

macro_rules! fetching {
    ($($(#[$doc:meta])* $name:ident<$bound:ident>($($arg:ident),*) => $op:expr;)*) => {
        impl<'env, M: Mode> Nbi<'_, 'env, M> { $(
            $(#[$doc])*
            /// The old value lands in `fetch`.
            ///
            /// # Panics
            /// If `dest` is an array of another number of elements than one, or there is no such PE.
            #[inline]
            #[track_caller]
            pub fn $name<T: $bound>(
                &self,
                fetch: &'env mut T,
                dest: impl Element<T>,
                $($arg: T,)*
                pe: usize,
            ) {
                let (at, fetch) = (dest.one().addr(), (&raw mut *fetch).cast());
                let op = $op;
                // SAFETY: `fetch` is borrowed until after the scope, which ends with a quiet; it has
                // the width of `T`, and any bits are a value.
                unsafe { self.ctx.atomic_into(fetch, at, width::<T>(), op, pe) };
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
    /// Starts to add 1 to `dest` on `pe`. Integers wrap.
    atomic_fetch_inc<AtomicInt>() => AtomicOp::Add(1);
    /// Starts to add to `dest` on `pe`. Integers wrap.
    atomic_fetch_add<AtomicInt>(value) => AtomicOp::Add(value.to_bits());
    /// Starts to combine `dest` on `pe` with `value` by bitwise and.
    atomic_fetch_and<AtomicInt>(value) => AtomicOp::And(value.to_bits());
    /// Starts to combine `dest` on `pe` with `value` by bitwise or.
    atomic_fetch_or<AtomicInt>(value) => AtomicOp::Or(value.to_bits());
    /// Starts to combine `dest` on `pe` with `value` by exclusive or.
    atomic_fetch_xor<AtomicInt>(value) => AtomicOp::Xor(value.to_bits());
}

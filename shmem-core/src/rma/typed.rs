//! The copies of the crate: puts and gets with types, of a [`Context`](crate::Context) and free.

use std::mem::MaybeUninit;

use super::Completion::OnReturn;
use super::strided::{Blocks, get_blocks, put_blocks, put_blocks_signal};
use super::{GET, PUT};
use crate::context::routines;
use crate::datum::Datum;
use crate::signal::{Signal, SignalOp};
use crate::symmetric::array::SymSlice;
use crate::symmetric::element::Element;

routines! {
    /// Copies `source` into the first elements of `dest` on `pe`.
    ///
    /// # Completion
    /// `source` may be reused on return. The data is delivered at the latest by the next
    /// [`quiet`](crate::quiet) of the context (of the default one also by a barrier); two puts to one
    /// PE are delivered in order only with a [`fence`](crate::fence) between them.
    ///
    /// # Panics
    /// If `source` is longer than `dest`, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_put`.
    pub fn put<T: Datum>(&ctx, dest: SymSlice<T>, source: &[T], pe: usize) {
        let dest = dest.up_to(source.len(), PUT).addr();
        // SAFETY: a slice is readable; the handle lies inside the segment.
        unsafe { ctx.put_bytes(dest, source.as_ptr().cast(), size_of_val(source), pe, OnReturn) };
    }

    /// Copies the first elements of `source` on `pe` into `dest`.
    ///
    /// # Completion
    /// `dest` holds the data on return.
    ///
    /// # Panics
    /// If `dest` is longer than `source`, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_get`.
    pub fn get<T: Datum>(&ctx, dest: &mut [T], source: SymSlice<T>, pe: usize) {
        let source = source.up_to(dest.len(), GET).addr();
        let bytes = size_of_val(dest);
        // SAFETY: a mutable slice is writable; the handle lies inside the segment.
        unsafe { ctx.get_bytes(dest.as_mut_ptr().cast(), source, bytes, pe, OnReturn) };
    }

    /// Copies `source` on `pe` into a vector.
    ///
    /// # Completion
    /// The vector holds the data on return.
    ///
    /// # Panics
    /// If there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_get`.
    #[must_use]
    pub fn get_vec<T: Datum>(&ctx, source: SymSlice<T>, pe: usize) -> Vec<T> {
        let mut out = Vec::<T>::with_capacity(source.len());
        let to = out.as_mut_ptr().cast();
        // SAFETY: the vector has room for the array, and any bytes are values; the handle lies inside the
        // segment.
        unsafe {
            ctx.get_bytes(to, source.addr(), source.bytes(), pe, OnReturn);
            out.set_len(source.len());
        }
        out
    }

    /// Writes `value` to the first element of `dest` on `pe`. A reader there that does not wait for it sees
    /// all or nothing of 1, 2, 4 or 8 bytes aligned to their size, and perhaps a part of anything longer
    /// ([details](SymSlice#values-that-are-written-while-they-are-read)).
    ///
    /// # Completion
    /// As for [`put`].
    ///
    /// # Panics
    /// If `dest` is empty, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_p`.
    pub fn p<T: Datum>(&ctx, dest: SymSlice<T>, value: T, pe: usize) {
        let dest = dest.elem(0).addr();
        // SAFETY: a value is readable; the handle lies inside the segment.
        unsafe { ctx.put_bytes(dest, (&raw const value).cast(), size_of::<T>(), pe, OnReturn) };
    }

    /// Reads the first element of `source` on `pe`; it is here on return. If it is written meanwhile, the
    /// value is that from before or after if it has 1, 2, 4 or 8 bytes aligned to their size, and may be made
    /// of both if it is longer ([details](SymSlice#values-that-are-written-while-they-are-read)).
    ///
    /// # Panics
    /// If `source` is empty, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_g`.
    #[must_use]
    pub fn g<T: Datum>(&ctx, source: SymSlice<T>, pe: usize) -> T {
        let source = source.elem(0).addr();
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: one element is written completely; any bytes are a value of a `Datum`.
        unsafe {
            ctx.get_bytes(value.as_mut_ptr().cast(), source, size_of::<T>(), pe, OnReturn);
            value.assume_init()
        }
    }

    /// Copies `n` elements of `source`, `source_stride` apart, to `dest` on `pe`, `dest_stride`
    /// apart. Strides are in elements, at least 1.
    ///
    /// To another node elements that lie apart at the target (`dest_stride` above 1) are a message each, as
    /// RDMA writes no gaps: 512 of them take 10 to 30 times as long as one put of as many that lie one behind
    /// the other. Where that counts, let `dest_stride` be 1 (the library packs them then), and the
    /// target copy them apart.
    ///
    /// # Completion
    /// As for [`put`].
    ///
    /// # Panics
    /// If a stride is 0, an array is too short, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_iput`.
    pub fn iput<T: Datum>(
        &ctx,
        dest: SymSlice<T>,
        source: &[T],
        dest_stride: usize,
        source_stride: usize,
        n: usize,
        pe: usize,
    ) {
        let blocks = fitting::<T>((dest.len(), dest_stride), (source.len(), source_stride), 1, n);
        let dest = dest.addr();
        // SAFETY: the blocks fit into both arrays.
        unsafe { put_blocks(ctx, dest, source.as_ptr().cast(), blocks, pe, OnReturn) };
    }

    /// [`iput`], then an update of `signal` on `pe`: a PE that sees the signal sees the
    /// elements, as with [`put_signal`](crate::put_signal). `signal` is no part of `dest`.
    ///
    /// # Completion
    /// As for [`put`].
    ///
    /// # Panics
    /// As [`iput`], and if `signal` is empty.
    ///
    /// # Spec
    /// None: OpenSHMEM 1.6 has signals for `shmem_put` alone.
    #[expect(clippy::too_many_arguments, reason = "those of iput and put_signal")]
    pub fn iput_signal<T: Datum>(
        &ctx,
        dest: SymSlice<T>,
        source: &[T],
        dest_stride: usize,
        source_stride: usize,
        n: usize,
        signal: impl Element<u64>,
        value: u64,
        op: SignalOp,
        pe: usize,
    ) {
        let blocks = fitting::<T>((dest.len(), dest_stride), (source.len(), source_stride), 1, n);
        let (dest, from) = (dest.addr(), source.as_ptr().cast());
        let signal = Signal { at: signal.one().addr(), value, op };
        // SAFETY: the blocks fit into both arrays, and the handle lies inside the segment.
        unsafe { put_blocks_signal(ctx, dest, from, blocks, signal, pe, OnReturn) };
    }

    /// Copies `n` elements of `source` on `pe`, `source_stride` apart, to `dest`, `dest_stride`
    /// apart. Strides are in elements, at least 1.
    ///
    /// # Completion
    /// As for [`get`].
    ///
    /// # Panics
    /// If a stride is 0, an array is too short, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_iget`.
    pub fn iget<T: Datum>(
        &ctx,
        dest: &mut [T],
        source: SymSlice<T>,
        dest_stride: usize,
        source_stride: usize,
        n: usize,
        pe: usize,
    ) {
        let blocks = fitting::<T>((dest.len(), dest_stride), (source.len(), source_stride), 1, n);
        let source = source.addr();
        // SAFETY: the blocks fit into both arrays.
        unsafe { get_blocks(ctx, dest.as_mut_ptr().cast(), source, blocks, pe, OnReturn) };
    }

    /// Copies blocks of `source`, of `block.0` elements each and `block.1` of them, to `dest` on `pe`.
    /// Strides are in elements, from the beginning of a block to that of the next.
    ///
    /// ```
    /// # fn main() -> Result<(), shmem::Error> {
    /// # let _world = shmem::init()?;
    /// let dest = shmem::alloc::<u32>(8)?;
    /// // Three blocks of two: densely stored here, three apart there.
    /// shmem::ibput(dest, &[1, 2, 3, 4, 5, 6], 3, 2, (2, 3), shmem::my_pe());
    /// shmem::quiet();
    /// assert_eq!(dest.to_vec(), [1, 2, 0, 3, 4, 0, 5, 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Completion
    /// As for [`put`].
    ///
    /// # Panics
    /// If a stride is less than a block, an array is too short, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ibput`.
    pub fn ibput<T: Datum>(
        &ctx,
        dest: SymSlice<T>,
        source: &[T],
        dest_stride: usize,
        source_stride: usize,
        block: (usize, usize),
        pe: usize,
    ) {
        let (dest_side, source_side) = ((dest.len(), dest_stride), (source.len(), source_stride));
        let blocks = fitting::<T>(dest_side, source_side, block.0, block.1);
        let dest = dest.addr();
        // SAFETY: the blocks fit into both arrays.
        unsafe { put_blocks(ctx, dest, source.as_ptr().cast(), blocks, pe, OnReturn) };
    }

    /// Copies blocks of `source` on `pe`, of `block.0` elements each and `block.1` of them, to `dest`.
    /// Strides are in elements, from the beginning of a block to that of the next.
    ///
    /// # Completion
    /// As for [`get`].
    ///
    /// # Panics
    /// If a stride is less than a block, an array is too short, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ibget`.
    pub fn ibget<T: Datum>(
        &ctx,
        dest: &mut [T],
        source: SymSlice<T>,
        dest_stride: usize,
        source_stride: usize,
        block: (usize, usize),
        pe: usize,
    ) {
        let (dest_side, source_side) = ((dest.len(), dest_stride), (source.len(), source_stride));
        let blocks = fitting::<T>(dest_side, source_side, block.0, block.1);
        let source = source.addr();
        // SAFETY: the blocks fit into both arrays.
        unsafe { get_blocks(ctx, dest.as_mut_ptr().cast(), source, blocks, pe, OnReturn) };
    }
}

/// Blocks of `block` elements that lie inside both arrays, each of which is given by its length and
/// its stride.
#[track_caller]
pub(crate) fn fitting<T>(
    dest: (usize, usize),
    source: (usize, usize),
    block: usize,
    count: usize,
) -> Blocks {
    for (name, (len, stride)) in [("dest", dest), ("source", source)] {
        assert!(stride > 0, "the stride of {name} is 0");
        assert!(
            stride >= block,
            "the stride of {name} is {stride} elements, less than a block, which has {block}"
        );
        let needed = match (block, count.checked_sub(1)) {
            (0, _) | (_, None) => Some(0),
            (_, Some(last)) => last
                .checked_mul(stride)
                .and_then(|at| at.checked_add(block)),
        };
        assert!(
            needed.is_some_and(|needed| needed <= len),
            "{count} blocks of {block} elements, {stride} apart, do not fit into {name}, which has \
             {len}"
        );
    }
    Blocks {
        count,
        bytes: block * size_of::<T>(),
        dest_stride: dest.1.saturating_mul(size_of::<T>()),
        source_stride: source.1.saturating_mul(size_of::<T>()),
    }
}

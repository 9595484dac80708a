//! Copies between symmetric arrays: what is local lies in symmetric memory, too, which stays mapped as long
//! as the process lives. So no scope has to hold it, and the network sends from where it lies.

use super::Completion::{self, AtQuiet, OnReturn};
use super::{GET, PUT};
use crate::context::{Ctx, routines};
use crate::datum::Datum;
use crate::symmetric::array::SymSlice;

#[inline(always)]
#[track_caller]
fn put_between<T: Datum>(
    ctx: &Ctx,
    dest: SymSlice<T>,
    source: SymSlice<T>,
    pe: usize,
    completion: Completion,
) {
    let dest = dest.up_to(source.len(), PUT).addr();
    // SAFETY: both handles lie inside the segment, which stays mapped.
    unsafe { ctx.put_bytes(dest, source.as_ptr().cast(), source.bytes(), pe, completion) };
}

#[inline(always)]
#[track_caller]
fn get_between<T: Datum>(
    ctx: &Ctx,
    dest: SymSlice<T>,
    source: SymSlice<T>,
    pe: usize,
    completion: Completion,
) {
    let from = source.up_to(dest.len(), GET).addr();
    // SAFETY: both handles lie inside the segment, which stays mapped.
    unsafe { ctx.get_bytes(dest.as_ptr().cast(), from, dest.bytes(), pe, completion) };
}

routines! {
    /// Copies this PE's `source`, a symmetric array, into the first elements of `dest` on `pe`: [`put`](crate::put)
    /// without a slice of this PE's elements, which would have to be `unsafe`. The two may be parts of one array.
    ///
    /// ```
    /// # fn main() -> Result<(), shmem::Error> {
    /// # let _world = shmem::init()?;
    /// // The last row of this PE's grid into the row above that of the next one.
    /// let grid = shmem::alloc::<f64>(4 * 10)?.grid(4, 10);
    /// let next = (shmem::my_pe() + 1) % shmem::n_pes();
    /// shmem::put_sym(grid.row(0), grid.row(2), next);
    /// shmem::barrier_all();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Completion
    /// As for [`put`](crate::put).
    ///
    /// # Panics
    /// If `source` is longer than `dest`, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_put`.
    pub fn put_sym<T: Datum>(&ctx, dest: SymSlice<T>, source: SymSlice<T>, pe: usize) {
        put_between(ctx, dest, source, pe, OnReturn);
    }

    /// Copies the first elements of `source` on `pe` into this PE's `dest`, a symmetric array.
    ///
    /// # Completion
    /// As for [`get`](crate::get).
    ///
    /// # Panics
    /// If `dest` is longer than `source`, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_get`.
    pub fn get_sym<T: Datum>(&ctx, dest: SymSlice<T>, source: SymSlice<T>, pe: usize) {
        get_between(ctx, dest, source, pe, OnReturn);
    }

    /// Starts to copy this PE's `source`, a symmetric array, into the first elements of `dest` on `pe`.
    ///
    /// # Completion
    /// At the next [`quiet`](crate::quiet) of the context (of the default one also a barrier). What is written to
    /// `source` before may or may not be what arrives.
    ///
    /// # Panics
    /// If `source` is longer than `dest`, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_put_nbi`.
    pub fn put_sym_nbi<T: Datum>(&ctx, dest: SymSlice<T>, source: SymSlice<T>, pe: usize) {
        put_between(ctx, dest, source, pe, AtQuiet);
    }

    /// Starts to copy the first elements of `source` on `pe` into this PE's `dest`, a symmetric array.
    ///
    /// # Completion
    /// At the next [`quiet`](crate::quiet) of the context (of the default one also a barrier). Before, `dest` may
    /// hold a part of the data.
    ///
    /// # Panics
    /// If `dest` is longer than `source`, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_get_nbi`.
    pub fn get_sym_nbi<T: Datum>(&ctx, dest: SymSlice<T>, source: SymSlice<T>, pe: usize) {
        get_between(ctx, dest, source, pe, AtQuiet);
    }
}

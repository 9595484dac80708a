//! One-sided copies: put and get in their forms.
//!
//! To a PE of the same node they are plain memory accesses. To others they are RDMA over a
//! connection that the first operation makes.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use crate::datum::Datum;
use crate::heap::access;
use crate::heap::parts::Piece;
use crate::heap::sym::SymSlice;
use crate::runtime::{Place, Runtime, rt};

/// When a source buffer may be used again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// When the call returns.
    Reusable,
    /// Not before `quiet`.
    Stays,
}

impl Runtime {
    /// Writes `len` bytes to `offset` of `pe`'s segment.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes, until the time that `source` says; the target range
    /// lies inside the segment.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn put_raw(
        &self,
        pe: usize,
        offset: usize,
        from: *const u8,
        len: usize,
        source: Source,
    ) {
        match self.place(pe, offset) {
            Place::Here(to) => {
                // SAFETY: readable by the caller; the target is mapped.
                unsafe { access::copy(from, to, len) };
                self.ring(pe);
            }
            // SAFETY: by the caller.
            Place::There => unsafe { self.put_far(pe, offset, from, len, source) },
        }
    }

    /// # Safety
    /// As for [`Runtime::put_raw`].
    #[cold]
    unsafe fn put_far(&self, pe: usize, offset: usize, from: *const u8, len: usize, s: Source) {
        let stays = s == Source::Stays;
        for Piece {
            part,
            offset,
            at,
            len,
        } in self.copies(offset, from, len)
        {
            // SAFETY: by the caller.
            self.far(|net| unsafe {
                net.put_in(pe as u32, part, offset, from.add(at), len, stays)
            });
        }
    }

    /// Reads `len` bytes from `offset` of `pe`'s segment. Without `blocking` the bytes may arrive
    /// as late as `quiet`.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes (without `blocking`: until quiet, and nobody looks at it
    /// before); the source range lies inside the segment.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn get_raw(
        &self,
        pe: usize,
        offset: usize,
        to: *mut u8,
        len: usize,
        blocking: bool,
    ) {
        match self.place(pe, offset) {
            // SAFETY: the source is mapped; writable by the caller.
            Place::Here(from) => unsafe { access::copy(from, to, len) },
            // SAFETY: by the caller.
            Place::There => unsafe { self.get_far(pe, offset, to, len, blocking) },
        }
    }

    /// # Safety
    /// As for [`Runtime::get_raw`].
    #[cold]
    unsafe fn get_far(&self, pe: usize, offset: usize, to: *mut u8, len: usize, blocking: bool) {
        for Piece {
            part,
            offset,
            at,
            len,
        } in self.copies(offset, to, len)
        {
            // SAFETY: by the caller.
            self.far(|net| unsafe {
                net.get_in(pe as u32, part, offset, to.add(at), len, blocking)
            });
        }
    }

    /// The pieces in which a copy to or from `offset` of a segment elsewhere goes over the network.
    fn copies(&self, offset: usize, local: *const u8, len: usize) -> impl Iterator<Item = Piece> {
        let inside = (local as usize).wrapping_sub(self.own.0 as usize);
        let local = Some(inside).filter(|at| *at < self.node.segment_len());
        self.remote().registrar.parts().copies(offset, local, len)
    }

    /// Ends the job if the network failed: a one-sided program cannot go on without a peer.
    pub(crate) fn or_die<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> T {
        match result {
            Ok(value) => value,
            Err(e) => self.die(&e),
        }
    }

    #[cold]
    fn die(&self, error: &dyn std::fmt::Display) -> ! {
        eprintln!("shmem: PE {} (node {}): {error}", self.me, self.my_node);
        std::process::exit(1)
    }
}

/// Copies `source` into the first elements of `dest` on `pe`.
///
/// # Completion
/// `source` may be reused on return. The data is delivered at the latest by the next [`quiet`] or
/// barrier; two puts to one PE are delivered in order only with a [`fence`] between them.
///
/// # Panics
/// If `source` is longer than `dest`, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_put`.
///
/// [`quiet`]: crate::quiet
/// [`fence`]: crate::fence
#[inline]
#[track_caller]
pub fn put<T: Datum>(dest: SymSlice<T>, source: &[T], pe: usize) {
    let dest = dest.at(..source.len());
    // SAFETY: a slice is readable; the handle lies inside the segment.
    unsafe {
        let from = source.as_ptr().cast();
        rt().put_raw(
            pe,
            dest.offset(),
            from,
            size_of_val(source),
            Source::Reusable,
        );
    }
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
#[inline]
#[track_caller]
pub fn get<T: Datum>(dest: &mut [T], source: SymSlice<T>, pe: usize) {
    let source = source.at(..dest.len());
    // SAFETY: a mutable slice is writable; the handle lies inside the segment.
    unsafe {
        let to = dest.as_mut_ptr().cast();
        rt().get_raw(pe, source.offset(), to, size_of_val(dest), true);
    }
}

/// Writes `value` to the first element of `dest` on `pe`.
///
/// # Completion
/// As for [`put`].
///
/// # Panics
/// If `dest` is empty, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_p`.
#[inline]
#[track_caller]
pub fn p<T: Datum>(dest: SymSlice<T>, value: T, pe: usize) {
    put(dest, std::slice::from_ref(&value), pe);
}

/// Reads the first element of `source` on `pe`; it is here on return.
///
/// # Panics
/// If `source` is empty, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_g`.
#[inline]
#[track_caller]
pub fn g<T: Datum>(source: SymSlice<T>, pe: usize) -> T {
    let source = source.elem(0);
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: one element is written completely; any bytes are a value of a `Datum`.
    unsafe {
        rt().get_raw(
            pe,
            source.offset(),
            value.as_mut_ptr().cast(),
            size_of::<T>(),
            true,
        );
        value.assume_init()
    }
}

/// Copies `n` elements of `source`, `source_stride` apart, to `dest` on `pe`, `dest_stride` apart.
/// Strides are in elements, at least 1.
///
/// # Completion
/// As for [`put`].
///
/// # Panics
/// If a stride is 0, an array is too short, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_iput`.
#[track_caller]
pub fn iput<T: Datum>(
    dest: SymSlice<T>,
    source: &[T],
    dest_stride: usize,
    source_stride: usize,
    n: usize,
    pe: usize,
) {
    check_strides("dest", dest.len(), dest_stride, n);
    check_strides("source", source.len(), source_stride, n);
    for i in 0..n {
        p(dest.elem(i * dest_stride), source[i * source_stride], pe);
    }
}

/// Copies `n` elements of `source` on `pe`, `source_stride` apart, to `dest`, `dest_stride` apart.
/// Strides are in elements, at least 1.
///
/// # Completion
/// As for [`get`].
///
/// # Panics
/// If a stride is 0, an array is too short, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_iget`.
#[track_caller]
pub fn iget<T: Datum>(
    dest: &mut [T],
    source: SymSlice<T>,
    dest_stride: usize,
    source_stride: usize,
    n: usize,
    pe: usize,
) {
    check_strides("dest", dest.len(), dest_stride, n);
    check_strides("source", source.len(), source_stride, n);
    if let Some(last) = n.checked_sub(1) {
        let blocks = dest[..=last * dest_stride]
            .chunks_mut(dest_stride)
            .enumerate();
        nbi(move |ops| {
            for (i, block) in blocks {
                ops.get(&mut block[..1], source.elem(i * source_stride), pe);
            }
        });
    }
}

#[track_caller]
fn check_strides(name: &str, len: usize, stride: usize, n: usize) {
    assert!(stride > 0, "the stride of {name} is 0");
    let needed = n
        .checked_sub(1)
        .map_or(Some(0), |last| last.checked_mul(stride)?.checked_add(1));
    assert!(
        needed.is_some_and(|needed| needed <= len),
        "{n} elements {stride} apart do not fit into {name}, which has {len}"
    );
}

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
pub fn nbi<'env, R>(f: impl for<'scope> FnOnce(&'scope Nbi<'scope, 'env>) -> R) -> R {
    /// Completes the operations also when `f` panics: their buffers are about to go.
    struct Completed;
    impl Drop for Completed {
        fn drop(&mut self) {
            crate::order::quiet();
        }
    }
    let _completed = Completed;
    f(&Nbi {
        scope: PhantomData,
        env: PhantomData,
    })
}

/// Starts non-blocking operations; see [`nbi`].
#[derive(Debug)]
pub struct Nbi<'scope, 'env: 'scope> {
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'env> Nbi<'_, 'env> {
    /// Starts to copy `source` into the first elements of `dest` on `pe`.
    ///
    /// # Panics
    /// If `source` is longer than `dest`, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn put<T: Datum>(&self, dest: SymSlice<T>, source: &'env [T], pe: usize) {
        // SAFETY: `source` outlives the scope, which ends with a quiet.
        unsafe { put_nbi(dest, source, pe) };
    }

    /// Starts to copy the first elements of `source` on `pe` into `dest`.
    ///
    /// # Panics
    /// If `dest` is longer than `source`, or there is no such PE.
    #[inline]
    #[track_caller]
    pub fn get<T: Datum>(&self, dest: &'env mut [T], source: SymSlice<T>, pe: usize) {
        // SAFETY: `dest` is borrowed until after the scope, which ends with a quiet.
        unsafe { get_nbi(dest, source, pe) };
    }
}

/// Starts to copy `source` into the first elements of `dest` on `pe`. [`nbi`] is the safe form.
///
/// # Safety
/// `source` stays readable and unchanged until the next [`quiet`](crate::quiet) or barrier of this
/// PE returns.
///
/// # Panics
/// If `source` is longer than `dest`, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_put_nbi`.
#[inline]
#[track_caller]
pub unsafe fn put_nbi<T: Datum>(dest: SymSlice<T>, source: &[T], pe: usize) {
    let dest = dest.at(..source.len());
    // SAFETY: by the caller; the handle lies inside the segment.
    unsafe {
        let from = source.as_ptr().cast();
        rt().put_raw(pe, dest.offset(), from, size_of_val(source), Source::Stays);
    }
}

/// Starts to copy the first elements of `source` on `pe` into `dest`. [`nbi`] is the safe form.
///
/// # Safety
/// `dest` stays writable, and nobody looks at it, until the next [`quiet`](crate::quiet) or barrier
/// of this PE returns.
///
/// # Panics
/// If `dest` is longer than `source`, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_get_nbi`.
#[inline]
#[track_caller]
pub unsafe fn get_nbi<T: Datum>(dest: &mut [T], source: SymSlice<T>, pe: usize) {
    let source = source.at(..dest.len());
    // SAFETY: by the caller; the handle lies inside the segment.
    unsafe {
        let to = dest.as_mut_ptr().cast();
        rt().get_raw(pe, source.offset(), to, size_of_val(dest), false);
    }
}

//! Symmetric arrays are allocated, given another length, and freed.

use shmem_node::waiting::Collective;

use crate::collectives::collective;
use crate::datum::Datum;
use crate::error::Error;
use crate::heap::access;
use crate::symmetric::array::SymSlice;

/// Allocates a symmetric array of `len` elements, all bits zero, on every PE.
///
/// **Collective**: all PEs call it with the same `T` and `len`, in the same order relative to other
/// collectives. Returns after all PEs have it (a barrier). With `SHMEM_CHECK`, as in debug builds, PEs that
/// ask for different things are found out, and the job ends with a message.
///
/// # Errors
/// [`Error::HeapExhausted`], on all PEs alike and without a barrier, if no free range is large
/// enough. Where heaps are registered in parts (`SHMEM_HEAP_REGISTER`), a network device that refuses
/// the part ends the job with a message.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_calloc`.
#[track_caller]
pub fn alloc<T: Datum>(len: usize) -> Result<SymSlice<T>, Error> {
    take(len, align_of::<T>(), true)
}

/// As [`alloc`], but the elements have some values, which may be those of arrays that were freed. It
/// spares writing memory that is going to be overwritten.
///
/// # Errors
/// As for [`alloc`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_malloc`.
#[track_caller]
pub fn alloc_uninit<T: Datum>(len: usize) -> Result<SymSlice<T>, Error> {
    take(len, align_of::<T>(), false)
}

/// As [`alloc`], with the elements that each PE gives, as many as the others.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// # let _world = shmem::init()?;
/// let ranks = shmem::alloc_from(&[shmem::my_pe() as u32, 7])?;
/// let last = shmem::n_pes() - 1;
/// assert_eq!(shmem::get_vec(ranks, last), [last as u32, 7]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As for [`alloc`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_malloc`.
#[track_caller]
pub fn alloc_from<T: Datum>(values: &[T]) -> Result<SymSlice<T>, Error> {
    let align = align_of::<T>();
    let rt = collective(Collective::Alloc, |said| {
        said.elements::<T>(values.len()).with([align])
    });
    let at = rt.take(size_of_val(values), align, false)?;
    let array = SymSlice::from_raw(at.offset(), values.len());
    array.write_from(values);
    // Nobody uses what another PE has not filled.
    rt.barrier_all();
    Ok(array)
}

/// As [`alloc`], at an address that is a multiple of `align` bytes on every PE.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// let _world = shmem::init()?;
/// let page = shmem::alloc_aligned::<u32>(1024, 4096)?;
/// assert!(page.as_ptr().addr().is_multiple_of(4096));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As for [`alloc`]; [`Error::Alignment`] if `align` is more than 16 MiB (2 MiB
/// with huge pages).
///
/// # Panics
/// If `align` is no power of two.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_align`.
#[track_caller]
pub fn alloc_aligned<T: Datum>(len: usize, align: usize) -> Result<SymSlice<T>, Error> {
    assert!(
        align.is_power_of_two(),
        "alignment {align} is no power of two"
    );
    take(len, align.max(align_of::<T>()), true)
}

#[track_caller]
fn take<T: Datum>(len: usize, align: usize, zeroed: bool) -> Result<SymSlice<T>, Error> {
    let bytes = len.saturating_mul(size_of::<T>());
    let rt = collective(Collective::Alloc, |said| {
        said.elements::<T>(len).with([align])
    });
    let at = rt.allocate(bytes, align, zeroed)?;
    Ok(SymSlice::from_raw(at.offset(), len))
}

/// Gives an array of [`alloc`] another length, in place if there is room behind it, else elsewhere.
/// Elements up to the lesser length keep their values, new ones are zero. Handles to the old array must
/// not be used any more, unless there is an error.
///
/// **Collective** with the same arguments on all PEs; a barrier on entry and on return.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// let _world = shmem::init()?;
/// let short = shmem::alloc::<u64>(2)?;
/// short.write_from(&[1, 2]);
/// let long = shmem::realloc(short, 4)?;
/// assert_eq!(long.to_vec(), [1, 2, 0, 0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::HeapExhausted`], and the array is as it was; [`Error::NotAllocated`] if the handle is not
/// the start of an allocated array.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_realloc`.
#[track_caller]
pub fn realloc<T: Datum>(array: SymSlice<T>, len: usize) -> Result<SymSlice<T>, Error> {
    let rt = collective(Collective::Realloc, |said| {
        said.elements::<T>(len).with([array.offset()])
    });
    let (old, new) = (array.bytes(), len.saturating_mul(size_of::<T>()));
    let at = rt.reallocate(array.addr(), new)?;
    let array = SymSlice::<T>::from_raw(at.offset(), len);
    if new > old {
        // SAFETY: what is new lies in this PE's block, of which no PE may use a part before all
        // have it.
        unsafe { access::zero(rt.own(at.offset() + old), new - old) };
    }
    rt.barrier_all();
    Ok(array)
}

/// Gives back what [`alloc`] gave. Handles to it must not be used any more.
///
/// **Collective**: waits until all PEs have called it (a barrier), so no PE loses memory that
/// another still accesses in an operation issued before.
///
/// # Errors
/// [`Error::NotAllocated`] if the handle is not the start of an allocated array.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_free`.
#[track_caller]
pub fn free<T: Datum>(array: SymSlice<T>) -> Result<(), Error> {
    let rt = collective(Collective::Free, |said| said.with([array.offset()]));
    rt.release(array.addr())
}

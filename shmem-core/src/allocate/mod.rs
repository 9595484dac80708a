//! The collective operations of the symmetric heap: allocate, reallocate, release.
//!
//! * This file: over addresses and byte counts, for every interface.
//! * [`typed`]: for arrays.
//! * [`scratch`](mod@scratch): for the time of a function.
//!
//! Every PE has a copy of the heap's state, and changes it alike: with different ideas of what lies where PEs
//! would write over each other's arrays.

pub(crate) mod scratch;
pub(crate) mod typed;

use shmem_node::waiting::Collective;

use crate::collectives::{WorldCollective, collective};
use crate::error::Error;
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::symmetric::address::{symmetric, why_not_symmetric};
use crate::team::Team;

impl WorldCollective {
    /// Takes `bytes` from the heap at a multiple of `align`, and waits for all PEs. Zeroed on
    /// demand.
    pub(crate) fn allocate(
        &self,
        bytes: usize,
        align: usize,
        zeroed: bool,
    ) -> Result<SymAddr, Error> {
        let at = self.take(bytes, align, zeroed)?;
        self.barrier_all();
        Ok(at)
    }

    /// Takes memory from the heap on this PE, as all PEs do.
    fn take(&self, bytes: usize, align: usize, zeroed: bool) -> Result<SymAddr, Error> {
        let most = self.node.segment_align();
        if align > most {
            let called = Team::world().called();
            return Err(Error::Alignment {
                asked: align,
                most,
                called,
            });
        }
        let mut heap = self.heap.lock().unwrap_or_else(|e| e.into_inner());
        let Some(block) = heap.allocate(bytes, align) else {
            let (size, used, largest_free) = heap.usage();
            return Err(Error::HeapExhausted {
                asked: bytes,
                size,
                used,
                largest_free,
                called: Team::world().called(),
            });
        };
        drop(heap);
        let offset = self.ranges.heap_at + block.offset;
        self.register(offset..offset + bytes);
        if zeroed {
            // SAFETY: the block lies in this PE's heap, and no PE knows of it before the barrier.
            unsafe { access::zero(self.own(offset), block.dirty) };
        }
        Ok(SymAddr::new(offset))
    }

    /// Where in the heap a block at `at` would begin.
    fn in_heap(&self, at: SymAddr) -> Option<usize> {
        at.offset().checked_sub(self.ranges.heap_at)
    }

    /// Changes the size of a block, in place if there is room. The contents stay, up to the lesser size.
    /// If there is no room, the block stays as it is. The caller waits for all PEs afterwards.
    pub(crate) fn reallocate(&self, at: SymAddr, bytes: usize) -> Result<SymAddr, Error> {
        let unknown = Error::NotAllocated {
            offset: at.offset(),
            called: Team::world().called(),
        };
        let Some(inside) = self.in_heap(at) else {
            return Err(unknown);
        };
        // Nobody accesses the block any more.
        self.barrier_all();
        let mut heap = self.heap.lock().unwrap_or_else(|e| e.into_inner());
        let Some(old) = heap.len_of(inside) else {
            return Err(unknown);
        };
        let in_place = heap.resize(inside, bytes);
        drop(heap);
        if in_place {
            self.register(at.offset()..at.offset() + bytes);
            return Ok(at);
        }
        let new = self.take(bytes, 1, false)?;
        let (from, to) = (self.own(at.offset()), self.own(new.offset()));
        // SAFETY: both blocks lie in this PE's heap and have that many bytes; no other PE knows of the
        // new one before the barrier, and none writes the old one.
        unsafe { access::copy(from, to, old.min(bytes)) };
        let mut heap = self.heap.lock().unwrap_or_else(|e| e.into_inner());
        heap.release(inside);
        Ok(new)
    }

    /// Gives a block back, once all PEs have come.
    pub(crate) fn release(&self, at: SymAddr) -> Result<(), Error> {
        self.barrier_all();
        let mut heap = self.heap.lock().unwrap_or_else(|e| e.into_inner());
        if self.in_heap(at).is_some_and(|o| heap.release(o)) {
            Ok(())
        } else {
            Err(Error::NotAllocated {
                offset: at.offset(),
                called: Team::world().called(),
            })
        }
    }
}

/// Takes `bytes` bytes from the symmetric heap of every PE, at an address that is a multiple of
/// `align` (a power of two; at least that of a cache line is given), with all bits zero or with
/// any contents. Without bytes the result is null and no PE waits,
/// unless calls are compared (`SHMEM_CHECK`).
///
/// **Collective** with equal arguments; returns after all PEs have the block (a barrier).
///
/// # Errors
/// [`Error::HeapExhausted`] or [`Error::Alignment`], on all PEs alike and without a barrier.
///
/// # Panics
/// Before init, if `align` is no power of two, or if another thread is in a collective.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_malloc`, `shmem_calloc`, `shmem_align`.
#[track_caller]
pub fn allocate(bytes: usize, align: usize, zeroed: bool) -> Result<*mut u8, Error> {
    assert!(
        align.is_power_of_two(),
        "alignment {align} is no power of two"
    );
    let rt = collective(Collective::Alloc, |said| said.bytes(bytes).with([align]));
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    rt.allocate(bytes, align, zeroed)
        .map(|at| rt.own(at.offset()))
}

/// Changes the size of a block, which may move. Contents stay, up to the lesser size; those of what is
/// new may be anything. A null pointer is allocated, and no bytes free the block and give null.
///
/// **Collective** with equal arguments; a barrier on entry and on return.
///
/// # Errors
/// [`Error::HeapExhausted`]: the block is still there, unchanged. [`Error::NotAllocated`].
///
/// # Panics
/// Before init, or if another thread is in a collective.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_realloc`.
#[track_caller]
pub fn reallocate(at: *mut u8, bytes: usize) -> Result<*mut u8, Error> {
    if at.is_null() {
        return allocate(bytes, 1, false);
    }
    if bytes == 0 {
        return release(at).map(|()| std::ptr::null_mut());
    }
    let sym = symmetric(at, 0).ok_or_else(|| Error::NotSymmetric(why_not_symmetric(at, 1)))?;
    let rt = collective(Collective::Realloc, |said| {
        said.bytes(bytes).with([sym.offset()])
    });
    let at = rt.reallocate(sym, bytes)?;
    rt.barrier_all();
    Ok(rt.own(at.offset()))
}

/// Gives back what [`allocate`] or [`reallocate`] gave; nothing happens with null.
///
/// **Collective**; a barrier on entry.
///
/// # Errors
/// [`Error::NotAllocated`] if there is no block there.
///
/// # Panics
/// Before init, or if another thread is in a collective.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_free`.
#[track_caller]
pub fn release(at: *mut u8) -> Result<(), Error> {
    if at.is_null() {
        return Ok(());
    }
    let sym = symmetric(at, 0).ok_or_else(|| Error::NotSymmetric(why_not_symmetric(at, 1)))?;
    collective(Collective::Free, |said| said.with([sym.offset()])).release(sym)
}

//! The heap's collective operations: allocate, reallocate, release.

use std::ops::Range;

use crate::error::Error;
use crate::heap::access;
use crate::heap::address::{Sym, symmetric};
use crate::runtime::{Runtime, collective};

/// Largest alignment of a block in bytes: that of every PE's heap.
pub(crate) const MAX_ALIGN: usize = shmem_node::layout::PAGE;

impl Runtime {
    /// Makes a range of this PE's segment accessible to other nodes. Ends the job if that fails: the
    /// others, whose devices did not refuse, are on their way to a barrier.
    fn expose(&self, range: Range<usize>) {
        if let Some(remote) = &self.remote {
            let (endpoint, figures) = (&remote.endpoint, &self.block.stats);
            // SAFETY: the segment stays mapped until the process ends.
            let done = unsafe { remote.registrar.reach(endpoint, self.own.0, range, figures) };
            self.or_die(done.map_err(Error::from));
        }
    }

    /// Takes `bytes` from the heap at a multiple of `align`, and waits for all PEs. Zeroed on
    /// demand.
    pub(crate) fn allocate(&self, bytes: usize, align: usize, zeroed: bool) -> Result<Sym, Error> {
        let at = self.take(bytes, align, zeroed)?;
        self.barrier_all();
        Ok(at)
    }

    /// Takes memory from the heap on this PE, as all PEs do.
    fn take(&self, bytes: usize, align: usize, zeroed: bool) -> Result<Sym, Error> {
        if align > MAX_ALIGN {
            return Err(Error::Alignment {
                asked: align,
                most: MAX_ALIGN,
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
            });
        };
        drop(heap);
        let offset = self.ranges.heap_at + block.offset;
        self.expose(offset..offset + bytes);
        if zeroed {
            // SAFETY: the block lies in this PE's heap, and no PE knows of it before the barrier.
            unsafe { self.own(offset).write_bytes(0, block.dirty) };
        }
        Ok(Sym::new(offset))
    }

    /// Where in the heap a block at `at` would begin.
    fn in_heap(&self, at: Sym) -> Option<usize> {
        at.offset().checked_sub(self.ranges.heap_at)
    }

    /// Changes the size of a block, in place if there is room. The contents stay, up to the lesser size;
    /// what is new is zeroed on demand. If there is no room, the block stays as it is.
    pub(crate) fn reallocate(&self, at: Sym, bytes: usize, zeroed: bool) -> Result<Sym, Error> {
        let unknown = Error::NotAllocated {
            offset: at.offset(),
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
        let new = match in_place {
            true => at,
            false => self.take(bytes, 1, false)?,
        };
        let kept = old.min(bytes);
        self.expose(new.offset()..new.offset() + bytes);
        // SAFETY: both blocks lie in this PE's heap; the new one is known to no other PE before the
        // barrier, nor is what was added to the old one.
        unsafe {
            let to = self.own(new.offset());
            if !in_place {
                access::copy(self.own(at.offset()), to, kept);
            }
            if zeroed && bytes > kept {
                to.add(kept).write_bytes(0, bytes - kept);
            }
        }
        if !in_place {
            let mut heap = self.heap.lock().unwrap_or_else(|e| e.into_inner());
            heap.release(inside);
        }
        self.barrier_all();
        Ok(new)
    }

    /// Gives a block back, once all PEs have come.
    pub(crate) fn release(&self, at: Sym) -> Result<(), Error> {
        self.barrier_all();
        let mut heap = self.heap.lock().unwrap_or_else(|e| e.into_inner());
        if self.in_heap(at).is_some_and(|o| heap.release(o)) {
            Ok(())
        } else {
            Err(Error::NotAllocated {
                offset: at.offset(),
            })
        }
    }
}

/// Takes `bytes` bytes from the symmetric heap of every PE, at an address that is a multiple of
/// `align` (a power of two; at least that of a cache line is given), with all bits zero or with
/// any contents. Without bytes the result is null and no PE waits.
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
    let rt = collective();
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
    let sym = symmetric(at, 0).ok_or(Error::NotSymmetric { at: at as usize })?;
    let rt = collective();
    rt.reallocate(sym, bytes, false)
        .map(|at| rt.own(at.offset()))
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
    let sym = symmetric(at, 0).ok_or(Error::NotSymmetric { at: at as usize })?;
    collective().release(sym)
}

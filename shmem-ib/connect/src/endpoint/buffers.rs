//! Memory that belongs to the endpoint and is registered with the HCA: slots for datagrams,
//! for copies of unregistered sources and destinations, and for the results of atomics.
//!
//! Everything is allocated when it is first needed, so that an idle endpoint costs little.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use shmem_verbs::{Access, Hca, Lkey, Mr, PortInfo, Sge, VerbsError};

/// Longest payload that is ever put into a work request, whatever the device allows.
pub(crate) const INLINE_MAX: usize = 256;

/// Longest local buffer, in bytes, that is copied where registrations are expensive. Frey and Alonso, "Minimizing
/// the Hidden Cost of RDMA" (ICDCS 2009), found that from about there on registering costs less.
pub(super) const COPIED: usize = 256 << 10;

/// Longest local buffer outside the segments that is copied on such a port.
pub(super) const fn copied_on(port: &PortInfo) -> usize {
    if port.pins_memory { COPIED } else { Pool::MAX }
}

/// Zeroed memory with a registration.
#[derive(Debug)]
pub(super) struct Registered {
    memory: NonNull<u8>,
    layout: Layout,
    mr: Mr,
}

// SAFETY: it owns its memory as a Box<[u8]> would; nothing in it is tied to a thread.
unsafe impl Send for Registered {}

impl Registered {
    /// Allocates and registers `len` bytes (not 0), aligned to 64.
    pub(super) fn new<H: Hca>(hca: &H, len: usize) -> Result<Self, VerbsError> {
        let layout = Layout::from_size_align(len.max(1), 64).expect("a few KiB fit");
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the memory stays allocated until `release` has deregistered it, or for ever
        // if that is not called.
        match unsafe { hca.reg_mr(memory.as_ptr(), len, Access::LOCAL_WRITE) } {
            Ok(mr) => Ok(Self { memory, layout, mr }),
            Err(e) => {
                // SAFETY: allocated above with this layout, and nobody else has the pointer.
                unsafe { dealloc(memory.as_ptr(), layout) };
                Err(e)
            }
        }
    }

    /// Ends the registration and frees the memory; if the HCA refuses to let go, the memory is
    /// leaked rather than pulled from under it. No work request may be using it.
    pub(super) fn release<H: Hca>(self, hca: &H) {
        if hca.dereg_mr(&self.mr).is_ok() {
            // SAFETY: allocated in `new` with this layout; the HCA does not use it any more.
            unsafe { dealloc(self.memory.as_ptr(), self.layout) };
        }
    }

    /// The address of byte `at`.
    pub(super) fn at(&self, at: usize) -> *mut u8 {
        assert!(at < self.layout.size());
        // SAFETY: within the allocation.
        unsafe { self.memory.as_ptr().add(at) }
    }

    /// Bytes `at..at + len` as the local buffer of a work request.
    pub(super) fn sge(&self, at: usize, len: usize) -> Sge {
        assert!(at + len <= self.layout.size());
        Sge {
            addr: self.at(at) as u64,
            len: len as u32,
            lkey: self.mr.lkey,
        }
    }
}

/// One slot of a [`Pool`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    class: u8,
    index: u16,
}

#[derive(Debug)]
struct Class {
    /// Bytes per slot.
    size: usize,
    /// Slots per registration.
    per_chunk: usize,
    max_chunks: usize,
    chunks: Vec<Registered>,
    free: Vec<u16>,
}

/// Registered slots of two sizes.
#[derive(Debug)]
pub(super) struct Pool {
    classes: [Class; 2],
}

impl Pool {
    /// Largest slot in bytes. Copying so much takes about as long as a packet's way through
    /// the system.
    pub(super) const MAX: usize = 16 * 1024;

    pub(super) const fn new() -> Self {
        const fn class(size: usize, per_chunk: usize, max_chunks: usize) -> Class {
            Class {
                size,
                per_chunk,
                max_chunks,
                chunks: Vec::new(),
                free: Vec::new(),
            }
        }
        Self {
            classes: [class(64, 64, 16), class(Self::MAX, 4, 16)],
        }
    }

    /// A slot of at least `len` bytes (at most [`Self::MAX`]); `None` if all are in use.
    pub(super) fn take<H: Hca>(&mut self, hca: &H, len: usize) -> Result<Option<Slot>, VerbsError> {
        let number = usize::from(len > self.classes[0].size);
        let class = &mut self.classes[number];
        assert!(len <= class.size);
        if class.free.is_empty() && class.chunks.len() < class.max_chunks {
            let chunk = Registered::new(hca, class.size * class.per_chunk)?;
            let first = class.chunks.len() * class.per_chunk;
            class.chunks.push(chunk);
            class
                .free
                .extend((first..first + class.per_chunk).rev().map(|i| i as u16));
        }
        Ok(class.free.pop().map(|index| Slot {
            class: number as u8,
            index,
        }))
    }

    /// Gives a slot back. No work request may be using it.
    pub(super) fn give(&mut self, slot: Slot) {
        self.classes[usize::from(slot.class)].free.push(slot.index);
    }

    /// The address of a slot, and its first `len` bytes as a local buffer.
    pub(super) fn place(&self, slot: Slot, len: usize) -> (*mut u8, Sge) {
        let class = &self.classes[usize::from(slot.class)];
        assert!(len <= class.size);
        let index = usize::from(slot.index);
        let chunk = &class.chunks[index / class.per_chunk];
        let at = index % class.per_chunk * class.size;
        (chunk.at(at), chunk.sge(at, len))
    }

    /// Deregisters and frees everything. No work request may be using any slot.
    pub(super) fn release<H: Hca>(&mut self, hca: &H) {
        for class in &mut self.classes {
            class.free.clear();
            class.chunks.drain(..).for_each(|chunk| chunk.release(hca));
        }
    }
}

/// The registration of a segment: the symmetric heap, or memory that came later.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalSegment {
    pub(super) id: u8,
    pub(super) mr: Mr,
    /// The registration is another endpoint's.
    pub(super) lent: bool,
}

impl LocalSegment {
    /// The lkey for a local range, if the segment covers it.
    pub(super) fn covers(&self, addr: u64, len: usize) -> Option<Lkey> {
        let offset = addr.checked_sub(self.mr.addr)?;
        let end = offset.checked_add(len as u64)?;
        (end <= self.mr.len).then_some(self.mr.lkey)
    }
}

//! Buffers of the driver, by the page.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A buffer of pages that exist only once they are touched.
///
/// Memory of the allocator would do at first, but after a program has freed large blocks the
/// allocator reuses them, which means zeroing half a megabyte for a few small packets.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its memory as a Box<[u8]> would.
unsafe impl Send for Pages {}
// SAFETY: shared references only read.
unsafe impl Sync for Pages {}

impl Pages {
    /// No memory at all.
    pub(crate) const fn none() -> Self {
        Self {
            start: NonNull::dangling(),
            len: 0,
        }
    }

    /// `len` zeros, not 0.
    pub(crate) fn new(len: usize) -> Self {
        let (access, kind) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        );
        // SAFETY: a new mapping anywhere; nothing else is touched.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, access, kind) };
        match start.ok().and_then(|start| NonNull::new(start.cast())) {
            Some(start) => Self { start, len },
            None => handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>())),
        }
    }

    /// Gives the pages back; the buffer reads as zeros afterwards.
    pub(crate) fn release(&mut self) {
        if self.len > 0 {
            // SAFETY: our own anonymous mapping of plain bytes, exclusively borrowed: zeros are
            // as good a content as any.
            let _ = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxDontNeed) };
        }
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped, initialised by the kernel, and owned; or dangling with length 0.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: our own mapping, and no reference to it is left.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

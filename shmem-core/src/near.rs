//! The short way to the memory of PEs of this node, for callers that have addresses.
//!
//! Operations on 8 bytes take a few nanoseconds, so what is found out about them counts: here one look at
//! the runtime serves all questions. Whatever is not plainly a symmetric object of a neighbour is
//! answered with `None`, without a reason; the long way, which all other cases take, has the messages.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use shmem_ib::atomic::{self, AtomicOp, Width};

use crate::heap::access;
use crate::runtime::{Place, Runtime, try_rt};

/// A range of symmetric memory of a PE of this node, which can be loaded and stored.
#[derive(Clone, Copy)]
pub struct Near {
    rt: &'static Runtime,
    at: *mut u8,
    local: usize,
}

/// Where PE `world_pe` of the job has what are the `len` bytes at `at` here. `None` if these are not
/// symmetric, if the PE is on another node or does not exist, and before init.
///
/// What is done there is done on the default context, or on any other: inside a node that makes no
/// difference.
#[inline(always)]
#[track_caller]
pub fn near(at: *const u8, len: usize, world_pe: usize) -> Option<Near> {
    let rt = try_rt()?;
    // Finds threads that may not call the library.
    #[cfg(debug_assertions)]
    crate::runtime::rt();
    let sym = rt.ranges.find(at as usize, len)?;
    if world_pe >= rt.node_of.len() {
        return None;
    }
    match rt.place(world_pe, sym.offset()) {
        Place::Here(crate::runtime::Near { at, local }) => Some(Near { rt, at, local }),
        Place::There(_) => None,
    }
}

impl Near {
    /// Writes `bytes` bytes.
    ///
    /// # Safety
    /// The range has so many, and `source` is readable for as many.
    #[inline(always)]
    pub unsafe fn put(self, source: *const u8, bytes: usize) {
        // SAFETY: by the caller; the range is mapped.
        unsafe { access::copy(source, self.at, bytes) };
        self.rt.ring(self.local);
    }

    /// Reads `bytes` bytes.
    ///
    /// # Safety
    /// The range has so many, and `dest` is writable for as many.
    #[inline(always)]
    pub unsafe fn get(self, dest: *mut u8, bytes: usize) {
        // SAFETY: by the caller; the range is mapped.
        unsafe { access::copy(self.at, dest, bytes) };
    }

    /// Writes a value. One of 1, 2, 4 or 8 bytes whose place is aligned is never seen in part.
    ///
    /// # Safety
    /// The range has `N` bytes.
    #[inline(always)]
    pub unsafe fn store<const N: usize>(self, value: [u8; N]) {
        macro_rules! word {
            ($atomic:ident $word:ident) => {{
                let mut bytes = [0; size_of::<$word>()];
                bytes.copy_from_slice(&value);
                // SAFETY: mapped, of this size, and aligned.
                let word = unsafe { $atomic::from_ptr(self.at.cast()) };
                word.store($word::from_ne_bytes(bytes), Ordering::Relaxed);
                self.rt.ring(self.local);
            }};
        }
        match N {
            1 => word!(AtomicU8 u8),
            2 if self.aligned(2) => word!(AtomicU16 u16),
            4 if self.aligned(4) => word!(AtomicU32 u32),
            8 if self.aligned(8) => word!(AtomicU64 u64),
            // SAFETY: by the caller.
            _ => unsafe { self.put_apart(value.as_ptr(), N) },
        }
    }

    /// Reads a value, as [`store`](Self::store) writes it.
    ///
    /// # Safety
    /// The range has `N` bytes.
    #[inline(always)]
    pub unsafe fn load<const N: usize>(self) -> [u8; N] {
        let mut value = [0; N];
        macro_rules! word {
            ($atomic:ident) => {{
                // SAFETY: mapped, of this size, and aligned.
                let word = unsafe { $atomic::from_ptr(self.at.cast()) };
                value.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }};
        }
        match N {
            1 => word!(AtomicU8),
            2 if self.aligned(2) => word!(AtomicU16),
            4 if self.aligned(4) => word!(AtomicU32),
            8 if self.aligned(8) => word!(AtomicU64),
            // SAFETY: by the caller.
            _ => unsafe { self.get_apart(value.as_mut_ptr(), N) },
        }
        value
    }

    /// [`put`](Self::put) where it is rare enough to be called.
    ///
    /// # Safety
    /// As for that.
    #[cold]
    unsafe fn put_apart(self, source: *const u8, bytes: usize) {
        // SAFETY: by the caller.
        unsafe { self.put(source, bytes) };
    }

    /// [`get`](Self::get) where it is rare enough to be called.
    ///
    /// # Safety
    /// As for that.
    #[cold]
    unsafe fn get_apart(self, dest: *mut u8, bytes: usize) {
        // SAFETY: by the caller.
        unsafe { self.get(dest, bytes) };
    }

    /// Executes `op`; gives the old value, in the low bytes.
    ///
    /// # Safety
    /// The range has as many bytes as the width says, and is aligned for it.
    #[inline(always)]
    pub unsafe fn atomic(self, width: Width, op: AtomicOp) -> u64 {
        // SAFETY: mapped, and by the caller.
        let old = unsafe { atomic::execute(self.at, width, op) };
        if !matches!(op, AtomicOp::Fetch) {
            self.rt.ring(self.local);
        }
        old
    }

    /// Replaces the word, in order after what this thread has written before.
    ///
    /// # Safety
    /// As for [`atomic`](Self::atomic).
    #[inline(always)]
    pub unsafe fn set(self, width: Width, value: u64) {
        // SAFETY: mapped, and by the caller.
        unsafe { atomic::store(self.at, width, value) };
        self.rt.ring(self.local);
    }

    #[inline(always)]
    fn aligned(self, to: usize) -> bool {
        (self.at as usize).is_multiple_of(to)
    }
}

//! Where the memory of a PE is, and what is done with it on this node.
//!
//! Operations on 8 bytes take a few nanoseconds, so what is found out about them counts. All of them come
//! to a [`Near`] at last: most by way of [`Runtime::place`], which has messages for mistakes; those of
//! the C library on the default context by [`near`], where one look at the runtime serves all questions,
//! and whatever is not plainly a symmetric object of a neighbour is left to the long way.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use shmem_ib::atomic::{self, AtomicOp, Width};
use shmem_node::layout::INTERNAL_SIZE;

use super::{Runtime, try_rt};
use crate::heap::access;

/// Where a PE's memory is.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// On this node.
    Near(Near),
    /// On another node, or wherever it is if calls are recorded: the PE's number in the job.
    Far(usize),
}

/// Symmetric memory of a PE of this node, from some byte on, which can be loaded and stored.
#[derive(Clone, Copy)]
pub struct Near {
    rt: &'static Runtime,
    at: *mut u8,
    /// Position of the PE on the node.
    local: usize,
}

/// Where PE `world_pe` of the job has what are the `len` bytes at `at` here. `None` if these are not
/// symmetric, if the PE is on another node or does not exist, before init, and where calls are recorded.
///
/// What is done there is done on the default context, or on any other: inside a node that makes no
/// difference.
#[inline(always)]
#[track_caller]
pub fn near(at: *const u8, len: usize, world_pe: usize) -> Option<Near> {
    let rt = try_rt()?;
    // Finds threads that may not call the library.
    #[cfg(debug_assertions)]
    super::rt();
    let sym = rt.ranges.find(at as usize, len)?;
    if world_pe >= rt.nodes.node_of.len() {
        return None;
    }
    match rt.place(world_pe, sym.offset()) {
        Place::Near(near) => Some(near),
        Place::Far(_) => None,
    }
}

impl Runtime {
    /// Where the byte at `offset` of `pe`'s segment is, for an operation of the program.
    ///
    /// # Panics
    /// If there is no such PE.
    #[inline]
    #[track_caller]
    pub(crate) fn place(&'static self, pe: usize, offset: usize) -> Place {
        match self.node(pe) == self.nodes.plain.load(Ordering::Relaxed) {
            true => Place::Near(self.near(pe, offset)),
            false => Place::Far(pe),
        }
    }

    /// Where it really is, for an operation that is recorded if any is.
    ///
    /// # Panics
    /// If there is no such PE.
    #[track_caller]
    pub(crate) fn real_place(&'static self, pe: usize, offset: usize) -> Place {
        match self.is_near(pe) {
            true => Place::Near(self.near(pe, offset)),
            false => Place::Far(pe),
        }
    }

    /// Whether the byte at `offset` is static data.
    #[inline]
    pub(crate) fn is_static(&self, offset: usize) -> bool {
        (INTERNAL_SIZE..self.ranges.heap_at).contains(&offset)
    }

    /// Whether the byte at `offset` is static data, and `pe`, which exists, has something else there.
    #[inline]
    pub(crate) fn has_other_statics(&self, pe: usize, offset: usize) -> bool {
        self.is_static(offset)
            && pe != self.me
            && !self.all_share_statics()
            && !self.shares_statics(pe)
    }

    /// Whether `pe`, which exists, has the static data of this PE.
    fn shares_statics(&self, pe: usize) -> bool {
        // Written before the barrier of init.
        let layout = |local| self.node.pe_block(local).statics.load(Ordering::Relaxed);
        let own = layout(self.local);
        match self.is_near(pe) {
            true => layout(self.nodes.local_of[pe] as usize) == own,
            false => self.network().shares_statics(pe, own),
        }
    }

    /// Whether the launcher has seen to it that no PE has other static data than this one, unless it has none that is
    /// symmetric.
    pub(crate) fn all_share_statics(&self) -> bool {
        let layout = self.node.statics().layout;
        layout != 0 && layout == self.block.statics.load(Ordering::Relaxed)
    }

    /// # Panics
    /// If the byte at `offset` is static data, and `pe` has something else there, or does not exist.
    #[inline]
    #[track_caller]
    pub(crate) fn check_statics(&self, pe: usize, offset: usize) {
        if self.has_other_statics(pe, offset) {
            self.other_statics(pe);
        }
    }

    #[cold]
    #[track_caller]
    fn other_statics(&self, pe: usize) -> ! {
        panic!("{}", self.why_other_statics(pe))
    }

    /// Why static data of this PE means nothing to `pe`.
    #[cold]
    pub(crate) fn why_other_statics(&self, pe: usize) -> String {
        format!(
            "static data is symmetric among PEs of one program only, and PE {pe} (node {}) runs another program or \
             another build of it, or keeps its static data private; use the symmetric heap between them",
            self.nodes.node_of[pe]
        )
    }

    #[inline(always)]
    fn near(&'static self, pe: usize, offset: usize) -> Near {
        let local = self.nodes.local_of[pe] as usize;
        Near {
            rt: self,
            at: self.neighbour(local, offset),
            local,
        }
    }

    /// Whether `pe` is on this node.
    ///
    /// # Panics
    /// If there is no such PE.
    #[inline]
    #[track_caller]
    pub(crate) fn is_near(&self, pe: usize) -> bool {
        self.node(pe) == self.nodes.mine
    }

    #[inline(always)]
    #[track_caller]
    fn node(&self, pe: usize) -> u32 {
        match self.nodes.node_of.get(pe) {
            Some(&node) => node,
            None => self.no_such_pe(pe),
        }
    }
}

impl Near {
    /// The first byte.
    #[inline(always)]
    pub(crate) fn at(self) -> *mut u8 {
        self.at
    }

    /// The PE's memory at another offset of its segment.
    #[inline(always)]
    pub(crate) fn elsewhere(self, offset: usize) -> Self {
        Self {
            at: self.rt.neighbour(self.local, offset),
            ..self
        }
    }

    /// Wakes the PE if it waits for its memory to change, as what was stored there without this type.
    #[inline(always)]
    pub(crate) fn ring(self) {
        self.rt.ring(self.local);
    }

    /// Writes `bytes` bytes.
    ///
    /// # Safety
    /// The range has so many, and `source` is readable for as many.
    #[inline(always)]
    pub unsafe fn put(self, source: *const u8, bytes: usize) {
        // SAFETY: by the caller; the range is mapped.
        unsafe { access::copy(source, self.at, bytes) };
        self.ring();
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
                self.ring();
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
        access::acquire_of_devices();
        if !matches!(op, AtomicOp::Fetch) {
            self.ring();
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
        self.ring();
    }

    /// Executes `op`, of which nobody needs the old value.
    ///
    /// # Safety
    /// As for [`atomic`](Self::atomic).
    #[inline(always)]
    pub(crate) unsafe fn post(self, width: Width, op: AtomicOp) {
        // SAFETY: by the caller.
        unsafe {
            match op {
                AtomicOp::Swap(value) => self.set(width, value),
                _ => {
                    atomic::execute(self.at, width, op);
                    self.ring();
                }
            }
        }
    }

    #[inline(always)]
    fn aligned(self, to: usize) -> bool {
        (self.at as usize).is_multiple_of(to)
    }
}

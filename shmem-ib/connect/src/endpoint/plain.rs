//! The operations of the default context, as methods of the endpoint; those that name no segment are
//! to segment 0.

use super::Endpoint;
use super::context::ContextId;
use super::error::ConnError;
use crate::atomic::{AtomicOp, Width};
use shmem_verbs::Hca;

const MINE: ContextId = ContextId::DEFAULT;

impl<H: Hca> Endpoint<H> {
    /// [`Context::put`](super::Context::put) to segment 0.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn put(
        &self,
        pe: u32,
        offset: u64,
        src: *const u8,
        len: usize,
        src_stays: bool,
    ) -> Result<(), ConnError> {
        // SAFETY: by the caller's promise.
        unsafe { self.context(MINE).put(pe, 0, offset, src, len, src_stays) }
    }

    /// [`Context::get`](super::Context::get) from segment 0.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn get(
        &self,
        pe: u32,
        offset: u64,
        dst: *mut u8,
        len: usize,
        blocking: bool,
    ) -> Result<(), ConnError> {
        // SAFETY: by the caller's promise.
        unsafe { self.context(MINE).get(pe, 0, offset, dst, len, blocking) }
    }

    /// Adds `add`, wrapping, to the 64-bit word at `offset` of segment 0 of `pe`; returns its old
    /// value.
    ///
    /// # Errors
    /// As [`Context::atomic`](super::Context::atomic).
    pub fn fetch_add(&self, pe: u32, offset: u64, add: u64) -> Result<u64, ConnError> {
        self.fetch_add_in(pe, 0, offset, add)
    }

    /// As [`fetch_add`](Self::fetch_add) in any segment.
    ///
    /// # Errors
    /// As [`Context::atomic`](super::Context::atomic).
    pub fn fetch_add_in(
        &self,
        pe: u32,
        segment: u8,
        offset: u64,
        add: u64,
    ) -> Result<u64, ConnError> {
        let op = AtomicOp::Add(add);
        self.context(MINE)
            .atomic(pe, segment, offset, Width::W8, op)
    }

    /// Replaces the 64-bit word at `offset` of segment 0 of `pe` by `new` if it equals
    /// `compare`; returns its old value.
    ///
    /// # Errors
    /// As [`Context::atomic`](super::Context::atomic).
    pub fn compare_swap(
        &self,
        pe: u32,
        offset: u64,
        compare: u64,
        new: u64,
    ) -> Result<u64, ConnError> {
        let op = AtomicOp::CompareSwap { compare, new };
        self.context(MINE).atomic(pe, 0, offset, Width::W8, op)
    }

    /// Adds to a 64-bit word of segment 0 without waiting for it; done when
    /// [`quiet`](Self::quiet) has returned.
    ///
    /// # Errors
    /// As [`Context::atomic_plain`](super::Context::atomic_plain).
    pub fn add_nbi(&self, pe: u32, offset: u64, add: u64) -> Result<(), ConnError> {
        let op = AtomicOp::Add(add);
        self.context(MINE)
            .atomic_plain(pe, 0, offset, Width::W8, op)
    }

    /// [`Context::quiet`](super::Context::quiet).
    ///
    /// # Errors
    /// As there.
    pub fn quiet(&self) -> Result<(), ConnError> {
        self.context(MINE).quiet()
    }

    /// [`Context::fence`](super::Context::fence).
    pub fn fence(&self) {
        self.context(MINE).fence();
    }
}

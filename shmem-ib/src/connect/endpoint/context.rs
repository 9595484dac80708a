//! Contexts: separate streams of operations, each of which completes by itself.

use super::{ConnError, Endpoint};
use crate::atomic::{AtomicOp, Width};
use crate::verbs::Hca;

/// Names a context of an endpoint. Contexts need not be made: one that was never used has nothing
/// under way. Small numbers, as what is kept per context lies in a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ContextId(u16);

impl ContextId {
    /// The one that operations belong to which name none.
    pub const DEFAULT: Self = Self(0);

    /// The context of this number.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// The operations of one context of an endpoint; see [`Endpoint::context`].
#[derive(Clone, Copy, Debug)]
pub struct Context<'a, H: Hca> {
    pub(super) endpoint: &'a Endpoint<H>,
    pub(super) id: ContextId,
}

impl<H: Hca> Endpoint<H> {
    /// The operations of a context.
    #[inline]
    #[must_use]
    pub const fn context(&self, id: ContextId) -> Context<'_, H> {
        Context { endpoint: self, id }
    }
}

impl<H: Hca> Context<'_, H> {
    /// # Errors
    /// As the endpoint's.
    /// # Safety
    /// As the endpoint's.
    pub unsafe fn put(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        src: *const u8,
        len: usize,
        stays: bool,
    ) -> Result<(), ConnError> {
        // SAFETY: by the caller.
        unsafe { self.endpoint.put_in(pe, segment, offset, src, len, stays) }
    }
    /// # Errors
    /// As the endpoint's.
    /// # Safety
    /// As the endpoint's.
    pub unsafe fn get(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        dst: *mut u8,
        len: usize,
        blocking: bool,
    ) -> Result<(), ConnError> {
        // SAFETY: by the caller.
        unsafe {
            self.endpoint
                .get_in(pe, segment, offset, dst, len, blocking)
        }
    }
    /// # Errors
    /// As the endpoint's.
    pub fn atomic(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        width: Width,
        op: AtomicOp,
    ) -> Result<u64, ConnError> {
        self.endpoint.atomic_in(pe, segment, offset, width, op)
    }
    /// # Errors
    /// As the endpoint's.
    pub fn atomic_plain(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        width: Width,
        op: AtomicOp,
    ) -> Result<(), ConnError> {
        self.endpoint.atomic_nbi_in(pe, segment, offset, width, op)
    }
    /// # Errors
    /// As the endpoint's.
    /// # Safety
    /// `fetch` is writable until quiet.
    pub unsafe fn atomic_fetch_into(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        width: Width,
        op: AtomicOp,
        fetch: *mut u8,
    ) -> Result<(), ConnError> {
        let old = self.endpoint.atomic_in(pe, segment, offset, width, op)?;
        // SAFETY: by the caller.
        unsafe { std::ptr::copy_nonoverlapping((&raw const old).cast(), fetch, width.bytes()) };
        Ok(())
    }
    /// As the endpoint's.
    pub fn fence(self) {
        self.endpoint.fence();
    }
    /// # Errors
    /// As the endpoint's.
    pub fn quiet(self) -> Result<(), ConnError> {
        self.endpoint.quiet()
    }
    /// # Errors
    /// As the endpoint's.
    pub fn quiet_towards(self, _pe: u32) -> Result<(), ConnError> {
        self.endpoint.quiet()
    }
}

//! Segments: registering memory for peers at any time, and operations that name a segment.
//!
//! Segment 0 is the symmetric memory, or its first part if it is registered in parts. Others may come
//! later, and none needs to be the first; all stay as long as the endpoint is open.
//! Connected peers are told over the connection, without a new handshake; new connections
//! learn all segments when they open. An operation on a segment that the peer is not known to
//! have waits for the word of it.
//!
//! Over XRC a PE does not know who uses its memory, so nobody is told. A peer asks again when it
//! lacks an identifier.

use super::buffers::LocalSegment;
use super::error::ConnError;
use super::lock::{Endpoint, Locked};
use crate::message::{MAX_SEGMENTS, Memory, Segment};
use shmem_verbs::{Access, Hca, SrqNum};

impl<H: Hca> Endpoint<H> {
    /// Registers the symmetric segment, the memory that peers may access as segment 0, and answers
    /// those who have asked for it already.
    ///
    /// # Errors
    /// There is one already, or the device refuses it.
    ///
    /// # Safety
    /// The memory stays mapped, readable and writable until [`close`](Self::close) has
    /// returned or the endpoint was dropped. Peers read and write it at any time: local code
    /// must access it through raw pointers or atomics only.
    pub unsafe fn register(&self, base: *mut u8, len: usize) -> Result<(), ConnError> {
        // SAFETY: by the caller's promise.
        unsafe { self.register_segment(0, base, len) }
    }

    /// Registers memory under an identifier. At most [`MAX_SEGMENTS`] may be in use. Connected peers are
    /// told at once, and this does not wait for them.
    ///
    /// # Errors
    /// There is one under this identifier already, or too many, or the device refuses it.
    ///
    /// # Safety
    /// As [`register`](Self::register).
    pub unsafe fn register_segment(
        &self,
        id: u8,
        base: *mut u8,
        len: usize,
    ) -> Result<(), ConnError> {
        let mut locked = self.lock();
        // SAFETY: by the caller's promise.
        unsafe { locked.add_segment(id, base, len)? };
        let branches = locked.branches().clone();
        drop(locked);
        for branch in branches {
            // SAFETY: it is registered here until this endpoint is closed, and the branch with it.
            unsafe { branch.use_segments_of(self)? };
        }
        Ok(())
    }
}

impl<H: Hca> Locked<'_, H> {
    /// # Safety
    /// As [`Endpoint::register_segment`].
    unsafe fn add_segment(&mut self, id: u8, base: *mut u8, len: usize) -> Result<(), ConnError> {
        if self.life.closing {
            return Err(self.over());
        }
        if self.segments.iter().any(|s| s.id == id) {
            return Err(ConnError::AlreadyRegistered { id });
        }
        if self.segments.len() >= MAX_SEGMENTS {
            let most = MAX_SEGMENTS;
            return Err(ConnError::TooManySegments { id, most });
        }
        // Atomics of peers find the memory by its address.
        let _ = base.expose_provenance();
        // SAFETY: by the caller's promise; `close` or `drop` end the registration.
        let mr = unsafe { self.hca().reg_mr(base, len, Access::ALL) }
            .map_err(ConnError::verbs("register a segment"))?;
        self.segments.push(LocalSegment {
            id,
            mr,
            lent: false,
        });
        self.tell_segments();
        Ok(())
    }

    fn tell_segments(&mut self) {
        let now = self.now();
        let segments = self.segments.iter().map(|s| Segment {
            address: s.mr.addr,
            size: s.mr.len,
            rkey: s.mr.rkey,
            id: s.id,
        });
        let memory = Memory {
            srqn: self.xrc.map_or(SrqNum(0), |domain| domain.srqn),
            segments: segments.collect(),
        };
        self.manager.ready(now, memory);
        self.act();
    }
}

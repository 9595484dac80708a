//! Segments: registering memory for peers at any time, and operations that name a segment.
//!
//! Segment 0 is the symmetric memory, or its first part if it is registered in parts. Others may come
//! later, none needs to be the first, and any may be replaced or withdrawn.
//! Connected peers are told over the connection, without a new handshake; new connections
//! learn all segments when they open. An operation on a segment that the peer is not known to
//! have waits for the word of it.
//!
//! Over XRC a PE does not know who uses its memory, so nobody is told. A peer asks again when it
//! lacks an identifier; of a segment that was replaced or withdrawn it does not learn, goes on using
//! the old registration, and [`settle_segments`](Endpoint::settle_segments) never returns true.

use std::time::{Duration, Instant};

use super::buffers::LocalSegment;
use super::error::ConnError;
use super::lock::{Endpoint, Locked};
use crate::message::{MAX_SEGMENTS, Segment};
use shmem_verbs::{Access, Hca};

/// Generations have 24 bits on the wire.
const GENERATION_MASK: u32 = 0x00ff_ffff;

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
        let mut locked = self.lock();
        if locked.segments.iter().any(|s| s.id == 0) {
            return Err(ConnError::AlreadyRegistered);
        }
        // SAFETY: by the caller's promise.
        unsafe { locked.add_segment(0, base, len) }
    }

    /// Registers memory under an identifier, in place of what was registered under it before.
    /// At most [`MAX_SEGMENTS`] identifiers may be in use. Connected peers are told at once, and
    /// this does not wait for them; an operation of a peer that does not know the new memory yet
    /// goes to the old one.
    ///
    /// # Errors
    /// There are too many segments, or the device refuses this one.
    ///
    /// # Safety
    /// As [`register`](Self::register); the memory that was registered under this identifier
    /// before stays valid until [`settle_segments`](Self::settle_segments) has returned true.
    pub unsafe fn register_segment(
        &self,
        id: u8,
        base: *mut u8,
        len: usize,
    ) -> Result<(), ConnError> {
        // SAFETY: by the caller's promise.
        unsafe { self.lock().add_segment(id, base, len) }
    }

    /// Withdraws a segment. Its memory stays valid until
    /// [`settle_segments`](Self::settle_segments) has returned true. Returns whether there was
    /// one.
    pub fn withdraw_segment(&self, id: u8) -> bool {
        let mut locked = self.lock();
        let Some(at) = locked.segments.iter().position(|s| s.id == id) else {
            return false;
        };
        let old = locked.segments.remove(at);
        locked.retired.push(old.mr);
        locked.tell_segments();
        true
    }

    /// Waits until every peer knows the present segments and has completed what it had under way
    /// towards earlier ones, and the registrations of those have ended; at most `max`. Returns
    /// whether that is so.
    pub fn settle_segments(&self, max: Duration) -> bool {
        let began = Instant::now();
        let mut locked = self.lock();
        locked.wait_until(|d| {
            d.end_retired();
            let settled = d.closed || d.retired.is_empty() && d.manager.segments_known();
            (settled || began.elapsed() >= max).then_some(settled)
        })
    }
}

impl<H: Hca> Locked<'_, H> {
    /// # Safety
    /// As [`Endpoint::register_segment`].
    unsafe fn add_segment(&mut self, id: u8, base: *mut u8, len: usize) -> Result<(), ConnError> {
        if self.closing {
            return Err(self.over());
        }
        let at = self.segments.iter().position(|s| s.id == id);
        if at.is_none() && self.segments.len() >= MAX_SEGMENTS {
            let most = MAX_SEGMENTS;
            return Err(ConnError::TooManySegments { id, most });
        }
        // Atomics of peers find the memory by its address.
        let _ = base.expose_provenance();
        // SAFETY: by the caller's promise; `settle_segments`, `close` or `drop` end the
        // registration.
        let mr = unsafe { self.hca().reg_mr(base, len, Access::ALL) }
            .map_err(ConnError::verbs("register a segment"))?;
        self.segments_made = self.segments_made.wrapping_add(1) & GENERATION_MASK;
        let generation = self.segments_made;
        let new = LocalSegment { id, generation, mr };
        match at {
            Some(at) => {
                let old = std::mem::replace(&mut self.segments[at], new);
                self.retired.push(old.mr);
            }
            None => self.segments.push(new),
        }
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
            generation: s.generation,
        });
        let segments = segments.collect();
        self.manager.ready(now, segments);
        self.act();
    }
}

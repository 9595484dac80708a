//! Shared receive queues.

#![forbid(unsafe_code)]

use super::engine::Engine;
use super::mr::Memory;
use crate::verbs::{RecvWr, Srq, SrqInit, SrqNum, VerbsError};

impl<M: Memory> Engine<M> {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// See [`crate::verbs::Hca::create_srq`].
    pub fn create_srq(&mut self, _init: &SrqInit) -> Result<Srq, VerbsError> {
        let what = "shared receive queues";
        Err(VerbsError::Unsupported { what })
    }

    /// Arms the limit event.
    ///
    /// # Errors
    /// See [`crate::verbs::Hca::arm_srq`].
    pub fn arm_srq(&mut self, srq: Srq, _limit: u32) -> Result<(), VerbsError> {
        Err(VerbsError::NoSuchSrq(srq))
    }

    /// The number on the wire.
    ///
    /// # Errors
    /// See [`crate::verbs::Hca::srq_num`].
    pub fn srq_num(&self, srq: Srq) -> Result<SrqNum, VerbsError> {
        Err(VerbsError::NoSuchSrq(srq))
    }

    /// Destroys a shared receive queue.
    ///
    /// # Errors
    /// See [`crate::verbs::Hca::destroy_srq`].
    pub fn destroy_srq(&mut self, srq: Srq) -> Result<(), VerbsError> {
        Err(VerbsError::NoSuchSrq(srq))
    }

    /// Appends a receive.
    ///
    /// # Errors
    /// See [`crate::verbs::Hca::post_srq_recv`].
    pub fn post_srq_recv(&mut self, srq: Srq, _wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        Err(VerbsError::NoSuchSrq(srq))
    }
}

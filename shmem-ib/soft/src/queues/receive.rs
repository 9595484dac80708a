//! Receives: buffers that wait for what peers send, and what becomes of them.
//!
//! A queue pair takes receives from its own queue or from a shared one, in order, one per
//! message. From its first packet on, a message owns its receive: packets that are lost and come
//! again go on where it stopped, and a duplicate never takes another one.

#![forbid(unsafe_code)]

use smallvec::SmallVec;

use crate::memory::sge;
use shmem_verbs::{Completion, Qpn, RecvWr, Sge, SrqNum, WcOpcode, WcStatus};

/// A posted receive. Two buffers lie in the queue itself.
#[derive(Debug)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    pub(crate) sges: SmallVec<[Sge; 2]>,
}

impl RecvWqe {
    pub(crate) fn new(wr: &RecvWr<'_>) -> Self {
        Self {
            wr_id: wr.wr_id,
            sges: SmallVec::from_slice(wr.sges),
        }
    }

    /// Bytes that fit.
    pub(crate) fn capacity(&self) -> u64 {
        sge::total(&self.sges)
    }
}

/// A receive that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    pub(crate) wr_id: u64,
    pub(crate) status: WcStatus,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
    pub(crate) imm: Option<u32>,
    /// The shared receive queue that an XRC packet named.
    pub(crate) srqn: Option<SrqNum>,
}

impl Received {
    /// One that ended with `status` and nothing else to tell.
    pub(crate) const fn new(wr_id: u64, status: WcStatus) -> Self {
        Self {
            wr_id,
            status,
            opcode: WcOpcode::Recv,
            byte_len: 0,
            imm: None,
            srqn: None,
        }
    }

    /// As a completion of `qpn`.
    pub(crate) const fn completion(&self, qpn: Qpn) -> Completion {
        Completion {
            wr_id: self.wr_id,
            status: self.status,
            opcode: self.opcode,
            qpn,
            byte_len: self.byte_len,
            imm: self.imm,
            srqn: self.srqn,
            ..Completion::EMPTY
        }
    }
}

//! Receives: buffers that wait for what peers send.

#![forbid(unsafe_code)]

use smallvec::SmallVec;

use crate::verbs::{RecvWr, Sge};

/// A posted receive.
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
}

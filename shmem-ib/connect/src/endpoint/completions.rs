//! The completion queue of an endpoint, and what was taken out of it.
//!
//! The models in `tests/loom` compile this file, too.

#![forbid(unsafe_code)]

use shmem_verbs::{Completion, Cq};

/// Most completions taken from the HCA at a time.
pub(super) const BATCH: usize = 32;

#[derive(Debug)]
pub(super) struct Completions {
    pub(super) cq: Cq,
    /// Where completions are taken to; empty before the first poll, and during one. Kept between polls: filling it anew
    /// would cost a poller as much as the rest.
    batch: Box<[Completion]>,
    /// Those taken ahead of time, of queue pairs that were to be destroyed.
    pub(super) late: Vec<Completion>,
}

impl Completions {
    pub(super) fn new(cq: Cq) -> Self {
        Self {
            cq,
            batch: Box::default(),
            late: Vec::new(),
        }
    }

    /// Room for [`BATCH`] of them, for one poll.
    #[inline]
    pub(super) fn take_room(&mut self) -> Box<[Completion]> {
        let mut batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            batch = vec![Completion::EMPTY; BATCH].into_boxed_slice();
        }
        batch
    }

    /// The poll is over.
    #[inline]
    pub(super) fn give_room(&mut self, batch: Box<[Completion]>) {
        self.batch = batch;
    }
}

//! A part of a buffer with several owners: what goes to every child agent and into the node
//! segment is stored once.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes that others may hold too. Cloning it copies no bytes.
#[derive(Debug, Clone)]
pub struct Shared {
    buffer: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Shared {
    /// The bytes of `buffer` in `range`.
    ///
    /// # Panics
    ///
    /// If the range lies outside the buffer.
    pub fn new(buffer: Arc<Vec<u8>>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= buffer.len());
        Self { buffer, range }
    }
}

impl Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Shared {}

impl From<Arc<Vec<u8>>> for Shared {
    fn from(buffer: Arc<Vec<u8>>) -> Self {
        let range = 0..buffer.len();
        Self { buffer, range }
    }
}

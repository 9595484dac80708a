//! Stretches of the program's static data, which lie in the segment.

use shmem_node::sys;

/// A stretch of static data that lies in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Address of its first byte, on a page border.
    pub(crate) start: usize,
    /// Bytes up to the end of the data.
    pub(crate) len: usize,
    /// Where it begins in the segment.
    pub(crate) at: usize,
}

impl Stretch {
    /// Bytes of its pages.
    pub(super) fn pages(&self) -> usize {
        sys::page_up(self.len)
    }
}

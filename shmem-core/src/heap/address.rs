//! A symmetric address: one number that stands for an object on all PEs.
//!
//! The heap and the program's static data both lie in the segment, so the offset there is enough, and
//! no table of addresses is needed.

/// A symmetric address: an offset that leads to the corresponding object in every PE's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymAddr(usize);

impl SymAddr {
    /// The address `offset` bytes into the segment.
    #[inline]
    pub const fn new(offset: usize) -> Self {
        Self(offset)
    }

    /// Bytes from the start of the segment.
    #[inline]
    pub const fn offset(self) -> usize {
        self.0
    }

    /// The address `bytes` further on.
    #[inline]
    #[must_use]
    pub fn at(self, bytes: usize) -> Self {
        Self(self.0 + bytes)
    }
}

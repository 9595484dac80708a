//! Symmetric addresses as numbers: what the C library passes around instead of handles.

#![forbid(unsafe_code)]

/// A symmetric address: offset in every PE's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sym(usize);

impl Sym {
    /// The byte at `offset` of every PE's segment.
    #[inline]
    pub const fn new(offset: usize) -> Self {
        Self(offset)
    }

    /// In bytes, from the beginning of the segment.
    #[inline]
    pub const fn offset(self) -> usize {
        self.0
    }

    /// The address `bytes` further on.
    #[inline]
    pub const fn at(self, bytes: usize) -> Self {
        Self(self.0 + bytes)
    }
}

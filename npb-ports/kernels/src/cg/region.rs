//! The entries of the matrix that a PE has.

use std::ops::Range;

/// The entries that a PE has: some rows of one block, or of the part of it that is below the diagonal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The rows of the block, in the numbers of the matrix.
    pub rows: Range<usize>,
    /// The columns of the block.
    pub columns: Range<usize>,
    /// Of the block's rows the PE has the first one after so many ...
    pub first: usize,
    /// ... and each one so many further on.
    pub stride: usize,
    /// Where the block's first row is in the PE's part of the vectors.
    pub rows_at: usize,
    /// Where the block's first column is.
    pub columns_at: usize,
}

impl Region {
    /// How many rows the PE has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows
            .len()
            .saturating_sub(self.first)
            .div_ceil(self.stride)
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which of the PE's rows a row of the matrix is.
    #[inline]
    #[must_use]
    pub fn row(&self, row: usize) -> Option<usize> {
        let after = row
            .checked_sub(self.rows.start + self.first)
            .filter(|_| row < self.rows.end)?;
        (after % self.stride == 0).then_some(after / self.stride)
    }

    /// The number in the matrix of one of the PE's rows.
    #[inline(always)]
    #[must_use]
    pub fn global(&self, row: usize) -> usize {
        self.rows.start + self.first + row * self.stride
    }
}

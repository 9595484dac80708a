//! A tile: some columns of all rows that a PE has, as [`draft`](super::draft) makes it and the product reads it.

use crate::array::Array;
use crate::cpu::{self, Positions};
use std::ops::Range;

/// Entries in a chunk.
pub(super) const CHUNK: usize = cpu::COLUMNS;

/// Bytes of an entry.
pub(super) const ENTRY: usize = size_of::<u16>() + size_of::<f64>();

/// Some columns of all rows.
#[derive(Debug)]
pub(super) struct Tile {
    /// Where the columns are in the PE's part of a vector.
    pub(super) columns: Range<usize>,
    /// Which of the PE's rows have entries here, the shortest first.
    pub(super) rows: Vec<u32>,
    /// Their lengths.
    pub(super) runs: Vec<Run>,
    /// The columns of all entries, from the tile's first one on.
    pub(super) positions: Positions,
    pub(super) values: Array,
}

/// Rows of the same length, which follow each other.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) rows: usize,
    /// Chunks of each.
    pub(super) chunks: usize,
}

impl Tile {
    pub(super) fn bytes(&self) -> usize {
        self.values.len() * ENTRY
    }
}

//! How the entries of a PE are made: parts of them vector by vector, then sums row by row.
//!
//! Parts are counted first, so that each row's have room side by side; that takes the memory of the parts, a tenth more than
//! that of the entries, and of one tile more while it is put in order.

use super::params::Params;
use super::region::Region;
use super::tile::{CHUNK, Run, Tile};
use super::vectors::Vectors;
use crate::array::Array;
use crate::cpu::Positions;
use std::io;

/// A tile that is being made: each row has room for all parts of its entries, which are added up when all are known.
#[derive(Debug)]
pub(super) struct Draft {
    width: usize,
    /// The chunk with which each row begins.
    starts: Vec<usize>,
    /// How far each row is filled, in entries.
    ends: Vec<usize>,
    positions: Array<u16>,
    values: Array,
}

/// A part of an entry.
pub(super) struct Entry {
    pub(super) row: usize,
    pub(super) column: usize,
    /// Which of the PE's rows.
    pub(super) at: usize,
    pub(super) tile: usize,
    /// The column within the tile.
    pub(super) position: u16,
    pub(super) value: f64,
}

/// Makes the parts of all entries in the rows and columns of `region`, above the diagonal, too.
pub(super) fn for_each(
    params: &Params,
    region: &Region,
    tile_width: usize,
    mut take: impl FnMut(Entry),
) {
    let mut vectors = Vectors::new(params);
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    while let Some(vector) = vectors.draw() {
        rows.clear();
        columns.clear();
        for (&position, &value) in vector.positions.iter().zip(vector.values) {
            let position = position as usize;
            if let Some(at) = region.row(position) {
                rows.push((position, at, value));
            }
            if region.columns.contains(&position) {
                let local = position - region.columns.start;
                let place = (local / tile_width, (local % tile_width) as u16);
                columns.push((position, place, vector.weight * value));
            }
        }
        for &(row, at, factor) in &rows {
            for &(column, (tile, position), value) in &columns {
                take(Entry {
                    row,
                    column,
                    at,
                    tile,
                    position,
                    value: factor * value,
                });
            }
        }
    }
}

impl Draft {
    /// What a row of a tile takes beside its parts: its count, start and end.
    pub(super) const BYTES_PER_ROW: usize = size_of::<u32>() + 2 * size_of::<usize>();

    /// Room for `counts[row]` parts in each row.
    pub(super) fn new(counts: &[u32], width: usize) -> io::Result<Self> {
        let mut chunks = 0;
        let mut starts = Vec::with_capacity(counts.len() + 1);
        for count in counts {
            starts.push(chunks);
            chunks += (*count as usize).div_ceil(CHUNK);
        }
        Ok(Self {
            width,
            ends: starts.iter().map(|chunk| chunk * CHUNK).collect(),
            starts,
            positions: Array::new(chunks * CHUNK)?,
            values: Array::new(chunks * CHUNK)?,
        })
    }

    /// Adds a part of an entry.
    pub(super) fn push(&mut self, row: usize, position: u16, value: f64) {
        let end = &mut self.ends[row];
        self.positions[*end] = position;
        self.values[*end] = value;
        *end += 1;
    }

    /// The tile, whose first column is at `start` in the PE's part of a vector.
    pub(super) fn finish(mut self, start: usize) -> io::Result<Tile> {
        let chunks = self.add_up();
        // Sorted by length, in the order of the matrix where that is the same.
        let mut rows: Vec<u32> = (0..chunks.len() as u32).collect();
        rows.retain(|row| chunks[*row as usize] > 0);
        rows.sort_by_key(|row| chunks[*row as usize]);
        let total: usize = chunks.iter().sum();
        let mut positions = Array::new(total * CHUNK)?;
        let mut values = Array::new(total * CHUNK)?;
        let (mut runs, mut at) = (Vec::new(), 0);
        for same in rows.chunk_by(|a, b| chunks[*a as usize] == chunks[*b as usize]) {
            let run = Run {
                rows: same.len(),
                chunks: chunks[same[0] as usize],
            };
            let len = run.chunks * CHUNK;
            for row in same {
                let from = self.starts[*row as usize] * CHUNK;
                positions[at..at + len].copy_from_slice(&self.positions[from..from + len]);
                values[at..at + len].copy_from_slice(&self.values[from..from + len]);
                at += len;
            }
            runs.push(run);
        }
        Ok(Tile {
            columns: start..start + self.width,
            rows,
            runs,
            positions: Positions::new(positions, self.width),
            values,
        })
    }

    /// Adds up the parts of each entry, sorts those of a row by column, and pads rows with zeros. Gives the chunks of each
    /// row.
    fn add_up(&mut self) -> Vec<usize> {
        let mut sums = vec![0.0; self.width];
        let mut seen = vec![false; self.width];
        let mut columns = Vec::new();
        let mut row_chunks = Vec::with_capacity(self.ends.len());
        for (&start, &end) in self.starts.iter().zip(&self.ends) {
            let start = start * CHUNK;
            columns.clear();
            for (&column, value) in self.positions[start..end]
                .iter()
                .zip(&self.values[start..end])
            {
                let at = usize::from(column);
                sums[at] += value;
                if !seen[at] {
                    seen[at] = true;
                    columns.push(column);
                }
            }
            columns.sort_unstable();
            for (chunk, entries) in columns.chunks(CHUNK).enumerate() {
                let to = start + chunk * CHUNK;
                let positions = &mut self.positions[to..to + CHUNK];
                pad(entries, self.width, positions);
                for (&at, value) in positions.iter().zip(&mut self.values[to..to + CHUNK]) {
                    // Padding's is 0.
                    *value = std::mem::take(&mut sums[usize::from(at)]);
                    seen[usize::from(at)] = false;
                }
            }
            row_chunks.push(columns.len().div_ceil(CHUNK));
        }
        row_chunks
    }
}

/// Copies the columns `from`, and then others, which come after the last one, since a chunk may have no column twice.
fn pad(from: &[u16], width: usize, to: &mut [u16]) {
    let (columns, padding) = to.split_at_mut(from.len());
    columns.copy_from_slice(from);
    let mut next = from.last().map_or(0, |last| usize::from(*last) + 1);
    for column in padding {
        while next >= width || from.contains(&(next as u16)) {
            next = if next >= width { 0 } else { next + 1 };
        }
        *column = next as u16;
        next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_no_column_twice() {
        let padded = |from: &[u16], width| {
            let mut to = [0; CHUNK];
            pad(from, width, &mut to);
            to
        };
        assert_eq!(padded(&[3, 5, 6, 9], 10), [3, 5, 6, 9]);
        assert_eq!(padded(&[3, 5], 10), [3, 5, 6, 7]);
        assert_eq!(padded(&[0, 8], 10), [0, 8, 9, 1]);
        assert_eq!(padded(&[0, 1, 9], 10), [0, 1, 9, 2]);
    }

    #[test]
    fn parts_are_added_and_rows_sorted_by_length() {
        let mut draft = Draft::new(&[5, 0, 7, 1], 20).unwrap();
        for (row, columns) in [
            (0, &[4, 2, 4, 4, 19][..]),
            (2, &[9, 8, 7, 6, 5, 4, 9]),
            (3, &[3]),
        ] {
            for &column in columns {
                draft.push(row, column, f64::from(column));
            }
        }
        let tile = draft.finish(100).unwrap();
        assert_eq!(tile.columns, 100..120);
        assert_eq!(tile.rows, [0, 3, 2]);
        let runs: Vec<_> = tile.runs.iter().map(|run| (run.rows, run.chunks)).collect();
        assert_eq!(runs, [(2, 1), (1, 2)]);
        let expected = [
            [2.0, 12.0, 19.0, 0.0],
            [3.0, 0.0, 0.0, 0.0],
            [4.0, 5.0, 6.0, 7.0],
            [8.0, 18.0, 0.0, 0.0],
        ];
        assert_eq!(tile.values[..], expected.concat());
    }
}

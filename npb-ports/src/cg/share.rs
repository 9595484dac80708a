//! The entries of the matrix that a PE has, and their product with a vector.
//!
//! An entry a of row i and column j is read once and used twice: a p(j) belongs to row i of the product, a p(i)
//! to row j. So the numbers of both vectors lie side by side, as pairs of p and the product so far: what
//! comes from a column and what goes to it is one load, one store, and two operations on two lanes.
//!
//! Columns are cut into *tiles* whose pairs stay in the second-level cache while rows come and go, and which are
//! narrow enough for columns of 16 bits. A row's entries within a tile are padded to whole chunks, whose
//! operations do not wait for each other.

use super::decomposition::Region;
use super::params::{CONDITION, Params};
use super::vectors::Vectors;
use crate::array::Array;
use crate::cpu::{Kernel, Positions, mul_add};
use std::io;
use std::ops::Range;

/// A number of the vector, and what is known of the product's.
pub type Pair = [f64; 2];

/// Entries in a chunk.
pub const CHUNK: usize = 4;

/// Columns in a tile, at most: half a megabyte of pairs.
const TILE: usize = 1 << 15;

/// The entries of one PE.
#[derive(Debug)]
pub struct Share {
    region: Region,
    tiles: Vec<Tile>,
    /// Entries on the diagonal, one for each row; 0 in blocks that have no part of it.
    diagonal: Array,
}

/// Some columns of all rows.
#[derive(Debug)]
struct Tile {
    /// Where the columns are in the PE's part of a vector.
    columns: Range<usize>,
    /// The chunk with which each row begins, and the end.
    starts: Vec<usize>,
    /// The columns, from the tile's first one on.
    positions: Positions,
    values: Array,
}

/// A tile that is being made: each row has room for all its parts, which are added up later.
struct Draft {
    width: usize,
    starts: Vec<usize>,
    /// How far each row is filled, in entries.
    ends: Vec<usize>,
    positions: Array<u16>,
    values: Array,
}

impl Share {
    /// Makes the entries of `region`, all that is below the diagonal and on it.
    ///
    /// # Errors
    /// If the system has no address space for them.
    pub fn new(params: &Params, region: Region) -> io::Result<Self> {
        let mut diagonal = Array::new(region.len())?;
        if region.rows == region.columns {
            diagonal.fill(CONDITION - params.shift);
        }
        let mut counts = vec![vec![0_u32; region.len()]; tiles(&region)];
        for_each(params, &region, |entry| {
            if entry.column < entry.row {
                counts[entry.tile][entry.at] += 1;
            }
        });
        let width = tile_width(&region);
        let drafts = counts.into_iter().enumerate().map(|(tile, counts)| {
            let left = region.columns.len() - tile * width;
            Draft::new(&counts, left.min(width))
        });
        let mut drafts = drafts.collect::<Result<Vec<_>, _>>()?;
        for_each(params, &region, |entry| {
            if entry.column < entry.row {
                drafts[entry.tile].push(entry.at, entry.position, entry.value);
            } else if entry.column == entry.row {
                diagonal[entry.at] += entry.value;
            }
        });
        let tiles = drafts.into_iter().enumerate().map(|(tile, draft)| {
            let start = region.columns_at + tile * width;
            draft.finish(start)
        });
        Ok(Self {
            tiles: tiles.collect(),
            diagonal,
            region,
        })
    }

    /// Bytes that the entries of `region` will take, about.
    #[must_use]
    pub fn bytes(params: &Params, region: &Region) -> u64 {
        let n = params.n as f64;
        // But for those on the diagonal.
        let entries = (params.nonzeros * (params.nonzeros + 1)) as f64 * n;
        let part = region.rows.len() as f64 / n * (region.columns.len() as f64 / n);
        let below = if region.rows == region.columns {
            0.5
        } else {
            1.0
        };
        let rows = region.len() as f64 * tiles(region) as f64;
        let padding = rows * (CHUNK - 1) as f64 / 2.0;
        let entries = 1.01 * entries * part * below / region.stride as f64 + padding;
        let bytes = entries * (size_of::<u16>() + size_of::<f64>()) as f64
            + rows * 2.0 * size_of::<usize>() as f64;
        bytes as u64
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let of_tile =
            |tile: &Tile| size_of_val(&tile.values[..]) * 5 / 4 + size_of_val(&tile.starts[..]);
        self.tiles.iter().map(of_tile).sum()
    }

    /// Adds the product of these entries, and of those on the other side of the diagonal, with the first numbers of `pairs`
    /// to the second ones.
    #[must_use]
    pub fn product<'a>(&'a self, pairs: &'a mut [Pair]) -> Product<'a> {
        Product { share: self, pairs }
    }
}

/// Tiles of a region.
fn tiles(region: &Region) -> usize {
    region.columns.len().div_ceil(TILE)
}

/// Columns of each tile, but for the last one, which may have a few less.
fn tile_width(region: &Region) -> usize {
    region.columns.len().div_ceil(tiles(region))
}

/// A part of an entry.
struct Entry {
    row: usize,
    column: usize,
    /// Which of the PE's rows.
    at: usize,
    tile: usize,
    /// The column within the tile.
    position: u16,
    value: f64,
}

/// Makes the parts of all entries in the rows and columns of `region`, above the diagonal, too.
fn for_each(params: &Params, region: &Region, mut take: impl FnMut(Entry)) {
    let (mut vectors, width) = (Vectors::new(params), tile_width(region));
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
                columns.push((position, local, vector.weight * value));
            }
        }
        for &(row, at, factor) in &rows {
            for &(column, local, value) in &columns {
                take(Entry {
                    row,
                    column,
                    at,
                    tile: local / width,
                    position: (local % width) as u16,
                    value: factor * value,
                });
            }
        }
    }
}

impl Draft {
    fn new(counts: &[u32], width: usize) -> io::Result<Self> {
        let mut chunks = 0;
        let mut starts = Vec::with_capacity(counts.len() + 1);
        for count in counts {
            starts.push(chunks);
            chunks += (*count as usize).div_ceil(CHUNK);
        }
        starts.push(chunks);
        Ok(Self {
            width,
            ends: starts.iter().map(|chunk| chunk * CHUNK).collect(),
            starts,
            positions: Array::new(chunks * CHUNK)?,
            values: Array::new(chunks * CHUNK)?,
        })
    }

    fn push(&mut self, row: usize, position: u16, value: f64) {
        let end = &mut self.ends[row];
        self.positions[*end] = position;
        self.values[*end] = value;
        *end += 1;
    }

    /// Adds up the parts of each entry, sorts those of a row by column, and pads rows with zeros. What is left moves to
    /// the front.
    fn finish(mut self, start: usize) -> Tile {
        let mut sums = vec![0.0; self.width];
        let mut seen = vec![false; self.width];
        let mut columns = Vec::new();
        let mut chunks = 0;
        for row in 0..self.starts.len() - 1 {
            columns.clear();
            for part in self.starts[row] * CHUNK..self.ends[row] {
                let column = self.positions[part];
                let at = usize::from(column);
                sums[at] += self.values[part];
                if !seen[at] {
                    seen[at] = true;
                    columns.push(column);
                }
            }
            columns.sort_unstable();
            self.starts[row] = chunks;
            for entries in columns.chunks(CHUNK) {
                let to = chunks * CHUNK..(chunks + 1) * CHUNK;
                let positions = &mut self.positions[to.clone()];
                pad(entries, self.width, positions);
                for (&at, value) in positions.iter().zip(&mut self.values[to]) {
                    // Padding's is 0.
                    *value = std::mem::take(&mut sums[usize::from(at)]);
                    seen[usize::from(at)] = false;
                }
                chunks += 1;
            }
        }
        if let Some(end) = self.starts.last_mut() {
            *end = chunks;
        }
        Tile {
            columns: start..start + self.width,
            starts: self.starts,
            positions: Positions::new(self.positions, self.width),
            values: self.values,
        }
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

/// A product, to be computed.
#[derive(Debug)]
pub struct Product<'a> {
    share: &'a Share,
    pairs: &'a mut [Pair],
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { share, pairs } = self;
        let region = &share.region;
        for (row, diagonal) in share.diagonal.iter().enumerate() {
            let [p, y] = &mut pairs[place(region, row)];
            *y = mul_add::<FMA>(*diagonal, *p, *y);
        }
        for tile in &share.tiles {
            let (values, _) = tile.values.as_chunks::<CHUNK>();
            for (row, ends) in tile.starts.windows(2).enumerate() {
                let at = place(region, row);
                let own = [0.0, pairs[at][0]];
                let mut sums = [[0.0; 2]; CHUNK];
                let columns = &mut pairs[tile.columns.clone()];
                let change = |chunk: usize, old: [Pair; CHUNK]| {
                    let (entries, mut new) = (&values[chunk], old);
                    for l in 0..CHUNK {
                        for side in 0..2 {
                            sums[l][side] = mul_add::<FMA>(entries[l], old[l][side], sums[l][side]);
                            // The vector's number stays as it is.
                            new[l][side] = mul_add::<FMA>(entries[l], own[side], old[l][side]);
                        }
                    }
                    new
                };
                tile.positions.update(ends[0]..ends[1], columns, change);
                pairs[at][1] += (sums[0][0] + sums[1][0]) + (sums[2][0] + sums[3][0]);
            }
        }
    }
}

/// Where one of the PE's rows is in its part of a vector.
#[inline(always)]
fn place(region: &Region, row: usize) -> usize {
    region.rows_at + region.global(row) - region.rows.start
}

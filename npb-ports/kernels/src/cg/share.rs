//! The entries of the matrix that a PE has, and their product with a vector.
//!
//! An entry a of row i and column j is read once and used twice: a p(j) belongs to row i of the product, a p(i)
//! to row j. So the numbers of both vectors lie side by side, as pairs of p and the product so far: what
//! comes from a column and what goes to it is one load, one store, and two operations on two lanes.
//!
//! Columns are cut into *tiles* whose pairs stay in the second-level cache while rows come and go, and which are
//! narrow enough for columns of 16 bits. A row's entries within a tile are padded to whole chunks, whose
//! operations do not wait for each other.

use super::draft::{Draft, for_each};
use super::params::{CONDITION, Params};
use super::region::Region;
use super::tile::{CHUNK, ENTRY, Tile};
use crate::array::Array;
use crate::cpu::{Kernel, Level, Positions, mul_add};
use std::io;

/// A number of the vector, and what is known of the product's.
pub type Pair = [f64; 2];

/// Columns in a tile, at most: half a megabyte of pairs.
const TILE: usize = Positions::MOST;

/// Entries of so many bytes stay in the last cache from one product to the next.
const CACHED: usize = 16 << 20;

/// Entries are fetched so many ahead of their use if they are in the cache, and if they are not. Processors foresee
/// a stream by themselves, but not well among accesses that nobody can foresee.
const NEAR: usize = 128;
const FAR: usize = 512;

/// The entries of one PE.
#[derive(Debug)]
pub struct Share {
    region: Region,
    tiles: Vec<Tile>,
    /// How far ahead of their use entries are fetched.
    ahead: usize,
    /// Entries on the diagonal, one for each row; 0 in blocks that have no part of it.
    diagonal: Array,
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
        let width = tile_width(&region);
        let mut counts = vec![vec![0_u32; region.len()]; tiles(&region)];
        for_each(params, &region, width, |entry| {
            if entry.column < entry.row {
                counts[entry.tile][entry.at] += 1;
            }
        });
        let drafts = counts.into_iter().enumerate().map(|(tile, counts)| {
            let left = region.columns.len() - tile * width;
            Draft::new(&counts, left.min(width))
        });
        let mut drafts = drafts.collect::<Result<Vec<_>, _>>()?;
        for_each(params, &region, width, |entry| {
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
        let tiles = tiles.collect::<Result<Vec<_>, _>>()?;
        let bytes: usize = tiles.iter().map(Tile::bytes).sum();
        Ok(Self {
            ahead: if bytes > CACHED { FAR } else { NEAR },
            tiles,
            diagonal,
            region,
        })
    }

    /// Bytes that the entries of `region` take while they are made, about.
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
        let tiles = tiles(region) as f64;
        let rows = region.len() as f64 * tiles;
        let padding = rows * (CHUNK - 1) as f64 / 2.0;
        let entries = 1.01 * entries * part * below / region.stride as f64 + padding;
        // One tile more while it is put in order.
        let entries = entries * (1.0 + 1.0 / tiles) * ENTRY as f64;
        (entries + rows * Draft::BYTES_PER_ROW as f64) as u64
    }

    /// Bytes that the entries take when they are made.
    #[must_use]
    pub fn size(&self) -> usize {
        self.tiles.iter().map(Tile::bytes).sum()
    }

    /// Adds the product of these entries, and of those on the other side of the diagonal, with the first numbers of `pairs`
    /// to the second ones, with the code for `level`.
    pub fn product(&self, pairs: &mut [Pair], level: Level) {
        level.run(Product { share: self, pairs });
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

/// A product, to be computed.
struct Product<'a> {
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
            let (mut rows, mut first) = (tile.rows.iter(), 0);
            for run in &tile.runs {
                for row in rows.by_ref().take(run.rows) {
                    let at = place(region, *row as usize);
                    let own = pairs[at][0];
                    let columns = &mut pairs[tile.columns.clone()];
                    let end = first + run.chunks;
                    let entries = &values[first..end];
                    let positions = &tile.positions;
                    pairs[at][1] +=
                        positions.row_and_columns::<FMA>(first, entries, columns, own, share.ahead);
                    first = end;
                }
            }
        }
    }
}

/// Where one of the PE's rows is in its part of a vector.
#[inline(always)]
fn place(region: &Region, row: usize) -> usize {
    region.rows_at + region.global(row) - region.rows.start
}

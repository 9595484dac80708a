//! Which block of the plate is whose: rectangles in two dimensions, for any number of PEs.
//!
//! A prime number of PEs has no rectangle of blocks but a row or a column of narrow ones. So some PEs may stay
//! without a block, if the others are done sooner that way.

use std::cmp::Reverse;
use std::ops::Range;

use crate::options::Shape;

/// A side of a block. Sides are numbers, so that what belongs to them lies in arrays.
pub(crate) type Side = usize;
pub(crate) const NORTH: Side = 0;
pub(crate) const SOUTH: Side = 1;
pub(crate) const WEST: Side = 2;
pub(crate) const EAST: Side = 3;
pub(crate) const SIDES: [Side; 4] = [NORTH, SOUTH, WEST, EAST];

/// The side on which the neighbour there sees this block.
pub(crate) fn opposite(side: Side) -> Side {
    side ^ 1
}

/// The plate in `down` times `across` blocks, of PEs 0, 1, 2 ... row after row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    plate: Shape,
    pub(crate) down: usize,
    pub(crate) across: usize,
}

/// A PE's part of the plate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) rows: Range<usize>,
    pub(crate) cols: Range<usize>,
    /// The PEs on its sides; none at an edge of the plate.
    pub(crate) neighbours: [Option<usize>; 4],
    /// The side through which it reaches the block in the middle by way of neighbours; none in the middle.
    pub(crate) inwards: Option<Side>,
    /// The sides on which are blocks that reach the middle through this one.
    pub(crate) outwards: [bool; 4],
}

/// Part `i` of `total` in `parts`, the first of which have one more if it does not come out even.
fn share(total: usize, parts: usize, i: usize) -> Range<usize> {
    let (base, more) = (total / parts, total % parts);
    let start = i * base + i.min(more);
    start..start + base + usize::from(i < more)
}

impl Blocks {
    /// The blocks with which `n_pes` PEs should be done first. There are at most as many PEs as points.
    pub(crate) fn new(plate: Shape, n_pes: usize) -> Self {
        let cost = |&(down, across): &(usize, usize)| {
            let (rows, cols) = (plate.rows.div_ceil(down), plate.cols.div_ceil(across));
            // A point of a column, which lies apart from the next, costs as much as several of a row.
            let rim = if down > 1 { 2 * cols } else { 0 } + if across > 1 { 8 * rows } else { 0 };
            (rows * cols + rim, Reverse(down))
        };
        let most = n_pes.min(plate.rows).max(1);
        let layouts = (1..=most).map(|down| (down, (n_pes / down).clamp(1, plate.cols)));
        let (down, across) = layouts.min_by_key(cost).unwrap_or((1, 1));
        Self {
            plate,
            down,
            across,
        }
    }

    /// PEs that have a block: the first so many.
    pub(crate) fn count(&self) -> usize {
        self.down * self.across
    }

    /// The longest side of any block, in points.
    pub(crate) fn longest_side(&self) -> usize {
        let (rows, cols) = (
            self.plate.rows.div_ceil(self.down),
            self.plate.cols.div_ceil(self.across),
        );
        rows.max(cols)
    }

    /// The block of a PE, if it has one.
    pub(crate) fn block(&self, pe: usize) -> Option<Block> {
        let (row, col) = (pe / self.across, pe % self.across);
        if row >= self.down {
            return None;
        }
        let neighbours = [
            (row > 0).then(|| pe - self.across),
            (row + 1 < self.down).then(|| pe + self.across),
            (col > 0).then(|| pe - 1),
            (col + 1 < self.across).then(|| pe + 1),
        ];
        let outwards = SIDES.map(|side| {
            neighbours[side].is_some_and(|pe| self.inwards(pe) == Some(opposite(side)))
        });
        Some(Block {
            rows: share(self.plate.rows, self.down, row),
            cols: share(self.plate.cols, self.across, col),
            neighbours,
            inwards: self.inwards(pe),
            outwards,
        })
    }

    /// Along its row to the column in the middle, and along that to the row in the middle.
    fn inwards(&self, pe: usize) -> Option<Side> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let (row, col) = (pe / self.across, pe % self.across);
        match (col.cmp(&(self.across / 2)), row.cmp(&(self.down / 2))) {
            (Less, _) => Some(EAST),
            (Greater, _) => Some(WEST),
            (Equal, Less) => Some(SOUTH),
            (Equal, Greater) => Some(NORTH),
            (Equal, Equal) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> impl Iterator<Item = (Shape, usize)> {
        let sizes = [
            (1, 1),
            (1, 40),
            (40, 1),
            (5, 5),
            (48, 64),
            (64, 48),
            (7, 31),
        ];
        sizes.into_iter().flat_map(|(rows, cols)| {
            let size = Shape { rows, cols };
            (1..=size.points().min(70)).map(move |n| (size, n))
        })
    }

    #[test]
    fn every_point_has_one_owner() {
        for (size, n) in layouts() {
            let blocks = Blocks::new(size, n);
            assert!(blocks.count() <= n);
            let mut owners = vec![0; size.points()];
            for pe in 0..n {
                let Some(block) = blocks.block(pe) else {
                    assert!(pe >= blocks.count());
                    continue;
                };
                assert!(
                    !block.rows.is_empty() && !block.cols.is_empty(),
                    "{size} {n} {pe}"
                );
                assert!(block.rows.len().max(block.cols.len()) <= blocks.longest_side());
                for row in block.rows {
                    block
                        .cols
                        .clone()
                        .for_each(|col| owners[row * size.cols + col] += 1);
                }
            }
            assert!(owners.iter().all(|&n| n == 1), "{size} in {blocks:?}");
        }
    }

    #[test]
    fn neighbours_see_each_other_and_share_a_whole_side() {
        for (size, n) in layouts() {
            let blocks = Blocks::new(size, n);
            for pe in 0..blocks.count() {
                let block = blocks.block(pe).unwrap();
                for side in SIDES {
                    let Some(other) = block.neighbours[side] else {
                        continue;
                    };
                    let other = blocks.block(other).unwrap();
                    assert_eq!(other.neighbours[opposite(side)], Some(pe));
                    assert!(match side {
                        NORTH => other.rows.end == block.rows.start && other.cols == block.cols,
                        SOUTH => other.rows.start == block.rows.end && other.cols == block.cols,
                        WEST => other.cols.end == block.cols.start && other.rows == block.rows,
                        _ => other.cols.start == block.cols.end && other.rows == block.rows,
                    });
                    assert_eq!(block.outwards[side], other.inwards == Some(opposite(side)));
                }
            }
        }
    }

    #[test]
    fn all_reach_one_in_the_middle() {
        for (size, n) in layouts() {
            let blocks = Blocks::new(size, n);
            let mut middles = 0;
            for mut pe in 0..blocks.count() {
                let mut hops = 0;
                middles += usize::from(blocks.block(pe).unwrap().inwards.is_none());
                while let Some(side) = blocks.block(pe).unwrap().inwards {
                    pe = blocks.block(pe).unwrap().neighbours[side].unwrap();
                    hops += 1;
                }
                assert!(hops <= blocks.down / 2 + blocks.across / 2);
            }
            assert_eq!(middles, 1, "{size} {n}");
        }
    }

    #[test]
    fn blocks_are_compact_and_all_work_where_it_helps() {
        let of = |rows, cols, n| {
            let blocks = Blocks::new(Shape { rows, cols }, n);
            (blocks.down, blocks.across)
        };
        assert_eq!(of(1000, 1000, 2), (2, 1));
        // Rows are sent more cheaply than columns.
        assert_eq!(of(1000, 1000, 64), (16, 4));
        assert_eq!(of(10, 1000, 4), (1, 4));
        assert_eq!(of(48, 64, 7), (7, 1));
        // 13 PEs on 5 rows: a point each would be wasted on nobody.
        assert_eq!(of(5, 5, 25), (5, 5));
        let (down, across) = of(5, 5, 13);
        assert!(down * across <= 13 && down * across >= 10);
    }
}

//! How the matrix is cut: a square of blocks, each with its mirror image on the other side of the diagonal.
//!
//! The PEs form the reference's grid, p rows of p or of 2p. Its p x p blocks of the matrix are those of one PE each, or of two *mates*.
//! Since the matrix is symmetric, block (I, J) is the transpose of block (J, I); an entry that is
//! read once serves both, if its PE has the parts I and J of the vector. So the PEs of both blocks share
//! the entries of one of them, row by row in turn: two PEs, or four with mates. A block on the diagonal is its own
//! mirror image: its PE has, or its mates share, what is on and below the diagonal.

use super::region::Region;
use crate::exchange::Slots;
use crate::processes::Rule;
use std::ops::Range;

/// Blocks have at least as many rows.
const MIN_ROWS: usize = 16;

/// Where a PE is in the grid, and what part of the matrix and of the vectors it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Rows of the matrix.
    n: usize,
    /// Blocks in a row of blocks.
    side: usize,
    /// PEs with the same block: 1 or 2.
    mates: usize,
    /// The row of the block.
    row: usize,
    /// The column of the block.
    column: usize,
    /// Which of the mates it is.
    mate: usize,
}

/// On which numbers of PEs a matrix of `n` rows can be cut.
#[must_use]
pub fn rule(n: usize) -> Rule {
    let side = 1_usize << (n / MIN_ROWS).max(1).ilog2();
    Rule::PowerOfTwo {
        most: side * side * 2,
    }
}

impl Place {
    /// The place of `pe` among `n_pes`, a power of two.
    #[must_use]
    pub fn new(n: usize, pe: usize, n_pes: usize) -> Self {
        let log = n_pes.ilog2();
        let (side, mates) = (1 << (log / 2), 1 << (log % 2));
        let block = pe / mates;
        Self {
            n,
            side,
            mates,
            row: block / side,
            column: block % side,
            mate: pe % mates,
        }
    }

    fn pe(&self, row: usize, column: usize, mate: usize) -> usize {
        (row * self.side + column) * self.mates + mate
    }

    /// The PE with the other block of the same entries, if the block is not on the diagonal.
    #[must_use]
    pub fn mirror(&self) -> Option<usize> {
        (self.row != self.column).then(|| self.pe(self.column, self.row, self.mate))
    }

    /// The PE that shares the block.
    #[must_use]
    pub fn mate(&self) -> Option<usize> {
        (self.mates == 2).then(|| self.pe(self.row, self.column, 1 - self.mate))
    }

    /// The PEs with which this one makes sums over the columns of blocks, one after another.
    pub fn row_partners(&self) -> impl Iterator<Item = usize> + use<> {
        let place = *self;
        (0..self.side.ilog2())
            .map(move |k| place.pe(place.row, place.column ^ (1 << k), place.mate))
    }

    /// The rows of the matrix that block `index` of a side has.
    fn block(&self, index: usize) -> Range<usize> {
        let start = |index| self.n * index / self.side;
        start(index)..start(index + 1)
    }

    /// Rows of the largest block.
    fn largest_block(&self) -> usize {
        self.n.div_ceil(self.side)
    }

    /// Numbers in this PE's part of a vector: the block's rows, then, off the diagonal, its columns.
    #[must_use]
    pub fn part_len(&self) -> usize {
        self.columns_range().end
    }

    /// Where the block's rows are in this PE's part of a vector.
    #[must_use]
    pub fn rows_range(&self) -> Range<usize> {
        0..self.block(self.row).len()
    }

    /// Where the block's columns are: on the diagonal where the rows are.
    #[must_use]
    pub fn columns_range(&self) -> Range<usize> {
        let start = match self.mirror() {
            None => 0,
            Some(_) => self.rows_range().end,
        };
        start..start + self.block(self.column).len()
    }

    /// The entries of this PE: of two mirrored blocks those of the lower one, below the diagonal.
    #[must_use]
    pub fn region(&self) -> Region {
        let lower = self.row >= self.column;
        let (mut rows, mut columns) = (self.row, self.column);
        let (mut rows_at, mut columns_at) = (0, self.columns_range().start);
        if !lower {
            (rows, columns) = (columns, rows);
            (rows_at, columns_at) = (columns_at, rows_at);
        }
        let (first, stride) = match self.mirror() {
            None => (self.mate, self.mates),
            Some(_) if lower => (self.mate, 2 * self.mates),
            Some(_) => (self.mates + self.mate, 2 * self.mates),
        };
        Region {
            rows: self.block(rows),
            columns: self.block(columns),
            first,
            stride,
            rows_at,
            columns_at,
        }
    }

    /// The landing slots that all PEs have.
    #[must_use]
    pub fn slots(&self) -> SlotPlan {
        SlotPlan::new(self)
    }
}

/// Numbers in the longest sum.
pub const MOST_SUMS: usize = 3;

/// The numbers and sizes of the landing slots, the same on all PEs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotPlan {
    sizes: Vec<usize>,
    mates: usize,
    rows: usize,
}

impl SlotPlan {
    fn new(place: &Place) -> Self {
        let block = place.largest_block();
        let steps = place.side.ilog2() as usize;
        let mut sizes = Vec::new();
        if place.side > 1 {
            sizes.extend([block; 2]);
        }
        let mates = sizes.len();
        if place.mates > 1 {
            sizes.extend([block; 2]);
        }
        let rows = sizes.len();
        for _ in 0..steps {
            sizes.extend([block, MOST_SUMS, MOST_SUMS]);
        }
        Self { sizes, mates, rows }
    }

    /// What the mirror has found of the product.
    pub const MIRROR_PART: usize = 0;
    /// What the mirror has of the whole product.
    pub const MIRROR_WHOLE: usize = 1;

    /// What the mate has found, in one of two slots in turn.
    #[must_use]
    pub fn mate(&self, turn: bool) -> usize {
        self.mates + usize::from(turn)
    }

    /// What the partner of a step has of the product.
    #[must_use]
    pub fn product(&self, step: usize) -> usize {
        self.rows + 3 * step
    }

    /// What the partner of a step has of a sum, in one of two slots in turn.
    #[must_use]
    pub fn sum(&self, step: usize, turn: bool) -> usize {
        self.rows + 3 * step + 1 + usize::from(turn)
    }

    /// The sizes.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Bytes that they take of the symmetric heap.
    #[must_use]
    pub fn bytes(&self) -> usize {
        Slots::<f64>::bytes(&self.sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_pes_share_the_triangle_and_four_a_square() {
        let region = |pe, n_pes| Place::new(20, pe, n_pes).region();
        assert_eq!((region(0, 2).first, region(1, 2).first), (0, 1));
        assert_eq!(region(1, 2).stride, 2);
        let (upper, lower) = (region(1, 4), region(2, 4));
        assert_eq!((&upper.rows, &upper.columns), (&(10..20), &(0..10)));
        assert_eq!((&lower.rows, &lower.columns), (&(10..20), &(0..10)));
        assert_eq!((upper.rows_at, upper.columns_at), (10, 0));
        assert_eq!((lower.rows_at, lower.columns_at), (0, 10));
        assert_eq!((lower.first, upper.first, upper.stride), (0, 1, 2));
    }

    #[test]
    fn partners_are_those_of_the_reference() {
        // Eight PEs: two rows of four.
        let place = Place::new(1400, 3, 8);
        assert_eq!(place.mate(), Some(2));
        assert_eq!(place.row_partners().collect::<Vec<_>>(), [1]);
        assert_eq!(place.mirror(), Some(5));
        assert_eq!(Place::new(1400, 6, 8).mirror(), None);
    }

    proptest! {
        #[test]
        fn every_entry_on_or_below_the_diagonal_has_one_owner(n in 32usize..60, log in 0u32..5) {
            let n_pes = 1 << log;
            prop_assume!(rule(n).allows(n_pes));
            let mut owners = vec![0; n * n];
            for pe in 0..n_pes {
                let place = Place::new(n, pe, n_pes);
                let region = place.region();
                prop_assert!(!region.is_empty());
                for row in 0..region.len() {
                    let i = region.global(row);
                    prop_assert_eq!(region.row(i), Some(row));
                    for j in region.columns.clone().filter(|j| *j <= i) {
                        owners[i * n + j] += 1;
                    }
                }
                let found = region.rows.clone().filter(|row| region.row(*row).is_some());
                prop_assert_eq!(found.count(), region.len());
                if let Some(mirror) = place.mirror() {
                    prop_assert_eq!(Place::new(n, mirror, n_pes).mirror(), Some(pe));
                }
                if let Some(mate) = place.mate() {
                    prop_assert_eq!(Place::new(n, mate, n_pes).mate(), Some(pe));
                }
            }
            for i in 0..n {
                for j in 0..n {
                    prop_assert_eq!(owners[i * n + j], usize::from(j <= i), "{} {}", i, j);
                }
            }
        }
    }
}

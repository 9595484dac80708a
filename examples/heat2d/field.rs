//! A block's temperatures, and the stencil.
//!
//! The points of the two colours of a checkerboard lie apart: of each row first every other point, then those
//! between. All neighbours of a point are of the other colour, and those of a stretch of points are four
//! stretches without gaps, for which the compiler makes vector instructions; in a row of both colours every other number would
//! be in the way. Around the block is a rim of one point on each side, what neighbours or edges have.

use std::ops::Range;

use crate::blocks::{Block, EAST, NORTH, SOUTH, Side};
use crate::options::Shape;
use crate::plate::{BLACK, HOT, Plate, RED};
use crate::sums;

/// Points that are computed: rows and columns of a block, of which the first is number 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) rows: Range<usize>,
    pub(crate) cols: Range<usize>,
}

impl Area {
    pub(crate) const NONE: Self = Self {
        rows: 0..0,
        cols: 0..0,
    };

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() || self.cols.is_empty()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Numbers in half a row.
    half: usize,
    /// Row and column of the plate's point left above the first one: whether the rim's corner is red.
    corner: usize,
    cells: Vec<f64>,
    /// The sum of the squares of changes, and what each is [rounded](crate::sums::rounding) by; none are summed
    /// up if there is nothing.
    change: f64,
    rounding: Option<f64>,
}

impl Field {
    /// Bytes of a field of so many points, or more than there are.
    pub(crate) fn bytes(rows: usize, cols: usize) -> usize {
        (rows + 2).saturating_mul(2 * half(cols) * size_of::<f64>())
    }

    /// The block in the beginning, with its rim.
    pub(crate) fn new(plate: &Plate, block: &Block) -> Self {
        let (rows, cols) = (block.rows.len(), block.cols.len());
        let half = half(cols);
        let corner = block.rows.start + block.cols.start;
        let mut field = Self {
            rows,
            cols,
            half,
            corner,
            cells: vec![0.0; (rows + 2) * 2 * half],
            change: 0.0,
            rounding: None,
        };
        for row in 0..rows + 2 {
            for col in 0..cols + 2 {
                let at = field.index(row, col);
                field.cells[at] = plate.start(block.rows.start + row, block.cols.start + col);
            }
        }
        field
    }

    fn index(&self, row: usize, col: usize) -> usize {
        (2 * row + col % 2) * self.half + col / 2
    }

    /// The temperature of a point; row and column 1 are the first of the block.
    pub(crate) fn at(&self, row: usize, col: usize) -> f64 {
        self.cells[self.index(row, col)]
    }

    /// Its colour.
    pub(crate) fn colour(&self, row: usize, col: usize) -> usize {
        (self.corner + row + col) % 2
    }

    /// The sum of the block's temperatures, rounded so that the sum of all blocks of a plate of `size` does not depend on
    /// them.
    pub(crate) fn heat(&self, size: Shape) -> f64 {
        let rounding = sums::rounding(HOT * size.points() as f64);
        let rows = (1..=self.rows).flat_map(|row| (1..=self.cols).map(move |col| (row, col)));
        rows.map(|(row, col)| sums::rounded(self.at(row, col), rounding))
            .sum()
    }

    /// In which half of a row the points of a colour are, and which of that lie in `cols`.
    fn stretch(&self, colour: usize, row: usize, cols: &Range<usize>) -> (usize, Range<usize>) {
        let odd = (self.corner + row + colour) % 2;
        (odd, (cols.start + 1 - odd) / 2..(cols.end + 1 - odd) / 2)
    }

    /// Whether the squares of all changes are summed up from now on, and what each is rounded by.
    pub(crate) fn sum_changes(&mut self, rounding: Option<f64>) {
        (self.change, self.rounding) = (0.0, rounding);
    }

    /// That sum.
    pub(crate) fn change(&self) -> f64 {
        self.change
    }

    /// Computes the points of a colour of a row from their neighbours.
    pub(crate) fn update(&mut self, colour: usize, row: usize, cols: &Range<usize>) {
        let (odd, at) = self.stretch(colour, row, cols);
        let stride = 2 * self.half;
        let (above, from_here) = self.cells.split_at_mut(row * stride);
        let (here, below) = from_here.split_at_mut(stride);
        let (even_half, odd_half) = here.split_at_mut(self.half);
        let (points, sides) = match odd {
            0 => (even_half, odd_half),
            _ => (odd_half, even_half),
        };
        let above = &above[(row - 1) * stride + odd * self.half..];
        let below = &below[odd * self.half..];
        let left = at.start + odd - 1;
        let around = [
            &above[at.clone()],
            &below[at.clone()],
            &sides[left..],
            &sides[left + 1..],
        ];
        let points = &mut points[at];
        match self.rounding {
            None => relax(points, around),
            Some(rounding) => self.change += relax_and_sum(points, around, rounding),
        }
    }

    /// As [`update`](Self::update), from the neighbours that the points have in another field of this size.
    pub(crate) fn update_from(
        &mut self,
        other: &Self,
        colour: usize,
        row: usize,
        cols: &Range<usize>,
    ) {
        let (odd, at) = self.stretch(colour, row, cols);
        let half =
            |row: usize, odd: usize| &other.cells[(2 * row + odd) * self.half..][..self.half];
        let (sides, left) = (half(row, 1 - odd), at.start + odd - 1);
        let around = [
            &half(row - 1, odd)[at.clone()],
            &half(row + 1, odd)[at.clone()],
            &sides[left..],
            &sides[left + 1..],
        ];
        let points = &mut self.cells[(2 * row + odd) * self.half..][at.clone()];
        match self.rounding {
            None => relax(points, around),
            Some(rounding) => {
                points.copy_from_slice(&half(row, odd)[at]);
                self.change += relax_and_sum(points, around, rounding);
            }
        }
    }

    /// Appends the outermost points of a side, of the colours that are asked for.
    pub(crate) fn pack(&self, side: Side, colours: Range<usize>, to: &mut Vec<f64>) {
        for colour in colours {
            if side <= SOUTH {
                let row = if side == NORTH { 1 } else { self.rows };
                let (odd, at) = self.stretch(colour, row, &(1..self.cols + 1));
                to.extend_from_slice(&self.cells[(2 * row + odd) * self.half..][at]);
            } else {
                let col = if side == EAST { self.cols } else { 1 };
                let rows = self.column(colour, col);
                to.extend(rows.map(|row| self.at(row, col)));
            }
        }
    }

    /// Puts what the neighbour of a side has packed into the rim there.
    pub(crate) fn unpack(&mut self, side: Side, colours: Range<usize>, mut from: &[f64]) {
        for colour in colours {
            let used;
            if side <= SOUTH {
                let row = if side == NORTH { 0 } else { self.rows + 1 };
                let (odd, at) = self.stretch(colour, row, &(1..self.cols + 1));
                used = at.len();
                self.cells[(2 * row + odd) * self.half..][at].copy_from_slice(&from[..used]);
            } else {
                let col = if side == EAST { self.cols + 1 } else { 0 };
                let rows = self.column(colour, col);
                used = rows.len();
                for (row, &value) in rows.zip(from) {
                    let at = self.index(row, col);
                    self.cells[at] = value;
                }
            }
            from = &from[used..];
        }
    }

    /// The rows in which a column has points of a colour.
    fn column(&self, colour: usize, col: usize) -> std::iter::StepBy<Range<usize>> {
        let first = 2 - usize::from(self.colour(1, col) == colour);
        (first..self.rows + 1).step_by(2)
    }

    /// Numbers that [`pack`](Self::pack) appends.
    pub(crate) fn packed(&self, side: Side, colours: Range<usize>) -> usize {
        let (end, col) = match side {
            NORTH => (1, 0),
            SOUTH => (self.rows, 0),
            EAST => (0, self.cols),
            _ => (0, 1),
        };
        let of = |colour| match side <= SOUTH {
            true => self.stretch(colour, end, &(1..self.cols + 1)).1.len(),
            false => self.column(colour, col).len(),
        };
        colours.map(of).sum()
    }
}

/// Numbers in half a row of a block, with the rim.
fn half(cols: usize) -> usize {
    cols.div_ceil(2) + 1
}

/// Both colours, for [`Field::pack`].
pub(crate) const BOTH: Range<usize> = RED..BLACK + 1;

/// The mean of four neighbours. What lies opposite is added first, so that mirror images of plates stay such
/// to the last bit.
#[inline(always)]
fn mean([up, down, left, right]: [f64; 4]) -> f64 {
    0.25 * ((up + down) + (left + right))
}

/// Replaces points by the means of those around.
fn relax(points: &mut [f64], around: [&[f64]; 4]) {
    // Of one length, which the compiler sees: without checks in the loop.
    let around = around.map(|side| &side[..points.len()]);
    for (i, point) in points.iter_mut().enumerate() {
        *point = mean(around.map(|side| side[i]));
    }
}

/// As [`relax`], with the sum of the squares of changes, each rounded. The sum is exact, so any number of sums may be added
/// up side by side.
fn relax_and_sum(points: &mut [f64], around: [&[f64]; 4], rounding: f64) -> f64 {
    const LANES: usize = 8;
    let around = around.map(|side| &side[..points.len()]);
    let mut sums = [0.0; LANES];
    let (stretches, _) = points.as_chunks_mut::<LANES>();
    let whole = stretches.len() * LANES;
    for (i, stretch) in stretches.iter_mut().enumerate() {
        let around = around.map(|side| &side[i * LANES..][..LANES]);
        for lane in 0..LANES {
            let new = mean(around.map(|side| side[lane]));
            let change = new - stretch[lane];
            sums[lane] += (change * change + rounding) - rounding;
            stretch[lane] = new;
        }
    }
    for i in whole..points.len() {
        let new = mean(around.map(|side| side[i]));
        let change = new - points[i];
        sums[i - whole] += (change * change + rounding) - rounding;
        points[i] = new;
    }
    sums.iter().sum()
}

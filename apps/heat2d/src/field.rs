//! A block's temperatures, and the stencil.
//!
//! Where points of two colours are computed one after the other these lie apart: of each row first every other
//! point, then those between. All neighbours of a point are of the other colour, and those of a stretch of points
//! are four stretches without gaps, for which the compiler makes vector instructions; in a row of both colours every
//! other number would be in the way. Where all points are computed together, there is one colour, and rows are as
//! usual.
//!
//! Around the block is a rim of one point on each side, what neighbours or edges have.

use std::iter::StepBy;
use std::ops::Range;

use crate::blocks::{Block, NORTH, SOUTH, Side, WEST};
use crate::options::Shape;
use crate::plate::{HOT, Plate};
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

/// A block's temperatures.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Colours: 1 or 2.
    colours: usize,
    /// Room for a row's points of a colour.
    room: usize,
    /// What the plate's row and column of the first point add up to: whether the rim's corner is red.
    corner: usize,
    cells: Vec<f64>,
    /// The sum of the squares of changes, and what each is [rounded](sums::rounding) by; if by nothing, none are
    /// summed up.
    change: f64,
    rounding: Option<f64>,
}

impl Field {
    /// Bytes of a field of so many points, or more than there are.
    pub(crate) fn bytes(rows: usize, cols: usize) -> usize {
        (rows + 2).saturating_mul((cols + 4) * size_of::<f64>())
    }

    /// The block in the beginning, with its rim, in 1 colour or 2.
    pub(crate) fn new(plate: &Plate, block: &Block, colours: usize) -> Self {
        let (rows, cols) = (block.rows.len(), block.cols.len());
        let room = (cols + 2).div_ceil(colours);
        let mut field = Self {
            rows,
            cols,
            colours,
            room,
            corner: block.rows.start + block.cols.start,
            cells: vec![0.0; (rows + 2) * colours * room],
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

    /// Where the points of a row begin whose columns have a remainder.
    fn line(&self, row: usize, remainder: usize) -> usize {
        (row * self.colours + remainder) * self.room
    }

    fn index(&self, row: usize, col: usize) -> usize {
        self.line(row, col % self.colours) + col / self.colours
    }

    /// The temperature of a point; row and column 1 are the first of the block.
    pub(crate) fn at(&self, row: usize, col: usize) -> f64 {
        self.cells[self.index(row, col)]
    }

    /// The colour of a point; 0 if there is only one.
    pub(crate) fn colour(&self, row: usize, col: usize) -> usize {
        (self.corner + row + col) % self.colours
    }

    /// The sum of the block's temperatures, rounded so that the sum over a plate of `size` does not depend on its
    /// blocks.
    pub(crate) fn heat(&self, size: Shape) -> f64 {
        let rounding = sums::rounding(HOT * size.points() as f64);
        let rows = (1..=self.rows).flat_map(|row| (1..=self.cols).map(move |col| (row, col)));
        rows.map(|(row, col)| sums::rounded(self.at(row, col), rounding))
            .sum()
    }

    /// Whether the squares of all changes are summed up from now on, and what each is rounded by.
    pub(crate) fn sum_changes(&mut self, rounding: Option<f64>) {
        (self.change, self.rounding) = (0.0, rounding);
    }

    /// That sum.
    pub(crate) fn change(&self) -> f64 {
        self.change
    }

    /// The points of a colour in a row: the remainder of their columns, and the range of quotients in `cols`.
    fn stretch(&self, colour: usize, row: usize, cols: &Range<usize>) -> (usize, Range<usize>) {
        let remainder = (self.corner + row + colour) % self.colours;
        let quotient = |col: usize| (col + self.colours - 1 - remainder) / self.colours;
        (remainder, quotient(cols.start)..quotient(cols.end))
    }

    /// Computes the points of one of two colours in a row from those of the other.
    pub(crate) fn update(&mut self, colour: usize, row: usize, cols: &Range<usize>) {
        let (odd, at) = self.stretch(colour, row, cols);
        let (above, from_here) = self.cells.split_at_mut(2 * row * self.room);
        let (here, below) = from_here.split_at_mut(2 * self.room);
        let (even_cols, odd_cols) = here.split_at_mut(self.room);
        let (points, sides) = match odd {
            0 => (even_cols, odd_cols),
            _ => (odd_cols, even_cols),
        };
        let up = &above[(2 * (row - 1) + odd) * self.room..][at.clone()];
        let down = &below[odd * self.room..][at.clone()];
        let left = at.start + odd - 1;
        let (left, right) = (&sides[left..], &sides[left + 1..]);
        let points = &mut points[at];
        match self.rounding {
            None => relax(points, up, down, left, right),
            Some(rounding) => self.change += relax_and_sum(points, up, down, left, right, rounding),
        }
    }

    /// Computes points in a row from those of another field of this size. Both have one colour.
    pub(crate) fn update_from(&mut self, other: &Self, row: usize, cols: &Range<usize>) {
        let line = |row: usize| &other.cells[row * self.room..][..self.room];
        let (up, here, down) = (line(row - 1), line(row), line(row + 1));
        let (up, down) = (&up[cols.clone()], &down[cols.clone()]);
        let (left, right) = (&here[cols.start - 1..], &here[cols.start + 1..]);
        let points = &mut self.cells[row * self.room..][cols.clone()];
        match self.rounding {
            None => relax(points, up, down, left, right),
            Some(rounding) => {
                points.copy_from_slice(&here[cols.clone()]);
                self.change += relax_and_sum(points, up, down, left, right, rounding);
            }
        }
    }

    /// Where the outermost points of a colour are on a side, or those of the rim, which are 1 `beyond`.
    fn outermost(&self, side: Side, colour: usize, beyond: usize) -> StepBy<Range<usize>> {
        let (last, size) = match side {
            NORTH | WEST => (1 - beyond, 0),
            SOUTH => (beyond, self.rows),
            _ => (beyond, self.cols),
        };
        let number = last + size;
        if side == NORTH || side == SOUTH {
            let (remainder, at) = self.stretch(colour, number, &(1..self.cols + 1));
            let line = self.line(number, remainder);
            (line + at.start..line + at.end).step_by(1)
        } else {
            let first = 2 - usize::from(self.colour(1, number) == colour);
            let (start, count) = (
                self.index(first, number),
                (self.rows + 1 - first).div_ceil(self.colours),
            );
            let apart = self.line(self.colours, 0);
            (start..start + count * apart).step_by(apart)
        }
    }

    /// Takes the outermost points of a colour on a side.
    pub(crate) fn pack(&self, side: Side, colour: usize, to: &mut Vec<f64>) {
        to.clear();
        to.extend(self.outermost(side, colour, 0).map(|at| self.cells[at]));
    }

    /// How many the neighbour there has of them: as many as this block.
    pub(crate) fn packed(&self, side: Side, colour: usize) -> usize {
        self.outermost(side, colour, 1).len()
    }

    /// Puts what the neighbour on a side has packed into the rim there.
    pub(crate) fn unpack(&mut self, side: Side, colour: usize, from: &[f64]) {
        for (at, &value) in self.outermost(side, colour, 1).zip(from) {
            self.cells[at] = value;
        }
    }
}

/// The mean of four neighbours. What lies opposite is added first, so that mirror images of plates stay such
/// to the last bit.
#[inline(always)]
fn mean(up: f64, down: f64, left: f64, right: f64) -> f64 {
    0.25 * ((up + down) + (left + right))
}

// A function of its own, with a slice for each side: so the compiler knows that no side is written to, and asks
// nothing at run time. Once cut to one length, no index is checked.

/// Replaces points by the means of those around.
#[inline(never)]
fn relax(points: &mut [f64], up: &[f64], down: &[f64], left: &[f64], right: &[f64]) {
    let n = points.len();
    let (up, down, left, right) = (&up[..n], &down[..n], &left[..n], &right[..n]);
    for i in 0..n {
        points[i] = mean(up[i], down[i], left[i], right[i]);
    }
}

/// As [`relax`], with the sum of the squares of changes, each rounded. The sum is exact, so any number of sums may
/// be added up side by side.
#[inline(never)]
fn relax_and_sum(
    points: &mut [f64],
    up: &[f64],
    down: &[f64],
    left: &[f64],
    right: &[f64],
    rounding: f64,
) -> f64 {
    const LANES: usize = 4;
    let n = points.len();
    let (up, down, left, right) = (&up[..n], &down[..n], &left[..n], &right[..n]);
    let change = |point: &mut f64, new: f64| {
        let change = new - *point;
        *point = new;
        sums::rounded(change * change, rounding)
    };
    let (stretches, rest) = points.as_chunks_mut::<LANES>();
    let whole = n - rest.len();
    let around = [up, down, left, right].map(|side| side.as_chunks::<LANES>().0);
    let mut sums = [0.0; LANES];
    for (i, stretch) in stretches.iter_mut().enumerate() {
        let [up, down, left, right] = around.map(|side| side[i]);
        for lane in 0..LANES {
            let new = mean(up[lane], down[lane], left[lane], right[lane]);
            sums[lane] += change(&mut stretch[lane], new);
        }
    }
    for (point, i) in rest.iter_mut().zip(whole..) {
        sums[i - whole] += change(point, mean(up[i], down[i], left[i], right[i]));
    }
    sums.iter().sum()
}

//! Fields: M numbers at every point of a cell, with ghost layers around it.
//!
//! For each (k, j) there are M rows, one a component, of consecutive i: eight numbers from a row
//! are eight lanes at once, and all that a stencil needs of one point lies in a few rows. Rows
//! are padded so that the first interior point is aligned to the size of a vector and the last
//! chunk of lanes can be read whole.
//!
//! Kernels call these functions in their innermost loops, so they have loops in place of
//! closures, which need not be compiled for the kernel's instructions.
//!
//! Indices are local: 0 is the first ghost layer, [`GHOST`] the first point of the cell. All
//! fields of a cell have the same layout, so ghosts exist whether a field needs them or not
//! (those that nobody touches cost no traffic).

use super::directions::{DIRECTIONS, X, Y, Z};
use crate::array::Array;
use crate::cpu::{prefetch, transpose};
use crate::simd::{F64x8, LANES};
use std::io;
use std::ops::Range;

/// Ghost layers on each side: the reach of the fourth-order differences.
pub const GHOST: usize = 2;

/// Where the numbers of a field with M components lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout<const M: usize> {
    size: [usize; DIRECTIONS],
    /// Padding before local index 0 of a row.
    lead: usize,
    row: usize,
    line: usize,
    plane: usize,
}

impl<const M: usize> Layout<M> {
    /// The layout for a cell of `size` points whose rows are computed from local index
    /// `first_interior` on, which is at least [`GHOST`] and below [`LANES`].
    #[must_use]
    pub fn new(size: [usize; DIRECTIONS], first_interior: usize) -> Self {
        // An odd number of cache lines from row to row and plane to plane spreads columns over
        // all sets of a cache.
        let odd = |words: usize| ((words / LANES) | 1) * LANES;
        let lead = LANES - first_interior;
        let row = (lead + size[X] + 2 * GHOST).next_multiple_of(LANES);
        let line = odd(M * row);
        let plane = odd(line * (size[Y] + 2 * GHOST));
        Self {
            size,
            lead,
            row,
            line,
            plane,
        }
    }

    /// Position of component `m` at local indices (`i`, `j`, `k`) in [`Field::values`].
    #[inline(always)]
    #[must_use]
    pub fn at(&self, i: usize, j: usize, k: usize, m: usize) -> usize {
        self.point(i, j, k) + m * self.row
    }

    /// Position of component 0 at local indices (`i`, `j`, `k`).
    #[inline(always)]
    #[must_use]
    pub fn point(&self, i: usize, j: usize, k: usize) -> usize {
        k * self.plane + j * self.line + self.lead + i
    }

    /// Distance of two components of a point: the numbers of a row with its padding.
    #[inline(always)]
    #[must_use]
    pub fn row(&self) -> usize {
        self.row
    }

    /// Distance of (i, j, k) and (i, j + 1, k).
    #[inline(always)]
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// Distance of (i, j, k) and (i, j, k + 1).
    #[inline(always)]
    #[must_use]
    pub fn plane(&self) -> usize {
        self.plane
    }

    /// Numbers of a field with its padding.
    #[must_use]
    pub fn len(&self) -> usize {
        self.plane * (self.size[Z] + 2 * GHOST)
    }

    /// Whether the field has no point.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A field with M components on one cell.
#[derive(Debug)]
pub struct Field<const M: usize> {
    layout: Layout<M>,
    data: Array,
}

/// One value of each component in eight lanes.
pub type Lanes<const M: usize> = [F64x8; M];

impl<const M: usize> Field<M> {
    /// A field that holds `filling[m]` for component m everywhere, ghosts and padding included.
    /// Lanes in padding are computed and thrown away, so this should be a state that the
    /// equations can live with.
    ///
    /// # Errors
    /// If the system has no address space for so many numbers.
    pub fn new(layout: Layout<M>, filling: [f64; M]) -> io::Result<Self> {
        let mut data = Array::new(layout.len())?;
        for plane in data.chunks_mut(layout.plane) {
            for line in plane.chunks_mut(layout.line) {
                for (row, value) in line.chunks_mut(layout.row).zip(filling) {
                    row.fill(value);
                }
            }
        }
        Ok(Self { layout, data })
    }

    /// Where the numbers lie.
    #[inline(always)]
    #[must_use]
    pub fn layout(&self) -> &Layout<M> {
        &self.layout
    }

    /// All numbers, at the positions that the layout says.
    #[inline(always)]
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.data
    }

    /// All numbers, to change them.
    #[inline(always)]
    #[must_use]
    pub fn values_mut(&mut self) -> &mut [f64] {
        &mut self.data
    }

    /// The components at one point.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, i: usize, j: usize, k: usize) -> [f64; M] {
        let at = self.layout.point(i, j, k);
        let values = self.values();
        std::array::from_fn(|m| values[at + m * self.layout.row])
    }

    /// Sets the components at one point.
    #[inline(always)]
    pub fn set(&mut self, i: usize, j: usize, k: usize, point: [f64; M]) {
        let (at, row) = (self.layout.point(i, j, k), self.layout.row);
        let values = self.values_mut();
        for (m, value) in point.into_iter().enumerate() {
            values[at + m * row] = value;
        }
    }

    /// The components of the eight points from (`i`, `j`, `k`) on along the row. Beyond the
    /// points of the cell lie ghosts and padding.
    #[inline(always)]
    #[must_use]
    pub fn load(&self, i: usize, j: usize, k: usize) -> Lanes<M> {
        let mut lanes = [F64x8::default(); M];
        self.load_to(i, j, k, &mut lanes);
        lanes
    }

    /// [`Field::load`] to where it is wanted, which spares copies that the compiler keeps.
    #[inline(always)]
    pub fn load_to(&self, i: usize, j: usize, k: usize, lanes: &mut Lanes<M>) {
        let at = self.layout.point(i, j, k);
        let values = self.values();
        for (m, lanes) in lanes.iter_mut().enumerate() {
            lanes.0 = *eight(values, at + m * self.layout.row);
        }
    }

    /// Has the eight points from (`i`, `j`, `k`) on brought into cache, if they exist.
    #[inline(always)]
    pub fn prefetch(&self, i: usize, j: usize, k: usize) {
        let at = self.layout.point(i, j, k);
        for m in 0..M {
            prefetch(self.values(), at + m * self.layout.row);
        }
    }

    /// Sets the components of the first `count` (at most 8) of the eight points from (`i`, `j`,
    /// `k`) on.
    #[inline(always)]
    pub fn store(&mut self, i: usize, j: usize, k: usize, count: usize, lanes: &Lanes<M>) {
        let (at, row) = (self.layout.point(i, j, k), self.layout.row);
        let values = self.values_mut();
        for (m, component) in lanes.iter().enumerate() {
            store_first(*component, count, &mut values[at + m * row..]);
        }
    }

    /// The rows from (`i`, `j`, `k`) on, in `count` chunks of eight. All have the same length, so
    /// that a loop over the chunks checks no bounds.
    ///
    /// # Panics
    /// If the field ends before.
    #[inline(always)]
    #[must_use]
    pub fn rows(&self, i: usize, j: usize, k: usize, count: usize) -> RowChunks<'_, M> {
        let at = self.layout.point(i, j, k);
        let values = self.values();
        let mut rows: RowChunks<'_, M> = [&[]; M];
        for (m, row) in rows.iter_mut().enumerate() {
            *row = &values[at + m * self.layout.row..].as_chunks().0[..count];
        }
        rows
    }

    /// The rows from (`i`, `j`, `k`) on, in `count` chunks of eight, to change them.
    ///
    /// # Panics
    /// If the row ends before.
    #[inline(always)]
    pub fn rows_mut(
        &mut self,
        i: usize,
        j: usize,
        k: usize,
        count: usize,
    ) -> [&mut [[f64; LANES]]; M] {
        let (at, row) = (self.layout.point(i, j, k), self.layout.row);
        let last = M - 1;
        let mut rest = &mut self.values_mut()[at..][..last * row + count * LANES];
        [(); M].map(|()| {
            let len = row.min(rest.len());
            let (here, after) = std::mem::take(&mut rest).split_at_mut(len);
            rest = after;
            &mut here.as_chunks_mut().0[..count]
        })
    }

    /// Point `i` of eight rows as lanes: lane l is at (`i`, `rows[l].0`, `rows[l].1`).
    #[inline(always)]
    #[must_use]
    pub fn load_across(&self, i: usize, rows: &Rows) -> Lanes<M> {
        let mut point = [F64x8::default(); M];
        let values = self.values();
        for (m, lanes) in point.iter_mut().enumerate() {
            for (lane, (j, k)) in lanes.0.iter_mut().zip(rows.jk) {
                *lane = values[self.layout.at(i, j, k, m)];
            }
        }
        point
    }

    /// Points `i..i + 8` of eight rows, with one row a lane: an 8x8 transposition for each
    /// component. `points[s]` becomes point `i + s`.
    #[inline(always)]
    pub fn load_across_8<const FMA: bool>(&self, i: usize, rows: &Rows, points: &mut [Lanes<M>]) {
        let values = self.values();
        for m in 0..M {
            let mut block = [&[0.0; LANES]; LANES];
            for (row, (j, k)) in block.iter_mut().zip(rows.jk) {
                *row = eight(values, self.layout.at(i, j, k, m));
            }
            for (point, lanes) in points[..LANES].iter_mut().zip(&transpose::<FMA>(block)) {
                point[m].0 = *lanes;
            }
        }
    }

    /// The way back: sets points `i..i + count` (at most 8) of the rows that lanes have.
    #[inline(always)]
    pub fn store_across_8<const FMA: bool>(
        &mut self,
        i: usize,
        count: usize,
        rows: &Rows,
        points: &[Lanes<M>],
    ) {
        let layout = self.layout;
        let values = self.values_mut();
        for m in 0..M {
            let mut block = [&[0.0; LANES]; LANES];
            for (row, point) in block.iter_mut().zip(points) {
                *row = &point[m].0;
            }
            for (l, lanes) in transpose::<FMA>(block).iter().enumerate() {
                if (rows.first..rows.end).contains(&l) {
                    let (j, k) = rows.jk[l];
                    store_first(F64x8(*lanes), count, &mut values[layout.at(i, j, k, m)..]);
                }
            }
        }
    }
}

/// A row of each component, in chunks of eight.
pub type RowChunks<'a, const M: usize> = [&'a [[f64; LANES]]; M];

/// Eight rows whose points are lanes of the x sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// (j, k) of each row, in local indices. Lanes before `first` and from `end` on have no row of their own; what
    /// stands there is some row that exists.
    pub jk: [(usize, usize); LANES],
    /// The first lane with a row.
    pub first: usize,
    /// The end of the lanes with a row.
    pub end: usize,
}

impl Rows {
    /// The rows j, j + 1, ... at `k`, as far as they are below `end`.
    ///
    /// # Panics
    /// If `j` is not below `end`.
    #[inline(always)]
    #[must_use]
    pub fn from(j: usize, end: usize, k: usize) -> Self {
        assert!(j < end, "no row left");
        let mut jk = [(j, k); LANES];
        for (l, (j, _)) in jk.iter_mut().enumerate() {
            *j = (*j + l).min(end - 1);
        }
        Self {
            jk,
            first: 0,
            end: (end - j).min(LANES),
        }
    }
}

/// Chunks of eight that cover `range`: the first index of each and how many of the eight belong
/// to the range.
#[inline(always)]
pub fn chunks(range: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let end = range.end;
    range.step_by(LANES).map(move |i| (i, (end - i).min(LANES)))
}

/// Writes the first `count` lanes.
#[inline(always)]
fn store_first(lanes: F64x8, count: usize, to: &mut [f64]) {
    if count >= LANES {
        lanes.store(to);
    } else {
        to[..count].copy_from_slice(&lanes.0[..count]);
    }
}

/// The eight numbers from `at` on.
#[inline(always)]
fn eight(values: &[f64], at: usize) -> &[f64; LANES] {
    match values[at..].first_chunk() {
        Some(chunk) => chunk,
        // The position would be kept in memory just to be told here.
        None => panic!("the field has no eight numbers from here on"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(size: [usize; 3], first_interior: usize) -> Field<2> {
        let mut field = Field::new(Layout::new(size, first_interior), [-1.0, -2.0]).unwrap();
        for k in 0..size[2] + 4 {
            for j in 0..size[1] + 4 {
                for i in 0..size[0] + 4 {
                    let number = (i + 100 * (j + 100 * k)) as f64;
                    field.set(i, j, k, [number, number + 0.5]);
                }
            }
        }
        field
    }

    #[test]
    fn points_are_kept_apart() {
        let field = numbered([5, 3, 4], 3);
        for k in 0..8 {
            for j in 0..7 {
                for i in 0..9 {
                    let number = (i + 100 * (j + 100 * k)) as f64;
                    assert_eq!(field.get(i, j, k), [number, number + 0.5]);
                }
            }
        }
    }

    #[test]
    fn a_new_field_is_filled_everywhere() {
        let field = Field::new(Layout::new([5, 4, 6], 3), [1.0, 2.0]).unwrap();
        for k in 0..10 {
            for j in 0..8 {
                for i in 0..9 {
                    assert_eq!(field.get(i, j, k), [1.0, 2.0], "{i} {j} {k}");
                }
            }
        }
    }

    #[test]
    fn first_interior_points_are_aligned_and_the_last_chunk_is_within() {
        for first in [2, 3] {
            for nx in 3..30 {
                let field = Field::<5>::new(Layout::new([nx, 3, 3], first), [0.0; 5]).unwrap();
                assert_eq!(field.values().as_ptr() as usize % 64, 0);
                for m in 0..5 {
                    assert_eq!(field.layout().at(first, 1, 2, m) % LANES, 0);
                }
                // Reads the last chunk, reaching two points further, of the last row.
                let last = chunks(first..nx + GHOST).last().unwrap().0;
                assert!(field.layout().at(last, 6, 6, 4) + LANES <= field.values().len());
                assert!(field.layout().line() / LANES % 2 == 1);
                assert!(field.layout().plane() / LANES % 2 == 1);
            }
        }
    }

    #[test]
    fn lanes_run_along_the_row() {
        let mut field = numbered([9, 3, 3], 2);
        let lanes = field.load(3, 4, 5);
        assert_eq!(lanes[0].0[7], 50410.0);
        assert_eq!(lanes[1].0[0], 50403.5);
        field.store(4, 4, 5, 3, &lanes);
        assert_eq!(field.get(6, 4, 5), [50405.0, 50405.5]);
        assert_eq!(field.get(7, 4, 5), [50407.0, 50407.5]);
    }

    #[test]
    fn lanes_run_across_rows_and_back() {
        let field = numbered([16, 11, 3], 2);
        let rows = Rows::from(2, 13, 3);
        assert_eq!((rows.first, rows.end), (0, 8));
        let mut points = [[F64x8::default(); 2]; 8];
        field.load_across_8::<true>(2, &rows, &mut points);
        for (s, point) in points.iter().enumerate() {
            assert_eq!(*point, field.load_across(2 + s, &rows));
            for l in 0..LANES {
                assert_eq!(point.map(|m| m.0[l]), field.get(2 + s, 2 + l, 3));
            }
        }
        let mut back = Field::new(*field.layout(), [0.0; 2]).unwrap();
        back.store_across_8::<true>(2, 5, &rows, &points);
        assert_eq!(back.get(6, 9, 3), field.get(6, 9, 3));
        assert_eq!(back.get(7, 9, 3), [0.0; 2]);
        assert_eq!(back.get(2, 10, 3), [0.0; 2]);
    }

    #[test]
    fn missing_rows_repeat_the_last_and_are_not_written() {
        let rows = Rows::from(10, 13, 4);
        assert_eq!((rows.first, rows.end), (0, 3));
        assert_eq!(rows.jk[2..], [(12, 4); 6]);
        let mut field = numbered([16, 11, 3], 2);
        let before = field.get(2, 12, 4);
        let mut points = [[F64x8::default(); 2]; 8];
        field.load_across_8::<true>(2, &rows, &mut points);
        points[0][0].0[2] = 7.0;
        points[0][0].0[3] = 8.0;
        field.store_across_8::<true>(2, 8, &rows, &points);
        assert_eq!(field.get(2, 12, 4), [7.0, before[1]]);
    }

    #[test]
    fn chunks_cover_the_range() {
        let all: Vec<_> = chunks(3..20).collect();
        assert_eq!(all, [(3, 8), (11, 8), (19, 1)]);
        assert_eq!(chunks(4..4).count(), 0);
    }
}

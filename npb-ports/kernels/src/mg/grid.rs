//! A PE's block of one level: cells, one layer of ghosts around them, and how they lie in memory.
//!
//! Cells are numbered from 1 along each axis; 0 and n + 1 are ghosts, copies of the neighbours'
//! cells. x is contiguous. A row begins with a cache line of which only the last number is in
//! use, the lower ghost, so that cells begin on a line of their own; the upper ghost lies in the
//! line where the next row begins. Numbers that are neither cell nor ghost stay 0.

use crate::array::Array;
use crate::simd::LANES;
use std::io;
use std::ops::Range;

/// Sizes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Cells along x, y and z, without ghosts.
    pub cells: [usize; 3],
    /// Numbers from one row to the next; a multiple of [`LANES`].
    pub row: usize,
    /// Numbers from one plane to the next; a multiple of [`LANES`].
    pub plane: usize,
}

impl Shape {
    /// The layout of a block of so many cells.
    #[must_use]
    pub fn new(cells: [usize; 3]) -> Self {
        let row = (cells[0].max(1)).next_multiple_of(LANES) + LANES;
        Self {
            cells,
            row,
            plane: (cells[1] + 2) * row + LANES,
        }
    }

    /// Numbers of the whole block.
    #[must_use]
    pub fn words(&self) -> usize {
        self.plane * (self.cells[2] + 2)
    }

    /// Row `j` in a plane, with ghosts.
    #[inline(always)]
    #[must_use]
    pub fn with_ghosts(&self, j: usize) -> Range<usize> {
        let start = j * self.row + LANES - 1;
        start..start + self.cells[0] + 2
    }

    /// Row `j` in a plane, without ghosts. It begins at a multiple of [`LANES`].
    #[inline(always)]
    #[must_use]
    pub fn interior(&self, j: usize) -> Range<usize> {
        let start = j * self.row + LANES;
        start..start + self.cells[0]
    }

    /// Row `j` in a plane, with ghosts and the unused numbers around them: whole lines.
    #[inline(always)]
    #[must_use]
    pub fn lines(&self, j: usize) -> Range<usize> {
        j * self.row..(j + 1) * self.row + LANES
    }

    /// The cells of a block between `from` and `to` (excluded) along `axis`. Along axes that come
    /// before it ghosts belong to the box, along later ones they do not.
    #[must_use]
    pub fn layers(&self, axis: usize, layers: Range<usize>) -> [Range<usize>; 3] {
        std::array::from_fn(|other| match other.cmp(&axis) {
            std::cmp::Ordering::Less => 0..self.cells[other] + 2,
            std::cmp::Ordering::Equal => layers.clone(),
            std::cmp::Ordering::Greater => 1..self.cells[other] + 1,
        })
    }
}

/// Copies the cells at the ends of each axis x and y of a plane into the ghosts at its other end:
/// what an exchange does along an axis where the PE is its own neighbour.
#[inline(always)]
pub fn wrap_plane(shape: &Shape, plane: &mut [f64]) {
    let rows = shape.cells[1];
    for j in 1..=rows {
        let row = &mut plane[shape.with_ghosts(j)];
        let last = row.len() - 1;
        row[0] = row[last - 1];
        row[last] = row[1];
    }
    let start = |j| shape.with_ghosts(j).start;
    plane.copy_within(shape.with_ghosts(rows), start(0));
    plane.copy_within(shape.with_ghosts(1), start(rows + 1));
}

/// One number for each cell and ghost of a block.
#[derive(Debug)]
pub struct Field {
    shape: Shape,
    words: Array,
}

impl Field {
    /// All zero.
    ///
    /// # Errors
    /// If the system has no address space for it.
    pub fn new(shape: Shape) -> io::Result<Self> {
        Ok(Self {
            shape,
            words: Array::new(shape.words())?,
        })
    }

    /// Its sizes.
    #[inline]
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Plane `k`.
    #[inline]
    #[must_use]
    pub fn plane(&self, k: usize) -> &[f64] {
        &self.words[k * self.shape.plane..][..self.shape.plane]
    }

    /// Plane `k`, for writing.
    #[inline]
    pub fn plane_mut(&mut self, k: usize) -> &mut [f64] {
        &mut self.words[k * self.shape.plane..][..self.shape.plane]
    }

    /// The planes before, at and after `k`.
    #[inline]
    #[must_use]
    pub fn around(&self, k: usize) -> [&[f64]; 3] {
        [self.plane(k - 1), self.plane(k), self.plane(k + 1)]
    }

    /// Copies plane `from` to plane `to`.
    pub fn copy_plane(&mut self, from: usize, to: usize) {
        let plane = self.shape.plane;
        self.words
            .copy_within(from * plane..(from + 1) * plane, to * plane);
    }

    /// Sets everything to 0.
    pub fn clear(&mut self) {
        self.words.fill(0.0);
    }

    /// Appends the cells of a box to `message`, x fastest.
    pub fn pack(&self, [x, y, z]: [Range<usize>; 3], message: &mut Vec<f64>) {
        for k in z {
            let plane = self.plane(k);
            for j in y.clone() {
                message.extend_from_slice(&plane[self.shape.with_ghosts(j)][x.clone()]);
            }
        }
    }

    /// Sets the cells of a box to what [`Field::pack`] wrote.
    ///
    /// # Panics
    /// If `message` is shorter than the box.
    pub fn unpack(&mut self, [x, y, z]: [Range<usize>; 3], message: &[f64]) {
        let shape = self.shape;
        let mut rows = message.chunks_exact(x.len());
        for k in z {
            let plane = self.plane_mut(k);
            for j in y.clone() {
                let row = rows.next().expect("a message as large as the box");
                plane[shape.with_ghosts(j)][x.clone()].copy_from_slice(row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_do_not_overlap_and_cells_are_aligned() {
        for n in [0, 1, 2, 4, 7, 8, 16, 32] {
            let shape = Shape::new([n, 3, 2]);
            for j in 0..5 {
                assert!(shape.with_ghosts(j).end <= shape.with_ghosts(j + 1).start);
                assert!(shape.interior(j).start.is_multiple_of(LANES));
                assert!(shape.lines(j).end <= shape.plane || j == 5);
                assert!(shape.lines(j).len() > n + LANES);
            }
            let field = Field::new(shape).unwrap();
            assert_eq!(field.plane(1).as_ptr().align_offset(64), 0);
        }
    }

    #[test]
    fn boxes_travel() {
        let shape = Shape::new([4, 3, 2]);
        let mut from = Field::new(shape).unwrap();
        for k in 0..4 {
            for j in 0..5 {
                for (i, x) in from.plane_mut(k)[shape.with_ghosts(j)]
                    .iter_mut()
                    .enumerate()
                {
                    *x = (100 * k + 10 * j + i) as f64;
                }
            }
        }
        let mut message = Vec::new();
        from.pack(shape.layers(1, 3..4), &mut message);
        assert_eq!(message.len(), 6 * 2);
        assert_eq!((message[0], message[11]), (130.0, 235.0));
        let mut to = Field::new(shape).unwrap();
        to.unpack(shape.layers(1, 0..1), &message);
        assert_eq!(to.plane(2)[shape.with_ghosts(0)], message[6..]);
        assert_eq!(to.plane(2)[shape.with_ghosts(1)], [0.0; 6]);
    }

    #[test]
    fn a_plane_wraps_around() {
        let shape = Shape::new([2, 2, 1]);
        let mut plane = vec![0.0; shape.plane];
        plane[shape.interior(1)].copy_from_slice(&[1.0, 2.0]);
        plane[shape.interior(2)].copy_from_slice(&[3.0, 4.0]);
        wrap_plane(&shape, &mut plane);
        assert_eq!(plane[shape.with_ghosts(0)], [4.0, 3.0, 4.0, 3.0]);
        assert_eq!(plane[shape.with_ghosts(1)], [2.0, 1.0, 2.0, 1.0]);
        assert_eq!(plane[shape.with_ghosts(3)], [2.0, 1.0, 2.0, 1.0]);
    }
}

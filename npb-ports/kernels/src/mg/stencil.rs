//! The operators that stay on a level: the residual and the smoother.
//!
//! Both are a 27-cell stencil whose weight depends on the distance class only: centre, 6 faces,
//! 12 edges, 8 corners. Seen along a row of cells, a stencil needs three rows of sums across it:
//!
//! * the cells themselves: c,
//! * f, the sum of the 4 rows beside it,
//! * e, the sum of the 4 rows diagonal to it,
//!
//! and the result at i is
//!
//! > centre c(i) + face f(i) + edge e(i) + w(i - 1) + w(i + 1), with w = face c + edge f + corner e.
//!
//! So each cell is read a few times instead of 27, and the only numbers that are needed beside
//! their place are those of the one row w. The planes before and after are added first, and a
//! row of those sums serves the rows above and below it, too.

use super::grid::Shape;
use crate::array::Array;
use crate::cpu::{Kernel, Level, prefetch_row};
use crate::simd::{F64x8, LANES};
use std::io;

/// Weights of a stencil by distance from the cell in its middle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Of the cell itself.
    pub centre: f64,
    /// Of the 6 cells that share a face with it.
    pub face: f64,
    /// Of the 12 that share an edge.
    pub edge: f64,
    /// Of the 8 that share a corner.
    pub corner: f64,
}

impl Weights {
    fn negated(self) -> Self {
        Self {
            centre: -self.centre,
            face: -self.face,
            edge: -self.edge,
            corner: -self.corner,
        }
    }
}

/// The operator A, whose residual v - A u the cycles reduce: a discrete Laplacian. (Faces do not
/// count.)
pub const LAPLACIAN: Weights = Weights {
    centre: -8.0 / 3.0,
    face: 0.0,
    edge: 1.0 / 6.0,
    corner: 1.0 / 12.0,
};

/// Rows in which sums are kept; they stay in the first-level cache.
#[derive(Debug)]
pub struct Scratch {
    words: Array,
}

impl Scratch {
    /// Rows that a kernel works with.
    pub(super) const ROWS: usize = 5;

    /// For blocks up to the size of `shape`.
    ///
    /// # Errors
    /// If the system has no address space for it.
    pub fn new(shape: &Shape) -> io::Result<Self> {
        let words = Array::new(Self::ROWS * shape.lines(0).len())?;
        Ok(Self { words })
    }

    #[inline(always)]
    pub(super) fn rows(&mut self, len: usize) -> [&mut [f64]; Self::ROWS] {
        let mut rows = self.words.chunks_exact_mut(len);
        std::array::from_fn(|_| rows.next().expect("scratch for this block"))
    }
}

/// What a stencil is added to.
#[derive(Clone, Copy, Debug)]
pub enum Base<'a> {
    /// The plane it is written to.
    InPlace,
    /// This plane.
    Of(&'a [f64]),
}

/// What is done along the way through a plane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aside<'a> {
    /// Whether the squares of the result are summed.
    pub squares: bool,
    /// A plane to fetch from memory meanwhile, for later.
    pub ahead: Option<&'a [f64]>,
}

/// r = v - A u in one plane, where A is [`LAPLACIAN`], `u` are the planes before, at and after it,
/// and v is `base`. Returns the sum of the squares of r if that is asked for, else 0.
///
/// # Panics
/// If a plane is shorter than that of `shape`, or the scratch is for smaller ones.
pub fn residual(
    level: Level,
    shape: &Shape,
    r: &mut [f64],
    base: Base<'_>,
    u: [&[f64]; 3],
    aside: Aside<'_>,
    scratch: &mut Scratch,
) -> f64 {
    level.run(Plane::<false, true> {
        shape,
        weights: LAPLACIAN.negated(),
        out: r,
        base,
        field: u,
        aside,
        scratch,
    })
}

/// u = u + S r in one plane, where S is `weights`, which has no corners, and `r` are the planes
/// before, at and after it.
///
/// # Panics
/// As [`residual`].
pub fn smooth(
    level: Level,
    shape: &Shape,
    weights: &Weights,
    u: &mut [f64],
    r: [&[f64]; 3],
    aside: Aside<'_>,
    scratch: &mut Scratch,
) {
    level.run(Plane::<true, false> {
        shape,
        weights: *weights,
        out: u,
        base: Base::InPlace,
        field: r,
        aside,
        scratch,
    });
}

/// A stencil applied to the cells of a plane. `FACE` and `CORNER` say which weights are not 0. The
/// sum of the squares is that of the result, or 0 if it is not asked for.
struct Plane<'a, const FACE: bool, const CORNER: bool> {
    shape: &'a Shape,
    weights: Weights,
    out: &'a mut [f64],
    base: Base<'a>,
    field: [&'a [f64]; 3],
    aside: Aside<'a>,
    scratch: &'a mut Scratch,
}

impl<const FACE: bool, const CORNER: bool> Kernel for Plane<'_, FACE, CORNER> {
    type Output = f64;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        let shape = self.shape;
        let [below, middle, above] = self.field;
        let len = shape.lines(0).len();
        let [mut s_lower, mut s, mut s_upper, along, across] = self.scratch.rows(len);
        add(s_lower, &below[shape.lines(0)], &above[shape.lines(0)]);
        add(s, &below[shape.lines(1)], &above[shape.lines(1)]);
        let mut sum = 0.0;
        for j in 1..=shape.cells[1] {
            if let Some(ahead) = self.aside.ahead {
                prefetch_row(&ahead[shape.lines(j)]);
            }
            let base = match self.base {
                Base::InPlace => &self.out[shape.lines(j)],
                Base::Of(base) => &base[shape.lines(j)],
            };
            sums::<FMA, FACE, CORNER>(
                &self.weights,
                [&mut *along, &mut *across, &mut *s_upper],
                base,
                [s_lower, s],
                [j - 1, j, j + 1].map(|j| &middle[shape.lines(j)]),
                [below, above].map(|plane| &plane[shape.lines(j + 1)]),
            );
            let out = &mut self.out[shape.interior(j)];
            add_beside(out, along, across);
            if self.aside.squares {
                sum += square_sum::<FMA>(out);
            }
            (s_lower, s, s_upper) = (s, s_upper, s_lower);
        }
        sum
    }
}

#[inline(always)]
fn chunks(row: &[f64]) -> &[[f64; LANES]] {
    row.as_chunks().0
}

#[inline(always)]
fn chunks_mut(row: &mut [f64]) -> &mut [[f64; LANES]] {
    row.as_chunks_mut().0
}

#[inline(always)]
fn add(out: &mut [f64], a: &[f64], b: &[f64]) {
    for ((out, a), b) in chunks_mut(out).iter_mut().zip(chunks(a)).zip(chunks(b)) {
        *out = (F64x8(*a) + F64x8(*b)).0;
    }
}

/// One row of sums: `base` and the part of the result that is due to the same i into `along`, w
/// into `across`, and the sum of the planes below and above for the next row into `s_upper`.
#[inline(always)]
fn sums<const FMA: bool, const FACE: bool, const CORNER: bool>(
    weights: &Weights,
    [along, across, s_upper]: [&mut [f64]; 3],
    base: &[f64],
    [s_lower, s]: [&[f64]; 2],
    [lower, middle, upper]: [&[f64]; 3],
    [below, above]: [&[f64]; 2],
) {
    let [centre, face, edge, corner] =
        [weights.centre, weights.face, weights.edge, weights.corner].map(F64x8::splat);
    let (along, across) = (chunks_mut(along), chunks_mut(across));
    let count = along.len();
    let (across, s_upper) = (&mut across[..count], &mut chunks_mut(s_upper)[..count]);
    let (s_lower, s) = (&chunks(s_lower)[..count], &chunks(s)[..count]);
    let (lower, middle) = (&chunks(lower)[..count], &chunks(middle)[..count]);
    let (upper, base) = (&chunks(upper)[..count], &chunks(base)[..count]);
    let (below, above) = (&chunks(below)[..count], &chunks(above)[..count]);
    for c in 0..count {
        let sum = F64x8(below[c]) + F64x8(above[c]);
        s_upper[c] = sum.0;
        let cell = F64x8(middle[c]);
        let faces = (F64x8(lower[c]) + F64x8(upper[c])) + F64x8(s[c]);
        let edges = F64x8(s_lower[c]) + sum;
        let mut here = centre.mul_add::<FMA>(cell, F64x8(base[c]));
        let mut beside = edge * faces;
        if FACE {
            here = face.mul_add::<FMA>(faces, here);
            beside = face.mul_add::<FMA>(cell, beside);
        }
        if CORNER {
            beside = corner.mul_add::<FMA>(edges, beside);
        }
        along[c] = edge.mul_add::<FMA>(edges, here).0;
        across[c] = beside.0;
    }
}

/// Adds to the cells of `along` those of `across` beside them.
#[inline(always)]
fn add_beside(out: &mut [f64], along: &[f64], across: &[f64]) {
    let n = out.len();
    let along = &along[LANES..][..n];
    let (left, right) = (&across[LANES - 1..][..n], &across[LANES + 1..][..n]);
    for i in 0..n {
        out[i] = along[i] + (left[i] + right[i]);
    }
}

#[inline(always)]
fn square_sum<const FMA: bool>(row: &[f64]) -> f64 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut sum = F64x8::splat(0.0);
    for chunk in chunks {
        sum = F64x8(*chunk).mul_add::<FMA>(F64x8(*chunk), sum);
    }
    sum.0.iter().sum::<f64>() + rest.iter().map(|x| x * x).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A of a constant is 0, so the weights of all 27 cells add up to 0.
    #[test]
    fn the_operator_ignores_constants() {
        let Weights {
            centre,
            face,
            edge,
            corner,
        } = LAPLACIAN;
        assert!((centre + 6.0 * face + 12.0 * edge + 8.0 * corner).abs() < 1e-15);
    }
}

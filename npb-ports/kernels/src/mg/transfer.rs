//! The operators between a level and the one below it: restriction and interpolation.
//!
//! Both are products of the same one-dimensional rule along z, y and x: a fine cell at an even
//! position lies on a coarse cell, one at an odd position half-way between two. `shift` is what
//! takes a cell's number in its block to its position.

use super::grid::Shape;
use super::stencil::Scratch;
use crate::cpu::{Kernel, Level};
use crate::simd::{F64x8, LANES};

/// The two blocks that an operator goes between.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The block of the finer level.
    pub fine: &'a Shape,
    /// That of the coarser level.
    pub coarse: &'a Shape,
    /// Position of fine cell 0 along each axis.
    pub shift: [usize; 3],
}

impl Pair<'_> {
    /// Number of the fine cell that lies on coarse cell `c`.
    #[must_use]
    pub fn centre(&self, axis: usize, c: usize) -> usize {
        2 * c - self.shift[axis]
    }

    /// The coarse cells that fine cell `f` is the mean of; the same twice if it lies on one.
    #[must_use]
    pub fn parents(&self, axis: usize, f: usize) -> [usize; 2] {
        let position = f + self.shift[axis];
        [position / 2, position.div_ceil(2)]
    }

    /// Whether rows double, which they do where nobody drops out.
    fn doubles(&self) -> bool {
        self.shift[0] == 0 && self.fine.cells[0] == 2 * self.coarse.cells[0]
    }
}

/// Restricts one plane: each cell of `out` becomes the weighted mean of the 27 around it in the
/// planes `fine` before, at and after its [`Pair::centre`], with weight 1/2 for the cell in the
/// middle, 1/4 for a face, 1/8 for an edge and 1/16 for a corner.
///
/// # Panics
/// If a plane is shorter than its shape says, or the scratch is for smaller ones.
pub fn restrict(
    level: Level,
    pair: Pair<'_>,
    out: &mut [f64],
    fine: [&[f64]; 3],
    scratch: &mut Scratch,
) {
    level.run(Restrict {
        pair,
        out,
        fine,
        scratch,
    });
}

/// Interpolates one plane, ghosts and all, from the `coarse` planes it is the mean of (twice the
/// same for one that lies on a coarse plane). Adds to `out` if `add` is set, else replaces it.
///
/// # Panics
/// As [`restrict`].
pub fn interpolate(
    level: Level,
    add: bool,
    pair: Pair<'_>,
    out: &mut [f64],
    coarse: [&[f64]; 2],
    scratch: &mut Scratch,
) {
    let plane = Plane {
        pair,
        out,
        coarse,
        scratch,
    };
    match add {
        true => level.run(Interpolate::<true>(plane)),
        false => level.run(Interpolate::<false>(plane)),
    }
}

struct Restrict<'a> {
    pair: Pair<'a>,
    out: &'a mut [f64],
    fine: [&'a [f64]; 3],
    scratch: &'a mut Scratch,
}

impl Kernel for Restrict<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Pair { fine, coarse, .. } = self.pair;
        let [mut lower, mut upper, sum, _, _] = self.scratch.rows(fine.lines(0).len());
        let rows = |j: usize| self.fine.map(|plane| &plane[fine.lines(j)]);
        blend::<FMA>(upper, rows(self.pair.centre(1, 1) - 1));
        for j in 1..=coarse.cells[1] {
            let centre = self.pair.centre(1, j);
            (lower, upper) = (upper, lower);
            blend::<FMA>(upper, rows(centre + 1));
            blend_onto::<FMA>(sum, rows(centre), [lower, upper]);
            let sum = &sum[LANES - 1..];
            let out = &mut self.out[coarse.interior(j)];
            if self.pair.doubles() {
                halve(out, sum);
            } else {
                for (c, out) in out.iter_mut().enumerate() {
                    let at = self.pair.centre(0, c + 1);
                    *out = 0.5 * sum[at] + 0.25 * (sum[at - 1] + sum[at + 1]);
                }
            }
        }
    }
}

#[inline(always)]
fn chunks(row: &[f64]) -> &[[f64; LANES]] {
    row.as_chunks().0
}

/// The middle row and half the sum of the others.
#[inline(always)]
fn blended<const FMA: bool>(half: F64x8, rows: [&[f64; LANES]; 3]) -> F64x8 {
    let [a, middle, b] = rows.map(|row| F64x8(*row));
    half.mul_add::<FMA>(a + b, middle)
}

#[inline(always)]
fn blend<const FMA: bool>(out: &mut [f64], rows: [&[f64]; 3]) {
    let out = out.as_chunks_mut().0;
    let count = out.len();
    let [a, b, c] = rows.map(|row| &chunks(row)[..count]);
    let half = F64x8::splat(0.5);
    for i in 0..count {
        out[i] = blended::<FMA>(half, [&a[i], &b[i], &c[i]]).0;
    }
}

/// The same along y, where the middle row has yet to be blended along z.
#[inline(always)]
fn blend_onto<const FMA: bool>(out: &mut [f64], rows: [&[f64]; 3], beside: [&[f64]; 2]) {
    let out = out.as_chunks_mut().0;
    let count = out.len();
    let [a, b, c] = rows.map(|row| &chunks(row)[..count]);
    let [lower, upper] = beside.map(|row| &chunks(row)[..count]);
    let half = F64x8::splat(0.5);
    for i in 0..count {
        let middle = blended::<FMA>(half, [&a[i], &b[i], &c[i]]);
        out[i] = blended::<FMA>(half, [&lower[i], &middle.0, &upper[i]]).0;
    }
}

/// Half of what the same rule gives along x. `row` begins with the lower ghost.
#[inline(always)]
fn halve(out: &mut [f64], row: &[f64]) {
    let n = out.len();
    let (odd_even, next) = (&row[1..][..2 * n], &row[3..][..2 * n - 1]);
    let pairs = odd_even.as_chunks::<2>().0;
    for (i, out) in out.iter_mut().enumerate() {
        *out = 0.5 * pairs[i][1] + 0.25 * (pairs[i][0] + next[2 * i]);
    }
}

/// Keeps the compiler from taking a loop over chunks for one to make vector code of: its body is
/// already, and several bodies at once would need gathers and scatters, which cost four times as
/// much.
#[inline(always)]
fn apart() {
    std::hint::black_box(());
}

/// A plane to be interpolated.
struct Plane<'a> {
    pair: Pair<'a>,
    out: &'a mut [f64],
    coarse: [&'a [f64]; 2],
    scratch: &'a mut Scratch,
}

/// Interpolation that adds, or replaces.
struct Interpolate<'a, const ADD: bool>(Plane<'a>);

impl<const ADD: bool> Kernel for Interpolate<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self(Plane {
            pair,
            out,
            coarse: planes,
            scratch,
        }) = self;
        let Pair { fine, coarse, .. } = pair;
        let [mean, ..] = scratch.rows(coarse.lines(0).len());
        let [below, above] = planes;
        for j in 0..fine.cells[1] + 2 {
            let [lower, upper] = pair.parents(1, j).map(|j| coarse.lines(j));
            mean_of(
                mean,
                [
                    &below[lower.clone()],
                    &below[upper.clone()],
                    &above[lower],
                    &above[upper],
                ],
            );
            let mean = &mean[LANES - 1..][..coarse.cells[0] + 2];
            let out = &mut out[fine.with_ghosts(j)];
            if pair.doubles() {
                double::<ADD>(out, mean);
            } else {
                for (f, out) in out.iter_mut().enumerate() {
                    let [left, right] = pair.parents(0, f);
                    put::<ADD>(out, 0.5 * (mean[left] + mean[right]));
                }
            }
        }
    }
}

#[inline(always)]
fn mean_of(out: &mut [f64], rows: [&[f64]; 4]) {
    let n = out.len();
    let [a, b, c, d] = rows.map(|row| &row[..n]);
    for i in 0..n {
        out[i] = 0.25 * ((a[i] + b[i]) + (c[i] + d[i]));
    }
}

#[inline(always)]
fn put<const ADD: bool>(out: &mut f64, value: f64) {
    *out = if ADD { *out + value } else { value };
}

/// The rule along x: each coarse cell goes to the fine one on it, means to those between. Both
/// rows have ghosts.
#[inline(always)]
fn double<const ADD: bool>(out: &mut [f64], row: &[f64]) {
    const COARSE: usize = LANES / 2;
    let last = out.len() - 1;
    let parent = |f: usize| 0.5 * (row[f / 2] + row[f.div_ceil(2)]);
    put::<ADD>(&mut out[0], parent(0));
    put::<ADD>(&mut out[last], parent(last));
    let (chunks, rest) = out[1..last].as_chunks_mut::<LANES>();
    let done = chunks.len() * LANES;
    for (c, out) in chunks.iter_mut().enumerate() {
        apart();
        let s: &[f64; COARSE + 1] = row[COARSE * c..]
            .first_chunk()
            .expect("half as many coarse cells, and ghosts");
        let left = [s[0], s[1], s[1], s[2], s[2], s[3], s[3], s[4]];
        let right = [s[1], s[1], s[2], s[2], s[3], s[3], s[4], s[4]];
        for ((out, left), right) in out.iter_mut().zip(left).zip(right) {
            put::<ADD>(out, 0.5 * (left + right));
        }
    }
    for (i, out) in rest.iter_mut().enumerate() {
        put::<ADD>(out, parent(done + i + 1));
    }
}

//! A sweep through a block of planes: eight points of eight planes at once.
//!
//! A sweep visits the points in an order in which each comes after its three neighbours on one
//! side (the lower sweep) or on the other (the upper one). Rows (j, k) with the same j + k do not
//! wait for each other. So the eight lanes of a vector are rows of eight planes, each one row behind
//! that of the plane before, and the sweep goes along them point by point:
//!
//! ```text
//!   step           0  1  2  3  4  5  6  7  8  ...
//!   plane 0, row   0  1  2  3  4  5  6  7  8
//!   plane 1, row      0  1  2  3  4  5  6  7
//!   plane 2, row         0  1  2  3  4  5  6
//! ```
//!
//! A point hands its products on ([`point`](super::point)): that along x to the next point of the same row, at
//! once; that along y to the next step, same lane; that along z to the next step, next lane. The
//! sum of the last two waits in `across`, which has one vector for each point of a row. The last lane gives its
//! product along z to the next block of planes, through `above`.
//!
//! Steps, rows and planes are counted in the order of the sweep, from its corner. Lanes without a row compute with zero, and so give nothing.
//!
//! # Messages
//!
//! What crosses from PE to PE is what waits. `across`, with what came in for row 0, at the end
//! holds what goes out behind the last row, since a lane keeps its part before its first row and after its
//! last. `along` has a vector for each step, with what comes in for the first points
//! of its rows, and then what goes out behind the last.

use super::params::OMEGA;
use super::point::{Equations, Primitive};
use crate::adi::constants::EQUATIONS;
use crate::adi::directions::{X, Y, Z};
use crate::adi::field::{Field, Rows};
use crate::adi::partition::Cell;
use crate::adi::scheme::Point;
use crate::cpu::{Kernel, Level};
use crate::simd::{F64x8, LANES};
use std::ops::Range;

/// Planes of a block, as many as lanes.
pub const PLANES: usize = LANES;

const ZERO: Point = [F64x8::splat(0.0); EQUATIONS];

/// The inner points of a PE, in the order of a sweep.
#[derive(Clone, Debug)]
pub struct Extent {
    i: Range<usize>,
    j: Range<usize>,
    k: Range<usize>,
}

impl Extent {
    /// The inner points of `cell`.
    #[must_use]
    pub fn of(cell: &Cell) -> Self {
        Self {
            i: cell.interior(X),
            j: cell.interior(Y),
            k: cell.interior(Z),
        }
    }

    /// Points of a row.
    #[must_use]
    pub fn points(&self) -> usize {
        self.i.len()
    }

    /// Rows of a plane.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.j.len()
    }

    /// Steps through a block.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.rows() + PLANES - 1
    }

    /// Blocks of planes.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.k.len().div_ceil(PLANES)
    }

    /// The local indices of the planes of `block` in the lower sweep.
    #[must_use]
    pub fn planes(&self, block: usize) -> Range<usize> {
        let start = self.k.start + block * PLANES;
        start..(start + PLANES).min(self.k.end)
    }

    /// The rows of `step` through `block`.
    #[inline(always)]
    fn rows_of<const LOWER: bool>(&self, block: usize, step: usize) -> Rows {
        let (rows, planes) = (self.j.len(), self.k.len());
        let mut jk = [(0, 0); LANES];
        for (lane, jk) in jk.iter_mut().enumerate() {
            let row = step.saturating_sub(lane).min(rows - 1);
            let plane = (block * PLANES + lane).min(planes - 1);
            *jk = if LOWER {
                (self.j.start + row, self.k.start + plane)
            } else {
                (self.j.end - 1 - row, self.k.end - 1 - plane)
            };
        }
        Rows {
            jk,
            first: (step + 1).saturating_sub(rows),
            end: (step + 1).min(planes - block * PLANES).min(LANES),
        }
    }
}

/// What waits between points, as a PE keeps it.
#[derive(Debug)]
pub struct Waiting {
    /// By point of a row: for the next step.
    across: Vec<Point>,
    /// By step: for the first points of its rows, then behind the last.
    along: Vec<Point>,
    /// By row and point: for the first plane of the next block. Two rows follow, one of zeros for the
    /// steps in which the first lane has no row, and one to write to when the last has none.
    above: Vec<[f64; EQUATIONS]>,
}

impl Waiting {
    /// Nothing.
    #[must_use]
    pub fn new(extent: &Extent) -> Self {
        Self {
            across: vec![ZERO; extent.points()],
            along: vec![ZERO; extent.steps()],
            above: vec![[0.0; EQUATIONS]; extent.points() * (extent.rows() + 2)],
        }
    }

    /// What goes to and comes from neighbours along `direction`, x or y.
    pub fn towards(&mut self, direction: usize) -> &mut [Point] {
        match direction {
            X => &mut self.along,
            _ => &mut self.across,
        }
    }

    /// Nothing again, before a sweep.
    pub fn reset(&mut self) {
        self.above.fill([0.0; EQUATIONS]);
    }
}

/// A block of planes in the lower or the upper sweep.
///
/// The lower sweep replaces the right-hand side by its solution. The upper one adds to that, and the
/// sum, by its factor, to the state; it leaves the right-hand side alone, since nobody needs the sum.
#[derive(Debug)]
pub struct Block<'a> {
    /// The coefficients.
    pub equations: &'a Equations,
    /// The points.
    pub extent: &'a Extent,
    /// Which block, in the order of the sweep.
    pub block: usize,
    /// The state.
    pub u: &'a mut Field<EQUATIONS>,
    /// The right-hand side.
    pub rhs: &'a mut Field<EQUATIONS>,
    /// What the points before have given, and what goes on.
    pub waiting: &'a mut Waiting,
}

impl Block<'_> {
    /// Goes through the block in the lower or the upper sweep, with the code for `level`.
    pub fn sweep(self, lower: bool, level: Level) {
        match lower {
            true => level.run(Sweep::<true>(self)),
            false => level.run(Sweep::<false>(self)),
        }
    }
}

/// The lower or the upper sweep through a block.
struct Sweep<'a, const LOWER: bool>(Block<'a>);

impl<const LOWER: bool> Kernel for Sweep<'_, LOWER> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Block {
            equations,
            extent,
            block,
            u,
            rhs,
            waiting,
        } = self.0;
        let (points, rows) = (extent.points(), extent.rows());
        let factor = F64x8::splat(1.0 / (OMEGA * (2.0 - OMEGA)));
        let (zeros, unused) = (rows, rows + 1);
        let (mut state, mut value) = ([ZERO; LANES], [ZERO; LANES]);
        add_above(&mut waiting.across, &waiting.above[..points]);
        for step in 0..extent.steps() {
            let lanes = extent.rows_of::<LOWER>(block, step);
            if lanes.first >= lanes.end {
                continue;
            }
            let (mut works, mut keeps) = (F64x8::splat(0.0), F64x8::splat(1.0));
            for lane in lanes.first..lanes.end {
                (works.0[lane], keeps.0[lane]) = (1.0, 0.0);
            }
            // Where the first lane goes next, and where the last is.
            let next = if step + 1 < rows { step + 1 } else { zeros };
            let last = if lanes.end == LANES {
                step + 1 - LANES
            } else {
                unused
            };
            let mut along = waiting.along[step];
            let groups = points.div_ceil(LANES);
            for group in 0..groups {
                let group = if LOWER { group } else { groups - 1 - group };
                let first = group * LANES;
                let count = (points - first).min(LANES);
                let i = extent.i.start + first;
                u.load_across_8::<FMA>(i, &lanes, &mut state);
                rhs.load_across_8::<FMA>(i, &lanes, &mut value);
                for s in 0..count {
                    let s = if LOWER { s } else { count - 1 - s };
                    let point = first + s;
                    let at = Primitive::new::<FMA>(&state[s]);
                    let across = &mut waiting.across[point];
                    let mut right = along;
                    for m in 0..EQUATIONS {
                        right[m] += across[m];
                        if LOWER {
                            right[m] += value[s][m];
                        }
                    }
                    let mut x = equations.solve::<FMA>(&at, &right);
                    for m in 0..EQUATIONS {
                        if !LOWER {
                            x[m] += value[s][m];
                        }
                        x[m] = x[m] * works;
                    }
                    let [to_x, to_y, to_z] = equations.products::<LOWER, FMA>(&at, &x);
                    along = to_x;
                    let from_above = waiting.above[next * points + point];
                    let above = &mut waiting.above[last * points + point];
                    for m in 0..EQUATIONS {
                        let sum = across[m].mul_add::<FMA>(keeps, to_y[m]);
                        across[m] = sum + shifted(to_z[m], from_above[m]);
                        above[m] = to_z[m].0[LANES - 1];
                    }
                    if LOWER {
                        value[s] = x;
                    } else {
                        for m in 0..EQUATIONS {
                            state[s][m] = x[m].mul_add::<FMA>(factor, state[s][m]);
                        }
                    }
                }
                if LOWER {
                    rhs.store_across_8::<FMA>(i, count, &lanes, &value);
                } else {
                    u.store_across_8::<FMA>(i, count, &lanes, &state);
                }
            }
            waiting.along[step] = along;
        }
    }
}

/// Adds what waits for the first plane to the first lane.
#[inline(always)]
fn add_above(across: &mut [Point], above: &[[f64; EQUATIONS]]) {
    for (across, above) in across.iter_mut().zip(above) {
        for (across, above) in across.iter_mut().zip(above) {
            across.0[0] += above;
        }
    }
}

/// Each lane's number in the next lane, `first` in the first.
#[inline(always)]
fn shifted(lanes: F64x8, first: f64) -> F64x8 {
    let [a, b, c, d, e, f, g, _] = lanes.0;
    F64x8([first, a, b, c, d, e, f, g])
}

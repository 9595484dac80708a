//! What a solver supplies: how one line of a cell is eliminated and substituted back.
//!
//! A scheme sees eight lines at once, one a lane, and only points that are not on the boundary
//! of the grid. It knows neither fields nor neighbours: `adi` gathers `u` and the right-hand
//! side of a line into scratch, calls the scheme, and puts the result back. The code for the
//! three directions is therefore the same, up to which momentum is the one along the line.
//!
//! # Boundary
//!
//! On the boundary of the grid the change of `u` is 0. That makes the boundary's rows of the
//! system x = 0, which need not be stored or eliminated: coefficients that multiply the unknown
//! of a boundary point drop out. So the state that a line starts with at the boundary is all
//! zeros, in both sweeps, and that is what a scheme is given there. It need not treat the
//! boundary specially but where its coefficients themselves depend on the position, as those of
//! the fourth-order dissipation do ([`Ends`]).
//!
//! # Lanes without a line
//!
//! In the last chunk of a range some lanes may hold no line. Their `u` is a plausible state (a
//! ghost, padding, or a copy of another line), their state from a neighbour is 0, and what comes
//! out of them is thrown away. A scheme need not know.

use super::constants::{Constants, EQUATIONS};
use crate::class::Class;
use crate::simd::F64x8;
use std::fmt::Debug;

/// `u`, or its right-hand side or change, at one point of eight lines.
pub type Point = [F64x8; EQUATIONS];

/// The definition of the benchmark for one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Points a side.
    pub n: usize,
    /// Time steps of the timed region.
    pub iterations: u32,
    /// Time step.
    pub dt: f64,
    /// The reference's residual norms.
    pub residual: [f64; EQUATIONS],
    /// The reference's error norms.
    pub error: [f64; EQUATIONS],
}

/// Which ends of a line, within this cell, are the boundary of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The point before the first one is on the boundary: the first two points are points 1 and
    /// 2 of the grid.
    pub low: bool,
    /// The point after the last one is on the boundary: the last two points are points n - 3 and
    /// n - 2 of the grid.
    pub high: bool,
}

/// Several numbers of eight lanes, as a message or scratch holds them; arrays are.
pub trait Pack: Copy + Debug + AsRef<[F64x8]> + AsMut<[F64x8]> {
    /// All zero.
    const ZERO: Self;
    /// How many.
    const LEN: usize;
}

impl<const N: usize> Pack for [F64x8; N] {
    const ZERO: Self = [F64x8::splat(0.0); N];
    const LEN: usize = N;
}

/// An implicit solver: factors one direction after the other into independent lines.
///
/// A step is, for x, y and z in turn: [`forward`](Scheme::forward) along every line, through the
/// cells in order, then [`backward`](Scheme::backward) in opposite order; in the end
/// `u += change(u, rhs)`.
///
/// Methods must be `#[inline(always)]`, and what they call in loops, too: they are compiled into
/// the kernels of `adi` for the instruction set that is chosen at run time.
pub trait Scheme: Sized + Debug {
    /// The benchmark in capitals.
    const NAME: &'static str;

    /// What the forward sweep stores at each point for the backward sweep, besides the
    /// right-hand side. Up to the last cell of a line, that of several batches competes for the
    /// cache: keep it small.
    type Kept: Pack;

    /// What a cell needs of the cell before it in the forward sweep, for each line: the message.
    type Forward: Pack;

    /// What a cell needs of the cell after it in the backward sweep.
    type Backward: Pack;

    /// The definition of a class.
    fn params(class: Class) -> Params;

    /// Operations of the timed region by the definition of the benchmark.
    fn operations(params: &Params) -> f64;

    /// The scheme for these constants.
    fn new(constants: &Constants) -> Self;

    /// Eliminates along the points of one cell, in the order of increasing index. `DIRECTION` is
    /// [`X`](super::directions::X), `Y` or `Z`.
    ///
    /// * `u`: the state at the points, with one point more on each side (of the boundary or of
    ///   the next cell): `u[s + 1]` belongs to `rhs[s]`.
    /// * `rhs`: on entry dt times the right-hand side for x, and what the last sweep left for y
    ///   and z; on return the eliminated right-hand side, which `backward` is given.
    /// * `kept`: as long as `rhs`; whatever `backward` needs.
    /// * `carry`: on entry what the cell before returned in it, on return what the next cell
    ///   needs. Zero at the boundary of the grid.
    ///
    /// There are at least 2 points.
    fn forward<const DIRECTION: usize, const FMA: bool>(
        &self,
        ends: Ends,
        u: &[Point],
        rhs: &mut [Point],
        kept: &mut [Self::Kept],
        carry: &mut Self::Forward,
    );

    /// Substitutes back along the points of one cell, in the order of decreasing index.
    ///
    /// * `rhs`, `kept`: what `forward` left; on return `rhs` is the solution, with whatever the
    ///   scheme does to it between the directions.
    /// * `carry`: on entry what the next cell returned in it, on return what the cell before
    ///   needs. Zero at the boundary of the grid.
    fn backward<const DIRECTION: usize, const FMA: bool>(
        &self,
        rhs: &mut [Point],
        kept: &[Self::Kept],
        carry: &mut Self::Backward,
    );

    /// The change of `u`, from the solution of the last direction.
    #[inline(always)]
    #[must_use]
    fn change<const FMA: bool>(&self, _u: &Point, solution: Point) -> Point {
        solution
    }
}

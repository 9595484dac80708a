//! Block tridiagonal elimination along eight lines at a time.
//!
//! Forward, the equations of point i get the form x(i) + C(i) x(i+1) = r(i), by putting the same
//! form of point i - 1 into them. Backward, x(i) = r(i) - C(i) x(i+1). C, 25 numbers a point, is
//! what is kept between the sweeps; the blocks themselves are computed from `u` on the way.
//!
//! # Loops over lanes
//!
//! Every loop over lanes has the arithmetic of one line as its body, written with plain numbers,
//! and the compiler makes vector code of it. With eight rounds only it does so if it knows,
//! without a test at run time, that nothing that is written is read under another name. So:
//!
//! * A loop writes to local variables, or to one slice; then it reads no other slice.
//! * A local variable that is written is used at 30 places at most. (From 100 uses on, address
//!   computations included, LLVM gives up proving that nobody else has its address.) This is why
//!   one block is in two halves, and why flows and not blocks are carried from point to point.
//! * The compiler does not look through a choice among several origins of a slice. A [`black_box`] hides
//!   the origin, and what comes out of it is known not to be a local variable.
//!
//! Whether it worked shows in the rate only, fourfold.

use super::block::{
    Columns, FILLED_LEFT, FILLED_RIGHT, Reduced, Rows, Shape, UPPER, Vector, ZERO, entries, reduce,
    solve, subtract_product, unroll,
};
use super::jacobian::{Coefficients, Flow};
use super::params;
use crate::adi::constants::{Constants, EQUATIONS};
use crate::adi::directions::DIRECTIONS;
use crate::adi::scheme::{Ends, Params, Point, Scheme};
use crate::adi::sweep::{Sweep, Sweeps};
use crate::class::Class;
use crate::cpu::Level;
use crate::simd::{F64x8, LANES};
use std::hint::black_box;

const BLOCK: usize = EQUATIONS * EQUATIONS;

/// C at a point.
type Kept = [F64x8; BLOCK];

/// Numbers by `[row][column]` of eight lines.
type Lanes = [Point; EQUATIONS];

const NOTHING: Point = [F64x8::splat(0.0); EQUATIONS];

/// The solver of BT.
#[derive(Debug)]
pub struct Bt {
    coefficients: [Coefficients; DIRECTIONS],
}

/// The places of density, the momentum along the line, the two across, and energy.
const fn order(direction: usize) -> [usize; EQUATIONS] {
    let mut order = [0, 1, 2, 3, 4];
    order[1] = 1 + direction;
    order[1 + direction] = 1;
    order
}

impl Sweeps for Bt {
    fn sweep(sweep: Sweep<'_, Self>, direction: usize, level: Level) {
        sweep.run(direction, level);
    }
}

impl Scheme for Bt {
    const NAME: &'static str = "BT";

    type Kept = Kept;
    /// C and r of the last point, of a line 30 numbers.
    type Forward = [F64x8; BLOCK + EQUATIONS];
    /// The solution at the first point.
    type Backward = Point;

    fn params(class: Class) -> Params {
        params::of(class)
    }

    fn operations(params: &Params) -> f64 {
        params::operations(params)
    }

    fn new(constants: &Constants) -> Self {
        Self {
            coefficients: std::array::from_fn(|d| Coefficients::new(constants, d)),
        }
    }

    #[inline(always)]
    fn forward<const DIRECTION: usize, const FMA: bool>(
        &self,
        ends: Ends,
        u: &[Point],
        rhs: &mut [Point],
        kept: &mut [Kept],
        carry: &mut Self::Forward,
    ) {
        let (u, rhs, kept) = (black_box(u), black_box(rhs), black_box(kept));
        let coefficients = self.coefficients[DIRECTION];
        let [first, second, following @ ..] = u else {
            return;
        };

        let mut flow_before = NOTHING;
        let mut flow = NOTHING;
        for l in 0..LANES {
            put(
                &mut flow_before,
                l,
                &Flow::new(&state::<DIRECTION>(first, l)).numbers,
            );
            put(
                &mut flow,
                l,
                &Flow::new(&state::<DIRECTION>(second, l)).numbers,
            );
        }
        let (mut before, right_before) = carry.split_first_chunk::<BLOCK>().expect("30 numbers");
        let mut right = NOTHING;
        right.copy_from_slice(right_before);
        let mut upper = [NOTHING; EQUATIONS];
        let mut above_left = [NOTHING; EQUATIONS];
        let mut above_right = [NOTHING; EQUATIONS];
        let mut reduced_right = NOTHING;
        for ((next, rhs), kept) in following.iter().zip(rhs).zip(kept.iter_mut()) {
            for l in 0..LANES {
                let below = Flow {
                    numbers: vector(&flow_before, l),
                };
                let here = Flow {
                    numbers: vector(&flow, l),
                };
                let next = Flow::new(&state::<DIRECTION>(next, l));
                let reduced = reduce::<FMA>(
                    &below.below::<FMA>(&coefficients),
                    &here.diagonal::<FMA>(&coefficients),
                    &next.above::<FMA>(&coefficients),
                    &state::<DIRECTION>(rhs, l),
                    &block(before, l),
                    &vector(&right, l),
                );
                put(&mut flow_before, l, &here.numbers);
                put(&mut flow, l, &next.numbers);
                put_entries(&mut upper, l, &reduced.upper, &UPPER);
                put_entries(&mut above_left, l, &reduced.above, &FILLED_LEFT);
                put_entries(&mut above_right, l, &reduced.above, &FILLED_RIGHT);
                put(&mut reduced_right, l, &reduced.right);
            }
            for l in 0..LANES {
                let mut reduced = Reduced {
                    upper: ZERO,
                    above: ZERO,
                    right: vector(&reduced_right, l),
                };
                get_entries(&upper, l, &mut reduced.upper, &UPPER);
                get_entries(&above_left, l, &mut reduced.above, &FILLED_LEFT);
                get_entries(&above_right, l, &mut reduced.above, &FILLED_RIGHT);
                let (c, r) = solve::<FMA>(&reduced);
                unroll!(J => {
                    unroll!(I => {
                        kept[EQUATIONS * J + I].0[l] = c[J][I];
                    });
                });
                put(&mut right, l, &r);
            }
            unroll!(I => {
                rhs[const { order(DIRECTION) }[I]] = right[I];
            });
            before = kept;
        }
        if let (false, Some(last)) = (ends.high, kept.last()) {
            carry[..BLOCK].copy_from_slice(last);
            carry[BLOCK..].copy_from_slice(&right);
        }
    }

    #[inline(always)]
    fn backward<const DIRECTION: usize, const FMA: bool>(
        &self,
        rhs: &mut [Point],
        kept: &[Kept],
        carry: &mut Point,
    ) {
        let (rhs, kept) = (black_box(rhs), black_box(kept));
        let mut x = *carry;
        for (rhs, kept) in rhs.iter_mut().zip(kept).rev() {
            for l in 0..LANES {
                let right = state::<DIRECTION>(rhs, l);
                let solution = subtract_product::<FMA>(right, &block(kept, l), &vector(&x, l));
                put(&mut x, l, &solution);
            }
            unroll!(I => {
                rhs[const { order(DIRECTION) }[I]] = x[I];
            });
        }
        *carry = x;
    }
}

/// Lane `l` of the quantities at a point, the momentum along the line first.
#[inline(always)]
fn state<const DIRECTION: usize>(point: &Point, l: usize) -> Vector {
    let mut out = [0.0; EQUATIONS];
    unroll!(I => {
        out[I] = point[const { order(DIRECTION) }[I]].0[l];
    });
    out
}

/// Lane `l`.
#[inline(always)]
fn vector(point: &Point, l: usize) -> Vector {
    let mut out = [0.0; EQUATIONS];
    unroll!(I => {
        out[I] = point[I].0[l];
    });
    out
}

#[inline(always)]
fn put(point: &mut Point, l: usize, vector: &Vector) {
    unroll!(I => {
        point[I].0[l] = vector[I];
    });
}

/// Lane `l` of C.
#[inline(always)]
fn block(kept: &Kept, l: usize) -> Columns {
    let mut out = ZERO;
    unroll!(J => {
        unroll!(I => {
            out[J][I] = kept[EQUATIONS * J + I].0[l];
        });
    });
    out
}

/// Takes lane `l` of the entries in `shape`.
#[inline(always)]
fn get_entries(lanes: &Lanes, l: usize, block: &mut Rows, shape: &Shape) {
    entries!(shape, I, J => {
        block[I][J] = lanes[I][J].0[l];
    });
}

/// Sets lane `l` of the entries in `shape`.
#[inline(always)]
fn put_entries(lanes: &mut Lanes, l: usize, block: &Rows, shape: &Shape) {
    entries!(shape, I, J => {
        lanes[I][J].0[l] = block[I][J];
    });
}

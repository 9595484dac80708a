//! The right-hand side written down plainly, term by term and point by point: what tests compare
//! the kernel with.

use super::constants::{C1, C2, Constants};
use super::directions::{X, Y, Z};
use super::field::Field;
use super::partition::Cell;
use std::collections::HashMap;

type State = [f64; 5];

/// The right-hand side at the inner points of the grid, by global position.
pub type Values = HashMap<[usize; 3], State>;

/// dt times the right-hand side without forcing for the state `u` (of a global position).
pub fn right_hand_side(constants: &Constants, u: &impl Fn([usize; 3]) -> State) -> Values {
    let inner = 1..constants.n - 1;
    let mut values = Values::new();
    for z in inner.clone() {
        for y in inner.clone() {
            for x in inner.clone() {
                let mut sum = [0.0; 5];
                for d in 0..3 {
                    let terms = along(constants, d, [x, y, z], u);
                    for (sum, term) in sum.iter_mut().zip(terms) {
                        *sum += constants.dt * term;
                    }
                }
                values.insert([x, y, z], sum);
            }
        }
    }
    values
}

fn along(c: &Constants, d: usize, at: [usize; 3], u: &impl Fn([usize; 3]) -> State) -> State {
    let point = |distance: isize| {
        let mut at = at;
        at[d] = at[d].checked_add_signed(distance).expect("within the grid");
        u(at)
    };
    // Second and central differences of something computed from the state.
    let second = |f: &dyn Fn(&State) -> f64| f(&point(1)) - 2.0 * f(&point(0)) + f(&point(-1));
    let central = |f: &dyn Fn(&State) -> f64| f(&point(1)) - f(&point(-1));

    let square = |u: &State| 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / u[0];
    let v = |u: &State| u[d + 1] / u[0];
    let mut sum = [0.0; 5];
    for m in 0..5 {
        let convected = |u: &State| match m {
            0 => u[d + 1],
            4 => (C1 * u[4] - C2 * square(u)) * v(u),
            _ if m == d + 1 => u[m] * v(u) + C2 * (u[4] - square(u)),
            _ => u[m] * v(u),
        };
        sum[m] = c.d[d][m] * c.t1 * second(&|u| u[m]) - c.t2 * central(&convected);
        sum[m] += match m {
            0 => 0.0,
            4 => {
                c.con3 * second(&|u| square(u) / u[0])
                    + c.con4 * second(&|u| v(u) * v(u))
                    + c.con5 * second(&|u| u[4] / u[0])
            }
            _ if m == d + 1 => c.con2 * c.con43 * second(&|u| u[m] / u[0]),
            _ => c.con2 * second(&|u| u[m] / u[0]),
        };
        let x = at[d];
        let u = |distance| point(distance)[m];
        // Both ends of a grid of five points or more; the middle of five is next to both.
        let low = match x {
            1 => 0.0,
            2 => -4.0 * u(-1),
            _ => u(-2) - 4.0 * u(-1),
        };
        let high = match c.n - 1 - x {
            1 => 0.0,
            2 => -4.0 * u(1),
            _ => u(2) - 4.0 * u(1),
        };
        let centre = if x == 1 || x == c.n - 2 { 5.0 } else { 6.0 };
        sum[m] -= c.dssp * (low + centre * u(0) + high);
    }
    sum
}

/// Asserts that `field` holds `expected` on the interior of `cell`, within `tolerance` relative
/// to the size of the terms, and `elsewhere` on all other points.
///
/// # Panics
/// If it does not.
pub fn compare(cell: &Cell, field: &Field<5>, elsewhere: f64, expected: &Values, tolerance: f64) {
    let scale = expected
        .values()
        .flatten()
        .fold(0.0f64, |max, x| max.max(x.abs()));
    for k in cell.points(Z) {
        for j in cell.points(Y) {
            for i in cell.points(X) {
                let at = [cell.global(X, i), cell.global(Y, j), cell.global(Z, k)];
                let want = expected.get(&at).copied().unwrap_or([elsewhere; 5]);
                for (got, want) in field.get(i, j, k).into_iter().zip(want) {
                    assert!(
                        (got - want).abs() <= tolerance * scale,
                        "{at:?}: {got} {want}"
                    );
                }
            }
        }
    }
}

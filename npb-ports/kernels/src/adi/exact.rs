//! The exact solution: a polynomial of degree four in each coordinate.

use super::constants::EQUATIONS;
use super::directions::{X, Y, Z};
use super::field::Field;
use super::partition::Cell;
use std::ops::Range;

/// Coefficients by equation: of 1, then of the first, second, third and fourth power of xi, eta
/// and zeta.
#[rustfmt::skip]
const CE: [[f64; 13]; EQUATIONS] = [
    [2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3],
    [1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5],
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4],
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3],
    [5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2],
];

/// The solution at a point of the unit cube.
#[must_use]
pub fn exact(point: [f64; 3]) -> [f64; EQUATIONS] {
    CE.map(|ce| {
        let polynomials = point
            .iter()
            .enumerate()
            .map(|(d, &x)| x * (ce[d + 1] + x * (ce[d + 4] + x * (ce[d + 7] + x * ce[d + 10]))));
        ce[0] + polynomials.sum::<f64>()
    })
}

/// Coordinates of local indices (`i`, `j`, `k`) of `cell` in the unit cube, for a grid of `n`
/// points a side.
#[must_use]
pub fn coordinates(cell: &Cell, n: usize, [i, j, k]: [usize; 3]) -> [f64; 3] {
    [(X, i), (Y, j), (Z, k)].map(|(d, local)| cell.global(d, local) as f64 / (n - 1) as f64)
}

/// Sets `field` to `value(local indices)` at the points of the ranges.
pub fn fill(
    field: &mut Field<EQUATIONS>,
    [is, js, ks]: [Range<usize>; 3],
    value: impl Fn([usize; 3]) -> [f64; EQUATIONS],
) {
    for k in ks {
        for j in js.clone() {
            for i in is.clone() {
                field.set(i, j, k, value([i, j, k]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners() {
        assert_eq!(exact([0.0; 3]), [2.0, 1.0, 2.0, 2.0, 5.0]);
        for (value, ce) in exact([1.0; 3]).into_iter().zip(CE) {
            assert!((value - ce.iter().sum::<f64>()).abs() < 1e-14);
        }
    }

    #[test]
    fn each_coordinate_has_its_polynomial() {
        let half = exact([0.0, 0.5, 0.0])[4];
        assert!(
            (half - (5.0 + 3.0 * 0.5 + 0.4 * 0.25 + 0.04 * 0.125 + 0.3 * 0.0625)).abs() < 1e-14
        );
        let half = exact([0.0, 0.0, 0.5])[0];
        assert!(
            (half - (2.0 + 4.0 * 0.5 + 0.5 * 0.25 + 0.03 * 0.125 + 0.3 * 0.0625)).abs() < 1e-14
        );
    }
}

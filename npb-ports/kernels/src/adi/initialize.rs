//! The initial state and the forcing term.
//!
//! The state is exact on the boundary of the grid, where it stays so. Inside, it interpolates
//! between the faces in all three directions at once (transfinite interpolation). The forcing
//! term makes the exact solution stationary: it is the right-hand side of the exact solution
//! without forcing, with opposite sign.

use super::constants::{Constants, EQUATIONS};
use super::directions::DIRECTIONS;
use super::exact::{coordinates, exact, fill};
use super::field::Field;
use super::partition::Cell;
use super::rhs::Operator;
use crate::cpu::Level;
use std::{array, io};

/// A state for padding and for ghosts that no neighbour fills: positive density and pressure.
pub const AT_REST: [f64; EQUATIONS] = [1.0, 0.0, 0.0, 0.0, 1.0];

/// Sets the points of `cell` in `u` to the initial state for a grid of `n` points a side.
pub fn initialize(u: &mut Field<EQUATIONS>, cell: &Cell, n: usize) {
    let points = array::from_fn(|d| cell.points(d));
    fill(u, points, |local| {
        let on_boundary = (0..DIRECTIONS).any(|d| !cell.interior(d).contains(&local[d]));
        let point = coordinates(cell, n, local);
        if on_boundary {
            exact(point)
        } else {
            interpolated(point)
        }
    });
}

/// What the exact values on the six faces make of an inner point.
fn interpolated(point: [f64; 3]) -> [f64; EQUATIONS] {
    let on_face = |d: usize, x: f64| {
        let mut face = point;
        face[d] = x;
        exact(face)
    };
    let between: [[f64; EQUATIONS]; DIRECTIONS] = array::from_fn(|d| {
        let (low, high) = (on_face(d, 0.0), on_face(d, 1.0));
        array::from_fn(|m| point[d] * high[m] + (1.0 - point[d]) * low[m])
    });
    array::from_fn(|m| {
        let [x, y, z] = between.map(|values| values[m]);
        x + y + z - x * y - x * z - y * z + x * y * z
    })
}

/// dt times the forcing term on `cell`.
///
/// # Errors
/// If the system has no address space for it.
pub fn forcing(cell: &Cell, constants: &Constants, level: Level) -> io::Result<Field<EQUATIONS>> {
    let layout = cell.layout();
    let mut u = Field::new(layout, AT_REST)?;
    let reach = array::from_fn(|d| cell.within_grid(d));
    fill(&mut u, reach, |local| {
        exact(coordinates(cell, constants.n, local))
    });

    let mut forcing = Field::new(layout, [0.0; EQUATIONS])?;
    let unforced = Field::new(layout, [0.0; EQUATIONS])?;
    Operator::new(cell, constants).apply(&u, &unforced, &mut forcing, level);
    for value in forcing.values_mut() {
        *value = -*value;
    }
    Ok(forcing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::field::GHOST;
    use crate::adi::partition::Partition;

    #[test]
    fn faces_are_exact_and_the_inside_is_not() {
        let n = 7;
        let cell = Partition::new(n, 1).unwrap().cells(0)[0];
        let mut u = Field::new(cell.layout(), AT_REST).unwrap();
        initialize(&mut u, &cell, n);
        let local = |at: [usize; 3]| at.map(|x| x + GHOST);
        let at = |[i, j, k]: [usize; 3]| (u.get(i, j, k), exact(coordinates(&cell, n, [i, j, k])));
        for face in [
            [0, 3, 3],
            [6, 2, 1],
            [3, 0, 5],
            [2, 6, 2],
            [1, 1, 0],
            [4, 5, 6],
            [0, 0, 6],
        ] {
            let (value, solution) = at(local(face));
            assert_eq!(value, solution);
        }
        let (value, solution) = at(local([3, 3, 3]));
        assert!(value[0] != solution[0]);
    }

    #[test]
    fn interpolation_agrees_with_the_faces_where_products_cancel() {
        // x y z - x y - x z - y z + x + y + z = 1 - (1 - x)(1 - y)(1 - z).
        let point = [0.25, 0.5, 0.75];
        let values = interpolated(point);
        for (m, value) in values.into_iter().enumerate() {
            let rest: f64 = (0..3)
                .map(|d| {
                    let (mut low, mut high) = (point, point);
                    (low[d], high[d]) = (0.0, 1.0);
                    1.0 - point[d] * exact(high)[m] - (1.0 - point[d]) * exact(low)[m]
                })
                .product();
            assert!((value - (1.0 - rest)).abs() < 1e-9 * value.abs());
        }
    }
}

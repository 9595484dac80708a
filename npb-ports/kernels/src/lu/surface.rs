//! The surface integral: pressure over the faces of a box within the grid, by the trapezoidal rule.
//!
//! The reference programs add the corners of every square of a face, and exchange rows of pressure for the squares between
//! PEs. The sum counts each point of a face once for every square that it is a corner of; with that
//! as its weight, each PE adds its own points and needs no other's.

use crate::adi::constants::{C2, EQUATIONS};
use crate::adi::directions::{DIRECTIONS, X, Y, Z};
use crate::adi::field::Field;
use crate::adi::partition::Cell;
use std::ops::RangeInclusive;

/// The box, in points of a grid of `n` a side.
fn sides(n: usize) -> [RangeInclusive<usize>; DIRECTIONS] {
    [1..=n - 2, 1..=n - 3, 2..=n - 2]
}

/// What the points of `cell` add to the integral over the surface, for a grid of `n` points a side.
#[must_use]
pub fn integral(u: &Field<EQUATIONS>, cell: &Cell, n: usize) -> f64 {
    let sides = sides(n);
    let mut sum = 0.0;
    for k in cell.points(Z) {
        for j in cell.points(Y) {
            for i in cell.points(X) {
                let at = [(X, i), (Y, j), (Z, k)].map(|(d, local)| cell.global(d, local));
                let weight = weight(&sides, at);
                if weight > 0.0 {
                    sum += weight * pressure(u.get(i, j, k));
                }
            }
        }
    }
    let h = 1.0 / (n - 1) as f64;
    0.25 * h * h * sum
}

/// Squares of the surface of which `at` is a corner.
fn weight(sides: &[RangeInclusive<usize>; DIRECTIONS], at: [usize; DIRECTIONS]) -> f64 {
    let on_end = |d: usize| at[d] == *sides[d].start() || at[d] == *sides[d].end();
    let corners = |d: usize| match sides[d].contains(&at[d]) {
        false => 0.0,
        true if on_end(d) => 1.0,
        true => 2.0,
    };
    let faces = (0..DIRECTIONS).filter(|&d| on_end(d));
    faces
        .map(|d| corners((d + 1) % DIRECTIONS) * corners((d + 2) % DIRECTIONS))
        .sum()
}

fn pressure(u: [f64; EQUATIONS]) -> f64 {
    C2 * (u[4] - 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / u[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::partition::Partition;

    #[test]
    fn constant_pressure_gives_the_area() {
        let n = 13;
        for n_pes in [1, 4, 9, 16] {
            let partition = Partition::new(n, n_pes).unwrap();
            let parts = (0..n_pes).flat_map(|pe| partition.cells(pe)).map(|cell| {
                // Pressure 1 at rest.
                let u = Field::new(cell.layout(), [2.0, 0.0, 0.0, 0.0, 1.0 / C2]).unwrap();
                integral(&u, &cell, n)
            });
            let [x, y, z] = sides(n).map(|side| (side.end() - side.start()) as f64 / 12.0);
            let area = 2.0 * (x * y + x * z + y * z);
            assert!((parts.sum::<f64>() - area).abs() < 1e-12);
        }
    }

    #[test]
    fn pressure_lacks_kinetic_energy() {
        assert!((pressure([2.0, 1.0, 1.0, 2.0, 2.5]) - 0.4).abs() < 1e-15);
    }
}

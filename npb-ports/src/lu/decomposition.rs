//! How the grid is cut: a pencil along z for each PE.
//!
//! The sweeps of LU go from one corner of the grid to the opposite one, and every point waits for
//! its neighbours on three sides. With PEs in a rectangle across x and y, and all of z on each, a
//! PE can hand on the faces of a few planes and go on with the next: the sweep moves through the
//! PEs as a wavefront. The rectangle is the one of the reference programs, as square as the number
//! of PEs allows, x the longer side.

use crate::adi::directions::{DIRECTIONS, X, Y};
use crate::adi::faces::Side;
use crate::adi::partition::{Cell, Partition, span};
use crate::processes::{Rule, rectangle};

/// The part of the grid that a PE owns, and who has the parts beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pencil {
    /// PEs along x and y.
    sides: [usize; 2],
    /// The points.
    pub cell: Cell,
}

/// On which numbers of PEs a grid of `n` points a side can be cut.
#[must_use]
pub fn rule(n: usize) -> Rule {
    Rule::Rectangle {
        side: n / Partition::MIN_POINTS,
    }
}

impl Pencil {
    /// The part of `pe` of `n_pes`, of a grid of `n` points a side.
    ///
    /// # Panics
    /// If `n_pes` does not form a rectangle.
    #[must_use]
    pub fn new(n: usize, pe: usize, n_pes: usize) -> Self {
        let (x, y) = rectangle(n_pes).expect("a number that the rule allows");
        let coordinates = [pe % x, pe / x, 0];
        let sides = [x, y, 1];
        let spans: [_; DIRECTIONS] = std::array::from_fn(|d| span(n, sides[d], coordinates[d]));
        Self {
            sides: [x, y],
            cell: Cell {
                coordinates,
                start: spans.clone().map(|span| span.start),
                size: spans.map(|span| span.len()),
                low: coordinates.map(|c| c == 0),
                high: std::array::from_fn(|d| coordinates[d] + 1 == sides[d]),
            },
        }
    }

    /// The PE beside this one on `side` in `direction`, x or y, if it is not the end of the grid.
    #[must_use]
    pub fn neighbour(&self, direction: usize, side: Side) -> Option<usize> {
        if !side.has_neighbour(&self.cell, direction) {
            return None;
        }
        let [mut x, mut y, _] = self.cell.coordinates;
        match (direction, side) {
            (X, Side::Low) => x -= 1,
            (X, Side::High) => x += 1,
            (Y, Side::Low) => y -= 1,
            (Y, Side::High) => y += 1,
            _ => return None,
        }
        Some(x + self.sides[X] * y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::directions::Z;
    use proptest::prelude::*;

    #[test]
    fn two_pes_halve_x() {
        let [a, b] = [0, 1].map(|pe| Pencil::new(13, pe, 2));
        assert_eq!((a.cell.size, b.cell.size), ([7, 13, 13], [6, 13, 13]));
        assert_eq!(a.neighbour(X, Side::High), Some(1));
        assert_eq!(b.neighbour(X, Side::Low), Some(0));
        assert_eq!(b.neighbour(Y, Side::High), None);
        assert_eq!(b.neighbour(Z, Side::High), None);
    }

    #[test]
    fn class_s_runs_on_up_to_sixteen() {
        let legal: Vec<_> = (0..40).filter(|n| rule(12).allows(*n)).collect();
        assert_eq!(legal, [1, 2, 4, 6, 8, 9, 12, 16]);
    }

    proptest! {
        #[test]
        fn every_point_is_owned_once_and_neighbours_know_each_other(
            n_pes in 1usize..60,
            more in 0usize..9,
        ) {
            prop_assume!(rectangle(n_pes).is_some());
            let (x, _) = rectangle(n_pes).unwrap();
            let n = 3 * x + more;
            prop_assert!(rule(n).allows(n_pes));
            let mut owners = vec![0; n * n];
            for pe in 0..n_pes {
                let pencil = Pencil::new(n, pe, n_pes);
                let cell = &pencil.cell;
                prop_assert!(cell.size.iter().all(|&size| size >= Partition::MIN_POINTS));
                prop_assert_eq!((cell.start[Z], cell.size[Z]), (0, n));
                for j in cell.points(Y) {
                    for i in cell.points(X) {
                        owners[cell.global(Y, j) * n + cell.global(X, i)] += 1;
                    }
                }
                for (d, side) in [X, Y].into_iter().flat_map(|d| Side::ALL.map(|s| (d, s))) {
                    let Some(other) = pencil.neighbour(d, side) else { continue };
                    let other = Pencil::new(n, other, n_pes);
                    prop_assert_eq!(other.neighbour(d, side.opposite()), Some(pe));
                    // Faces match.
                    let across = X + Y - d;
                    prop_assert_eq!(other.cell.start[across], cell.start[across]);
                    prop_assert_eq!(other.cell.size[across], cell.size[across]);
                }
            }
            prop_assert!(owners.iter().all(|&count| count == 1));
        }
    }
}

//! Ghosts from neighbours: two planes of `u` on each side of each cell.
//!
//! Per step and direction two messages leave a PE, one to each neighbour, each with the planes
//! of all its cells in that direction. The PE's cells and those of its neighbour follow each
//! other in the same order, so a message needs no header. Only points that a stencil along an
//! inner line reaches are sent: no edges, no boundary of the grid.

use super::constants::EQUATIONS;
use super::directions::DIRECTIONS;
use super::field::{Field, GHOST};
use super::partition::Cell;
use std::ops::Range;

/// The side of a cell to which a neighbour lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Of lower coordinates: the predecessor.
    Low,
    /// Of higher coordinates: the successor.
    High,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Low, Self::High];

    /// The other one.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::Low => Self::High,
            Self::High => Self::Low,
        }
    }

    /// Whether `cell` has a neighbour there in `direction`.
    #[must_use]
    pub fn has_neighbour(self, cell: &Cell, direction: usize) -> bool {
        match self {
            Self::Low => !cell.low[direction],
            Self::High => !cell.high[direction],
        }
    }
}

/// The planes of `cell` that its neighbour needs, as ranges of local indices.
fn outermost(cell: &Cell, direction: usize, side: Side) -> [Range<usize>; DIRECTIONS] {
    let points = cell.points(direction);
    across(
        cell,
        direction,
        match side {
            Side::Low => points.start..points.start + GHOST,
            Side::High => points.end - GHOST..points.end,
        },
    )
}

/// Where the planes of the neighbour go.
fn ghosts(cell: &Cell, direction: usize, side: Side) -> [Range<usize>; DIRECTIONS] {
    let points = cell.points(direction);
    across(
        cell,
        direction,
        match side {
            Side::Low => points.start - GHOST..points.start,
            Side::High => points.end..points.end + GHOST,
        },
    )
}

fn across(cell: &Cell, direction: usize, planes: Range<usize>) -> [Range<usize>; DIRECTIONS] {
    let mut ranges = std::array::from_fn(|d| cell.interior(d));
    ranges[direction] = planes;
    ranges
}

/// Numbers that `cell` adds to a message in `direction`, sent or received.
#[must_use]
pub fn words(cell: &Cell, direction: usize) -> usize {
    let ranges = across(cell, direction, 0..GHOST);
    EQUATIONS
        * ranges
            .into_iter()
            .map(|range| range.len())
            .product::<usize>()
}

/// Appends the planes of `cell` on `side` to `message`.
pub fn pack(
    u: &Field<EQUATIONS>,
    cell: &Cell,
    direction: usize,
    side: Side,
    message: &mut Vec<f64>,
) {
    for row in rows(u, outermost(cell, direction, side)) {
        message.extend_from_slice(&u.values()[row]);
    }
}

/// Sets the ghosts of `cell` on `side` to the front of `message`, which it takes off.
///
/// # Panics
/// If the message is too short.
pub fn unpack(
    u: &mut Field<EQUATIONS>,
    cell: &Cell,
    direction: usize,
    side: Side,
    message: &mut &[f64],
) {
    for row in rows(u, ghosts(cell, direction, side)) {
        let (front, rest) = message.split_at(row.len());
        u.values_mut()[row].copy_from_slice(front);
        *message = rest;
    }
}

/// Where the rows of all components of a box lie.
fn rows(
    u: &Field<EQUATIONS>,
    [is, js, ks]: [Range<usize>; DIRECTIONS],
) -> impl Iterator<Item = Range<usize>> + use<> {
    let layout = *u.layout();
    ks.flat_map(move |k| js.clone().map(move |j| (j, k)))
        .flat_map(move |(j, k)| (0..EQUATIONS).map(move |m| layout.at(0, j, k, m)))
        .map(move |row| row + is.start..row + is.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::directions::{X, Y, Z};
    use crate::adi::exact::fill;
    use crate::adi::partition::Partition;

    fn position(cell: &Cell, local: [usize; 3]) -> [f64; 5] {
        let [x, y, z] = std::array::from_fn(|d| cell.global(d, local[d]) as f64);
        [x, y, z, x + 100.0 * y, z - x]
    }

    /// The message of `pe`, from its cells in order.
    fn message(partition: Partition, pe: usize, direction: usize, side: Side) -> Vec<f64> {
        let mut message = Vec::new();
        for cell in partition.cells(pe) {
            if side.has_neighbour(&cell, direction) {
                let mut u = Field::new(cell.layout(), [-1.0; 5]).unwrap();
                fill(&mut u, [X, Y, Z].map(|d| cell.points(d)), |local| {
                    position(&cell, local)
                });
                let before = message.len();
                pack(&u, &cell, direction, side, &mut message);
                assert_eq!(message.len() - before, words(&cell, direction));
            }
        }
        message
    }

    #[test]
    fn ghosts_hold_what_the_neighbour_has_there() {
        for (n, p) in [(12, 4), (13, 4), (8, 2), (9, 3), (20, 3)] {
            let partition = Partition::new(n, p * p).unwrap();
            for pe in 0..p * p {
                for direction in [X, Y, Z] {
                    for (side, from) in [
                        (Side::Low, partition.predecessor(pe, direction)),
                        (Side::High, partition.successor(pe, direction)),
                    ] {
                        let sent = message(partition, from, direction, side.opposite());
                        let mut rest = &sent[..];
                        for cell in partition.cells(pe) {
                            if side.has_neighbour(&cell, direction) {
                                let mut u = Field::new(cell.layout(), [-1.0; 5]).unwrap();
                                unpack(&mut u, &cell, direction, side, &mut rest);
                                let [is, js, ks] = ghosts(&cell, direction, side);
                                let mut seen = 0;
                                for (k, j) in ks.flat_map(|k| js.clone().map(move |j| (k, j))) {
                                    for i in is.clone() {
                                        assert_eq!(u.get(i, j, k), position(&cell, [i, j, k]));
                                        seen += EQUATIONS;
                                    }
                                }
                                let untouched = Field::new(cell.layout(), [-1.0; 5]).unwrap();
                                let pairs = u.values().iter().zip(untouched.values());
                                let set = pairs.filter(|(a, b)| a != b).count();
                                // -1 is no position, but may be a difference of two.
                                assert!(set <= seen && seen == words(&cell, direction));
                            }
                        }
                        assert!(rest.is_empty());
                    }
                }
            }
        }
    }
}

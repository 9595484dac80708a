//! The multi-partition: which cells of the grid a PE owns, and who owns the cells beside them.
//!
//! The grid of n points a side is cut into p x p x p cells for p x p PEs. PE (i, j) owns p cells
//! along a diagonal: cell c lies at (i + c, j - c, c), all modulo p. So every plane of cells,
//! whatever its direction, holds exactly one cell of every PE, and a sweep that goes through the
//! grid plane by plane keeps all PEs busy all the time. The owner of the next cell in a direction
//! is the same PE for all cells of a PE.

use super::directions::{DIRECTIONS, X};
use super::field::{GHOST, Layout};
use std::ops::Range;

/// How a grid of n points a side is cut for p x p PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    n: usize,
    p: usize,
}

impl Partition {
    /// The fewest points of a cell in any direction: with fewer, planes that a neighbour needs
    /// would not all be in one cell.
    pub const MIN_POINTS: usize = 3;

    /// The partition of `n` points a side for `n_pes` PEs, or `None` if `n_pes` is not the square
    /// of a p with n / p >= [`Partition::MIN_POINTS`].
    #[must_use]
    pub fn new(n: usize, n_pes: usize) -> Option<Self> {
        let p = n_pes.isqrt();
        let legal = p > 0 && p * p == n_pes && n / p >= Self::MIN_POINTS;
        legal.then_some(Self { n, p })
    }

    /// The largest legal number of PEs for `n` points a side; 0 if there is none.
    #[must_use]
    pub fn max_pes(n: usize) -> usize {
        (n / Self::MIN_POINTS).pow(2)
    }

    /// Points a side.
    #[must_use]
    pub fn points(&self) -> usize {
        self.n
    }

    /// Cells a side; also cells of a PE, and stages of a sweep.
    #[must_use]
    pub fn cells_a_side(&self) -> usize {
        self.p
    }

    /// PEs of the job.
    #[must_use]
    pub fn n_pes(&self) -> usize {
        self.p * self.p
    }

    /// The points of the cells at `coordinate`, in any direction.
    #[must_use]
    pub fn span(&self, coordinate: usize) -> Range<usize> {
        let (size, longer) = (self.n / self.p, self.n % self.p);
        let start = coordinate * size + coordinate.min(longer);
        start..start + size + usize::from(coordinate < longer)
    }

    /// The largest number of interior points that a cell has in any direction.
    #[must_use]
    pub fn max_interior(&self) -> usize {
        let interior = |c| {
            let ends = usize::from(c == 0) + usize::from(c == self.p - 1);
            self.span(c).len() - ends
        };
        (0..self.p).map(interior).max().unwrap_or(0)
    }

    /// The cells of `pe`, by increasing z coordinate, which is their number.
    #[must_use]
    pub fn cells(&self, pe: usize) -> Vec<Cell> {
        let (i, j, p) = (pe % self.p, pe / self.p, self.p);
        (0..p)
            .map(|c| self.cell([(i + c) % p, (j + p - c) % p, c]))
            .collect()
    }

    /// The cell at `coordinates`.
    #[must_use]
    pub fn cell(&self, coordinates: [usize; DIRECTIONS]) -> Cell {
        let spans = coordinates.map(|c| self.span(c));
        Cell {
            coordinates,
            start: spans.clone().map(|span| span.start),
            size: spans.map(|span| span.len()),
            low: coordinates.map(|c| c == 0),
            high: coordinates.map(|c| c == self.p - 1),
        }
    }

    /// The PE that owns the cell at `coordinates`.
    #[must_use]
    pub fn owner(&self, [x, y, z]: [usize; DIRECTIONS]) -> usize {
        let p = self.p;
        (x + p - z) % p + p * ((y + z) % p)
    }

    /// The owner of the cells that follow those of `pe` in `direction`; of the last cell, the
    /// first one follows.
    #[must_use]
    pub fn successor(&self, pe: usize, direction: usize) -> usize {
        self.neighbour(pe, direction, 1)
    }

    /// The owner of the cells before those of `pe` in `direction`.
    #[must_use]
    pub fn predecessor(&self, pe: usize, direction: usize) -> usize {
        self.neighbour(pe, direction, self.p - 1)
    }

    fn neighbour(&self, pe: usize, direction: usize, step: usize) -> usize {
        let mut coordinates = [pe % self.p, pe / self.p, 0];
        coordinates[direction] = (coordinates[direction] + step) % self.p;
        self.owner(coordinates)
    }
}

/// One cell: where it lies, and which of its points are computed.
///
/// Local indices count from the first ghost layer: the points of the cell are
/// `GHOST..GHOST + size` in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Position among the cells, in each direction.
    pub coordinates: [usize; DIRECTIONS],
    /// Position of the first point in the grid.
    pub start: [usize; DIRECTIONS],
    /// Points.
    pub size: [usize; DIRECTIONS],
    /// Whether the first points are the boundary of the grid.
    pub low: [bool; DIRECTIONS],
    /// Whether the last points are.
    pub high: [bool; DIRECTIONS],
}

impl Cell {
    /// Local indices of the points of the cell.
    #[must_use]
    pub fn points(&self, direction: usize) -> Range<usize> {
        GHOST..GHOST + self.size[direction]
    }

    /// Local indices of the points that are not on the boundary of the grid: those that change.
    #[must_use]
    pub fn interior(&self, direction: usize) -> Range<usize> {
        let points = self.points(direction);
        points.start + usize::from(self.low[direction])
            ..points.end - usize::from(self.high[direction])
    }

    /// Local indices of the points of the cell and of those ghosts that belong to neighbours.
    #[must_use]
    pub fn within_grid(&self, direction: usize) -> Range<usize> {
        let points = self.points(direction);
        let ghosts = |at_boundary: bool| if at_boundary { 0 } else { GHOST };
        points.start - ghosts(self.low[direction])..points.end + ghosts(self.high[direction])
    }

    /// Position in the grid of local index `local`, which must not be a ghost below the grid.
    #[must_use]
    pub fn global(&self, direction: usize, local: usize) -> usize {
        self.start[direction] + local - GHOST
    }

    /// How fields of this cell lie in memory.
    #[must_use]
    pub fn layout<const M: usize>(&self) -> Layout<M> {
        Layout::new(self.size, self.interior(X).start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::directions::{Y, Z};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_squares_with_cells_large_enough_are_legal() {
        let legal: Vec<_> = (0..40)
            .filter(|&n_pes| Partition::new(12, n_pes).is_some())
            .collect();
        assert_eq!(legal, [1, 4, 9, 16]);
        for (n, most) in [(12, 16), (24, 64), (36, 144), (64, 441), (102, 1156)] {
            assert_eq!(Partition::max_pes(n), most);
            assert!(Partition::new(n, most).is_some());
            assert!(Partition::new(n, (most.isqrt() + 1).pow(2)).is_none());
        }
        assert_eq!(Partition::max_pes(2), 0);
    }

    #[test]
    fn one_pe_owns_the_grid() {
        let partition = Partition::new(12, 1).unwrap();
        let cells = partition.cells(0);
        assert_eq!(cells.len(), 1);
        assert_eq!((cells[0].start, cells[0].size), ([0; 3], [12; 3]));
        assert_eq!(cells[0].interior(Y), GHOST + 1..GHOST + 11);
        assert_eq!(partition.successor(0, Z), 0);
    }

    #[test]
    fn two_cells_a_side_have_one_neighbour_in_each_direction() {
        let partition = Partition::new(12, 4).unwrap();
        let neighbours: Vec<_> = (0..3).map(|d| partition.successor(0, d)).collect();
        assert_eq!(neighbours, [1, 2, 3]);
        for d in 0..3 {
            assert_eq!(partition.successor(0, d), partition.predecessor(0, d));
        }
    }

    fn partitions() -> impl Strategy<Value = Partition> {
        (1usize..7).prop_flat_map(|p| {
            (3 * p..3 * p + 20).prop_map(move |n| Partition::new(n, p * p).unwrap())
        })
    }

    proptest! {
        #[test]
        fn every_point_is_owned_once(partition in partitions()) {
            let n = partition.points();
            let mut owners = vec![0; n * n * n];
            for pe in 0..partition.n_pes() {
                for cell in partition.cells(pe) {
                    for k in cell.points(Z) {
                        for j in cell.points(Y) {
                            for i in cell.points(X) {
                                let [x, y, z] = [(X, i), (Y, j), (Z, k)]
                                    .map(|(d, local)| cell.global(d, local));
                                owners[(z * n + y) * n + x] += 1;
                            }
                        }
                    }
                }
            }
            prop_assert!(owners.iter().all(|&count| count == 1));
        }

        #[test]
        fn every_plane_of_cells_holds_each_pe_once(partition in partitions()) {
            let p = partition.cells_a_side();
            for d in 0..DIRECTIONS {
                for coordinate in 0..p {
                    for pe in 0..partition.n_pes() {
                        let here = partition
                            .cells(pe)
                            .iter()
                            .filter(|cell| cell.coordinates[d] == coordinate)
                            .count();
                        prop_assert_eq!(here, 1);
                    }
                }
            }
        }

        #[test]
        fn neighbours_own_the_cells_beside(partition in partitions()) {
            let p = partition.cells_a_side();
            for pe in 0..partition.n_pes() {
                for cell in partition.cells(pe) {
                    prop_assert_eq!(partition.owner(cell.coordinates), pe);
                    prop_assert!(cell.size.iter().all(|&size| size >= Partition::MIN_POINTS));
                    for d in 0..DIRECTIONS {
                        let mut next = cell.coordinates;
                        next[d] = (next[d] + 1) % p;
                        let successor = partition.successor(pe, d);
                        prop_assert_eq!(partition.owner(next), successor);
                        prop_assert_eq!(partition.predecessor(successor, d), pe);
                        prop_assert!(cell.interior(d).len() <= partition.max_interior());
                    }
                }
            }
        }

        #[test]
        fn spans_follow_each_other_and_differ_by_one_at_most(partition in partitions()) {
            let spans: Vec<_> = (0..partition.cells_a_side()).map(|c| partition.span(c)).collect();
            prop_assert_eq!(spans[0].start, 0);
            prop_assert_eq!(spans[spans.len() - 1].end, partition.points());
            for pair in spans.windows(2) {
                prop_assert_eq!(pair[0].end, pair[1].start);
                prop_assert!(pair[0].len() - pair[1].len() <= 1);
            }
        }
    }
}

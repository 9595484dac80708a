//! How the grid is cut: which cells a PE owns, and who owns the cells beside them.
//!
//! p x p PEs cut the grid of n points a side into p x p x p cells, the *multi-partition*: PE
//! (i, j) owns p cells along a diagonal, cell c at (i + c, j - c, c), all modulo p. So every plane
//! of cells, whatever its direction, holds exactly one cell of every PE, and a sweep that goes
//! through the grid plane by plane keeps all PEs busy all the time. The owner of the next cell in a
//! direction is the same PE for all cells of a PE.
//!
//! 4 PEs cut it into 4 *slabs* along z instead. As many lines cross from one PE to another, 3 times
//! n x n of them for 3 directions with one cut each or one direction with three, but two
//! directions of three need no message, and go through planes that stay in the cache. That the
//! PEs begin one after the other along z costs little since a sweep is cut into many batches
//! (`pipeline` in npb-ports). From 9 PEs on slabs would take more messages, and get thin.

use super::directions::{DIRECTIONS, X};
use super::field::{GHOST, Layout};
use std::ops::Range;

/// The points of part `coordinate` of a line of `n` that is cut into `parts`: as many as any other, or one more in
/// the first parts.
#[must_use]
pub fn span(n: usize, parts: usize, coordinate: usize) -> Range<usize> {
    let (size, longer) = (n / parts, n % parts);
    let start = coordinate * size + coordinate.min(longer);
    start..start + size + usize::from(coordinate < longer)
}

/// How a grid of n points a side is cut for p x p PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    n: usize,
    n_pes: usize,
    /// Cells in each direction.
    cells: [usize; DIRECTIONS],
}

impl Partition {
    /// The fewest points of a cell in any direction: with fewer, planes that a neighbour needs
    /// would not all be in one cell.
    pub const MIN_POINTS: usize = 3;

    /// The partition of `n` points a side for `n_pes` PEs, or `None` if `n_pes` is not the square
    /// of a p with n / p >= [`Partition::MIN_POINTS`].
    #[must_use]
    pub fn new(n: usize, n_pes: usize) -> Option<Self> {
        match n_pes {
            4 => Self::slabs(n, n_pes).or_else(|| Self::multi(n, n_pes)),
            _ => Self::multi(n, n_pes),
        }
    }

    /// The multi-partition, or `None` if `n_pes` PEs cannot have one.
    #[must_use]
    pub fn multi(n: usize, n_pes: usize) -> Option<Self> {
        let p = n_pes.isqrt();
        let legal = p > 0 && p * p == n_pes && n / p >= Self::MIN_POINTS;
        legal.then_some(Self {
            n,
            n_pes,
            cells: [p; DIRECTIONS],
        })
    }

    /// Slabs along z, or `None` if they would be too thin.
    #[must_use]
    pub fn slabs(n: usize, n_pes: usize) -> Option<Self> {
        let legal = n_pes > 0 && n / n_pes >= Self::MIN_POINTS;
        legal.then_some(Self {
            n,
            n_pes,
            cells: [1, 1, n_pes],
        })
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

    /// Cells along `direction`: the stages of a sweep. With one there are no messages.
    #[must_use]
    pub fn stages(&self, direction: usize) -> usize {
        self.cells[direction]
    }

    /// Cells of a PE.
    #[must_use]
    pub fn cells_a_pe(&self) -> usize {
        self.cells.iter().product::<usize>() / self.n_pes
    }

    /// PEs of the job.
    #[must_use]
    pub fn n_pes(&self) -> usize {
        self.n_pes
    }

    /// The points of the cells at `coordinate` in `direction`.
    #[must_use]
    pub fn span(&self, direction: usize, coordinate: usize) -> Range<usize> {
        span(self.n, self.cells[direction], coordinate)
    }

    /// The smallest and the largest number of interior points that cells have in `direction`.
    #[must_use]
    pub fn interiors(&self, direction: usize) -> (usize, usize) {
        let cells = self.cells[direction];
        let interior = |c| {
            let ends = usize::from(c == 0) + usize::from(c == cells - 1);
            self.span(direction, c).len() - ends
        };
        let all = || (0..cells).map(interior);
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }

    /// The cells of `pe`, by increasing z coordinate.
    #[must_use]
    pub fn cells(&self, pe: usize) -> Vec<Cell> {
        if self.cells[X] == 1 {
            return vec![self.cell([0, 0, pe])];
        }
        let p = self.cells[X];
        let (i, j) = (pe % p, pe / p);
        (0..p)
            .map(|c| self.cell([(i + c) % p, (j + p - c) % p, c]))
            .collect()
    }

    /// The cell at `coordinates`.
    #[must_use]
    pub fn cell(&self, coordinates: [usize; DIRECTIONS]) -> Cell {
        let spans: [_; DIRECTIONS] = std::array::from_fn(|d| self.span(d, coordinates[d]));
        Cell {
            coordinates,
            start: spans.clone().map(|span| span.start),
            size: spans.map(|span| span.len()),
            low: coordinates.map(|c| c == 0),
            high: std::array::from_fn(|d| coordinates[d] == self.cells[d] - 1),
        }
    }

    /// The PE that owns the cell at `coordinates`.
    #[must_use]
    pub fn owner(&self, [x, y, z]: [usize; DIRECTIONS]) -> usize {
        match self.cells[X] {
            1 => z,
            p => (x + p - z) % p + p * ((y + z) % p),
        }
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
        self.neighbour(pe, direction, self.cells[direction] - 1)
    }

    fn neighbour(&self, pe: usize, direction: usize, step: usize) -> usize {
        let mut coordinates = self.cells(pe)[0].coordinates;
        coordinates[direction] = (coordinates[direction] + step) % self.cells[direction];
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
    fn four_pes_have_a_slab_each() {
        let partition = Partition::new(13, 4).unwrap();
        let cells = [0, 1, 2, 3].map(|pe| partition.cells(pe)[0]);
        assert_eq!(
            cells.map(|cell| cell.size),
            [[13, 13, 4], [13, 13, 3], [13, 13, 3], [13, 13, 3]]
        );
        assert_eq!(cells[1].low, [true, true, false]);
        assert_eq!(cells[1].high, [true, true, false]);
        assert_eq!([Y, Z].map(|d| partition.successor(2, d)), [2, 3]);
        assert_eq!([Y, Z].map(|d| partition.predecessor(2, d)), [2, 1]);
    }

    #[test]
    fn two_cells_a_side_have_one_neighbour_in_each_direction() {
        let partition = Partition::multi(12, 4).unwrap();
        let neighbours: Vec<_> = (0..3).map(|d| partition.successor(0, d)).collect();
        assert_eq!(neighbours, [1, 2, 3]);
        for d in 0..3 {
            assert_eq!(partition.successor(0, d), partition.predecessor(0, d));
        }
    }

    fn partitions() -> impl Strategy<Value = Partition> {
        let multi = (1usize..7).prop_flat_map(|p| {
            (3 * p..3 * p + 20).prop_map(move |n| Partition::multi(n, p * p).unwrap())
        });
        let slabs = (2usize..10).prop_flat_map(|p| {
            (3 * p..3 * p + 20).prop_map(move |n| Partition::slabs(n, p).unwrap())
        });
        prop_oneof![multi, slabs]
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
        fn every_plane_of_cells_holds_all_pes_or_some_of_slabs(partition in partitions()) {
            let slabs = partition.stages(X) < partition.stages(Z);
            for d in 0..DIRECTIONS {
                for coordinate in 0..partition.stages(d) {
                    for pe in 0..partition.n_pes() {
                        let cells = partition.cells(pe);
                        prop_assert_eq!(cells.len(), partition.cells_a_pe());
                        let here = cells.iter().filter(|cell| cell.coordinates[d] == coordinate);
                        let expected = !slabs || d != Z || pe == coordinate;
                        prop_assert_eq!(here.count(), usize::from(expected));
                    }
                }
            }
        }

        #[test]
        fn neighbours_own_the_cells_beside(partition in partitions()) {
            for pe in 0..partition.n_pes() {
                for cell in partition.cells(pe) {
                    prop_assert_eq!(partition.owner(cell.coordinates), pe);
                    prop_assert!(cell.size.iter().all(|&size| size >= Partition::MIN_POINTS));
                    for d in 0..DIRECTIONS {
                        let mut next = cell.coordinates;
                        next[d] = (next[d] + 1) % partition.stages(d);
                        let successor = partition.successor(pe, d);
                        prop_assert_eq!(partition.owner(next), successor);
                        prop_assert_eq!(partition.predecessor(successor, d), pe);
                        let (least, most) = partition.interiors(d);
                        prop_assert!((least..=most).contains(&cell.interior(d).len()));
                    }
                }
            }
        }

        #[test]
        fn spans_follow_each_other_and_differ_by_one_at_most(partition in partitions()) {
            for d in 0..DIRECTIONS {
                let spans: Vec<_> = (0..partition.stages(d)).map(|c| partition.span(d, c)).collect();
                prop_assert_eq!(spans[0].start, 0);
                prop_assert_eq!(spans[spans.len() - 1].end, partition.points());
                for pair in spans.windows(2) {
                    prop_assert_eq!(pair[0].end, pair[1].start);
                    prop_assert!(pair[0].len() - pair[1].len() <= 1);
                }
            }
        }
    }
}

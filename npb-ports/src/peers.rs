//! Which PEs a NAS benchmark has to talk to: a model, made of the definitions of the benchmarks.
//!
//! A PE's *peers* are the other PEs with which it exchanges messages, whichever of both begins. A
//! program that has fewer than the model says is wrong or does not use the network; one that has
//! more spends memory on connections that the benchmark does not need.

use crate::processes::rectangle;
use std::collections::BTreeSet;

/// Who talks with whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    peers: Vec<BTreeSet<usize>>,
}

impl Graph {
    /// PEs that do not talk: EP, but for its reductions.
    #[must_use]
    pub fn silent(n_pes: usize) -> Self {
        Self {
            peers: vec![BTreeSet::new(); n_pes],
        }
    }

    /// The tree along which barriers and broadcasts go: a PE's parent is its
    /// number without the lowest bit.
    #[must_use]
    pub fn tree(n_pes: usize) -> Self {
        let mut graph = Self::silent(n_pes);
        for pe in 1..n_pes {
            graph.connect(pe, pe & (pe - 1));
        }
        graph
    }

    /// The partners of gathers: PEs whose numbers differ by a power of two, all round.
    /// The tree and doubling are part of it.
    #[must_use]
    pub fn rounds(n_pes: usize) -> Self {
        let mut graph = Self::silent(n_pes);
        let distances = std::iter::successors(Some(1), |d| Some(2 * d));
        for distance in distances.take_while(|d| *d < n_pes) {
            for pe in 0..n_pes {
                graph.connect(pe, (pe + distance) % n_pes);
            }
        }
        graph
    }

    /// The partners of short reductions: PEs whose numbers differ in one binary digit, and those from the
    /// largest power of two on with those so far below them.
    #[must_use]
    pub fn doubling(n_pes: usize) -> Self {
        let mut graph = Self::silent(n_pes);
        let core = 1_usize << n_pes.ilog2();
        for pe in 0..core {
            for digit in 0..core.ilog2() {
                graph.connect(pe, pe ^ (1 << digit));
            }
        }
        for pe in core..n_pes {
            graph.connect(pe, pe - core);
        }
        graph
    }

    /// What collectives go along with a node for each PE: the tree, and short reductions by doubling; all of it is part of the
    /// rounds, if somebody `gathers`.
    #[must_use]
    pub fn collectives(n_pes: usize, gathers: bool) -> Self {
        if gathers {
            Self::rounds(n_pes)
        } else {
            Self::tree(n_pes).and(&Self::doubling(n_pes))
        }
    }

    /// Everybody sends to everybody: transpositions (FT) and redistributions (IS).
    #[must_use]
    pub fn everybody(n_pes: usize) -> Self {
        let all: BTreeSet<usize> = (0..n_pes).collect();
        let others = |pe| all.iter().copied().filter(|other| *other != pe).collect();
        Self {
            peers: (0..n_pes).map(others).collect(),
        }
    }

    /// BT and SP on a square number of PEs: 4 are layers of the grid, with one neighbour on either
    /// side; more are a multi-partition.
    #[must_use]
    pub fn implicit_solver(n_pes: usize) -> Self {
        if n_pes != 4 {
            return Self::multi_partition(n_pes.isqrt());
        }
        let mut graph = Self::silent(n_pes);
        for pe in 1..n_pes {
            graph.connect(pe - 1, pe);
        }
        graph
    }

    /// `p` * `p` PEs each of which has a successor in each of three directions.
    #[must_use]
    pub fn multi_partition(p: usize) -> Self {
        let mut graph = Self::silent(p * p);
        for pe in 0..p * p {
            let (i, j) = (pe % p, pe / p);
            let at = |i: usize, j: usize| i % p + p * (j % p);
            for successor in [at(i + 1, j), at(i, j + 1), at(i + p - 1, j + 1)] {
                graph.connect(pe, successor);
            }
        }
        graph
    }

    /// LU: a rectangle of PEs, as square as their number allows, each with up to four neighbours.
    ///
    /// # Panics
    /// If they form none.
    #[must_use]
    pub fn wavefront(n_pes: usize) -> Self {
        let (x, y) = rectangle(n_pes).expect("a number of PEs that forms a rectangle");
        let mut graph = Self::silent(n_pes);
        for pe in 0..n_pes {
            if pe % x + 1 < x {
                graph.connect(pe, pe + 1);
            }
            if pe / x + 1 < y {
                graph.connect(pe, pe + x);
            }
        }
        graph
    }

    /// CG: blocks of a matrix in a square, a PE or two on each. Each PE sums along its row with those whose numbers differ
    /// in one binary digit, and exchanges with one that has the block on the other side of the diagonal.
    #[must_use]
    pub fn conjugate_gradient(n_pes: usize) -> Self {
        let log = n_pes.ilog2();
        let (side, mates) = (1 << (log / 2), 1 << (log % 2));
        let mut graph = Self::silent(n_pes);
        for pe in 0..n_pes {
            let (block, mate) = (pe / mates, pe % mates);
            for digit in 0..(side * mates).ilog2() {
                graph.connect(pe, pe ^ (1 << digit));
            }
            let mirror = block % side * side + block / side;
            graph.connect(pe, mirror * mates + mate);
        }
        graph
    }

    /// MG with `edge` grid points in each direction, a power of two, on `n_pes` PEs, one too.
    ///
    /// Up to 4 PEs are layers of the grid. More form a box whose sides differ by a factor of two at
    /// most. Each exchanges layers with the next one on either side, in each direction. Grids that have fewer points than the box
    /// has PEs are on every second PE, every fourth, and so on, whose distances grow as much. A
    /// PE that goes without takes its layers later from one that did not, at the distance of the
    /// finer grid.
    #[must_use]
    pub fn multigrid(n_pes: usize, edge: usize) -> Self {
        let log = n_pes.ilog2();
        let side = match n_pes {
            ..=4 => [1, 1],
            _ => [log / 3, (log - log / 3) / 2].map(|log| 1 << log),
        };
        let sides = [side[0], side[1], n_pes / (side[0] * side[1])];
        let mut graph = Self::silent(n_pes);
        let mut points = edge;
        while points >= 2 {
            let strides = sides.map(|side| (side / points).max(1));
            for pe in 0..n_pes {
                let place = [
                    pe % sides[0],
                    pe / sides[0] % sides[1],
                    pe / (sides[0] * sides[1]),
                ];
                // Of each group of PEs that share a point the last one has it.
                let takes_part = |(at, stride): (usize, usize)| (at + 1).is_multiple_of(stride);
                if !place.into_iter().zip(strides).all(takes_part) {
                    continue;
                }
                for axis in 0..3 {
                    let mut next = place;
                    next[axis] = (next[axis] + strides[axis]) % sides[axis];
                    graph.connect(pe, next[0] + sides[0] * (next[1] + sides[1] * next[2]));
                }
            }
            points /= 2;
        }
        graph
    }

    /// Both together.
    ///
    /// # Panics
    /// If they are not of as many PEs.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        assert_eq!(self.peers.len(), other.peers.len());
        for (mine, theirs) in self.peers.iter_mut().zip(&other.peers) {
            mine.extend(theirs);
        }
        self
    }

    fn connect(&mut self, a: usize, b: usize) {
        if a != b {
            self.peers[a].insert(b);
            self.peers[b].insert(a);
        }
    }

    /// Mean number of peers of a PE.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.peers.iter().map(BTreeSet::len).sum::<usize>() as f64 / self.peers.len() as f64
    }

    /// The largest number of peers of a PE.
    #[must_use]
    pub fn max(&self) -> usize {
        self.peers.iter().map(BTreeSet::len).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multi_partition_has_six_neighbours() {
        for (p, peers) in [(1, 0), (2, 3), (3, 6), (8, 6), (16, 6)] {
            let graph = Graph::multi_partition(p);
            assert_eq!((graph.mean(), graph.max()), (peers as f64, peers), "{p}");
        }
    }

    #[test]
    fn rounds_go_to_powers_of_two_on_either_side() {
        for (n, peers) in [(1, 0), (2, 1), (3, 2), (4, 3), (8, 5), (16, 7)] {
            let graph = Graph::rounds(n);
            assert_eq!((graph.mean(), graph.max()), (peers as f64, peers), "{n}");
            let parts = Graph::collectives(n, false);
            assert_eq!(graph.clone().and(&parts), graph);
        }
    }

    #[test]
    fn who_only_adds_has_no_more_peers_than_digits() {
        for (n, mean, max) in [(2, 1.0, 1), (3, 4.0 / 3.0, 2), (4, 2.0, 2), (8, 3.0, 3)] {
            let graph = Graph::collectives(n, false);
            assert_eq!((graph.mean(), graph.max()), (mean, max), "{n}");
        }
        // Twelve pairs among eight. With 9, also 8-0; with 12, also 9-1, 10-2 and 11-3 by doubling, and along the tree 9-8, 10-8
        // and 11-10.
        for (n, neighbours) in [(9, 26), (12, 38)] {
            let graph = Graph::collectives(n, false);
            assert_eq!(graph.mean() * n as f64, f64::from(neighbours), "{n}");
        }
    }

    #[test]
    fn everybody_has_all_others() {
        for n in [1, 2, 3, 8] {
            let graph = Graph::everybody(n);
            assert_eq!((graph.mean(), graph.max()), ((n - 1) as f64, n - 1), "{n}");
        }
    }

    #[test]
    fn four_layers_are_a_chain() {
        let graph = Graph::implicit_solver(4);
        assert_eq!((graph.mean(), graph.max()), (1.5, 2));
        assert_eq!(Graph::implicit_solver(16), Graph::multi_partition(4));
    }

    #[test]
    fn a_wavefront_passes_up_to_four_neighbours() {
        for (n, mean, max) in [
            (1, 0.0, 0),
            (2, 1.0, 1),
            (4, 2.0, 2),
            (8, 2.5, 3),
            (64, 3.5, 4),
            (1024, 3.875, 4),
        ] {
            let graph = Graph::wavefront(n);
            assert_eq!((graph.mean(), graph.max()), (mean, max), "{n}");
        }
    }

    #[test]
    fn a_row_of_blocks_and_a_mirror_image() {
        for (n, mean, max) in [
            (1, 0.0, 0),
            (2, 1.0, 1),
            (4, 1.5, 2),
            (8, 2.5, 3),
            (64, 3.875, 4),
            (256, 4.9375, 5),
            (1024, 5.96875, 6),
        ] {
            let graph = Graph::conjugate_gradient(n);
            assert_eq!((graph.mean(), graph.max()), (mean, max), "{n}");
        }
    }

    #[test]
    fn coarse_grids_of_multigrid_have_neighbours_of_their_own() {
        // Two on either side are one if the box has a side of two.
        assert_eq!(Graph::multigrid(2, 32).mean(), 1.0);
        // Four layers in a ring, and on the coarsest grid, of two points, two of them.
        assert_eq!(Graph::multigrid(4, 32).mean(), 2.5);
        assert_eq!(Graph::multigrid(8, 32).mean(), 3.0);
        // Of 4 x 4 x 4 PEs 8 have the coarsest grid, and one more neighbour in each direction.
        let graph = Graph::multigrid(64, 32);
        assert_eq!((graph.mean(), graph.max()), (6.0 + 3.0 * 8.0 / 64.0, 9));
        assert_eq!(graph, Graph::multigrid(64, 1024));
    }

    #[test]
    fn the_tree_has_as_many_edges_as_it_needs() {
        let tree = Graph::tree(64);
        assert_eq!((tree.mean(), tree.max()), (2.0 * 63.0 / 64.0, 6));
        assert_eq!(Graph::tree(1).mean(), 0.0);
    }

    #[test]
    fn shared_edges_count_once() {
        let both = Graph::multi_partition(8).and(&Graph::tree(64));
        assert!((both.mean() - 6.84).abs() < 0.005, "{}", both.mean());
        let both = Graph::multigrid(64, 32).and(&Graph::tree(64));
        assert!((both.mean() - 7.03).abs() < 0.005, "{}", both.mean());
    }
}

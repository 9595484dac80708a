//! Which PE owns which cells on which level, and who its neighbours are there.
//!
//! The PEs, a power of two, form a grid of powers of two. On the finest level each owns an equal
//! block. A coarser level has half as many cells along each axis; a coarse cell belongs to the PE
//! that owns the fine cell at the same place, which is the second of each pair. So once a PE's
//! share along an axis is one cell, every other PE *drops out* below that level, and the
//! remaining ones are twice as far apart: their neighbours are other PEs than before.
//!
//! Up to [`SLABS`] PEs the grid is cut along z only: whole planes are what the finest level can
//! be swept through in one go ([`super::pipeline`]). With more PEs blocks have the smaller
//! surface.

use super::grid::Shape;
use crate::processes::Rule;

/// The largest number of PEs that divide the grid into slabs instead of blocks.
pub const SLABS: usize = 4;

/// The fewest cells of a PE along an axis of the finest level.
const FEWEST: usize = 2;

/// A direction along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Towards smaller coordinates.
    Lower,
    /// Towards larger coordinates.
    Upper,
}

impl Side {
    /// Both, lower first: [`Side::index`] is the position here.
    pub const BOTH: [Self; 2] = [Self::Lower, Self::Upper];

    /// 0 for lower, 1 for upper.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other direction.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Lower => Self::Upper,
            Self::Upper => Self::Lower,
        }
    }
}

/// The place of one PE in the grid of PEs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decomposition {
    levels: usize,
    pes: [usize; 3],
    at: [usize; 3],
}

/// PEs along x, y and z.
fn grid_of(n_pes: usize) -> [usize; 3] {
    if n_pes <= SLABS {
        return [1, 1, n_pes];
    }
    let log = n_pes.ilog2();
    let x = log / 3;
    let y = (log - x) / 2;
    [1 << x, 1 << y, 1 << (log - x - y)]
}

/// Which numbers of PEs can divide a grid of 2^`levels` cells in each direction.
#[must_use]
pub const fn rule(levels: usize) -> Rule {
    Rule::PowerOfTwo {
        most: ((1 << levels) / FEWEST).pow(3),
    }
}

impl Decomposition {
    /// PE `pe` of `n_pes` on a grid of 2^`levels` cells in each direction.
    ///
    /// # Panics
    /// If [`rule`] does not allow `n_pes`, or `pe` is not below it.
    #[must_use]
    pub fn new(levels: usize, pe: usize, n_pes: usize) -> Self {
        assert!(rule(levels).allows(n_pes) && pe < n_pes);
        let pes = grid_of(n_pes);
        let at = [pe % pes[0], pe / pes[0] % pes[1], pe / pes[0] / pes[1]];
        Self { levels, pes, at }
    }

    /// The finest level.
    #[must_use]
    pub fn finest(&self) -> usize {
        self.levels
    }

    /// Whether more than one PE shares `axis`. If not, a PE is its own neighbour there.
    #[must_use]
    pub fn divided(&self, axis: usize) -> bool {
        self.pes[axis] > 1
    }

    /// Distance along `axis` between PEs that take part in `level`.
    fn stride(&self, level: usize, axis: usize) -> usize {
        (self.pes[axis] >> level).max(1)
    }

    fn takes_part(&self, level: usize, axis: usize) -> bool {
        (self.at[axis] + 1).is_multiple_of(self.stride(level, axis))
    }

    /// Whether this PE has cells on `level`.
    #[must_use]
    pub fn alive(&self, level: usize) -> bool {
        (0..3).all(|axis| self.takes_part(level, axis))
    }

    /// Whether PEs of `level` drop out along `axis` below it.
    #[must_use]
    pub fn drops(&self, level: usize, axis: usize) -> bool {
        level > 1 && self.stride(level - 1, axis) > self.stride(level, axis)
    }

    /// Cells along each axis of a PE that has any on `level`.
    #[must_use]
    pub fn share(&self, level: usize) -> [usize; 3] {
        self.pes.map(|pes| ((1 << level) / pes).max(1))
    }

    /// This PE's block of `level`. Along an axis where it dropped out it has no cells.
    #[must_use]
    pub fn shape(&self, level: usize) -> Shape {
        let share = self.share(level);
        Shape::new(std::array::from_fn(|axis| {
            if self.takes_part(level, axis) {
                share[axis]
            } else {
                0
            }
        }))
    }

    /// Where fine cells lie between coarse ones: this PE's cell `f` of `level` is at position
    /// `f + shift` of an axis on which its cell `c` of the level below is at `2 c`.
    #[must_use]
    pub fn shift(&self, level: usize) -> [usize; 3] {
        std::array::from_fn(|axis| {
            usize::from(self.drops(level, axis) && self.takes_part(level - 1, axis))
        })
    }

    /// The global coordinates of this PE's first cell on the finest level, from 0.
    #[must_use]
    pub fn first_cell(&self) -> [usize; 3] {
        let share = self.share(self.levels);
        std::array::from_fn(|axis| self.at[axis] * share[axis])
    }

    /// The neighbour along `axis` among the PEs of `level`; it may be this PE.
    #[must_use]
    pub fn neighbour(&self, level: usize, axis: usize, side: Side) -> usize {
        let (pes, stride) = (self.pes[axis], self.stride(level, axis));
        let mut at = self.at;
        at[axis] = match side {
            Side::Lower => (at[axis] + pes - stride) % pes,
            Side::Upper => (at[axis] + stride) % pes,
        };
        at[0] + self.pes[0] * (at[1] + self.pes[1] * at[2])
    }

    /// What this PE does along `axis` when the solution of the level below `level` is handed to
    /// the PEs that dropped out there. Axes are handled in order; along each, a PE has the data
    /// if it dropped out along no axis that is still to come.
    #[must_use]
    pub fn revival(&self, level: usize, axis: usize) -> Revival {
        let below = level - 1;
        let later = (axis + 1..3).all(|later| self.takes_part(below, later));
        if !self.drops(level, axis) || !later {
            Revival::Idle
        } else if self.takes_part(below, axis) {
            Revival::Give(self.neighbour(level, axis, Side::Lower))
        } else {
            Revival::Take
        }
    }
}

/// A part in handing data to PEs that come back on the next finer level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revival {
    /// None.
    Idle,
    /// Hands its data to this PE.
    Give(usize),
    /// Gets its data from the upper neighbour.
    Take,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn all(levels: usize, n_pes: usize) -> Vec<Decomposition> {
        (0..n_pes)
            .map(|pe| Decomposition::new(levels, pe, n_pes))
            .collect()
    }

    /// Global cells of `level`, from 1, that `place` owns along `axis`.
    fn owned(place: &Decomposition, level: usize, axis: usize) -> std::ops::RangeInclusive<usize> {
        let cells = place.shape(level).cells[axis];
        let block = (place.at[axis] + 1) / place.stride(level, axis);
        let last = block * place.share(level)[axis];
        last + 1 - cells..=last
    }

    #[test]
    fn grids_of_pes() {
        assert_eq!(grid_of(1), [1, 1, 1]);
        assert_eq!(grid_of(4), [1, 1, 4]);
        assert_eq!(grid_of(8), [2, 2, 2]);
        assert_eq!(grid_of(16), [2, 2, 4]);
        assert_eq!(grid_of(64), [4, 4, 4]);
        assert_eq!(grid_of(256), [4, 8, 8]);
        assert_eq!(grid_of(1024), [8, 8, 16]);
    }

    #[test]
    fn numbers_of_pes() {
        assert!(rule(5).allows(64) && rule(5).allows(4096));
        assert_eq!(rule(5).nearest(3), [2, 4]);
        assert_eq!(rule(5).nearest(5000), [4096]);
        assert_eq!(rule(7).nearest(5000), [4096, 8192]);
    }

    /// Distinct halo partners of a PE, averaged: 6 face neighbours on the finest level, and the
    /// few of those PEs that go on when others have dropped out.
    #[test]
    fn peers_stay_few() {
        for (levels, n_pes, expected) in [
            (5, 64, 6.0 + 3.0 * 8.0 / 64.0),
            (8, 64, 6.0 + 3.0 * 8.0 / 64.0),
            (8, 256, 6.0 + (4.0 * 64.0 + 3.0 * 8.0) / 256.0),
            (
                8,
                1024,
                6.0 + (2.0 * 512.0 + 6.0 * 64.0 + 3.0 * 8.0) / 1024.0,
            ),
        ] {
            let mut partners = vec![BTreeSet::new(); n_pes];
            for (pe, place) in all(levels, n_pes).iter().enumerate() {
                for level in (1..=levels).filter(|&level| place.alive(level)) {
                    for (axis, side) in (0..3).flat_map(|axis| Side::BOTH.map(|side| (axis, side)))
                    {
                        let other = place.neighbour(level, axis, side);
                        if other != pe {
                            partners[pe].insert(other);
                            partners[other].insert(pe);
                        }
                    }
                    for axis in (0..3).filter(|_| level > 1) {
                        if let Revival::Give(other) = place.revival(level, axis) {
                            partners[pe].insert(other);
                            partners[other].insert(pe);
                        }
                    }
                }
            }
            let total: usize = partners.iter().map(BTreeSet::len).sum();
            assert_eq!(total as f64 / n_pes as f64, expected, "{n_pes} PEs");
        }
    }

    proptest! {
        #[test]
        fn every_cell_of_every_level_has_one_owner(levels in 2..7usize, log in 0..10u32) {
            let n_pes = 1 << log;
            prop_assume!(rule(levels).allows(n_pes));
            for level in 1..=levels {
                let mut cells = BTreeMap::<[usize; 3], usize>::new();
                for place in all(levels, n_pes).iter().filter(|place| place.alive(level)) {
                    for k in owned(place, level, 2) {
                        for j in owned(place, level, 1) {
                            for i in owned(place, level, 0) {
                                *cells.entry([i, j, k]).or_default() += 1;
                            }
                        }
                    }
                }
                prop_assert_eq!(cells.len(), 1usize << (3 * level));
                prop_assert!(cells.values().all(|&owners| owners == 1));
            }
        }

        #[test]
        fn neighbours_are_mutual_and_adjacent(levels in 2..7usize, log in 0..10u32, seed: usize) {
            let n_pes = 1 << log;
            prop_assume!(rule(levels).allows(n_pes));
            let places = all(levels, n_pes);
            let pe = seed % n_pes;
            let place = &places[pe];
            for level in (1..=levels).filter(|&level| place.alive(level)) {
                for axis in 0..3 {
                    let upper = place.neighbour(level, axis, Side::Upper);
                    prop_assert!(places[upper].alive(level));
                    prop_assert_eq!(places[upper].neighbour(level, axis, Side::Lower), pe);
                    let next = owned(place, level, axis).end() % (1 << level) + 1;
                    prop_assert_eq!(*owned(&places[upper], level, axis).start(), next);
                    prop_assert!(place.divided(axis) || upper == pe);
                }
            }
        }

        /// A fine cell with the even global number 2c lies on coarse cell c, on every PE.
        #[test]
        fn shifts_put_fine_cells_on_coarse_ones(levels in 3..7usize, log in 0..10u32, seed: usize) {
            let n_pes = 1 << log;
            prop_assume!(rule(levels).allows(n_pes));
            let place = Decomposition::new(levels, seed % n_pes, n_pes);
            for level in (2..=levels).filter(|&level| place.alive(level)) {
                for (axis, shift) in place.shift(level).into_iter().enumerate() {
                    let first = *owned(&place, level, axis).start();
                    // Ghost 0 of the coarse array is the coarse cell at or before fine ghost 0.
                    let ghost = (first - 1) / 2;
                    prop_assert_eq!(first - 1 - 2 * ghost, shift);
                    if place.takes_part(level - 1, axis) {
                        prop_assert_eq!(*owned(&place, level - 1, axis).start(), ghost + 1);
                    }
                }
            }
        }

        /// Everyone who needs data of the level below gets it once, from one who has it.
        #[test]
        fn revival_reaches_all(levels in 3..7usize, log in 0..10u32) {
            let n_pes = 1 << log;
            prop_assume!(rule(levels).allows(n_pes));
            let places = all(levels, n_pes);
            for level in 2..=levels {
                let mut has: Vec<_> = places.iter().map(|place| place.alive(level - 1)).collect();
                for axis in 0..3 {
                    let before = has.clone();
                    let mut gifts = vec![0; n_pes];
                    for (pe, place) in places.iter().enumerate().filter(|(_, p)| p.alive(level)) {
                        if let Revival::Give(other) = place.revival(level, axis) {
                            prop_assert!(before[pe] && !before[other]);
                            prop_assert_eq!(places[other].neighbour(level, axis, Side::Upper), pe);
                            gifts[other] += 1;
                            has[other] = true;
                        }
                    }
                    for (pe, place) in places.iter().enumerate().filter(|(_, p)| p.alive(level)) {
                        let takes = place.revival(level, axis) == Revival::Take;
                        prop_assert_eq!(gifts[pe], usize::from(takes));
                    }
                }
                for (pe, place) in places.iter().enumerate() {
                    prop_assert!(has[pe] || !place.alive(level));
                }
            }
        }
    }
}

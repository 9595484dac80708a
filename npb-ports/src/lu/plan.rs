//! Landing slots and memory: what all PEs agree on.

use super::decomposition::Pencil;
use crate::adi::constants::EQUATIONS;
use crate::adi::faces::Side;
use crate::adi::field::{GHOST, Layout};
use crate::exchange::Slots;
use crate::simd::LANES;

/// The landing slot of the faces that come from the neighbour on `side` in `direction`.
#[must_use]
pub fn face_slot(direction: usize, side: Side) -> usize {
    2 * direction + usize::from(side == Side::High)
}

/// The landing slot of what comes from the neighbour on `side` for a block of planes: on the lower
/// side in the lower sweep, on the other in the upper one.
#[must_use]
pub fn slot(direction: usize, side: Side, block: usize) -> usize {
    4 * (block + 1) + face_slot(direction, side)
}

/// The sizes of the landing slots, the same on all PEs; none for a single PE.
#[must_use]
pub fn slot_sizes(n: usize, n_pes: usize) -> Vec<usize> {
    if n_pes == 1 {
        return Vec::new();
    }
    // The first PE has as many points as any.
    let [x, y, z] = Pencil::new(n, 0, n_pes).cell.size;
    let mut sizes = Vec::new();
    for across in [y, x] {
        sizes.extend([across * z * GHOST * EQUATIONS; 2]);
    }
    for _ in 0..z.div_ceil(LANES) {
        for vectors in [y + LANES, x] {
            sizes.extend([vectors * LANES * EQUATIONS; 2]);
        }
    }
    sizes
}

/// Bytes that a PE needs at most, landing slots included.
#[must_use]
pub fn memory(n: usize, n_pes: usize) -> u64 {
    let cell = Pencil::new(n, 0, n_pes).cell;
    let field = Layout::<EQUATIONS>::new(cell.size, 2).len();
    // u, right-hand side and forcing. While the forcing is made, there are two fields more, and
    // neither u nor the right-hand side.
    let fields = 3 * field;
    let [x, y, z] = cell.size;
    let waiting = EQUATIONS * (LANES * (x + y + LANES) + x * (y + 2));
    let packed = x.max(y) * z * GHOST * EQUATIONS;
    let words = fields + waiting + packed;
    (words * size_of::<f64>() + Slots::<f64>::bytes(&slot_sizes(n, n_pes))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::directions::{X, Y, Z};
    use crate::adi::faces;
    use crate::lu::sweep::Extent;

    #[test]
    fn slots_are_large_enough_and_apart() {
        for (n, n_pes) in [(12, 16), (13, 2), (33, 12), (64, 8), (27, 9)] {
            let sizes = slot_sizes(n, n_pes);
            for pe in 0..n_pes {
                let cell = Pencil::new(n, pe, n_pes).cell;
                let extent = Extent::of(&cell);
                let mut seen = vec![false; sizes.len()];
                let mut uses = |slot: usize, words: usize| {
                    assert!(
                        words <= sizes[slot] && !seen[slot],
                        "{n} {n_pes} {pe} {slot}"
                    );
                    seen[slot] = true;
                };
                for direction in [X, Y] {
                    let vectors = [extent.steps(), extent.points()][direction];
                    for side in Side::ALL {
                        uses(face_slot(direction, side), faces::words(&cell, direction));
                        for block in 0..extent.blocks() {
                            uses(slot(direction, side, block), vectors * EQUATIONS * LANES);
                        }
                    }
                }
            }
        }
        assert_eq!(slot_sizes(12, 1), []);
        assert_eq!(Pencil::new(12, 3, 4).cell.size[Z], 12);
    }
}

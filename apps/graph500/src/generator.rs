//! The edges of the benchmark: a Kronecker graph with scrambled vertex numbers, the same to the last bit as that of
//! the reference.
//!
//! Edge `i` depends on the seeds, the scale and `i` alone, so that each PE makes its share without the others.

use crate::random::{Jumps, MODULUS, Mrg, Step};

/// An edge of the input: its two ends, which may be the same.
pub type Edge = [u32; 2];

/// The seeds of the benchmark.
pub const SEEDS: [u64; 2] = [2, 3];

/// The smallest and the largest scale: vertices are numbered with 32 bits, of which one number means none.
pub const SCALES: std::ops::RangeInclusive<u32> = 1..=31;

/// Of 10000 edges 5700 fall into the first quarter of the adjacency matrix, and 1900 into each of two others.
const CHANCES: u64 = 10_000;
const OFF_DIAGONAL: u64 = 1900;
const FIRST: u64 = 5700;

/// Edges made side by side: a random number depends on the one before, and several sequences do not on each other.
const LANES: usize = 8;

/// Makes edges.
#[derive(Clone, Debug)]
pub struct Generator {
    scale: u32,
    start: Mrg,
    jumps: Jumps,
    scramble: Scramble,
}

impl Generator {
    /// Of the graph with 2^`scale` vertices, with the benchmark's seeds.
    ///
    /// # Panics
    /// If the scale is none of [`SCALES`].
    #[must_use]
    pub fn new(scale: u32) -> Self {
        assert!(SCALES.contains(&scale), "scale {scale}");
        let start = Mrg::new(SEEDS[0], SEEDS[1]);
        let jumps = Jumps::new();
        let mut place = jumps.skip(start, [0, 7, 50]);
        let mut word = || {
            let high = place.draw();
            high.wrapping_mul(0xffff_ffff).wrapping_add(place.draw())
        };
        let scramble = Scramble {
            values: [word(), word()],
            scale,
        };
        Self {
            scale,
            start,
            jumps,
            scramble,
        }
    }

    /// The edges from number `first` on, as many as `out` has room for.
    pub fn fill(&self, first: u64, out: &mut [Edge]) {
        let mut place = self.jumps.skip(self.start, [0, first, 0]);
        let next: Step = self.jumps.next_edge();
        for chunk in out.chunks_mut(LANES) {
            let mut lanes = [place; LANES];
            for lane in &mut lanes {
                *lane = place;
                place = next.from(place);
            }
            for (edge, made) in chunk.iter_mut().zip(self.lanes(lanes)) {
                *edge = made;
            }
        }
    }

    /// Edges whose random numbers begin at these places.
    fn lanes(&self, mut places: [Mrg; LANES]) -> [Edge; LANES] {
        let (mut rows, mut columns) = ([0u64; LANES], [0u64; LANES]);
        for _ in 0..self.scale {
            for (lane, place) in places.iter_mut().enumerate() {
                let value = unbiased(place);
                // The quarter: 1 (upper right), 2 (lower left), 0 or 3, without branches, as they fall at random.
                let right = value < OFF_DIAGONAL;
                let left = !right & (value < 2 * OFF_DIAGONAL);
                let last = value >= 2 * OFF_DIAGONAL + FIRST;
                // On the diagonal the lower left is folded onto the upper right: edges have no direction.
                let folded = left & (rows[lane] == columns[lane]);
                rows[lane] = rows[lane] << 1 | u64::from(last | (left & !folded));
                columns[lane] = columns[lane] << 1 | u64::from(last | right | folded);
            }
        }
        std::array::from_fn(|lane| [rows[lane], columns[lane]].map(|v| self.scramble.of(v)))
    }
}

/// A number from 0 to 9999, all equally likely.
#[inline(always)]
fn unbiased(place: &mut Mrg) -> u64 {
    const LEAST: u64 = MODULUS % CHANCES;
    loop {
        let value = place.draw();
        if value >= LEAST {
            return value % CHANCES;
        }
    }
}

/// A permutation of the vertices, so that their numbers tell nothing of their degrees.
#[derive(Clone, Copy, Debug)]
struct Scramble {
    values: [u64; 2],
    scale: u32,
}

impl Scramble {
    #[inline(always)]
    fn of(&self, vertex: u64) -> u32 {
        let [val0, val1] = self.values;
        let down = 64 - self.scale;
        let v = vertex.wrapping_add(val0).wrapping_add(val1);
        let v = v.wrapping_mul(val0 | 0x4519_8402_1149_3211);
        let v = v.reverse_bits() >> down;
        let v = v.wrapping_mul(val1 | 0x3050_8521_02C8_43A5);
        (v.reverse_bits() >> down) as u32
    }
}

/// Which edges PE `pe` of `n_pes` makes: a range of all `edges`, as long as any other's to one edge.
#[must_use]
pub fn share(edges: u64, pe: usize, n_pes: usize) -> std::ops::Range<u64> {
    let start = |pe: usize| (u128::from(edges) * pe as u128 / n_pes as u128) as u64;
    start(pe)..start(pe + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    fn edges(scale: u32) -> Vec<Edge> {
        let mut out = vec![[0; 2]; 16 << scale];
        Generator::new(scale).fill(0, &mut out);
        out
    }

    #[test]
    fn edges_are_those_of_the_reference() {
        for golden in golden::ALL.iter().filter(|golden| golden.scale <= 14) {
            golden.check_edges(&edges(golden.scale)).unwrap();
        }
    }

    #[test]
    fn edges_of_larger_scales_are_those_of_the_reference() {
        for golden in golden::ALL {
            golden.check_edges(&edges(golden.scale)).unwrap();
        }
    }

    #[test]
    fn edges_can_be_made_anywhere() {
        let whole = edges(10);
        let generator = Generator::new(10);
        for n_pes in [1, 2, 3, 7, 16] {
            for pe in 0..n_pes {
                let range = share(16 << 10, pe, n_pes);
                let mut part = vec![[0; 2]; (range.end - range.start) as usize];
                generator.fill(range.start, &mut part);
                assert_eq!(part, whole[range.start as usize..range.end as usize]);
            }
        }
    }

    #[test]
    fn scrambling_is_a_permutation() {
        let scramble = Generator::new(9).scramble;
        let mut seen = [false; 1 << 9];
        (0..1 << 9).for_each(|v| seen[scramble.of(v) as usize] = true);
        assert!(seen.iter().all(|&seen| seen));
    }

    #[test]
    fn shares_cover_all_edges() {
        assert_eq!(share(10, 0, 3), 0..3);
        assert_eq!(share(10, 1, 3), 3..6);
        assert_eq!(share(10, 2, 3), 6..10);
        assert_eq!(share(16 << 31, 63, 64).end, 16 << 31);
    }
}

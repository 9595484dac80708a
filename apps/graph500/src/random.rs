//! The random sequence of Graph500: a multiple recursive generator that can jump anywhere.
//!
//! L'Ecuyer, Blouin and Couture, "A search for good multiple recursive random number generators" (1993), table 3:
//! order 5, modulus 2^31 - 1. Every edge has a place of its own in the sequence, 2^64 numbers after the one before,
//! so that edges can be made anywhere in any order.

/// The modulus, 2^31 - 1. Numbers of the sequence are below it.
pub const MODULUS: u64 = 0x7fff_ffff;

/// What the last number is multiplied by, and the one five numbers ago.
const X: u64 = 107_374_182;
const Y: u64 = 104_480;

/// 1 / (2^31 - 1) and its square, as the reference has them: the nearest numbers to 4.65661287524579692e-10 and
/// 2.168404346990492787e-19.
const INVERSE: f64 = 4.656_612_875_245_797e-10;
const INVERSE_SQUARE: f64 = 2.168_404_346_990_493e-19;

/// Exponents are numbers of 192 bits: the number of numbers to jump over.
const EXPONENT_BITS: usize = 192;

/// A product or a sum below 2^62, modulo 2^31 - 1.
#[inline(always)]
fn reduce(value: u64) -> u64 {
    // Twice the upper bits down: below 2^32, then at most 2^31.
    let folded = (value & MODULUS) + (value >> 31);
    let folded = (folded & MODULUS) + (folded >> 31);
    if folded >= MODULUS {
        folded - MODULUS
    } else {
        folded
    }
}

/// A place in the sequence: the last five numbers, the newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mrg([u64; 5]);

impl Mrg {
    /// The start of the sequence for two seeds, as the reference spreads them.
    #[must_use]
    pub fn new(seed1: u64, seed2: u64) -> Self {
        const PIECE: u64 = 0x3fff_ffff;
        Self([
            (seed1 & PIECE) + 1,
            (seed1 >> 30 & PIECE) + 1,
            (seed2 & PIECE) + 1,
            (seed2 >> 30 & PIECE) + 1,
            ((seed2 >> 60) << 4) + (seed1 >> 60) + 1,
        ])
    }

    /// The next number, from 0 to 2^31 - 2.
    #[inline(always)]
    pub fn draw(&mut self) -> u64 {
        let [z1, z2, z3, z4, z5] = self.0;
        // Below 2^58 + 2^48.
        let next = reduce(X * z1 + Y * z5);
        self.0 = [next, z1, z2, z3, z4];
        next
    }

    /// A real number in [0, 1), made of the next two.
    pub fn real(&mut self) -> f64 {
        let (high, low) = (self.draw() as f64, self.draw() as f64);
        high * INVERSE + low * INVERSE_SQUARE
    }
}

/// A number of steps through the sequence at once, as a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step([[u64; 5]; 5]);

impl Step {
    /// To the next number.
    const ONE: Self = Self([
        [X, 0, 0, 0, Y],
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
    ]);

    fn twice(&self) -> Self {
        let mut product = [[0; 5]; 5];
        for (row, out) in self.0.iter().zip(&mut product) {
            for (j, out) in out.iter_mut().enumerate() {
                let terms = row.iter().zip(&self.0);
                *out = terms.fold(0, |sum, (a, other)| reduce(sum + a * other[j]));
            }
        }
        Self(product)
    }

    /// The place so many steps further.
    #[inline]
    #[must_use]
    pub fn from(&self, place: Mrg) -> Mrg {
        let Mrg(z) = place;
        Mrg(self.0.map(|row| {
            // Products are below 2^62: two fit together, and what is left of them besides a third.
            let first = reduce_any(row[0] * z[0] + row[1] * z[1]);
            let second = reduce_any(row[2] * z[2] + row[3] * z[3]);
            reduce_any(row[4] * z[4] + first + second)
        }))
    }
}

/// Any number of 64 bits modulo 2^31 - 1.
#[inline(always)]
fn reduce_any(value: u64) -> u64 {
    reduce((value & MODULUS) + (value >> 31))
}

/// Steps of every power of two.
#[derive(Clone, Debug)]
pub struct Jumps(Vec<Step>);

impl Jumps {
    /// Computes them.
    #[must_use]
    pub fn new() -> Self {
        let powers = std::iter::successors(Some(Step::ONE), |step| Some(step.twice()));
        Self(powers.take(EXPONENT_BITS).collect())
    }

    /// The place `exponent` numbers after `place`: its words are the lowest, the middle and the highest 64 bits.
    #[must_use]
    pub fn skip(&self, place: Mrg, exponent: [u64; 3]) -> Mrg {
        let bit = |i: usize| exponent[i / 64] >> (i % 64) & 1 == 1;
        let set = (0..EXPONENT_BITS).filter(|&i| bit(i));
        set.fold(place, |place, i| self.0[i].from(place))
    }

    /// 2^64 steps: from one edge to the next.
    #[must_use]
    pub fn next_edge(&self) -> Step {
        self.0[64]
    }
}

impl Default for Jumps {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_spread_as_in_the_reference() {
        assert_eq!(Mrg::new(2, 3), Mrg([3, 1, 4, 1, 1]));
        let high = Mrg::new(0xf000_0000_0000_0000, 0xa000_0000_0000_0000);
        assert_eq!(
            high,
            Mrg([1, 1 + 0x3000_0000 - 0x3000_0000, 1, 1, 0xaf + 1])
        );
    }

    #[test]
    fn jumps_come_where_steps_do() {
        let jumps = Jumps::new();
        let mut place = Mrg::new(2, 3);
        for steps in 0..300 {
            assert_eq!(jumps.skip(Mrg::new(2, 3), [steps, 0, 0]), place);
            place.draw();
        }
        // A jump over 2^64 + 5 numbers in two parts, in either order.
        let start = Mrg::new(7, 9);
        let there = jumps.skip(start, [5, 1, 0]);
        assert_eq!(jumps.skip(jumps.next_edge().from(start), [5, 0, 0]), there);
        assert_eq!(jumps.next_edge().from(jumps.skip(start, [5, 0, 0])), there);
    }

    #[test]
    fn large_values_are_reduced() {
        for value in [0, 1, MODULUS - 1, MODULUS, MODULUS + 1, (1 << 62) - 1] {
            assert_eq!(reduce(value), value % MODULUS, "{value}");
        }
        for value in [u64::MAX, u64::MAX - MODULUS, 1 << 63] {
            assert_eq!(reduce_any(value), value % MODULUS, "{value}");
        }
    }

    #[test]
    fn reals_are_below_one() {
        let mut place = Mrg::new(2, 3);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&place.real())));
    }
}

//! The pseudo-random sequence that every NAS benchmark draws its data from.
//!
//! The sequence is x(k+1) = a x(k) mod 2^46 with a = 5^13, and the number handed out is
//! x(k+1) / 2^46, which is exact in an `f64`. The reference programs split the product into
//! halves of 23 bits because they compute it in floating point; here the low 46 bits of a
//! wrapping 64-bit product are the same value, many times faster.
//!
//! Three forms serve three needs:
//! * [`Lcg`] hands out one number after another;
//! * [`power`] and [`Lcg::jump`] skip ahead, so that each PE starts at its own part;
//! * [`Lanes`] holds many positions of the one sequence side by side. A single generator waits
//!   for its own product at each step, lanes do not, and a loop over them becomes vector code.

/// The multiplier a = 5^13.
pub const MULTIPLIER: u64 = 1_220_703_125;

/// The seed of MG, FT, CG and IS. (EP has its own, [`crate::ep::params::SEED`].)
pub const SEED: u64 = 314_159_265;

/// State width in bits: arithmetic is modulo 2^46.
pub const BITS: u32 = 46;

const MASK: u64 = (1 << BITS) - 1;

/// Lane words keep the 46-bit state in their upper bits, so that the word size does the modulo.
const SHIFT: u32 = u64::BITS - BITS;

/// Returns `base`^`exponent` mod 2^46, the multiplier that jumps `exponent` numbers ahead if
/// `base` is [`MULTIPLIER`].
#[must_use]
pub const fn power(base: u64, exponent: u64) -> u64 {
    let mut square = base & MASK;
    let mut left = exponent;
    let mut result = 1;
    while left > 0 {
        if left & 1 == 1 {
            result = (square.wrapping_mul(result)) & MASK;
        }
        square = square.wrapping_mul(square) & MASK;
        left >>= 1;
    }
    result
}

/// The generator, one number at a time.
///
/// ```
/// use npb_kernels::random::{Lcg, SEED};
///
/// let mut walker = Lcg::new(SEED);
/// for _ in 0..1000 {
///     walker.next_f64();
/// }
/// let mut jumper = Lcg::new(SEED);
/// jumper.jump(1000);
/// assert_eq!(walker, jumper);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lcg {
    state: u64,
}

impl Lcg {
    /// Starts at `seed`, of which the low 46 bits count. The first number comes from the state
    /// after the seed. An odd seed gives the full period of 2^44.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed & MASK }
    }

    /// The current state, below 2^46.
    #[must_use]
    pub const fn state(&self) -> u64 {
        self.state
    }

    /// Steps once and returns the new state scaled to (0, 1).
    #[inline]
    pub fn next_f64(&mut self) -> f64 {
        self.multiply(MULTIPLIER);
        uniform(self.state << SHIFT)
    }

    /// Multiplies the state by `multiplier`: a step of n numbers when that is
    /// `power(MULTIPLIER, n)`, computed once and used for many strides (rows, planes).
    #[inline]
    pub const fn multiply(&mut self, multiplier: u64) {
        self.state = self.state.wrapping_mul(multiplier) & MASK;
    }

    /// Skips `count` numbers.
    pub const fn jump(&mut self, count: u64) {
        self.multiply(power(MULTIPLIER, count));
    }

    /// Fills `out` with the next `out.len()` numbers, as that many calls of [`Lcg::next_f64`] do.
    pub fn fill(&mut self, out: &mut [f64]) {
        const WIDTH: usize = 16;
        const STEP: u64 = power(MULTIPLIER, WIDTH as u64);
        let (blocks, rest) = out.as_chunks_mut::<WIDTH>();
        if !blocks.is_empty() {
            let mut lanes = Lanes::<WIDTH>::new(self.state, 1, 1);
            for block in blocks.iter_mut() {
                for (slot, word) in block.iter_mut().zip(&mut lanes.words) {
                    *slot = uniform(*word);
                    *word = word.wrapping_mul(STEP);
                }
            }
            self.jump((blocks.len() * WIDTH) as u64);
        }
        for slot in rest {
            *slot = self.next_f64();
        }
    }
}

/// `L` positions of the sequence, a fixed number of steps apart.
///
/// Each word is a state shifted left by 18 bits. The product of such a word with a multiplier
/// below 2^46, kept to 64 bits, is the next state shifted likewise: the modulo costs nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes<const L: usize> {
    /// The shifted states; read them with [`uniform`] or [`symmetric`].
    pub words: [u64; L],
}

impl<const L: usize> Lanes<L> {
    /// Lane i holds the state `offset + i * stride` steps after `seed`.
    #[must_use]
    pub fn new(seed: u64, offset: u64, stride: u64) -> Self {
        let stride = power(MULTIPLIER, stride);
        let mut state = Lcg::new(seed);
        state.jump(offset);
        let words = std::array::from_fn(|_| {
            let word = state.state << SHIFT;
            state.multiply(stride);
            word
        });
        Self { words }
    }
}

/// The number in (0, 1) of a lane word, exact.
#[inline(always)]
#[must_use]
pub const fn uniform(word: u64) -> f64 {
    // The state fills the upper 46 of the 52 fraction bits of a number in [1, 2).
    f64::from_bits((word >> 12) | 0x3ff0_0000_0000_0000) - 1.0
}

/// 2r - 1 in (-1, 1) for the number r of a lane word, exact.
#[inline(always)]
#[must_use]
pub const fn symmetric(word: u64) -> f64 {
    // As in `uniform`, but in [2, 4), where the fraction counts twice.
    f64::from_bits((word >> 12) | 0x4000_0000_0000_0000) - 3.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The reference definition: products of 23-bit halves in floating point.
    fn randdp(x: &mut f64, a: f64) -> f64 {
        let r23 = 0.5f64.powi(23);
        let t23 = 2f64.powi(23);
        let (r46, t46) = (r23 * r23, t23 * t23);
        let a1 = (r23 * a).trunc();
        let a2 = a - t23 * a1;
        let x1 = (r23 * *x).trunc();
        let x2 = *x - t23 * x1;
        let t1 = a1 * x2 + a2 * x1;
        let z = t1 - t23 * (r23 * t1).trunc();
        let t3 = t23 * z + a2 * x2;
        *x = t3 - t46 * (r46 * t3).trunc();
        r46 * *x
    }

    #[test]
    fn equals_the_floating_point_definition() {
        for seed in [SEED, crate::ep::params::SEED, 1, MASK] {
            let mut ours = Lcg::new(seed);
            let mut x = seed as f64;
            for k in 0..20_000 {
                let expected = randdp(&mut x, MULTIPLIER as f64);
                let got = ours.next_f64();
                assert_eq!(got.to_bits(), expected.to_bits(), "seed {seed}, number {k}");
                assert_eq!(ours.state() as f64, x, "seed {seed}, number {k}");
            }
        }
    }

    #[test]
    fn power_of_small_exponents() {
        assert_eq!(power(MULTIPLIER, 0), 1);
        assert_eq!(power(MULTIPLIER, 1), MULTIPLIER);
        assert_eq!(power(3, 4), 81);
        assert_eq!(power(2, 46), 0);
        // The order of 5 modulo 2^46 is 2^44: the period of the sequence.
        assert_eq!(power(MULTIPLIER, 1 << 44), 1);
        assert_ne!(power(MULTIPLIER, 1 << 43), 1);
    }

    #[test]
    fn fill_equals_single_steps_at_every_length() {
        for len in [0, 1, 15, 16, 17, 31, 32, 100, 1000] {
            let mut single = Lcg::new(SEED);
            let mut filled = Lcg::new(SEED);
            let mut out = vec![0.0; len];
            filled.fill(&mut out);
            for (k, value) in out.iter().enumerate() {
                assert_eq!(*value, single.next_f64(), "length {len}, number {k}");
            }
            assert_eq!(filled, single, "length {len}");
        }
    }

    proptest! {
        #[test]
        fn jumps_add_up(seed in 0..=MASK, a in 0..1u64 << 50, b in 0..1u64 << 50) {
            let mut twice = Lcg::new(seed);
            twice.jump(a);
            twice.jump(b);
            let mut once = Lcg::new(seed);
            once.jump(a + b);
            prop_assert_eq!(twice, once);
        }

        #[test]
        fn lanes_are_positions_of_the_sequence(seed in 0..=MASK, offset in 0..99u64, stride in 1..9u64) {
            let lanes = Lanes::<12>::new(seed, offset, stride);
            for (i, word) in lanes.words.iter().enumerate() {
                let mut at = Lcg::new(seed);
                at.jump(offset + i as u64 * stride);
                let r = at.state() as f64 * 0.5f64.powi(46);
                prop_assert_eq!(uniform(*word), r);
                prop_assert_eq!(symmetric(*word), 2.0 * r - 1.0);
            }
        }
    }
}

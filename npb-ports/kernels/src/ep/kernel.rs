//! The inner loop of EP: pairs of uniform numbers to Gaussian deviates, counted by annulus.
//!
//! For each pair (x1, x2) the polar method wants t = x1² + x2², a test t <= 1, then
//! f = sqrt(-2 ln t / t) and the deviates x1 f and x2 f. Everything here is written without a
//! branch over many independent lanes, so that the compiler turns random numbers, logarithm
//! and counting alike into vector code:
//!
//! * A rejected pair (21.5 % of them) is not skipped but given t = 1. Its logarithm is then
//!   exactly 0, so are its deviates and their part in the sums, and it reaches no annulus but the
//!   innermost, where it is left out. Packing the accepted pairs together would cost more than
//!   the lanes that it saves.
//! * Annuli are counted as "at least l" for the first few l, which is a compare and a subtract
//!   each. Larger deviates are so rare that a block having one is looked at again, one by one.
//! * Three short loops over a block are faster than one long: their constants stay in registers,
//!   and more iterations fit into the reorder window of the processor, which hides the latency of
//!   the two divisions and the square root. For the same reason each of these is in the loop
//!   where it overlaps best.
//!
//! Sums differ from one [`Level`] or division of the work to another in the
//! last digits only; counts are the same for all.

use super::params::{ANNULI, Batches, PAIRS_PER_BATCH, SEED};
use crate::cpu::{Kernel, Level, mul_add};
use crate::random::{Lanes, MULTIPLIER, power, symmetric};

/// Pairs in flight. All lane arrays together stay well within a first-level cache.
const LANES: usize = 256;

/// Jumps a lane to its pair of the next round.
const STEP: u64 = power(MULTIPLIER, 2 * LANES as u64);

/// Annuli below this one are counted in the vector loop.
const FEW: usize = 4;

const _: () = assert!(PAIRS_PER_BATCH.is_multiple_of(LANES as u64) && FEW < ANNULI);

/// What EP accumulates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Sum of the first deviates of the accepted pairs.
    pub sx: f64,
    /// Sum of the second deviates.
    pub sy: f64,
    /// Accepted pairs by the integer part of their larger deviate.
    pub counts: [u64; ANNULI],
}

impl Tally {
    /// Accepted pairs in all.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Tallies `batches` of the one random sequence, with the code for `level`.
#[must_use]
pub fn tally(batches: Batches, level: Level) -> Tally {
    if batches.count == 0 {
        return Tally::default();
    }
    level.run(Sweep(batches))
}

struct Sweep(Batches);

impl Kernel for Sweep {
    type Output = Tally;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Tally {
        let rounds = self.0.count * (PAIRS_PER_BATCH / LANES as u64);
        let start = self.0.first * 2 * PAIRS_PER_BATCH;
        let mut first = Lanes::<LANES>::new(SEED, start + 1, 2).words;
        let mut second = Lanes::<LANES>::new(SEED, start + 2, 2).words;
        let mut sx = [0.0; LANES];
        let mut sy = [0.0; LANES];
        let mut x1 = [0.0; LANES];
        let mut x2 = [0.0; LANES];
        let mut t = [0.0; LANES];
        let mut accepted = 0;
        let mut reaching = [0; FEW];
        let mut counts = [0; ANNULI];

        for _ in 0..rounds {
            let mut rejected = 0;
            for i in 0..LANES {
                let a = symmetric(first[i]);
                let b = symmetric(second[i]);
                first[i] = first[i].wrapping_mul(STEP);
                second[i] = second[i].wrapping_mul(STEP);
                let square = mul_add::<FMA>(a, a, b * b);
                rejected += u64::from(square > 1.0);
                x1[i] = a;
                x2[i] = b;
                t[i] = if square < 1.0 { square } else { 1.0 };
            }
            accepted += LANES as u64 - rejected;

            for t in &mut t {
                *t = minus_two_ln::<FMA>(*t) / *t;
            }

            let (mut one, mut two, mut three, mut four) = (0, 0, 0, 0);
            for i in 0..LANES {
                let (a, b, f) = (x1[i], x2[i], t[i].sqrt());
                sx[i] = mul_add::<FMA>(a, f, sx[i]);
                sy[i] = mul_add::<FMA>(b, f, sy[i]);
                let (a, b) = (a.abs(), b.abs());
                let larger = (if a > b { a } else { b }) * f;
                t[i] = larger;
                one += u64::from(larger >= 1.0);
                two += u64::from(larger >= 2.0);
                three += u64::from(larger >= 3.0);
                four += u64::from(larger >= 4.0);
            }
            for (sum, part) in reaching.iter_mut().zip([one, two, three, four]) {
                *sum += part;
            }
            if four > 0 {
                count_large(&t, &mut counts);
            }
        }

        let mut at_least = accepted;
        for (count, next) in counts.iter_mut().zip(reaching) {
            *count = at_least - next;
            at_least = next;
        }
        Tally {
            sx: sum_of_lanes(&sx),
            sy: sum_of_lanes(&sy),
            counts,
        }
    }
}

/// -2 ln t of a positive normal number, within two units in the last place.
///
/// (Lanes hold t from 2^-89, as the states of the generator are odd, to 1, where the result is 0.)
#[inline(always)]
fn minus_two_ln<const FMA: bool>(t: f64) -> f64 {
    // t = 2^k m with m in [sqrt(1/2), sqrt(2)). Adding the difference before the exponent is
    // taken makes fractions from sqrt(2) on count for the next power of two.
    const SQRT_HALF: u64 = 0x3fe6_a09e_0000_0000;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const FRACTION: u64 = (1 << 52) - 1;
    // The bits of 2^52, under which a small integer can be put, and what to take off again.
    const INTEGER: u64 = 0x4330_0000_0000_0000;
    const BIASED_ZERO: f64 = 4_503_599_627_370_496.0 + 1023.0;
    // ln 2 in two parts. The upper one ends in zeros, so that k times it is exact.
    const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    // With s = f / (2 + f), ln(1 + f) = f - f²/2 + s (f²/2 + R), where R = s² P(s²) for this
    // minimax polynomial P (lowest coefficient first), close to 2/3 + 2/5 s² + 2/7 s⁴ ...
    const P: [f64; 7] = [
        6.666_666_666_666_735e-1,
        3.999_999_999_940_942e-1,
        2.857_142_874_366_239e-1,
        2.222_219_843_214_978_4e-1,
        1.818_357_216_161_805e-1,
        1.531_383_769_920_937_3e-1,
        1.479_819_860_511_658_6e-1,
    ];

    let bits = t.to_bits().wrapping_add(ONE - SQRT_HALF);
    let k = f64::from_bits((bits >> 52) | INTEGER) - BIASED_ZERO;
    let m = f64::from_bits((bits & FRACTION).wrapping_add(SQRT_HALF));
    let f = m - 1.0;
    let s = f / (m + 1.0);
    let z = s * s;
    // The factor 2 of the result is in the constants.
    let mut p = 2.0 * P[6];
    p = mul_add::<FMA>(p, z, 2.0 * P[5]);
    p = mul_add::<FMA>(p, z, 2.0 * P[4]);
    p = mul_add::<FMA>(p, z, 2.0 * P[3]);
    p = mul_add::<FMA>(p, z, 2.0 * P[2]);
    p = mul_add::<FMA>(p, z, 2.0 * P[1]);
    p = mul_add::<FMA>(p, z, 2.0 * P[0]);
    let square = f * f;
    let low = mul_add::<FMA>(s, mul_add::<FMA>(p, z, square), k * (2.0 * LN_2_LOW));
    mul_add::<FMA>(k, -2.0 * LN_2_HIGH, (square - low) - (f + f))
}

/// Adds the deviates of a block that reach `FEW` to their annuli.
#[cold]
fn count_large(larger: &[f64; LANES], counts: &mut [u64; ANNULI]) {
    for m in larger.iter().filter(|m| **m >= FEW as f64) {
        // Above the last annulus the reference writes out of bounds; no class gets there.
        counts[(*m as usize).min(ANNULI - 1)] += 1;
    }
}

/// Sums by halves, which loses less than from one end to the other.
fn sum_of_lanes(lanes: &[f64]) -> f64 {
    match lanes {
        [] => 0.0,
        [one] => *one,
        _ => {
            let (left, right) = lanes.split_at(lanes.len() / 2);
            sum_of_lanes(left) + sum_of_lanes(right)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::ep::params::Params;

    const COUNTS_OF_S: [u64; ANNULI] = [6140517, 5865300, 1100361, 68546, 1648, 17, 0, 0, 0, 0];

    fn whole(class: Class, level: Level) -> Tally {
        tally(Batches::of_pe(Params::of(class).batches(), 0, 1), level)
    }

    fn assert_tally(class: Class, got: &Tally, counts: [u64; ANNULI], tolerance: f64) {
        let params = Params::of(class);
        assert_eq!(got.counts, counts);
        let (dx, dy) = (
            (got.sx / params.sx - 1.0).abs(),
            (got.sy / params.sy - 1.0).abs(),
        );
        assert!(
            dx < tolerance && dy < tolerance,
            "relative errors {dx:e}, {dy:e}"
        );
    }

    #[test]
    fn class_s_is_right_at_the_best_level() {
        let got = whole(Class::S, Level::best());
        assert_tally(Class::S, &got, COUNTS_OF_S, 1e-12);
        assert_eq!(got.pairs(), 13_176_389);
    }

    #[test]
    fn class_s_is_right_at_the_baseline() {
        assert_tally(
            Class::S,
            &whole(Class::S, Level::BASELINE),
            COUNTS_OF_S,
            1e-12,
        );
    }

    #[test]
    fn classes_w_and_a_are_right_at_every_level() {
        let counts_of_w = [12281576, 11729692, 2202726, 137368, 3371, 36, 0, 0, 0, 0];
        let counts_of_a = [
            98257395, 93827014, 17611549, 1110028, 26536, 245, 0, 0, 0, 0,
        ];
        for level in Level::supported() {
            assert_tally(Class::W, &whole(Class::W, level), counts_of_w, 1e-12);
            assert_tally(Class::A, &whole(Class::A, level), counts_of_a, 1e-11);
        }
    }

    /// The definition, one pair after another.
    fn plain(batches: Batches) -> Tally {
        let mut random = crate::random::Lcg::new(SEED);
        random.jump(batches.first * PAIRS_PER_BATCH * 2);
        let mut tally = Tally::default();
        for _ in 0..batches.count * PAIRS_PER_BATCH {
            let x1 = 2.0 * random.next_f64() - 1.0;
            let x2 = 2.0 * random.next_f64() - 1.0;
            let t = x1 * x1 + x2 * x2;
            if t <= 1.0 {
                let f = (-2.0 * t.ln() / t).sqrt();
                tally.sx += x1 * f;
                tally.sy += x2 * f;
                tally.counts[(x1 * f).abs().max((x2 * f).abs()) as usize] += 1;
            }
        }
        tally
    }

    #[test]
    fn every_level_agrees_with_the_definition() {
        // The far batch is in class F, half-way through.
        for first in [0, 3, 100, 1 << 27] {
            let batches = Batches { first, count: 2 };
            let expected = plain(batches);
            for level in Level::supported() {
                let got = tally(batches, level);
                assert_eq!(got.counts, expected.counts, "{level}, batch {first}");
                let error = (got.sx - expected.sx)
                    .abs()
                    .max((got.sy - expected.sy).abs());
                assert!(
                    error < 1e-9,
                    "{level}, batch {first}: sums off by {error:e}"
                );
            }
        }
    }

    #[test]
    fn any_division_counts_the_same() {
        let total = 12;
        let whole = plain(Batches {
            first: 0,
            count: total,
        });
        for n_pes in [1, 2, 3, 5, 8, 12, 13, 40] {
            let mut sum = Tally::default();
            for pe in 0..n_pes {
                let part = tally(Batches::of_pe(total, pe, n_pes), Level::best());
                sum.sx += part.sx;
                sum.sy += part.sy;
                for (sum, part) in sum.counts.iter_mut().zip(part.counts) {
                    *sum += part;
                }
            }
            assert_eq!(sum.counts, whole.counts, "{n_pes} PEs");
            assert!((sum.sx - whole.sx).abs() < 1e-9, "{n_pes} PEs");
            assert!((sum.sy - whole.sy).abs() < 1e-9, "{n_pes} PEs");
        }
    }

    struct Logarithms<'a>(&'a [f64]);

    impl Kernel for Logarithms<'_> {
        type Output = Vec<f64>;

        #[inline(always)]
        fn run<const FMA: bool>(self) -> Vec<f64> {
            self.0.iter().map(|t| minus_two_ln::<FMA>(*t)).collect()
        }
    }

    #[test]
    fn logarithm_is_accurate_at_every_level() {
        let mut random = crate::random::Lcg::new(1);
        let mut inputs = vec![
            1.0,
            1.0 - f64::EPSILON / 2.0,
            0.5,
            0.5f64.sqrt(),
            2f64.powi(-89),
        ];
        for exponent in 0..90 {
            inputs.extend((0..500).map(|_| random.next_f64() * 0.5f64.powi(exponent)));
        }
        for level in Level::supported() {
            let results = level.run(Logarithms(&inputs));
            assert_eq!(results[0].to_bits(), 0, "{level}: -2 ln 1 must be +0");
            for (t, got) in inputs.iter().zip(results) {
                let expected = -2.0 * t.ln();
                assert!(
                    (got - expected).abs() <= 5e-16 * expected,
                    "{level}: {t:e}: {got:e}"
                );
            }
        }
    }

    #[test]
    fn large_deviates_are_counted_and_never_out_of_bounds() {
        let mut block = [0.5; LANES];
        block[..6].copy_from_slice(&[3.999, 4.0, 4.5, 5.0, 9.999, 11.2]);
        let mut counts = [0; ANNULI];
        count_large(&block, &mut counts);
        assert_eq!(counts, [0, 0, 0, 0, 2, 1, 0, 0, 0, 2]);
    }
}

//! What defines EP for each class: its size, its reference sums, and who does which part.

use crate::class::Class;

/// Seed of EP's random sequence.
pub const SEED: u64 = 271_828_183;

/// Pairs of random numbers in a batch, the unit in which work is divided.
pub const PAIRS_PER_BATCH: u64 = 1 << LOG_PAIRS_PER_BATCH;

const LOG_PAIRS_PER_BATCH: u32 = 16;

/// Square annuli in which deviates are counted.
pub const ANNULI: usize = 10;

/// Size and reference results of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// There are 2^m pairs of random numbers.
    pub m: u32,
    /// Reference sum of the first deviates.
    pub sx: f64,
    /// Reference sum of the second deviates.
    pub sy: f64,
}

impl Params {
    /// The definition of `class`.
    #[must_use]
    pub const fn of(class: Class) -> Self {
        const TABLE: [(u32, f64, f64); Class::ALL.len()] = [
            (24, -3.247_834_652_034_74e3, -6.958_407_078_382_297e3),
            (25, -2.863_319_731_645_753e3, -6.320_053_679_109_499e3),
            (28, -4.295_875_165_629_892e3, -1.580_732_573_678_431e4),
            (30, 4.033_815_542_441_498e4, -2.660_669_192_809_235e4),
            (32, 4.764_367_927_995_374e4, -8.084_072_988_043_731e4),
            (36, 1.982_481_200_946_593e5, -1.020_596_636_361_769e5),
            (40, -5.319_717_441_530e5, -3.688_834_557_731e5),
            (44, -1.986_768_071_074_039e1, -2.164_441_190_520_301e1),
        ];
        let (m, sx, sy) = TABLE[class.index()];
        Self { m, sx, sy }
    }

    /// Random numbers drawn: EP's rate counts these, not floating point operations.
    #[must_use]
    pub const fn random_numbers(&self) -> u64 {
        1 << (self.m + 1)
    }

    /// Batches of the whole problem.
    #[must_use]
    pub const fn batches(&self) -> u64 {
        1 << (self.m - LOG_PAIRS_PER_BATCH)
    }
}

/// A run of consecutive batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    /// Index of the first batch in the whole problem.
    pub first: u64,
    /// How many; may be 0.
    pub count: u64,
}

impl Batches {
    /// The part of `total` batches that PE `pe` of `n_pes` does. The first PEs do one more if the
    /// division leaves a rest; with more PEs than batches the last ones do nothing.
    ///
    /// # Panics
    /// If `pe` is not below `n_pes`.
    #[must_use]
    pub fn of_pe(total: u64, pe: usize, n_pes: usize) -> Self {
        assert!(pe < n_pes, "PE {pe} of {n_pes} PEs");
        let (pe, n_pes) = (pe as u64, n_pes as u64);
        let (share, rest) = (total / n_pes, total % n_pes);
        Self {
            first: pe * share + pe.min(rest),
            count: share + u64::from(pe < rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_of_the_classes() {
        let batches = Class::ALL.map(|class| Params::of(class).batches());
        assert_eq!(batches[..3], [256, 512, 4096]);
        assert_eq!(Params::of(Class::A).random_numbers(), 1 << 29);
        assert_eq!(Params::of(Class::F).random_numbers(), 1 << 45);
    }

    proptest! {
        #[test]
        fn parts_cover_all_batches_in_order(total in 0..5000u64, n_pes in 1..6000usize) {
            let mut next = 0;
            for pe in 0..n_pes {
                let part = Batches::of_pe(total, pe, n_pes);
                prop_assert_eq!(part.first, next);
                prop_assert!(part.count.abs_diff(total / n_pes as u64) <= 1);
                next += part.count;
            }
            prop_assert_eq!(next, total);
        }
    }
}

//! On which numbers of PEs a benchmark runs.
//!
//! The reference programs let surplus processes idle if asked to. Here a wrong number is an error
//! that names right ones: a job that pays for PEs wants them to work.

use crate::class::Class;
use crate::error::Error;
use std::fmt;

/// A rule that numbers of PEs must obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// p * p PEs, of at most `most`.
    Square {
        /// The largest number that the problem is large enough for; 1 or more.
        most: usize,
    },
    /// 2^k PEs, of at most `most`.
    PowerOfTwo {
        /// The largest number that the problem is large enough for; 1 or more.
        most: usize,
    },
    /// Any number of PEs from `least` to `most`.
    Any {
        /// The smallest number that the problem is small enough for; 1 or more.
        least: usize,
        /// The largest number that the problem is large enough for; `least` or more.
        most: usize,
    },
    /// x * y PEs with y <= x <= 2 y ([`rectangle`]), and x at most `side`.
    Rectangle {
        /// The longest side that the problem is large enough for; 1 or more.
        side: usize,
    },
}

/// The sides of the rectangle that `n_pes` PEs form: the longer and the shorter one, which are as near to each
/// other as they can be. `None` if the one would be more than twice the other.
#[must_use]
pub fn rectangle(n_pes: usize) -> Option<(usize, usize)> {
    let short = (1..=n_pes.isqrt())
        .rev()
        .find(|y| n_pes.is_multiple_of(*y))?;
    let long = n_pes / short;
    (long <= 2 * short).then_some((long, short))
}

impl Rule {
    /// Whether `n_pes` obeys.
    #[must_use]
    pub fn allows(self, n_pes: usize) -> bool {
        n_pes > 0 && self.below(n_pes) == n_pes
    }

    /// The nearest numbers of PEs that obey: the next below `n_pes`, then the next above, if there
    /// are such. `n_pes` itself if it obeys.
    #[must_use]
    pub fn nearest(self, n_pes: usize) -> Vec<usize> {
        if let Self::Any { least, most } = self {
            return vec![n_pes.clamp(least, most)];
        }
        let below = self.below(n_pes.max(1));
        if below == n_pes {
            return vec![n_pes];
        }
        let above = match self {
            Self::Square { .. } => (below.isqrt() + 1).pow(2),
            Self::PowerOfTwo { .. } => 2 * below,
            Self::Any { .. } => below + 1,
            Self::Rectangle { .. } => (below + 1..=self.most())
                .find(|n| self.allows(*n))
                .unwrap_or(usize::MAX),
        };
        // Above the limit nothing is.
        if above <= self.most() {
            vec![below, above]
        } else {
            vec![below]
        }
    }

    /// The largest number that obeys and is at most `n_pes`, which is 1 or more.
    fn below(self, n_pes: usize) -> usize {
        let n = n_pes.min(self.most()).max(1);
        match self {
            Self::Square { .. } => n.isqrt().pow(2),
            Self::PowerOfTwo { .. } => 1 << n.ilog2(),
            Self::Any { least, .. } => n.max(least),
            Self::Rectangle { side } => {
                let fits = |n: &usize| rectangle(*n).is_some_and(|(long, _)| long <= side);
                (1..=n).rev().find(fits).unwrap_or(1)
            }
        }
    }

    fn most(self) -> usize {
        match self {
            Self::Square { most } | Self::PowerOfTwo { most } | Self::Any { most, .. } => most,
            Self::Rectangle { side } => side * side,
        }
    }

    /// Fails if `kernel` (its name in capitals) does not run on `n_pes` PEs. This needs no
    /// communication: all PEs find the same.
    ///
    /// # Errors
    /// [`Error::Processes`] with the rule and the nearest numbers.
    pub fn check(self, kernel: &'static str, class: Class, n_pes: usize) -> Result<(), Error> {
        if self.allows(n_pes) {
            return Ok(());
        }
        Err(Error::Processes {
            kernel,
            class,
            n_pes,
            rule: self.to_string(),
            try_with: self.nearest(n_pes),
        })
    }
}

/// "a square number of PEs up to 16": as [`Error::Processes`] shows it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = match self {
            Self::Square { .. } => "a square number",
            Self::PowerOfTwo { .. } => "a power-of-two number",
            Self::Any { least: 1, .. } => "any number",
            Self::Any { least, most } => return write!(f, "{least} to {most} PEs"),
            Self::Rectangle { .. } => "a number x * y (y <= x <= 2 y)",
        };
        write!(f, "{which} of PEs up to {}", self.below(self.most()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wrong_number_is_told_with_the_nearest_right_ones() {
        let square = Rule::Square { most: 16 };
        assert_eq!(square.nearest(3), [1, 4]);
        assert_eq!(square.nearest(15), [9, 16]);
        assert_eq!(square.nearest(17), [16]);
        assert_eq!(square.nearest(9), [9]);
        let power = Rule::PowerOfTwo { most: 100 };
        assert_eq!(power.nearest(3), [2, 4]);
        assert_eq!(power.nearest(65), [64]);
        assert_eq!(
            square.check("BT", Class::S, 25).unwrap_err().to_string(),
            "BT class S does not run on 25 PEs: it takes a square number of PEs up to 16; \
             start it with 16 PEs"
        );
        assert_eq!(power.to_string(), "a power-of-two number of PEs up to 64");
        assert!(square.check("BT", Class::S, 16).is_ok());
        let rectangle = Rule::Rectangle { side: 4 };
        assert_eq!(rectangle.nearest(3), [2, 4]);
        assert_eq!(rectangle.nearest(10), [9, 12]);
        assert_eq!(rectangle.nearest(20), [16]);
        assert_eq!(
            rectangle.check("LU", Class::S, 3).unwrap_err().to_string(),
            "LU class S does not run on 3 PEs: it takes a number x * y (y <= x <= 2 y) of PEs up to 16; \
             start it with 2 or 4 PEs"
        );
    }

    #[test]
    fn any_number_may_have_limits_on_both_sides() {
        let rule = Rule::Any {
            least: 16,
            most: 1024,
        };
        assert!([16, 17, 1000, 1024].into_iter().all(|n| rule.allows(n)));
        assert_eq!(
            [0, 1, 15, 1025].map(|n| rule.nearest(n)),
            [[16], [16], [16], [1024]]
        );
        assert!(![0, 1, 15, 1025].into_iter().any(|n| rule.allows(n)));
        assert_eq!(rule.to_string(), "16 to 1024 PEs");
        let rule = Rule::Any {
            least: 1,
            most: 128,
        };
        assert_eq!(rule.to_string(), "any number of PEs up to 128");
        assert_eq!(
            rule.check("IS", Class::S, 200).unwrap_err().to_string(),
            "IS class S does not run on 200 PEs: it takes any number of PEs up to 128; start it with 128 PEs"
        );
    }

    #[test]
    fn rectangles_are_as_square_as_they_can_be() {
        let sides = [1, 2, 4, 6, 8, 12, 15, 16, 18, 32, 72].map(rectangle);
        let expected = [
            (1, 1),
            (2, 1),
            (2, 2),
            (3, 2),
            (4, 2),
            (4, 3),
            (5, 3),
            (4, 4),
            (6, 3),
            (8, 4),
            (9, 8),
        ];
        assert_eq!(sides, expected.map(Some));
        assert_eq!([0, 3, 5, 7, 10, 14, 27].map(rectangle), [None; 7]);
    }

    #[test]
    fn no_pes_are_no_job() {
        assert!(!Rule::Square { most: 4 }.allows(0));
        assert_eq!(Rule::PowerOfTwo { most: 4 }.nearest(0), [1, 2]);
    }

    proptest! {
        #[test]
        fn nearest_rectangles_are_the_nearest(side in 1..40usize, n_pes in 1..2000usize) {
            let rule = Rule::Rectangle { side };
            let legal: Vec<usize> = (1..=side * side)
                .filter(|n| rectangle(*n).is_some_and(|(x, y)| x <= side && x * y == *n))
                .collect();
            prop_assert_eq!(rule.allows(n_pes), legal.contains(&n_pes));
            let below = legal.iter().rfind(|n| **n <= n_pes);
            let above = legal.iter().find(|n| **n >= n_pes);
            let mut expected: Vec<_> = below.into_iter().chain(above).copied().collect();
            expected.dedup();
            prop_assert_eq!(rule.nearest(n_pes), expected);
        }

        #[test]
        fn nearest_are_the_nearest(most in 1..5000usize, n_pes in 1..6000usize, square: bool) {
            let legal: Vec<usize> = if square {
                (1..=most.isqrt()).map(|p| p * p).collect()
            } else {
                (0..).map(|k| 1 << k).take_while(|n| *n <= most).collect()
            };
            let rule = if square { Rule::Square { most } } else { Rule::PowerOfTwo { most } };
            prop_assert_eq!(rule.allows(n_pes), legal.contains(&n_pes));
            let below = legal.iter().rfind(|n| **n <= n_pes);
            let above = legal.iter().find(|n| **n >= n_pes);
            let mut expected: Vec<_> = below.into_iter().chain(above).copied().collect();
            expected.dedup();
            prop_assert_eq!(rule.nearest(n_pes), expected);
        }
    }
}

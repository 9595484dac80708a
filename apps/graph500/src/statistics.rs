//! Quartiles, means and deviations, by the formulas of the reference.

/// Of a list of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// The smallest.
    pub minimum: f64,
    /// A quarter is below.
    pub first_quartile: f64,
    /// A half is below.
    pub median: f64,
    /// Three quarters are below.
    pub third_quartile: f64,
    /// The largest.
    pub maximum: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The standard deviation of a sample; of one number it is none (NaN).
    pub deviation: f64,
}

impl Statistics {
    /// Of these; none of no numbers.
    #[must_use]
    pub fn of(numbers: &[f64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let last = n.checked_sub(1)?;
        let between = |a: usize, b: usize| (sorted[a] + sorted[b]) * 0.5;
        let mean = numbers.iter().sum::<f64>() / n as f64;
        let squares = numbers.iter().map(|x| (x - mean) * (x - mean));
        Some(Self {
            minimum: sorted[0],
            first_quartile: between(last / 4, n / 4),
            median: between(last / 2, n / 2),
            third_quartile: between(last - last / 4, last - n / 4),
            maximum: sorted[last],
            mean,
            deviation: (squares.sum::<f64>() / last as f64).sqrt(),
        })
    }

    /// Those of `1 / x` for these of `x`, but for mean and deviation, which are of the harmonic mean: `n / Σ x`, and the
    /// deviation of Norris, "The standard errors of the geometric and harmonic means" (1940).
    #[must_use]
    pub fn inverse(&self, n: usize) -> Self {
        let root = ((n as f64) - 1.0).sqrt();
        Self {
            minimum: 1.0 / self.maximum,
            first_quartile: 1.0 / self.third_quartile,
            median: 1.0 / self.median,
            third_quartile: 1.0 / self.first_quartile,
            maximum: 1.0 / self.minimum,
            mean: 1.0 / self.mean,
            deviation: self.deviation / (self.mean * self.mean * root),
        }
    }

    /// All of them with the names that the benchmark's output has.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("min", self.minimum),
            ("firstquartile", self.first_quartile),
            ("median", self.median),
            ("thirdquartile", self.third_quartile),
            ("max", self.maximum),
            ("mean", self.mean),
            ("stddev", self.deviation),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_those_of_the_reference() {
        let of_five = Statistics::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(
            of_five.named().map(|(_, value)| value),
            [1.0, 2.0, 3.0, 4.0, 5.0, 3.0, 2.5f64.sqrt()]
        );
        let of_four = Statistics::of(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(of_four.first_quartile, 1.5);
        assert_eq!(of_four.median, 2.5);
        assert_eq!(of_four.third_quartile, 3.5);
        let of_one = Statistics::of(&[7.0]).unwrap();
        assert_eq!((of_one.median, of_one.mean), (7.0, 7.0));
        assert!(of_one.deviation.is_nan());
        assert_eq!(Statistics::of(&[]), None);
    }

    #[test]
    fn rates_have_harmonic_means() {
        let seconds = Statistics::of(&[1.0, 2.0, 4.0]).unwrap();
        let rates = seconds.inverse(3);
        assert_eq!((rates.minimum, rates.maximum), (0.25, 1.0));
        assert!((rates.mean - 3.0 / 7.0).abs() < 1e-15);
        let mean: f64 = 7.0 / 3.0;
        let deviation = seconds.deviation / (mean * mean * 2f64.sqrt());
        assert!((rates.deviation - deviation).abs() < 1e-15);
    }
}

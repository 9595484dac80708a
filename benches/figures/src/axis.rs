//! Axes: which values a plot spans, where they lie, and which of them are written beside it.

/// An axis of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    least: f64,
    most: f64,
    logarithmic: bool,
}

/// Values that are this far apart do not fit on a linear axis: the smaller ones would lie on the edge.
const FAR_APART: f64 = 30.0;

impl Axis {
    /// Spans `values`, logarithmically if they are far apart and `may` be drawn so; from zero otherwise.
    pub fn over(values: impl Iterator<Item = f64>, may: bool) -> Self {
        let all: Vec<f64> = values.filter(|v| v.is_finite() && *v >= 0.0).collect();
        let most = all.iter().copied().fold(0.0, f64::max);
        let least = all
            .iter()
            .copied()
            .filter(|&v| v > 0.0)
            .fold(most, f64::min);
        let logarithmic = may && least > 0.0 && most > FAR_APART * least;
        if logarithmic {
            let (least, most) = (steps(least).0, steps(most).1);
            return Self {
                least,
                most,
                logarithmic,
            };
        }
        let most = if most > 0.0 { most } else { 1.0 };
        let step = nice(most / 5.0);
        Self {
            least: 0.0,
            most: (most / step).ceil() * step,
            logarithmic,
        }
    }

    /// Spans `values` logarithmically, from the first to the last of them.
    pub fn powers(values: &[f64]) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let alone = least >= most;
        Self {
            least: if alone { least / 2.0 } else { least },
            most: if alone { least * 2.0 } else { most },
            logarithmic: true,
        }
    }

    /// Whether equal distances are equal ratios.
    pub fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// Where a value lies, from 0 to 1. What is outside, as a zero on a logarithmic axis, lies on the edge.
    pub fn place(&self, value: f64) -> f64 {
        let Self { least, most, .. } = *self;
        let part = match self.logarithmic {
            true if value <= 0.0 => 0.0,
            true => (value / least).ln() / (most / least).ln(),
            false => (value - least) / (most - least),
        };
        part.clamp(0.0, 1.0)
    }

    /// Round values from the first to the last, about `wanted` of them.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        let Self { least, most, .. } = *self;
        if !self.logarithmic {
            let step = nice((most - least) / wanted.max(1) as f64);
            let n = ((most - least) / step * 1.000_001) as usize;
            return (0..=n).map(|i| least + step * i as f64).collect();
        }
        let decades = (most / least).log10();
        let digits: &[f64] = match decades * 3.0 <= wanted as f64 {
            true => &[1.0, 2.0, 5.0],
            false => &[1.0],
        };
        // Of many decades not each.
        let every = (decades / wanted.max(1) as f64).ceil().max(1.0) as i32;
        let first = (least * 1.000_001).log10().floor() as i32;
        let last = (most * 1.000_001).log10().floor() as i32;
        (first..=last)
            .step_by(every as usize)
            .flat_map(|power| digits.iter().map(move |d| d * 10f64.powi(power)))
            .filter(|v| (least * 0.999_999..=most * 1.000_001).contains(v))
            .collect()
    }
}

/// The values 1, 2 or 5 times a power of ten next to a value: not above, not below.
fn steps(value: f64) -> (f64, f64) {
    let power = 10f64.powf(value.log10().floor());
    let all = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0].map(|d| d * power);
    let below = all.iter().rfind(|&&v| v <= value * 1.000_001);
    let above = all.iter().find(|&&v| v >= value * 0.999_999);
    (*below.unwrap_or(&value), *above.unwrap_or(&value))
}

/// The least of them that is not below.
fn nice(value: f64) -> f64 {
    steps(value).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(values: &[f64]) -> Axis {
        Axis::over(values.iter().copied(), true)
    }

    #[test]
    fn near_values_are_on_a_linear_axis_from_zero() {
        let axis = over(&[7.0, 93.0]);
        assert_eq!(axis.ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!((axis.place(0.0), axis.place(50.0)), (0.0, 0.5));
        assert_eq!(Axis::over([1.0, 1e6].into_iter(), false).place(0.0), 0.0);
    }

    #[test]
    fn values_far_apart_are_on_a_logarithmic_one() {
        let axis = over(&[0.003, 4.0]);
        assert_eq!(axis.ticks(5), [0.01, 0.1, 1.0]);
        let narrow = over(&[1.0, 40.0]);
        assert_eq!(narrow.ticks(6), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert!(axis.place(0.003) >= 0.0 && axis.place(4.0) < axis.place(5.0));
        assert_eq!(axis.place(0.0), 0.0, "there is no logarithm of it");
    }

    #[test]
    fn axes_of_nothing_are_axes() {
        for axis in [
            over(&[]),
            over(&[0.0]),
            over(&[f64::NAN]),
            Axis::powers(&[8.0]),
        ] {
            assert!(axis.place(1.0).is_finite(), "{axis:?}");
            assert!(axis.ticks(5).len() > 1 || axis.logarithmic, "{axis:?}");
        }
        assert_eq!(Axis::powers(&[8.0]).place(8.0), 0.5);
    }

    #[test]
    fn ticks_are_few_and_inside() {
        for power in -9..9 {
            for most in [1.0, 1.3, 2.0, 3.7, 9.9] {
                let most = most * 10f64.powi(power);
                for least in [most / 2.0, most / 31.0, most / 1e5, most / 1e11] {
                    let axis = over(&[least, most]);
                    let ticks = axis.ticks(6);
                    assert!((2..=9).contains(&ticks.len()), "{axis:?}: {ticks:?}");
                    assert!(ticks.windows(2).all(|t| t[0] < t[1]), "{axis:?}: {ticks:?}");
                    assert!(axis.place(most) > axis.place(least), "{axis:?}");
                }
            }
        }
    }
}

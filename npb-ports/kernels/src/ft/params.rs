//! The definition of FT: sizes, iterations and checksums of each class.

use super::checksums::{Complex, published};
use crate::class::Class;

/// Diffusivity.
pub const ALPHA: f64 = 1e-6;

/// Points whose sum is the checksum: point j = 1, 2, .. is at x = j, y = 3 j, z = 5 j, modulo the sizes.
pub const POINTS: usize = 1024;

/// The largest relative error of a checksum that passes.
pub const TOLERANCE: f64 = 1e-12;

/// The definition of FT for one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Points along x, y and z: powers of two.
    pub n: [usize; 3],
    /// The checksums; there are as many iterations.
    pub checksums: &'static [Complex],
}

impl Params {
    /// The definition of `class`.
    #[must_use]
    pub const fn of(class: Class) -> Self {
        let n = match class {
            Class::S => [64, 64, 64],
            Class::W => [128, 128, 32],
            Class::A => [256, 256, 128],
            Class::B => [512, 256, 256],
            Class::C => [512, 512, 512],
            Class::D => [2048, 1024, 1024],
            Class::E => [4096, 2048, 2048],
            Class::F => [8192, 4096, 4096],
        };
        Self {
            n,
            checksums: published(class),
        }
    }

    /// How often the field is evolved and transformed back.
    #[must_use]
    pub const fn iterations(&self) -> u32 {
        self.checksums.len() as u32
    }

    /// All points of the grid.
    #[must_use]
    pub fn points(&self) -> f64 {
        self.n.iter().map(|n| *n as f64).product()
    }

    /// Floating point operations that count for the rate, as the reference programs define it,
    /// whatever a program really does. The logarithm is the natural one.
    #[must_use]
    pub fn operations(&self) -> f64 {
        let (points, iterations) = (self.points(), f64::from(self.iterations()));
        let log = points.ln();
        points * (14.8157 + 7.19641 * log + (5.23518 + 7.21113 * log) * iterations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_every_iteration_has_its_checksum() {
        for class in Class::ALL {
            let params = Params::of(class);
            assert!(params.n.iter().all(|n| n.is_power_of_two()));
            let expected = match class {
                Class::S | Class::W | Class::A => 6,
                Class::B | Class::C => 20,
                Class::D | Class::E | Class::F => 25,
            };
            assert_eq!(params.iterations(), expected);
            for sum in params.checksums {
                assert!(sum.iter().all(|part| (484.0..568.0).contains(part)));
            }
        }
    }

    #[test]
    fn operations_of_class_a() {
        // 7756 Mop/s take 0.92 seconds.
        let operations = Params::of(Class::A).operations();
        assert!((operations / 1e6 - 7136.5).abs() < 10.0, "{operations}");
    }
}

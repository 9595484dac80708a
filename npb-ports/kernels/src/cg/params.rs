//! The definition of CG: size, iterations, shift and reference result of each class.

use crate::class::Class;

/// Steps of the conjugate gradient method in each iteration.
pub const STEPS: usize = 25;

/// What is added to the diagonal, a lower bound of the eigenvalues before the shift, and the ratio of the last
/// vector's weight to the first one's.
pub const CONDITION: f64 = 0.1;

/// The definition of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Rows of the matrix.
    pub n: usize,
    /// Random numbers in each of the vectors that the matrix is made of.
    pub nonzeros: usize,
    /// Iterations of the inverse power method.
    pub iterations: u32,
    /// What is subtracted from the diagonal.
    pub shift: f64,
    /// The reference's eigenvalue.
    pub zeta: f64,
}

impl Params {
    /// The definition of `class`.
    #[must_use]
    pub const fn of(class: Class) -> Self {
        const TABLE: [(usize, usize, u32, f64, f64); Class::ALL.len()] = [
            (1_400, 7, 15, 10.0, 8.597_177_507_864_8),
            (7_000, 8, 15, 12.0, 10.362_595_087_124),
            (14_000, 11, 15, 20.0, 17.130_235_054_029),
            (75_000, 13, 75, 60.0, 22.712_745_482_631),
            (150_000, 15, 75, 110.0, 28.973_605_592_845),
            (1_500_000, 21, 100, 500.0, 52.514_532_105_794),
            (9_000_000, 26, 100, 1_500.0, 77.522_164_599_383),
            (54_000_000, 31, 100, 5_000.0, 107.307_082_643_3),
        ];
        let (n, nonzeros, iterations, shift, zeta) = TABLE[class.index()];
        Self {
            n,
            nonzeros,
            iterations,
            shift,
            zeta,
        }
    }

    /// Floating point operations that count for the rate: the reference's formula, which takes
    /// every vector's products for nonzeros of their own.
    #[must_use]
    pub fn operations(&self) -> f64 {
        let nonzeros = self.nonzeros as f64;
        let product = nonzeros * (nonzeros + 1.0);
        let iteration = 3.0 + product + STEPS as f64 * (5.0 + product) + 3.0;
        2.0 * f64::from(self.iterations) * self.n as f64 * iteration
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_class_a() {
        let operations = Params::of(Class::A).operations();
        assert_eq!(operations, 30.0 * 14_000.0 * (138.0 + 25.0 * 137.0));
    }
}

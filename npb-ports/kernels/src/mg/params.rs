//! What defines MG for each class: grid, iterations, smoother and reference norm.

use super::stencil::Weights;
use crate::class::Class;

/// The definition of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// The grid has 2^levels cells in each direction; the coarsest level, 1, has 2.
    pub levels: usize,
    /// V-cycles of the timed region.
    pub iterations: u32,
    /// Weights of the smoother S.
    pub smoother: Weights,
    /// Reference L2 norm of the last residual.
    pub norm: f64,
}

impl Params {
    /// The definition of `class`.
    #[must_use]
    pub const fn of(class: Class) -> Self {
        /// The smoother of the classes up to A, and that of the others. (Corners do not count.)
        const SMOOTHERS: [Weights; 2] = [
            Weights {
                centre: -3.0 / 8.0,
                face: 1.0 / 32.0,
                edge: -1.0 / 64.0,
                corner: 0.0,
            },
            Weights {
                centre: -3.0 / 17.0,
                face: 1.0 / 33.0,
                edge: -1.0 / 61.0,
                corner: 0.0,
            },
        ];
        const TABLE: [(usize, u32, usize, f64); Class::ALL.len()] = [
            (5, 4, 0, 0.530_770_700_573_4e-4),
            (7, 4, 0, 0.646_732_937_533_9e-5),
            (8, 4, 0, 0.243_336_530_906_9e-5),
            (8, 20, 1, 0.180_056_440_135_5e-5),
            (9, 20, 1, 0.570_673_228_574_0e-6),
            (10, 50, 1, 0.158_327_506_044_0e-9),
            (11, 50, 1, 0.563_044_258_471_1e-10),
            (12, 50, 1, 0.188_922_569_798_9e-10),
        ];
        let (levels, iterations, smoother, norm) = TABLE[class.index()];
        Self {
            levels,
            iterations,
            smoother: SMOOTHERS[smoother],
            norm,
        }
    }

    /// Cells of the grid in each direction.
    #[must_use]
    pub const fn cells(&self) -> usize {
        1 << self.levels
    }

    /// Cells of the whole grid.
    #[must_use]
    pub fn points(&self) -> f64 {
        (self.cells() as f64).powi(3)
    }

    /// Floating point operations of the timed region by MG's definition: 58 a cell and cycle.
    #[must_use]
    pub fn operations(&self) -> f64 {
        58.0 * f64::from(self.iterations) * self.points()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_the_classes() {
        let cells = Class::ALL.map(|class| Params::of(class).cells());
        assert_eq!(cells, [32, 128, 256, 256, 512, 1024, 2048, 4096]);
        assert_eq!(Params::of(Class::A).operations(), 58.0 * 4.0 * 16_777_216.0);
    }
}

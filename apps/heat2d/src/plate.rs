//! What is computed: temperatures around the plate and in the beginning, and what is known of them later.

use std::f64::consts::PI;

use crate::options::{Method, Shape};

/// Temperature of the hot part of the upper edge, and the largest of a mode.
pub(crate) const HOT: f64 = 550.0;

/// The red points of the checkerboard, to which the upper left corner of the plate belongs; the others are black.
pub(crate) const RED: usize = 0;
pub(crate) const BLACK: usize = 1;

/// The plate, and its edges around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plate {
    pub(crate) size: Shape,
    /// Half waves in either direction at the beginning. If there are none the upper edge is hot.
    pub(crate) mode: Option<Shape>,
}

impl Plate {
    /// The temperature in the beginning. Row 0 is the upper edge, row 1 the plate's first one, and columns alike.
    pub(crate) fn start(&self, row: usize, col: usize) -> f64 {
        let Shape { rows, cols } = self.size;
        let inside = (1..=rows).contains(&row) && (1..=cols).contains(&col);
        match self.mode {
            Some(mode) if inside => {
                // Whole waves are taken away from whole numbers: sines of large numbers are less exact.
                let wave = |waves: usize, at: usize, points: usize| {
                    let whole = 2 * (points as u128 + 1);
                    let at = waves as u128 * at as u128 % whole;
                    (2.0 * PI * (at as f64 / whole as f64)).sin()
                };
                HOT * wave(mode.rows, row, rows) * wave(mode.cols, col, cols)
            }
            None if row == 0 && col > cols / 3 && col <= cols - cols / 3 => HOT,
            _ => 0.0,
        }
    }

    /// The lowest and the highest temperature that there can be at any time: that of the beginning, or of the edges.
    pub(crate) fn bounds(&self) -> [f64; 2] {
        [if self.mode.is_some() { -HOT } else { 0.0 }, HOT]
    }

    /// What no sum of the squares of the first steps' changes exceeds: 16 times the squares of what the points have
    /// in the beginning and of what the edges add to them. With these as vectors, `u` and `b`, a step multiplies by
    /// matrices whose norms are below 1 and adds `b`: by colours, what is red becomes no longer than `u + b`, and
    /// what is black than `u + 2 b`.
    pub(crate) fn largest_change(&self) -> f64 {
        let points = match self.mode {
            Some(_) => self.size.points(),
            None => self.size.cols,
        };
        16.0 * HOT * HOT * points as f64
    }

    /// The factor by which a [mode](Self::mode) decays in a step of Jacobi's method, its eigenvalue.
    fn decay(&self, mode: Shape) -> f64 {
        let cosine = |waves, points| (PI * waves as f64 / (points + 1) as f64).cos();
        0.5 * (cosine(mode.rows, self.size.rows) + cosine(mode.cols, self.size.cols))
    }

    /// What a mode is multiplied by after so many steps, in points of a colour; nothing if the plate has no mode.
    ///
    /// In a step by colours, red points become what Jacobi's method makes of the black ones: of amplitudes r and b, r
    /// becomes `d b`, and then b becomes `d r`, so that b is decayed twice in each step.
    pub(crate) fn decayed(&self, method: Method, steps: u64, colour: usize) -> Option<f64> {
        let factor = self.decay(self.mode?);
        let times = match (method, colour) {
            (Method::Jacobi, _) => steps,
            (Method::RedBlack, RED) => 2 * steps - 1,
            (Method::RedBlack, _) => 2 * steps,
        };
        // Of negative factors only whole powers have a sign.
        let sign = if factor < 0.0 && times % 2 == 1 {
            -1.0
        } else {
            1.0
        };
        Some(sign * factor.abs().powf(times as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_its_own_mirror_image() {
        for (rows, cols) in [(1, 1), (2, 2), (3, 7), (6, 8)] {
            let size = Shape { rows, cols };
            let hot = Plate { size, mode: None };
            let count = (0..cols + 2).filter(|&c| hot.start(0, c) == HOT).count();
            assert_eq!(count, cols - cols / 3 * 2, "{size}");
            for (row, col) in (0..rows + 2).flat_map(|r| (0..cols + 2).map(move |c| (r, c))) {
                assert_eq!(hot.start(row, col), hot.start(row, cols + 1 - col));
                assert!(row == 0 || hot.start(row, col) == 0.0);
            }
        }
    }

    #[test]
    fn one_half_wave_is_highest_in_the_middle() {
        let size = Shape { rows: 3, cols: 5 };
        let plate = Plate {
            size,
            mode: Some(Shape { rows: 1, cols: 1 }),
        };
        assert!((plate.start(2, 3) - HOT).abs() < 1e-9);
        assert_eq!(plate.start(0, 3), 0.0);
        // The eigenvalue: the mean of neighbours is so many times the point.
        let mean =
            0.25 * (plate.start(1, 3) + plate.start(3, 3) + plate.start(2, 2) + plate.start(2, 4));
        let decayed = plate.decayed(Method::Jacobi, 1, RED).unwrap();
        assert!((mean - decayed * plate.start(2, 3)).abs() < 1e-9);
    }
}

//! The computation as a plain loop nest over one array: what results are compared with, and speeds.

use std::time::Instant;

use crate::blocks::Block;
use crate::options::Method;
use crate::plate::{Plate, RED};

/// A rectangle of the plate with a rim of one point, row after row.
pub(crate) struct Plain {
    rows: usize,
    width: usize,
    /// Whether the rim's corner is red, as a number.
    corner: usize,
    now: Vec<f64>,
    /// Of Jacobi's method.
    next: Vec<f64>,
}

impl Plain {
    /// Bytes of a rectangle.
    pub(crate) fn bytes(method: Method, rows: usize, cols: usize) -> usize {
        let fields = if method == Method::Jacobi { 2 } else { 1 };
        (rows + 2).saturating_mul((cols + 2) * fields * size_of::<f64>())
    }

    /// A block, whose rim stays as it is in the beginning.
    pub(crate) fn new(plate: &Plate, block: &Block, method: Method) -> Self {
        let (rows, width) = (block.rows.len(), block.cols.len() + 2);
        let (first, left) = (block.rows.start, block.cols.start);
        let now: Vec<_> = (first..first + rows + 2)
            .flat_map(|row| (left..left + width).map(move |col| plate.start(row, col)))
            .collect();
        let next = if method == Method::Jacobi {
            now.clone()
        } else {
            Vec::new()
        };
        Self {
            rows,
            width,
            corner: first + left,
            now,
            next,
        }
    }

    /// The whole plate after some steps.
    pub(crate) fn whole(plate: &Plate, method: Method, steps: u64) -> Self {
        let block = Block {
            rows: 0..plate.size.rows,
            cols: 0..plate.size.cols,
            neighbours: [None; 4],
            inwards: None,
            outwards: [false; 4],
        };
        let mut plain = Self::new(plate, &block, method);
        plain.run(steps);
        plain
    }

    /// A point; row and column 1 are the first inside the rim.
    pub(crate) fn at(&self, row: usize, col: usize) -> f64 {
        self.now[row * self.width + col]
    }

    /// Seconds of so many steps.
    pub(crate) fn run(&mut self, steps: u64) -> f64 {
        let begin = Instant::now();
        for _ in 0..steps {
            if self.next.is_empty() {
                self.red_black();
            } else {
                self.jacobi();
            }
        }
        begin.elapsed().as_secs_f64()
    }

    /// A step. Gives the sum of the squares of all changes.
    pub(crate) fn step_and_change(&mut self) -> f64 {
        let before = self.now.clone();
        self.run(1);
        let changes = self.now.iter().zip(&before).map(|(new, old)| new - old);
        changes.map(|change| change * change).sum()
    }

    fn jacobi(&mut self) {
        let width = self.width;
        for row in 1..=self.rows {
            let line = |row: usize| &self.now[row * width..][..width];
            let (up, at, down) = (line(row - 1), line(row), line(row + 1));
            let to = &mut self.next[row * width..][..width];
            for col in 1..width - 1 {
                to[col] = 0.25 * ((up[col] + down[col]) + (at[col - 1] + at[col + 1]));
            }
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }

    fn red_black(&mut self) {
        let width = self.width;
        for colour in [RED, 1 - RED] {
            for row in 1..=self.rows {
                let (above, rest) = self.now.split_at_mut(row * width);
                let (at, below) = rest.split_at_mut(width);
                let (up, down) = (&above[(row - 1) * width..][..width], &below[..width]);
                let first = 1 + (self.corner + row + 1 + colour) % 2;
                for col in (first..width - 1).step_by(2) {
                    at[col] = 0.25 * ((up[col] + down[col]) + (at[col - 1] + at[col + 1]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Blocks;
    use crate::field::Field;
    use crate::options::Shape;
    use crate::sweep::{Exchange, Sweep};

    #[test]
    fn a_step_is_the_mean_of_neighbours() {
        let plate = Plate {
            size: Shape { rows: 2, cols: 1 },
            mode: None,
        };
        // Red above black: 550 / 4, and a quarter of that at once, or in the next step.
        let upper = 137.5;
        for (method, lower) in [(Method::RedBlack, upper / 4.0), (Method::Jacobi, 0.0)] {
            let plain = Plain::whole(&plate, method, 1);
            assert_eq!([plain.at(1, 1), plain.at(2, 1)], [upper, lower]);
        }
    }

    #[test]
    fn modes_decay_as_they_should() {
        for (rows, cols) in [(5, 8), (9, 4)] {
            for mode in [
                Shape { rows: 1, cols: 1 },
                Shape { rows: 2, cols: 3 },
                Shape { rows: 5, cols: 4 },
            ] {
                let plate = Plate {
                    size: Shape { rows, cols },
                    mode: Some(mode),
                };
                for method in [Method::RedBlack, Method::Jacobi] {
                    let plain = Plain::whole(&plate, method, 7);
                    for (row, col) in (1..=rows).flat_map(|r| (1..=cols).map(move |c| (r, c))) {
                        let factor = plate.decayed(method, 7, (row + col) % 2).unwrap();
                        let want = factor * plate.start(row, col);
                        assert!(
                            (plain.at(row, col) - want).abs() < 1e-10,
                            "{mode} {row} {col}"
                        );
                    }
                }
            }
        }
    }

    /// A block that is the whole plate has nobody to exchange with.
    struct Alone;

    impl Exchange for Alone {
        fn exchange(
            &mut self,
            _number: u64,
            field: &mut Field,
            _colour: usize,
            meanwhile: impl FnOnce(&mut Field),
        ) {
            meanwhile(field);
        }
    }

    #[test]
    fn blocks_in_colours_are_the_same_to_the_last_bit() {
        for (rows, cols) in [(1, 1), (1, 6), (5, 1), (2, 2), (7, 8), (8, 33), (9, 40)] {
            let plate = Plate {
                size: Shape { rows, cols },
                mode: None,
            };
            for method in [Method::RedBlack, Method::Jacobi] {
                let block = Blocks::new(plate.size, 1).block(0).unwrap();
                let mut sweep = Sweep::new(&plate, &block, method);
                let same = |field: &Field, plain: &Plain| {
                    let points = (1..=rows).flat_map(|r| (1..=cols).map(move |c| (r, c)));
                    points
                        .into_iter()
                        .all(|(r, c)| field.at(r, c) == plain.at(r, c))
                };
                let mut plain = Plain::whole(&plate, method, 0);
                for step in 1..=9 {
                    let rounding =
                        (step % 2 == 0).then(|| crate::sums::rounding(plate.largest_change()));
                    let change = sweep.step(step, &mut Alone, rounding);
                    let squares = plain.step_and_change();
                    assert!(
                        same(&sweep.field, &plain),
                        "{rows}x{cols} {method:?} {step}"
                    );
                    let want = if rounding.is_some() { squares } else { 0.0 };
                    assert!(
                        (change - want).abs() <= 1e-9 * want + 1e-4,
                        "{change} {want}"
                    );
                }
            }
        }
    }
}

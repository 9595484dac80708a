//! Elimination of blocks of 5 x 5 numbers.
//!
//! This is where the benchmark spends most of its time, and it is written for the compiler to
//! make good vector code of it:
//!
//! * Everything here is about *one* line. The solver runs it in a loop over lanes that has
//!   nothing else in it, which the compiler turns into vector code as a whole, each number
//!   becoming a register. (Arithmetic on arrays of lanes leaves hundreds of operations that the
//!   compiler would have to find the vectors in again.)
//! * All indices are constants ([`unroll!`]): 75 numbers take part in a step, which the
//!   compiler can keep in registers only as far as they are values and not arrays.
//! * Which entries of the blocks are always 0 is known when the program is compiled
//!   ([`COUPLING`] and others), and no operation is spent on them.
//! * The rows are eliminated one after the other, each as soon as it is computed: the division
//!   for one row then overlaps with the products of the next.

use crate::adi::constants::EQUATIONS;
use crate::cpu::mul_add;

/// One number for each equation.
pub(super) type Vector = [f64; EQUATIONS];

/// A block by `[row][column]`.
pub(super) type Rows = [[f64; EQUATIONS]; EQUATIONS];

/// A block by `[column][row]`.
pub(super) type Columns = [[f64; EQUATIONS]; EQUATIONS];

/// Which entries of a block may be other than 0, by `[row][column]`.
pub(super) type Shape = [[bool; EQUATIONS]; EQUATIONS];

/// No number.
pub(super) const ZERO: Rows = [[0.0; EQUATIONS]; EQUATIONS];

/// Blocks that couple a point with its neighbours. The density changes with itself and the
/// momentum along the line; the momenta across the line with those and themselves.
pub(super) const COUPLING: Shape = [
    [true, true, false, false, false],
    [true, true, true, true, true],
    [true, true, true, false, false],
    [true, true, false, true, false],
    [true, true, true, true, true],
];

/// Blocks on the diagonal, before the elimination: viscosity.
pub(super) const VISCOUS: Shape = [
    [true, false, false, false, false],
    [true, true, false, false, false],
    [true, false, true, false, false],
    [true, false, false, true, false],
    [true, true, true, true, true],
];

/// [`Reduced::upper`].
pub(super) const UPPER: Shape = [
    [false, true, true, true, true],
    [false, false, true, true, true],
    [false, false, false, true, true],
    [false, false, false, false, true],
    [false, false, false, false, false],
];

/// [`Reduced::above`], first two columns.
pub(super) const FILLED_LEFT: Shape = [[true, true, false, false, false]; EQUATIONS];

/// [`Reduced::above`], the other columns: of the zeros of [`COUPLING`], those of the first row
/// remain.
pub(super) const FILLED_RIGHT: Shape = [
    [false; EQUATIONS],
    [false, false, true, true, true],
    [false, false, true, true, true],
    [false, false, true, true, true],
    [false, false, true, true, true],
];

/// Repeats a block with a constant that is 0, 1, 2, 3 and 4.
macro_rules! unroll {
    ($index:ident => $body:block) => {{
        {
            const $index: usize = 0;
            $body
        }
        {
            const $index: usize = 1;
            $body
        }
        {
            const $index: usize = 2;
            $body
        }
        {
            const $index: usize = 3;
            $body
        }
        {
            const $index: usize = 4;
            $body
        }
    }};
}

/// Repeats a block for each row and column in a shape.
macro_rules! entries {
    ($shape:ident, $row:ident, $column:ident => $body:block) => {
        unroll!($row => {
            unroll!($column => {
                if $shape[$row][$column] $body
            });
        })
    };
}

pub(super) use {entries, unroll};

/// The equations of a point after the elimination of what is before it, in which x is the change
/// at the point and y at the next one: (1 + `upper`) x + `above` y = `right`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduced {
    /// Above the diagonal only.
    pub(super) upper: Rows,
    /// Has the shapes [`FILLED_LEFT`] and [`FILLED_RIGHT`].
    pub(super) above: Rows,
    pub(super) right: Vector,
}

/// Eliminates the point before and the lower half of the diagonal block from the equations
/// -`below` w + `diagonal` x + `above` y = `right`, where w, the change at the point before, is
/// `right_before` - `before` x. The shape of `below` and `above` is [`COUPLING`].
///
/// Rows are not exchanged: the blocks of the benchmark are dominated by their diagonals.
#[inline(always)]
pub(super) fn reduce<const FMA: bool>(
    below: &Rows,
    diagonal: &Rows,
    above: &Rows,
    right: &Vector,
    before: &Columns,
    right_before: &Vector,
) -> Reduced {
    let mut out = Reduced {
        upper: ZERO,
        above: ZERO,
        right: [0.0; EQUATIONS],
    };
    unroll!(I => {
        let mut row = diagonal[I];
        let mut next = above[I];
        let mut sum = right[I];
        unroll!(K => {
            if COUPLING[I][K] {
                // x before = right_before - before x, and below has a negative sign.
                let factor = below[I][K];
                unroll!(J => {
                    row[J] = mul_add::<FMA>(factor, before[J][K], row[J]);
                });
                sum = mul_add::<FMA>(factor, right_before[K], sum);
            }
        });
        unroll!(P => {
            if UPPER[P][I] {
                let factor = -row[P];
                unroll!(J => {
                    if UPPER[P][J] {
                        row[J] = mul_add::<FMA>(factor, out.upper[P][J], row[J]);
                    }
                    if FILLED_LEFT[P][J] || FILLED_RIGHT[P][J] {
                        next[J] = mul_add::<FMA>(factor, out.above[P][J], next[J]);
                    }
                });
                sum = mul_add::<FMA>(factor, out.right[P], sum);
            }
        });
        let scale = 1.0 / row[I];
        unroll!(J => {
            if UPPER[I][J] {
                out.upper[I][J] = row[J] * scale;
            }
            if FILLED_LEFT[I][J] || FILLED_RIGHT[I][J] {
                out.above[I][J] = next[J] * scale;
            }
        });
        out.right[I] = sum * scale;
    });
    out
}

/// Solves what [`reduce`] left for x: returns C and r of x + C y = r.
#[inline(always)]
pub(super) fn solve<const FMA: bool>(point: &Reduced) -> (Columns, Vector) {
    let mut columns = ZERO;
    let mut right = point.right;
    unroll!(BACK => {
        const I: usize = EQUATIONS - 1 - BACK;
        unroll!(J => {
            let mut sum = point.above[I][J];
            unroll!(FROM_END => {
                const K: usize = EQUATIONS - 1 - FROM_END;
                if UPPER[I][K] {
                    sum = mul_add::<FMA>(-point.upper[I][K], columns[J][K], sum);
                }
            });
            columns[J][I] = sum;
        });
        unroll!(FROM_END => {
            const K: usize = EQUATIONS - 1 - FROM_END;
            if UPPER[I][K] {
                right[I] = mul_add::<FMA>(-point.upper[I][K], right[K], right[I]);
            }
        });
    });
    (columns, right)
}

/// `right` - `columns` * `vector`.
#[inline(always)]
pub(super) fn subtract_product<const FMA: bool>(
    mut right: Vector,
    columns: &Columns,
    vector: &Vector,
) -> Vector {
    unroll!(K => {
        unroll!(I => {
            right[I] = mul_add::<FMA>(-columns[K][I], vector[K], right[I]);
        });
    });
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block of numbers up to 1 in a shape, with `diagonal` added on the diagonal.
    fn shaped(numbers: &[f64], shape: &Shape, diagonal: f64) -> Rows {
        let mut block = ZERO;
        for i in 0..EQUATIONS {
            for j in 0..EQUATIONS {
                if shape[i][j] {
                    block[i][j] = numbers[EQUATIONS * i + j];
                }
            }
            block[i][i] += diagonal;
        }
        block
    }

    fn apply(rows: &Rows, x: &Vector) -> Vector {
        rows.map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum())
    }

    proptest! {
        /// What comes out satisfies the equations that went in, whatever follows.
        #[test]
        fn elimination_keeps_the_equations(
            numbers in prop::collection::vec(-1.0..1.0, 115),
            fused: bool,
        ) {
            let mut parts = numbers.chunks(25);
            let mut next = || parts.next().unwrap();
            let below = shaped(next(), &COUPLING, 0.0);
            let diagonal = shaped(next(), &VISCOUS, 12.0);
            let above = shaped(next(), &COUPLING, 0.0);
            let before = shaped(next(), &[[true; 5]; 5], 0.0);
            let vectors = next();
            let vector = |i: usize| -> Vector { vectors[5 * i..5 * i + 5].try_into().unwrap() };
            let (right, right_before, after) = (vector(0), vector(1), vector(2));

            let (c, r) = if fused {
                solve::<true>(&reduce::<true>(
                    &below, &diagonal, &above, &right, &before, &right_before,
                ))
            } else {
                solve::<false>(&reduce::<false>(
                    &below, &diagonal, &above, &right, &before, &right_before,
                ))
            };
            let x = subtract_product::<false>(r, &c, &after);
            let first = subtract_product::<false>(right_before, &before, &x);

            let terms = [apply(&below, &first), apply(&diagonal, &x), apply(&above, &after)];
            for i in 0..EQUATIONS {
                let left = -terms[0][i] + terms[1][i] + terms[2][i];
                prop_assert!((left - right[i]).abs() < 1e-12, "{i}: {left} {}", right[i]);
            }
        }
    }
}

//! The solver against a dense elimination of the whole line, and against itself in parts.

use super::Bt;
use super::jacobian::{Coefficients, Flow};
use crate::adi::constants::{Constants, EQUATIONS};
use crate::adi::directions::{X, Y, Z};
use crate::adi::scheme::{Ends, Point, Scheme};
use crate::cpu::{Kernel, Level};
use crate::simd::{F64x8, LANES};
use proptest::prelude::*;

type Kept = <Bt as Scheme>::Kept;
type Forward = <Bt as Scheme>::Forward;

const ZERO: Point = [F64x8::splat(0.0); EQUATIONS];

/// Both sweeps along a line that is cut into cells.
struct Line<'a> {
    solver: &'a Bt,
    direction: usize,
    u: &'a [Point],
    rhs: &'a mut [Point],
    /// Points of each cell; together those of the line.
    cells: &'a [usize],
}

impl Line<'_> {
    fn sweeps<const D: usize, const FMA: bool>(self) {
        let Self {
            solver,
            u,
            rhs,
            cells,
            ..
        } = self;
        let mut kept: Vec<Vec<Kept>> = cells
            .iter()
            .map(|&len| vec![[F64x8::splat(f64::NAN); 25]; len])
            .collect();
        let mut start = 0;
        let mut carry: Forward = [F64x8::splat(0.0); 30];
        for (c, &len) in cells.iter().enumerate() {
            let ends = Ends {
                low: c == 0,
                high: c == cells.len() - 1,
            };
            solver.forward::<D, FMA>(
                ends,
                &u[start..start + len + 2],
                &mut rhs[start..start + len],
                &mut kept[c],
                &mut carry,
            );
            start += len;
        }
        let mut carry = ZERO;
        for (c, &len) in cells.iter().enumerate().rev() {
            start -= len;
            solver.backward::<D, FMA>(&mut rhs[start..start + len], &kept[c], &mut carry);
            assert_eq!(
                carry[0], rhs[start][0],
                "the first point is what the cell before needs"
            );
        }
    }
}

impl Kernel for Line<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        match self.direction {
            X => self.sweeps::<X, FMA>(),
            Y => self.sweeps::<Y, FMA>(),
            _ => self.sweeps::<Z, FMA>(),
        }
    }
}

fn solve(
    constants: &Constants,
    direction: usize,
    level: Level,
    u: &[Point],
    rhs: &[Point],
    cells: &[usize],
) -> Vec<Point> {
    let mut solution = rhs.to_vec();
    level.run(Line {
        solver: &Bt::new(constants),
        direction,
        u,
        rhs: &mut solution,
        cells,
    });
    solution
}

/// States and right-hand sides of `n` points, and the states of the points around.
fn sample(n: usize, mut seed: u64) -> (Vec<Point>, Vec<Point>) {
    let mut number = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    };
    let mut points = |n: usize, base: [f64; EQUATIONS]| -> Vec<Point> {
        (0..n)
            .map(|_| base.map(|base| F64x8(std::array::from_fn(|_| base + number()))))
            .collect()
    };
    let u = points(n + 2, [2.0, 0.3, -0.2, 0.4, 6.0]);
    (u, points(n, [0.0; EQUATIONS]))
}

/// Lane `l` of the solution: all equations of the line in one matrix, Gauss elimination with
/// exchange of rows.
fn dense(
    constants: &Constants,
    direction: usize,
    u: &[Point],
    rhs: &[Point],
    l: usize,
) -> Vec<[f64; EQUATIONS]> {
    let n = rhs.len();
    let order = [[0, 1, 2, 3, 4], [0, 2, 3, 1, 4], [0, 3, 1, 2, 4]][direction];
    let size = EQUATIONS * n;
    let coefficients = Coefficients::new(constants, direction);
    let flow = |s: usize| Flow::new(&order.map(|m| u[s][m].0[l]));
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for s in 0..n {
        for i in 0..EQUATIONS {
            let row = &mut matrix[EQUATIONS * s + i];
            for j in 0..EQUATIONS {
                if s > 0 {
                    row[EQUATIONS * (s - 1) + j] = -flow(s).below::<false>(&coefficients)[i][j];
                }
                row[EQUATIONS * s + j] = flow(s + 1).diagonal::<false>(&coefficients)[i][j];
                if s + 1 < n {
                    row[EQUATIONS * (s + 1) + j] = flow(s + 2).above::<false>(&coefficients)[i][j];
                }
            }
            row[size] = rhs[s][order[i]].0[l];
        }
    }
    for p in 0..size {
        let largest = |a: &usize, b: &usize| matrix[*a][p].abs().total_cmp(&matrix[*b][p].abs());
        let pivot = (p..size).max_by(largest).unwrap();
        matrix.swap(p, pivot);
        let (done, rest) = matrix.split_at_mut(p + 1);
        for row in rest {
            let factor = row[p] / done[p][p];
            for (x, y) in row.iter_mut().zip(&done[p]).skip(p) {
                *x -= factor * y;
            }
        }
    }
    let mut x = vec![0.0; size];
    for p in (0..size).rev() {
        let known: f64 = (p + 1..size).map(|q| matrix[p][q] * x[q]).sum();
        x[p] = (matrix[p][size] - known) / matrix[p][p];
    }
    x.chunks(EQUATIONS)
        .map(|point| {
            let mut natural = [0.0; EQUATIONS];
            for (m, value) in order.into_iter().zip(point) {
                natural[m] = *value;
            }
            natural
        })
        .collect()
}

#[test]
fn agrees_with_dense_elimination_in_all_directions_and_at_all_levels() {
    let constants = Constants::new(24, 0.01);
    let (u, rhs) = sample(9, 1);
    for direction in [X, Y, Z] {
        for level in Level::supported() {
            let found = solve(&constants, direction, level, &u, &rhs, &[9]);
            for l in 0..LANES {
                let expected = dense(&constants, direction, &u, &rhs, l);
                for (s, (found, expected)) in found.iter().zip(expected).enumerate() {
                    for m in 0..EQUATIONS {
                        let (found, expected) = (found[m].0[l], expected[m]);
                        assert!(
                            (found - expected).abs() < 1e-11,
                            "{level}, direction {direction}, point {s}, {m}: {found} {expected}"
                        );
                    }
                }
            }
        }
    }
}

proptest! {
    /// The message holds all that the next cell needs, to the last bit.
    #[test]
    fn cells_give_what_the_whole_line_gives(
        cells in prop::collection::vec(1_usize..7, 1..5),
        direction in 0_usize..3,
        seed: u64,
    ) {
        let constants = Constants::new(30, 0.005);
        let n = cells.iter().sum();
        let (u, rhs) = sample(n, seed);
        for level in Level::supported() {
            let whole = solve(&constants, direction, level, &u, &rhs, &[n]);
            let parts = solve(&constants, direction, level, &u, &rhs, &cells);
            prop_assert_eq!(whole, parts);
        }
    }

    /// Each lane is a line of its own.
    #[test]
    fn lanes_do_not_touch_each_other(lane in 0..LANES, seed: u64) {
        let constants = Constants::new(20, 0.01);
        let (u, rhs) = sample(6, seed);
        let alone = |points: &[Point]| -> Vec<Point> {
            points
                .iter()
                .map(|point| point.map(|m| F64x8::splat(m.0[lane])))
                .collect()
        };
        for level in Level::supported() {
            let all = solve(&constants, Y, level, &u, &rhs, &[6]);
            let one = solve(&constants, Y, level, &alone(&u), &alone(&rhs), &[6]);
            for (all, one) in all.iter().zip(&one) {
                for (all, one) in all.iter().zip(one) {
                    prop_assert_eq!(all.0[lane], one.0[lane]);
                }
            }
        }
    }
}

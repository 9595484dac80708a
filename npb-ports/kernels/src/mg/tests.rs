//! The operators against their definitions, cell by cell.

use super::grid::{Field, Shape};
use super::params::Params;
use super::stencil::{Aside, Base, LAPLACIAN, Scratch, Weights, residual, smooth};
use super::transfer::{Pair, interpolate, restrict};
use crate::class::Class;
use crate::cpu::Level;
use crate::random::Lcg;

const LENGTHS: [usize; 9] = [1, 2, 4, 5, 8, 12, 16, 24, 40];

fn random(shape: Shape, seed: u64) -> Field {
    let mut field = Field::new(shape).unwrap();
    let mut random = Lcg::new(seed);
    for k in 0..shape.cells[2] + 2 {
        for j in 0..shape.cells[1] + 2 {
            random.fill(&mut field.plane_mut(k)[shape.with_ghosts(j)]);
        }
    }
    field
}

fn at(field: &Field, [i, j, k]: [usize; 3]) -> f64 {
    field.plane(k)[field.shape().with_ghosts(j)][i]
}

fn cells(shape: Shape) -> impl Iterator<Item = [usize; 3]> {
    let [x, y, z] = shape.cells;
    (1..=z).flat_map(move |k| (1..=y).flat_map(move |j| (1..=x).map(move |i| [i, j, k])))
}

/// The sum over the 27 cells around `cell`, with the weight of each one's distance class.
fn stencil(field: &Field, cell: [usize; 3], weights: [f64; 4]) -> f64 {
    let mut sum = 0.0;
    for [di, dj, dk] in cells(Shape::new([3; 3])) {
        let apart = [di, dj, dk].iter().filter(|&&d| d != 2).count();
        let [i, j, k] = cell;
        sum += weights[apart] * at(field, [i + di - 2, j + dj - 2, k + dk - 2]);
    }
    sum
}

fn weights(of: Weights) -> [f64; 4] {
    [of.centre, of.face, of.edge, of.corner]
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-13
}

#[test]
fn residual_and_smoother_are_their_stencils() {
    let smoother = Params::of(Class::B).smoother;
    for n in LENGTHS {
        let shape = Shape::new([n, 3, 2]);
        let mut scratch = Scratch::new(&shape).unwrap();
        let (u, v, old) = (random(shape, 1), random(shape, 3), random(shape, 5));
        for simd in Level::supported() {
            let (mut of_v, mut of_r, mut smoothed) =
                (random(shape, 5), random(shape, 5), copy_of(&old));
            let with_squares = Aside {
                squares: true,
                ahead: Some(v.plane(0)),
            };
            let mut squares = 0.0;
            for k in 1..=2 {
                let (r, base) = (of_v.plane_mut(k), Base::Of(v.plane(k)));
                squares += residual(
                    simd,
                    &shape,
                    r,
                    base,
                    u.around(k),
                    with_squares,
                    &mut scratch,
                );
                let (r, base) = (of_r.plane_mut(k), Base::InPlace);
                let none = residual(
                    simd,
                    &shape,
                    r,
                    base,
                    u.around(k),
                    Aside::default(),
                    &mut scratch,
                );
                assert_eq!(none, 0.0);
                let u_k = smoothed.plane_mut(k);
                smooth(
                    simd,
                    &shape,
                    &smoother,
                    u_k,
                    u.around(k),
                    Aside::default(),
                    &mut scratch,
                );
            }
            let mut expected = 0.0;
            for cell in cells(shape) {
                let a_u = stencil(&u, cell, weights(LAPLACIAN));
                let r = at(&v, cell) - a_u;
                expected += r * r;
                assert!(close(at(&of_v, cell), r), "{simd} {n} {cell:?}");
                assert!(
                    close(at(&of_r, cell), at(&old, cell) - a_u),
                    "{simd} {n} {cell:?}"
                );
                let s_u = stencil(&u, cell, weights(smoother));
                assert!(
                    close(at(&smoothed, cell), at(&old, cell) + s_u),
                    "{simd} {n} {cell:?}"
                );
            }
            assert!((squares / expected - 1.0).abs() < 1e-13, "{simd} {n}");
            // Ghosts are not touched.
            for i in 0..n + 2 {
                assert_eq!(at(&of_v, [i, 0, 1]), at(&old, [i, 0, 1]));
            }
            assert_eq!(at(&smoothed, [n + 1, 1, 1]), at(&old, [n + 1, 1, 1]));
        }
    }
}

fn copy_of(old: &Field) -> Field {
    let mut copy = Field::new(old.shape()).unwrap();
    for k in 0..old.shape().cells[2] + 2 {
        copy.plane_mut(k).copy_from_slice(old.plane(k));
    }
    copy
}

/// Fine and coarse cells along an axis and the shift: where rows double, where this PE stays while
/// others drop out, and where it drops out.
fn pairs() -> impl Iterator<Item = (usize, usize, usize)> {
    let doubling = LENGTHS.map(|n| (2 * n, n, 0));
    doubling.into_iter().chain([(1, 1, 1), (1, 0, 0)])
}

#[test]
fn restriction_is_the_weighted_mean_around_the_coarse_cell() {
    let weights = [0.5, 0.25, 0.125, 0.0625];
    for (fine_x, coarse_x, shift_x) in pairs().filter(|pair| pair.1 > 0) {
        for (fine_y, coarse_y, shift_y) in [(6, 3, 0), (1, 1, 1)] {
            let fine = Shape::new([fine_x, fine_y, 2]);
            let coarse = Shape::new([coarse_x, coarse_y, 1]);
            let (from, mut to) = (random(fine, 1), Field::new(coarse).unwrap());
            let pair = Pair {
                fine: &fine,
                coarse: &coarse,
                shift: [shift_x, shift_y, 0],
            };
            let mut scratch = Scratch::new(&fine).unwrap();
            for simd in Level::supported() {
                to.clear();
                restrict(simd, pair, to.plane_mut(1), from.around(2), &mut scratch);
                for cell in cells(coarse) {
                    let [i, j, k] = cell;
                    let centre = [2 * i - shift_x, 2 * j - shift_y, 2 * k];
                    let expected = stencil(&from, centre, weights);
                    assert!(close(at(&to, cell), expected), "{simd} {fine_x} {cell:?}");
                }
            }
        }
    }
}

#[test]
fn interpolation_is_the_mean_of_the_nearest_coarse_cells() {
    for (fine_x, coarse_x, shift_x) in pairs() {
        for (fine_y, coarse_y, shift_y) in [(6, 3, 0), (1, 1, 1), (1, 0, 0)] {
            let fine = Shape::new([fine_x, fine_y, 4]);
            let coarse = Shape::new([coarse_x, coarse_y, 2]);
            let pair = Pair {
                fine: &fine,
                coarse: &coarse,
                shift: [shift_x, shift_y, 0],
            };
            let (from, old) = (random(coarse, 1), random(fine, 3));
            let mut scratch = Scratch::new(&fine).unwrap();
            for simd in Level::supported() {
                let (mut added, mut replaced) = (copy_of(&old), copy_of(&old));
                for k in 0..6 {
                    let parents = pair.parents(2, k).map(|k| from.plane(k));
                    let (a, r) = (added.plane_mut(k), replaced.plane_mut(k));
                    interpolate(simd, true, pair, a, parents, &mut scratch);
                    interpolate(simd, false, pair, r, parents, &mut scratch);
                }
                for k in 0..6 {
                    for j in 0..fine_y + 2 {
                        for i in 0..fine_x + 2 {
                            let mean = mean(&from, [i + shift_x, j + shift_y, k]);
                            let cell = [i, j, k];
                            assert!(close(at(&replaced, cell), mean), "{simd} {cell:?}");
                            let sum = at(&old, cell) + mean;
                            assert!(close(at(&added, cell), sum), "{simd} {cell:?}");
                        }
                    }
                }
            }
        }
    }
}

/// The mean of the 8 coarse cells, some of them the same, next to a position.
fn mean(coarse: &Field, position: [usize; 3]) -> f64 {
    let mut sum = 0.0;
    for corner in 0..8 {
        let cell = std::array::from_fn(|axis| (position[axis] + (corner >> axis & 1)) / 2);
        sum += at(coarse, cell);
    }
    sum / 8.0
}

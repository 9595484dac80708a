//! The time step against the definition with all its matrices, on several PEs in one process, and
//! the order of its messages.

use super::decomposition::{Pencil, rule};
use super::params::{self, OMEGA};
use super::plan;
use super::point::{Equations, Primitive};
use super::solver::Solver;
use crate::adi::constants::{C1, C2, Constants};
use crate::adi::directions::{X, Y, Z};
use crate::adi::exact::{coordinates, exact};
use crate::adi::field::{Field, GHOST};
use crate::adi::initialize::{AT_REST, forcing, initialize};
use crate::adi::norms::root_mean_square;
use crate::adi::rhs::Operator;
use crate::adi::scheme::{Params, Point};
use crate::adi::tests::collect;
use crate::class::Class;
use crate::cpu::Level;
use crate::exchange::model::{Event, Mailboxes, scripts, simulate_orders};
use crate::simd::F64x8;

type Vector = [f64; 5];
type Matrix = [Vector; 5];

/// The numbers of class S on another grid, with a smaller step.
fn params(n: usize) -> Params {
    Params {
        n,
        dt: 0.02,
        ..params::Params::of(Class::S).flow
    }
}

fn minus(a: Vector, b: Vector) -> Vector {
    std::array::from_fn(|m| a[m] - b[m])
}

fn apply(matrix: &Matrix, x: Vector) -> Vector {
    matrix.map(|row| row.iter().zip(x).map(|(a, x)| a * x).sum())
}

/// Gauss's elimination, without exchange of rows.
fn solved(mut matrix: Matrix, mut right: Vector) -> Vector {
    for p in 0..5 {
        for r in (0..5).filter(|r| *r != p) {
            let factor = matrix[r][p] / matrix[p][p];
            let pivot = matrix[p];
            for (x, y) in matrix[r].iter_mut().zip(pivot) {
                *x -= factor * y;
            }
            right[r] -= factor * right[p];
        }
    }
    std::array::from_fn(|m| right[m] / matrix[m][m])
}

/// The derivative of `f` at `u` by central differences of sixth order.
fn jacobian(f: impl Fn(Vector) -> Vector, u: Vector) -> Matrix {
    let mut matrix = [[0.0; 5]; 5];
    for c in 0..5 {
        let at = |steps: f64| {
            let mut u = u;
            u[c] += steps * 1e-3;
            f(u)
        };
        let values = [1.0, 2.0, 3.0].map(|s| minus(at(s), at(-s)));
        for (r, row) in matrix.iter_mut().enumerate() {
            row[c] = (45.0 * values[0][r] - 9.0 * values[1][r] + values[2][r]) / 60e-3;
        }
    }
    matrix
}

/// What is convected along `d`.
fn flux(d: usize, u: Vector) -> Vector {
    let v = u[d + 1] / u[0];
    let kinetic = 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / u[0];
    let mut flux = u.map(|x| x * v);
    flux[d + 1] += C2 * (u[4] - kinetic);
    flux[4] = (C1 * u[4] - C2 * kinetic) * v;
    flux
}

/// What is diffused along `d`: by h squared and without the artificial part.
fn diffused(c: &Constants, d: usize, u: Vector) -> Vector {
    let v = [u[1] / u[0], u[2] / u[0], u[3] / u[0]];
    let mut out = [0.0, v[0], v[1], v[2], 0.0].map(|x| c.c3c4 * x);
    out[d + 1] *= c.con43;
    let square: f64 = v.iter().map(|v| v * v).sum();
    out[4] =
        0.5 * (c.c3c4 - c.c1345) * square + c.c3c4 * c.con16 * v[d] * v[d] + c.c1345 * u[4] / u[0];
    out
}

/// The matrix between a point with state `u` and the next one along `d`, at higher coordinates if
/// `sign` is 1, at lower ones if it is -1.
fn beside(c: &Constants, d: usize, sign: f64, u: Vector) -> Matrix {
    let (convection, diffusion) = (
        jacobian(|u| flux(d, u), u),
        jacobian(|u| diffused(c, d, u), u),
    );
    std::array::from_fn(|r| {
        std::array::from_fn(|s| {
            let artificial = if r == s { c.d[d][r] } else { 0.0 };
            -c.dt * (sign * c.t2 * convection[r][s] + c.t1 * (diffusion[r][s] + artificial))
        })
    })
}

fn diagonal(c: &Constants, u: Vector) -> Matrix {
    let mut matrix = [[0.0; 5]; 5];
    for d in [X, Y, Z] {
        let diffusion = jacobian(|u| diffused(c, d, u), u);
        for (r, row) in matrix.iter_mut().enumerate() {
            for (s, x) in row.iter_mut().enumerate() {
                *x += 2.0 * c.dt * c.t1 * diffusion[r][s];
            }
            row[r] += 2.0 * c.dt * c.t1 * c.d[d][r];
        }
    }
    for (r, row) in matrix.iter_mut().enumerate() {
        row[r] += 1.0;
    }
    matrix
}

fn state(seed: usize) -> Vector {
    let phase = seed as f64;
    [
        2.0 + (phase * 0.3).sin(),
        (phase * 0.7).cos(),
        (phase * 1.1).sin(),
        (phase * 0.9).cos() - 0.5,
        6.0 + (phase * 0.2).sin(),
    ]
}

fn lanes(seed: usize) -> Point {
    std::array::from_fn(|m| F64x8(std::array::from_fn(|l| state(seed + 10 * l)[m])))
}

#[test]
fn a_point_does_what_its_matrices_do() {
    let c = Constants::new(20, 0.03);
    let equations = Equations::new(&c);
    for seed in 0..10 {
        let (u, x) = (lanes(seed), lanes(seed + 500));
        let at = Primitive::new::<false>(&u);
        let solution = equations.solve::<false>(&at, &x);
        let products = [
            equations.products::<true, false>(&at, &x),
            equations.products::<false, false>(&at, &x),
        ];
        for l in 0..8 {
            let lane = |point: &Point| point.map(|numbers| numbers.0[l]);
            let (u, x) = (lane(&u), lane(&x));
            close(&lane(&solution), &solved(diagonal(&c, u), x), 1e-8);
            for d in [X, Y, Z] {
                for (products, sign) in products.iter().zip([1.0, -1.0]) {
                    let expected = apply(&beside(&c, d, sign, u), x).map(|x| -OMEGA * x);
                    close(&lane(&products[d]), &expected, 1e-8);
                }
            }
        }
    }
}

/// Equal but for rounding and cancellation.
fn close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    let size = b.iter().fold(0.0f64, |size, x| size.max(x.abs()));
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= tolerance * size, "{i}: {a} and {b}");
    }
}

/// States of the whole grid after `steps` steps by the definition: matrices at each point, point by
/// point.
fn by_definition(n: usize, steps: usize) -> Vec<f64> {
    let c = Constants::new(n, params(n).dt);
    let cell = Pencil::new(n, 0, 1).cell;
    let field = |filling| Field::<5>::new(cell.layout(), filling).unwrap();
    let (mut u, mut rhs) = (field(AT_REST), field([0.0; 5]));
    initialize(&mut u, &cell, n);
    let forcing = forcing(&cell, &c, Level::BASELINE).unwrap();
    let inner = || GHOST + 1..GHOST + n - 1;
    for _ in 0..steps {
        Operator::new(&cell, &c).apply(&u, &forcing, &mut rhs, Level::BASELINE);
        let mut points: Vec<_> = inner()
            .flat_map(|k| inner().flat_map(move |j| inner().map(move |i| [i, j, k])))
            .collect();
        for upper in [false, true] {
            let sign = if upper { -1.0 } else { 1.0 };
            for &at @ [i, j, k] in &points {
                let mut sum = [0.0; 5];
                for d in [X, Y, Z] {
                    let mut from = at;
                    from[d] = if upper { from[d] + 1 } else { from[d] - 1 };
                    let [a, b, c_] = from;
                    let product = apply(&beside(&c, d, sign, u.get(a, b, c_)), rhs.get(a, b, c_));
                    sum = std::array::from_fn(|m| sum[m] + OMEGA * product[m]);
                }
                let block = diagonal(&c, u.get(i, j, k));
                let x = match upper {
                    false => solved(block, minus(rhs.get(i, j, k), sum)),
                    true => minus(rhs.get(i, j, k), solved(block, sum)),
                };
                rhs.set(i, j, k, x);
            }
            points.reverse();
        }
        for &[i, j, k] in &points {
            let (old, change) = (u.get(i, j, k), rhs.get(i, j, k));
            let factor = 1.0 / (OMEGA * (2.0 - OMEGA));
            u.set(
                i,
                j,
                k,
                std::array::from_fn(|m| old[m] + factor * change[m]),
            );
        }
    }
    let mut states = vec![f64::NAN; n * n * n * 5];
    collect(&u, &cell, n, &mut states);
    states
}

/// The same by the solver on `n_pes` PEs, and the sums of the norms and the integral.
fn result(n: usize, n_pes: usize, steps: usize, level: Level) -> (Vec<f64>, [f64; 11]) {
    result_of(&params(n), n_pes, steps, level)
}

fn result_of(params: &Params, n_pes: usize, steps: usize, level: Level) -> (Vec<f64>, [f64; 11]) {
    let n = params.n;
    let all = Mailboxes::new(n_pes, &plan::slot_sizes(n, n_pes));
    let solvers = all.run(|pe, mut mailbox| {
        let pencil = Pencil::new(n, pe, n_pes);
        let mut solver = Solver::new(pencil, params, level).unwrap();
        // A step whose result is forgotten must leave nothing behind.
        solver.step(&mut mailbox);
        solver.initialize();
        for _ in 0..steps {
            solver.step(&mut mailbox);
        }
        let residual = solver.residual(&mut mailbox);
        (solver, residual)
    });
    let mut states = vec![f64::NAN; n * n * n * 5];
    let mut sums = [0.0; 11];
    for (solver, residual) in &solvers {
        let parts = residual.iter().copied().chain(solver.error());
        for (sum, part) in sums.iter_mut().zip(parts.chain([solver.surface()])) {
            *sum += part;
        }
        collect(&solver.u, &solver.pencil.cell, n, &mut states);
    }
    (states, sums)
}

#[test]
fn a_step_is_that_of_the_definition_on_any_number_of_pes() {
    for (n, counts) in [
        (12, [1, 2, 6, 16]),
        (13, [1, 4, 8, 12]),
        (7, [1, 1, 2, 4]),
        (20, [1, 2, 9, 15]),
    ] {
        let expected = by_definition(n, 2);
        assert!(expected.iter().all(|x| x.is_finite()));
        let (initial, _) = result(n, 1, 0, Level::best());
        let moved = initial.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        assert!(moved.fold(0.0, f64::max) > 1e-3);
        let (_, sums) = result(n, 1, 2, Level::best());
        for n_pes in counts {
            for level in Level::supported() {
                let (states, others) = result(n, n_pes, 2, level);
                close(&states, &expected, 1e-9);
                close(&others, &sums, 1e-9);
            }
        }
    }
}

#[test]
fn the_boundary_stays_exact() {
    let n = 12;
    let cell = Pencil::new(n, 0, 1).cell;
    let (states, _) = result(n, 4, 3, Level::best());
    for at in [
        [0, 4, 5],
        [11, 2, 3],
        [5, 0, 6],
        [5, 11, 7],
        [3, 8, 0],
        [3, 8, 11],
    ] {
        let place = ((at[2] * n + at[1]) * n + at[0]) * 5;
        let solution = exact(coordinates(&cell, n, at.map(|x| x + GHOST)));
        assert_eq!(states[place..place + 5], solution);
    }
}

#[test]
fn class_s_verifies_at_every_level() {
    let params::Params {
        flow: params,
        surface,
    } = params::Params::of(Class::S);
    for level in Level::supported() {
        for n_pes in [1, 4] {
            let steps = params.iterations as usize;
            let (_, sums) = result_of(&params, n_pes, steps, level);
            let references = params.residual.iter().chain(&params.error);
            for (sum, reference) in sums.iter().zip(references) {
                let norm = root_mean_square(*sum, params.n);
                assert!(
                    (norm / reference - 1.0).abs() < 1e-9,
                    "{level}: {norm} {reference}"
                );
            }
            assert!((sums[10] / surface - 1.0).abs() < 1e-9);
        }
    }
}

/// What each PE sends and waits for in some steps and the residual.
fn messages(n: usize, n_pes: usize) -> Vec<Vec<Event>> {
    scripts(n_pes, |pe, recorder| {
        let pencil = Pencil::new(n, pe, n_pes);
        let mut solver = Solver::new(pencil, &params(n), Level::best()).unwrap();
        for _ in 0..3 {
            solver.step(recorder);
            solver.initialize();
        }
        solver.residual(recorder);
    })
}

#[test]
fn no_slot_is_overwritten_in_any_order() {
    for (n, n_pes) in [
        (8, 2),
        (12, 4),
        (12, 8),
        (20, 6),
        (12, 12),
        (12, 16),
        (27, 9),
    ] {
        assert!(rule(n).allows(n_pes));
        simulate_orders(&messages(n, n_pes), 60);
    }
}

#[test]
fn one_pe_sends_nothing() {
    assert!(messages(12, 1)[0].is_empty());
}

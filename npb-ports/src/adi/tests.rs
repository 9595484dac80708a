//! The time step on several PEs in one process: its results, and the order of its messages.

use super::constants::Constants;
use super::directions::{DIRECTIONS, X, Y, Z};
use super::exact::fill;
use super::field::{Field, GHOST};
use super::partition::{Cell, Partition};
use super::plan::{Plan, Reach};
use super::scheme::{Ends, Params, Point, Scheme};
use super::solver::Solver;
use super::sweep::{Sweep, Sweeps};
use crate::class::Class;
use crate::cpu::Level;
use crate::exchange::model::{Event, Mailboxes, scripts, simulate, simulate_orders};
use crate::simd::F64x8;

/// A tridiagonal system with coefficients from `u`, the direction and the position: small, but
/// everything that a scheme is given makes a difference.
#[derive(Debug)]
struct Tridiagonal {
    weight: f64,
}

impl Tridiagonal {
    fn off_diagonal<const DIRECTION: usize>(&self, u: &Point) -> F64x8 {
        (u[0] + u[DIRECTION + 1] * 0.1) * -self.weight
    }
}

impl Sweeps for Tridiagonal {
    fn sweep(sweep: Sweep<'_, Self>, direction: usize, level: Level) {
        sweep.run(direction, level);
    }
}

impl Scheme for Tridiagonal {
    const NAME: &'static str = "TRIDIAGONAL";
    type Kept = [F64x8; 1];
    type Forward = [F64x8; 6];
    type Backward = [F64x8; 5];

    fn params(_: Class) -> Params {
        PARAMS
    }

    fn operations(_: &Params) -> f64 {
        1.0
    }

    fn new(constants: &Constants) -> Self {
        Self {
            weight: constants.dt * constants.t1 * 0.1,
        }
    }

    fn forward<const DIRECTION: usize, const FMA: bool>(
        &self,
        ends: Ends,
        u: &[Point],
        rhs: &mut [Point],
        kept: &mut [[F64x8; 1]],
        carry: &mut [F64x8; 6],
    ) {
        let len = rhs.len();
        assert!(u.len() == len + 2 && kept.len() == len);
        for s in 0..len {
            let near_boundary = (ends.low && s == 0) || (ends.high && s == len - 1);
            let diagonal = if near_boundary { 1.5 } else { 2.0 };
            let lower = self.off_diagonal::<DIRECTION>(&u[s]);
            let upper = self.off_diagonal::<DIRECTION>(&u[s + 2]);
            let pivot = (u[s + 1][0] * diagonal - lower * carry[0]).recip();
            kept[s] = [upper * pivot];
            carry[0] = kept[s][0];
            for m in 0..5 {
                rhs[s][m] = (rhs[s][m] - lower * carry[m + 1]) * pivot;
                carry[m + 1] = rhs[s][m];
            }
        }
    }

    fn backward<const DIRECTION: usize, const FMA: bool>(
        &self,
        rhs: &mut [Point],
        kept: &[[F64x8; 1]],
        carry: &mut [F64x8; 5],
    ) {
        for (rhs, kept) in rhs.iter_mut().zip(kept).rev() {
            for (value, next) in rhs.iter_mut().zip(carry.iter()) {
                *value -= kept[0] * *next;
            }
            *carry = *rhs;
        }
    }

    fn change<const FMA: bool>(&self, u: &Point, solution: Point) -> Point {
        solution.map(|x| x * u[0])
    }
}

const PARAMS: Params = Params {
    n: 12,
    iterations: 1,
    dt: 0.01,
    residual: [1.0; 5],
    error: [1.0; 5],
};

/// For 3 to 16 PEs, whichever cut a job would take: one chunk a batch, some, or all of a cell.
fn plans(n: usize) -> impl Iterator<Item = Plan> {
    let partitions = [
        Partition::multi(n, 4),
        Partition::multi(n, 9),
        Partition::multi(n, 16),
        Partition::slabs(n, 3),
        Partition::slabs(n, 4),
    ];
    let partitions = partitions.map(|partition| partition.expect("at least 12 points"));
    let wanted = [1, 3, usize::MAX];
    partitions.into_iter().flat_map(move |partition| {
        wanted.map(|chunks| Plan::with_batches(partition, move |_| chunks))
    })
}

/// The plan of a job, with messages that are as small as they get.
fn plan(n: usize, p: usize) -> Plan {
    Plan::with_batches(Partition::new(n, p * p).unwrap(), |_| 1)
}

/// States of the whole grid after `steps` steps on p x p PEs, and the sums of the norms.
fn result(n: usize, p: usize, steps: usize, level: Level) -> (Vec<f64>, [f64; 5], [f64; 5]) {
    result_of::<Tridiagonal>(plan(n, p), steps, level, |_| {})
}

/// The same for any scheme and plan, with solvers that `prepare` has changed.
fn result_of<S: Sweeps + Send>(
    plan: Plan,
    steps: usize,
    level: Level,
    prepare: fn(&mut Solver<S>),
) -> (Vec<f64>, [f64; 5], [f64; 5])
where
    S::Kept: Send,
{
    let n = plan.partition().points();
    let params = Params { n, ..PARAMS };
    let all = Mailboxes::new(plan.partition().n_pes(), &plan.slot_sizes::<S>());
    let solvers = all.run(|pe, mut mailbox| {
        let mut solver = Solver::<S>::new(plan, pe, &params, level).unwrap();
        prepare(&mut solver);
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
    let (mut residual, mut error) = ([0.0; 5], [0.0; 5]);
    for (solver, part) in &solvers {
        for m in 0..5 {
            residual[m] += part[m];
            error[m] += solver.error()[m];
        }
        for block in &solver.blocks {
            collect(&block.u, &block.cell, n, &mut states);
        }
    }
    (states, residual, error)
}

/// Puts the states of a cell where they are in the whole grid of `n` points a side.
pub(crate) fn collect(u: &Field<5>, cell: &Cell, n: usize, states: &mut [f64]) {
    for k in cell.points(Z) {
        for j in cell.points(Y) {
            for i in cell.points(X) {
                let [x, y, z] = [(X, i), (Y, j), (Z, k)].map(|(d, at)| cell.global(d, at));
                let at = ((z * n + y) * n + x) * 5;
                states[at..at + 5].copy_from_slice(&u.get(i, j, k));
            }
        }
    }
}

fn close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let far = (a - b).abs() > tolerance * a.abs().max(b.abs());
        assert!(!far && a.is_finite() && b.is_finite(), "{i}: {a} and {b}");
    }
}

#[test]
fn the_result_does_not_depend_on_the_number_of_pes() {
    for n in [12, 13, 14] {
        let (states, residual, error) = result(n, 1, 3, Level::best());
        let (initial, ..) = result(n, 1, 0, Level::best());
        assert!(
            states
                .iter()
                .zip(&initial)
                .any(|(a, b)| (a - b).abs() > 1e-3)
        );
        for p in [2, 3, 4] {
            let (others, other_residual, other_error) = result(n, p, 3, Level::best());
            close(&others, &states, 1e-11);
            close(&other_residual, &residual, 1e-9);
            close(&other_error, &error, 1e-9);
        }
    }
}

/// Sets all that no point needs to what is not a number: padding, and ghosts on no line.
fn spoil<S: Scheme>(solver: &mut Solver<S>) {
    for block in &mut solver.blocks {
        let cell = block.cell;
        let mut fields = [(); 3].map(|()| Field::new(*block.u.layout(), [f64::NAN; 5]).unwrap());
        let [u, rhs, forcing] = &mut fields;
        let mut keep = |ranges: [std::ops::Range<usize>; 3]| {
            fill(u, ranges, |[i, j, k]| block.u.get(i, j, k));
        };
        keep([X, Y, Z].map(|d| cell.points(d)));
        for direction in [X, Y, Z] {
            let mut ranges = [X, Y, Z].map(|d| cell.interior(d));
            // Beyond the boundary a ghost is multiplied by 0, so it must be a number.
            let points = cell.points(direction);
            ranges[direction] = points.start - GHOST..points.end + GHOST;
            keep(ranges);
        }
        let inner = [X, Y, Z].map(|d| cell.interior(d));
        fill(rhs, inner.clone(), |[i, j, k]| block.rhs.get(i, j, k));
        fill(forcing, inner, |[i, j, k]| block.forcing.get(i, j, k));
        [block.u, block.rhs, block.forcing] = fields;
    }
}

/// Every number comes from the same operations, wherever its point lies: in whichever cell, lane
/// and chunk, beside whatever is in the lanes that hold no line.
fn is_exact_everywhere<S: Sweeps + Send>()
where
    S::Kept: Send,
{
    for n in [12, 15] {
        for level in Level::supported() {
            let (states, ..) = result_of::<S>(plan(n, 1), 2, level, |_| {});
            assert!(states.iter().all(|x| x.is_finite()));
            for plan in [plan(n, 1)].into_iter().chain(plans(n)) {
                for prepare in [|_: &mut Solver<S>| {}, spoil::<S>] {
                    let (others, ..) = result_of::<S>(plan, 2, level, prepare);
                    let differs = (0..states.len()).find(|&i| others[i] != states[i]);
                    assert_eq!(differs, None, "{plan:?}, {level}");
                }
            }
        }
    }
}

#[test]
fn bt_gives_the_same_numbers_on_all_partitions() {
    is_exact_everywhere::<crate::bt::Bt>();
}

#[test]
fn sp_gives_the_same_numbers_on_all_partitions() {
    is_exact_everywhere::<crate::sp::Sp>();
}

#[test]
fn a_grid_without_address_space_is_an_error() {
    let n = 1 << 16;
    let params = Params { n, ..PARAMS };
    assert!(Solver::<Tridiagonal>::new(plan(n, 1), 0, &params, Level::best()).is_err());
}

#[test]
fn the_result_does_not_depend_on_the_instructions() {
    let (states, ..) = result(20, 2, 2, Level::BASELINE);
    for level in Level::supported() {
        close(&result(20, 2, 2, level).0, &states, 1e-11);
    }
}

/// Solves the lines of one direction one after the other, by the definition of the system.
fn solve_plainly(states: &[f64], rhs: &mut [f64], n: usize, direction: usize, weight: f64) {
    let stride = [1, n, n * n][direction];
    let (a, b) = ([n, 1, 1][direction], [n * n, n * n, n][direction]);
    let u = |at: usize| &states[at * 5..at * 5 + 5];
    let off_diagonal = |at: usize| -weight * (u(at)[0] + 0.1 * u(at)[direction + 1]);
    for (y, z) in (1..n - 1).flat_map(|y| (1..n - 1).map(move |z| (y, z))) {
        let points: Vec<_> = (1..n - 1).map(|s| y * a + z * b + s * stride).collect();
        let len = points.len();
        for m in 0..5 {
            // Gauss-Seidel converges since the diagonal dominates.
            let known: Vec<f64> = points.iter().map(|at| rhs[at * 5 + m]).collect();
            let mut x = vec![0.0; len];
            for _ in 0..200 {
                for (s, at) in points.iter().copied().enumerate() {
                    let below = if s > 0 { x[s - 1] } else { 0.0 };
                    let above = if s + 1 < len { x[s + 1] } else { 0.0 };
                    let others =
                        off_diagonal(at - stride) * below + off_diagonal(at + stride) * above;
                    let diagonal = if s == 0 || s + 1 == len { 1.5 } else { 2.0 };
                    x[s] = (known[s] - others) / (diagonal * u(at)[0]);
                }
            }
            for (at, x) in points.iter().zip(x) {
                rhs[at * 5 + m] = x;
            }
        }
    }
}

#[test]
fn a_step_solves_the_systems_of_all_directions() {
    let n = 12;
    let (before, ..) = result(n, 1, 0, Level::best());
    let constants = Constants::new(n, PARAMS.dt);
    let h = 1.0 / (n - 1) as f64;
    let state = |at: [usize; 3]| {
        let start = ((at[2] * n + at[1]) * n + at[0]) * 5;
        std::array::from_fn(|m| before[start + m])
    };
    let exact = |at: [usize; 3]| super::exact::exact(at.map(|x| x as f64 * h));
    let of_state = super::reference::right_hand_side(&constants, &state);
    let of_exact = super::reference::right_hand_side(&constants, &exact);
    let mut rhs = vec![0.0; before.len()];
    for (at, value) in of_state {
        let start = ((at[2] * n + at[1]) * n + at[0]) * 5;
        for m in 0..5 {
            rhs[start + m] = value[m] - of_exact[&at][m];
        }
    }
    let weight = Tridiagonal::new(&constants).weight;
    for direction in 0..DIRECTIONS {
        solve_plainly(&before, &mut rhs, n, direction, weight);
    }
    let expected: Vec<f64> = (0..before.len())
        .map(|at| before[at] + rhs[at] * before[at / 5 * 5])
        .collect();
    for p in [1, 2] {
        close(&result(n, p, 1, Level::best()).0, &expected, 1e-11);
    }
}

/// The messages of a run: a warm-up step, steps, the residual.
fn messages(plan: Plan, steps: usize) -> Vec<Vec<Event>> {
    scripts(plan.partition().n_pes(), |pe, recorder| {
        let mut solver = Solver::<Tridiagonal>::new(plan, pe, &PARAMS, Level::BASELINE).unwrap();
        for _ in 0..=steps {
            solver.step(recorder);
        }
        let _ = solver.residual(recorder);
    })
}

#[test]
fn no_message_is_overwritten_in_any_order() {
    assert!(messages(plan(12, 1), 2)[0].is_empty());
    for plan in plans(12) {
        simulate_orders(&messages(plan, 2), 40);
    }
}

#[test]
#[should_panic(expected = "overwrites slot")]
fn the_simulation_finds_exchanges_without_a_sweep_between() {
    let scripts = scripts(4, |pe, recorder| {
        let mut solver =
            Solver::<Tridiagonal>::new(plan(12, 2), pe, &PARAMS, Level::BASELINE).unwrap();
        for _ in 0..3 {
            let _ = solver.residual(recorder);
        }
    });
    simulate(&scripts, |_| 0);
}

#[test]
fn memory_of_one_pe_is_three_fields_and_more_pes_need_less_each() {
    let memory = |n: usize, p: usize| {
        let partition = Partition::new(n, p * p).unwrap();
        Plan::new::<Tridiagonal>(partition, Reach::Network).memory::<Tridiagonal>()
    };
    let one = memory(64, 1);
    assert!(one > 3 * 5 * 8 * 64 * 64 * 64 && one < 10 * 5 * 8 * 64 * 64 * 64);
    for p in 1..6 {
        assert!(memory(162, p + 1) < memory(162, p));
    }
    // While the last of the three is not there yet, two for the forcing are.
    let field = Field::<5>::new(
        Partition::new(64, 1).unwrap().cells(0)[0].layout(),
        [0.0; 5],
    );
    let field = size_of_val(field.unwrap().values()) as u64;
    assert!((4 * field..4 * field + field / 10).contains(&one));
    // The largest class is counted without overflow.
    assert!(memory(2560, 1) > 2_000_000_000_000);
}

//! Lines that are cut into cells, and solutions against the equations.

use super::pentadiagonal::{KEPT, UNKNOWNS};
use super::solver::Sp;
use crate::adi::constants::Constants;
use crate::adi::directions::{X, Y, Z};
use crate::adi::scheme::{Ends, Pack, Point, Scheme};
use crate::cpu::{Kernel, Level};
use crate::random::Lcg;
use crate::simd::F64x8;
use proptest::prelude::*;

/// Lines with a flow that is different at each point, and a right-hand side.
struct Lines {
    u: Vec<Point>,
    rhs: Vec<Point>,
}

impl Lines {
    fn random(points: usize, seed: u64) -> Self {
        let mut random = Lcg::new(seed | 1);
        let mut lanes = |low: f64| F64x8(std::array::from_fn(|_| low + random.next_f64()));
        let u =
            (0..points + 2).map(|_| [lanes(1.0), lanes(0.0), lanes(-1.0), lanes(0.5), lanes(5.0)]);
        let u = u.collect();
        let rhs = (0..points).map(|_| std::array::from_fn(|_| lanes(-0.5)));
        Self {
            u,
            rhs: rhs.collect(),
        }
    }
}

/// Solves along `D` with the lines cut before each of the points in `cuts`, which ascend.
struct Sweep<'a, const D: usize>(&'a Sp, &'a Lines, &'a [usize]);

impl<const D: usize> Kernel for Sweep<'_, D> {
    type Output = Vec<Point>;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Vec<Point> {
        let Self(sp, lines, cuts) = self;
        let len = lines.rhs.len();
        let mut rhs = lines.rhs.clone();
        let mut kept = vec![[F64x8::default(); KEPT]; len];
        let starts: Vec<usize> = [0].into_iter().chain(cuts.iter().copied()).collect();
        let ends: Vec<usize> = cuts.iter().copied().chain([len]).collect();
        let mut carry = Pack::ZERO;
        for (&start, &end) in starts.iter().zip(&ends) {
            let sides = Ends {
                low: start == 0,
                high: end == len,
            };
            sp.forward::<D, FMA>(
                sides,
                &lines.u[start..end + 2],
                &mut rhs[start..end],
                &mut kept[start..end],
                &mut carry,
            );
        }
        let mut carry = Pack::ZERO;
        for (&start, &end) in starts.iter().zip(&ends).rev() {
            sp.backward::<D, FMA>(&mut rhs[start..end], &kept[start..end], &mut carry);
        }
        rhs
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn cutting_lines_into_cells_changes_nothing(
        points in 6usize..30,
        cuts in proptest::collection::btree_set(1usize..29, 0..4),
        seed in any::<u32>(),
    ) {
        let sp = Sp::new(&Constants::new(points + 2, 0.015));
        let lines = Lines::random(points, u64::from(seed));
        let cuts: Vec<usize> = cuts.into_iter().filter(|&cut| cut < points).collect();
        let level = Level::best();
        prop_assert_eq!(
            level.run(Sweep::<X>(&sp, &lines, &cuts)),
            level.run(Sweep::<X>(&sp, &lines, &[]))
        );
        prop_assert_eq!(
            level.run(Sweep::<Y>(&sp, &lines, &cuts)),
            level.run(Sweep::<Y>(&sp, &lines, &[]))
        );
        prop_assert_eq!(
            level.run(Sweep::<Z>(&sp, &lines, &cuts)),
            level.run(Sweep::<Z>(&sp, &lines, &[]))
        );
    }

    /// What comes out solves the system that the reference defines, written out for one lane:
    /// convection and diffusion by differences, dissipation by fourth differences, for the waves
    /// with velocity, velocity plus and velocity minus the speed of sound.
    #[test]
    fn solution_satisfies_the_equations(points in 3usize..30, seed in any::<u32>()) {
        let (dt, lane) = (0.015, 3);
        let c = Constants::new(points + 2, dt);
        let lines = Lines::random(points, u64::from(seed));
        let x = Level::best().run(Sweep::<Z>(&Sp::new(&c), &lines, &[]));
        let state = |i: usize| lines.u[i].map(|lanes| lanes.0[lane]);
        // At u[i], which is point i - 1 of the solution; 0 on the boundary.
        let at = |i: usize, m: usize| if (1..=points).contains(&i) { x[i - 1][m].0[lane] } else { 0.0 };
        for i in 1..=points {
            for m in 0..UNKNOWNS {
                let sign = [0.0, 0.0, 0.0, 1.0, -1.0][m];
                let speed = |i: usize| {
                    let [rho, mx, my, mz, energy] = state(i);
                    let inner = energy - 0.5 * (mx * mx + my * my + mz * mz) / rho;
                    mz / rho + sign * (1.4 * 0.4 * inner / rho).sqrt()
                };
                let diffusion = |i: usize| {
                    let viscous = 0.1 / state(i)[0];
                    (1.0 + 4.0 / 3.0 * viscous).max(1.0 + 1.96 * viscous).max(1.0)
                };
                let convected = speed(i + 1) * at(i + 1, m) - speed(i - 1) * at(i - 1, m);
                let diffused = diffusion(i + 1) * at(i + 1, m) - 2.0 * diffusion(i) * at(i, m)
                    + diffusion(i - 1) * at(i - 1, m);
                let centre = if i == 1 || i == points { 5.0 } else { 6.0 };
                let far = |to: usize| if (3..=points + 2).contains(&to) { at(to - 2, m) } else { 0.0 };
                let fourth = far(i) - 4.0 * at(i - 1, m) + centre * at(i, m)
                    - 4.0 * at(i + 1, m) + far(i + 4);
                let left = at(i, m)
                    + dt * (c.t2 * convected - c.t1 * diffused + 0.25 * fourth);
                let right = lines.rhs[i - 1][m].0[lane];
                prop_assert!((left - right).abs() < 1e-11, "{left} {right}");
            }
        }
    }
}

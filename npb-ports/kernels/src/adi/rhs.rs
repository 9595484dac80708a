//! The right-hand side: dt (forcing + convection + diffusion + dissipation) at the inner points.
//!
//! All terms are differences along the three directions of quantities at the points, so the
//! right-hand side at a point is a sum over the point itself and its neighbours, at distance 1
//! and 2 in each direction, of
//!
//! * a *linear* part, a number times `u`: artificial diffusion (second differences) and
//!   fourth-order dissipation, whose weights differ next to the boundary of the grid
//!   (`Weights`), and
//! * a *flux*, from neighbours at distance 1 and the point itself: viscosity (second
//!   differences) and convection (central differences) of velocities, pressure and energy.
//!
//! Nothing but `u` and the forcing is read: density, velocities and kinetic energy of a neighbour
//! cost less to compute again, one division and few products, than to store and load, and the
//! kernel can start at any row. dt is part of all coefficients, and of the stored forcing.

use super::constants::{C1, C2, Constants, EQUATIONS};
use super::directions::{DIRECTIONS, X, Y, Z};
use super::field::{Field, GHOST, Lanes, RowChunks};
use super::partition::Cell;
use crate::cpu::{Kernel, Level};
use crate::simd::{F64x8, LANES};
use std::ops::Range;

/// Coefficients of the linear part for the points at distance -2 to 2 in one direction.
type Weights = [f64; 5];

/// The right-hand side as an operator on the fields of one cell.
#[derive(Clone, Debug)]
pub struct Operator {
    interior: [Range<usize>; DIRECTIONS],
    /// Of the inner points along x, eight a chunk: `along_x[distance + 2]`.
    along_x: [Vec<[f64; LANES]>; 5],
    /// Of each local index along y and z.
    along: [Vec<Weights>; DIRECTIONS],
    flux: Flux,
}

/// Coefficients of the fluxes, each with dt.
#[derive(Clone, Copy, Debug)]
struct Flux {
    t2: f64,
    con1: f64,
    con2: f64,
    con3: f64,
    con4: f64,
    con5: f64,
}

impl Operator {
    /// The operator on `cell`.
    #[must_use]
    pub fn new(cell: &Cell, constants: &Constants) -> Self {
        let dt = constants.dt;
        let interior = std::array::from_fn(|d| cell.interior(d));
        let along: [Vec<Weights>; DIRECTIONS] =
            std::array::from_fn(|d| weights(cell, d, constants));
        let along_x = std::array::from_fn(|offset| {
            let row = along[X][cell.interior(X)].chunks(LANES).map(|weights| {
                let mut lanes = [0.0; LANES];
                for (lane, weights) in lanes.iter_mut().zip(weights) {
                    *lane = weights[offset];
                }
                lanes
            });
            row.collect()
        });
        Self {
            interior,
            along_x,
            along,
            flux: Flux {
                t2: dt * constants.t2,
                con1: dt * constants.con1,
                con2: dt * constants.con2,
                con3: dt * constants.con3,
                con4: dt * constants.con4,
                con5: dt * constants.con5,
            },
        }
    }

    /// Computes all of `rhs` on the interior of the cell. `u` must have its ghosts.
    pub fn apply(
        &self,
        u: &Field<EQUATIONS>,
        forcing: &Field<EQUATIONS>,
        rhs: &mut Field<EQUATIONS>,
        level: Level,
    ) {
        let planes = self.interior[Z].clone();
        self.apply_to_planes(u, forcing, rhs, planes, level);
    }

    /// Computes `rhs` on some inner `planes`. `u` must have its ghosts.
    pub fn apply_to_planes(
        &self,
        u: &Field<EQUATIONS>,
        forcing: &Field<EQUATIONS>,
        rhs: &mut Field<EQUATIONS>,
        planes: Range<usize>,
        level: Level,
    ) {
        level.run(Apply {
            operator: self,
            u,
            forcing,
            rhs,
            planes,
        });
    }

    /// Computes rows `js` of plane `k`, which are inner ones.
    #[inline(always)]
    pub fn rows<const FMA: bool>(
        &self,
        u: &Field<EQUATIONS>,
        forcing: &Field<EQUATIONS>,
        rhs: &mut Field<EQUATIONS>,
        js: Range<usize>,
        k: usize,
    ) {
        let (start, points) = (self.interior[X].start, self.interior[X].len());
        let count = points.div_ceil(LANES);
        for j in js {
            let line = Line {
                flux: &self.flux,
                along_x: self.along_x.each_ref().map(|w| &w[..count]),
                along_y: self.along[Y][j],
                along_z: self.along[Z][k],
                centre: u.rows(start, j, k, count),
                x: [
                    u.rows(start - 2, j, k, count),
                    u.rows(start - 1, j, k, count),
                    u.rows(start + 1, j, k, count),
                    u.rows(start + 2, j, k, count),
                ],
                y: [
                    u.rows(start, j - 2, k, count),
                    u.rows(start, j - 1, k, count),
                    u.rows(start, j + 1, k, count),
                    u.rows(start, j + 2, k, count),
                ],
                z: [
                    u.rows(start, j, k - 2, count),
                    u.rows(start, j, k - 1, count),
                    u.rows(start, j, k + 1, count),
                    u.rows(start, j, k + 2, count),
                ],
                forcing: forcing.rows(start, j, k, count),
            };
            // What this row and those of the planes before have not read yet, of the next row.
            for c in 0..count {
                u.prefetch(start + c * LANES, j + 1, k + 2);
                forcing.prefetch(start + c * LANES, j + 1, k);
                rhs.prefetch(start + c * LANES, j + 1, k);
            }
            let mut to = rhs.rows_mut(start, j, k, count);
            for c in 0..count {
                let sum = line.chunk::<FMA>(c);
                let within = (points - c * LANES).min(LANES);
                for (to, sum) in to.iter_mut().zip(&sum) {
                    if within == LANES {
                        to[c] = sum.0;
                    } else {
                        to[c][..within].copy_from_slice(&sum.0[..within]);
                    }
                }
            }
        }
    }
}

/// The neighbours at distance -2, -1, 1 and 2.
type Neighbours<'a> = [RowChunks<'a, EQUATIONS>; 4];

/// All that the right-hand side of a row depends on, in chunks of eight points.
struct Line<'a> {
    flux: &'a Flux,
    along_x: [&'a [[f64; LANES]]; 5],
    along_y: Weights,
    along_z: Weights,
    centre: RowChunks<'a, EQUATIONS>,
    x: Neighbours<'a>,
    y: Neighbours<'a>,
    z: Neighbours<'a>,
    forcing: RowChunks<'a, EQUATIONS>,
}

/// Chunk `c` of rows.
#[inline(always)]
fn lanes<const M: usize>(rows: &RowChunks<'_, M>, c: usize) -> Lanes<M> {
    let mut lanes = [F64x8::default(); M];
    for (lanes, row) in lanes.iter_mut().zip(rows) {
        lanes.0 = row[c];
    }
    lanes
}

impl Line<'_> {
    /// The right-hand side at the points of chunk `c`.
    #[inline(always)]
    fn chunk<const FMA: bool>(&self, c: usize) -> Lanes<EQUATIONS> {
        let splat = F64x8::splat;
        let (flux, t2) = (self.flux, self.flux.t2);
        let wx = lanes(&self.along_x, c);
        let (wy, wz) = (&self.along_y, &self.along_z);

        let mut sum = lanes(&self.forcing, c);
        let centre = lanes(&self.centre, c);
        linear::<FMA>(&mut sum, &centre, wx[2] + (wy[2] + wz[2]));
        flux.of_centre::<FMA>(&mut sum, &centre);

        let [far_below, below, above, far_above] = &self.x;
        linear::<FMA>(&mut sum, &lanes(far_below, c), wx[0]);
        flux.of_neighbour::<X, FMA>(&mut sum, &lanes(below, c), wx[1], t2);
        flux.of_neighbour::<X, FMA>(&mut sum, &lanes(above, c), wx[3], -t2);
        linear::<FMA>(&mut sum, &lanes(far_above, c), wx[4]);

        let [far_below, below, above, far_above] = &self.y;
        linear::<FMA>(&mut sum, &lanes(far_below, c), splat(wy[0]));
        flux.of_neighbour::<Y, FMA>(&mut sum, &lanes(below, c), splat(wy[1]), t2);
        flux.of_neighbour::<Y, FMA>(&mut sum, &lanes(above, c), splat(wy[3]), -t2);
        linear::<FMA>(&mut sum, &lanes(far_above, c), splat(wy[4]));

        let [far_below, below, above, far_above] = &self.z;
        linear::<FMA>(&mut sum, &lanes(far_below, c), splat(wz[0]));
        flux.of_neighbour::<Z, FMA>(&mut sum, &lanes(below, c), splat(wz[1]), t2);
        flux.of_neighbour::<Z, FMA>(&mut sum, &lanes(above, c), splat(wz[3]), -t2);
        linear::<FMA>(&mut sum, &lanes(far_above, c), splat(wz[4]));
        sum
    }
}

/// Artificial diffusion and dissipation along `direction`, for each local index. Boundary points
/// and ghosts get those of an inner point; nobody uses them.
fn weights(cell: &Cell, direction: usize, constants: &Constants) -> Vec<Weights> {
    let n = constants.n;
    let diffusion = constants.dmax[direction] * constants.t1;
    (0..cell.size[direction] + 2 * GHOST)
        .map(|local| {
            let at = (cell.start[direction] + local).saturating_sub(GHOST);
            let fourth = match (at, n - 1 - at.min(n - 1)) {
                (1, 1) => [0.0, 0.0, 4.0, 0.0, 0.0],
                (1, 2) => [0.0, 0.0, 5.0, -4.0, 0.0],
                (2, 1) => [0.0, -4.0, 5.0, 0.0, 0.0],
                (1, _) => [0.0, 0.0, 5.0, -4.0, 1.0],
                (2, 2) => [0.0, -4.0, 6.0, -4.0, 0.0],
                (2, _) => [0.0, -4.0, 6.0, -4.0, 1.0],
                (_, 2) => [1.0, -4.0, 6.0, -4.0, 0.0],
                (_, 1) => [1.0, -4.0, 5.0, 0.0, 0.0],
                _ => [1.0, -4.0, 6.0, -4.0, 1.0],
            };
            let second = [0.0, 1.0, -2.0, 1.0, 0.0];
            std::array::from_fn(|offset| {
                constants.dt * (diffusion * second[offset] - constants.dssp * fourth[offset])
            })
        })
        .collect()
}

#[inline(always)]
fn linear<const FMA: bool>(sum: &mut Lanes<EQUATIONS>, u: &Lanes<EQUATIONS>, weight: F64x8) {
    for (sum, u) in sum.iter_mut().zip(u) {
        *sum = u.mul_add::<FMA>(weight, *sum);
    }
}

/// 1 / density, velocities, kinetic energy.
#[inline(always)]
fn primitive<const FMA: bool>(u: &Lanes<EQUATIONS>) -> (F64x8, [F64x8; DIRECTIONS], F64x8) {
    let volume = u[0].recip();
    let velocity = [u[1] * volume, u[2] * volume, u[3] * volume];
    let double =
        velocity[0].mul_add::<FMA>(u[1], velocity[1].mul_add::<FMA>(u[2], velocity[2] * u[3]));
    (volume, velocity, double * 0.5)
}

impl Flux {
    /// Adds what the neighbour with state `u` contributes in `DIRECTION`; `t` is t2 for the
    /// neighbour below, -t2 for the one above.
    #[inline(always)]
    fn of_neighbour<const DIRECTION: usize, const FMA: bool>(
        &self,
        sum: &mut Lanes<EQUATIONS>,
        u: &Lanes<EQUATIONS>,
        weight: F64x8,
        t: f64,
    ) {
        linear::<FMA>(sum, u, weight);
        let (volume, velocity, kinetic) = primitive::<FMA>(u);
        let splat = F64x8::splat;
        let (momentum, along) = (u[DIRECTION + 1], velocity[DIRECTION]);

        sum[0] = momentum.mul_add::<FMA>(splat(t), sum[0]);
        // Convection of momentum m along the direction is velocity m times the momentum along
        // it, so viscosity and convection share the velocity as a factor.
        let across = momentum.mul_add::<FMA>(splat(t), splat(self.con2));
        let (a, b) = ((DIRECTION + 1) % DIRECTIONS, (DIRECTION + 2) % DIRECTIONS);
        sum[a + 1] = velocity[a].mul_add::<FMA>(across, sum[a + 1]);
        sum[b + 1] = velocity[b].mul_add::<FMA>(across, sum[b + 1]);
        let own = momentum.mul_add::<FMA>(splat(t), splat(self.con1));
        let pressure = (u[4] - kinetic) * (C2 * t);
        sum[DIRECTION + 1] = along.mul_add::<FMA>(own, sum[DIRECTION + 1] + pressure);

        let diffused = kinetic.mul_add::<FMA>(splat(self.con3), u[4] * self.con5);
        let enthalpy = u[4].mul_add::<FMA>(splat(C1 * t), kinetic * (-C2 * t));
        let convected = along.mul_add::<FMA>(splat(self.con4), enthalpy);
        sum[4] = volume.mul_add::<FMA>(diffused, along.mul_add::<FMA>(convected, sum[4]));
    }

    /// Adds what the point itself contributes to the second differences in all directions.
    #[inline(always)]
    fn of_centre<const FMA: bool>(&self, sum: &mut Lanes<EQUATIONS>, u: &Lanes<EQUATIONS>) {
        let (volume, velocity, kinetic) = primitive::<FMA>(u);
        let splat = F64x8::splat;
        let viscosity = splat(-2.0 * (self.con1 + 2.0 * self.con2));
        for (sum, velocity) in sum[1..].iter_mut().zip(&velocity) {
            *sum = velocity.mul_add::<FMA>(viscosity, *sum);
        }
        // The squares of the velocities add up to twice kinetic energy by density.
        let kinetic = kinetic * (-2.0 * (3.0 * self.con3 + 2.0 * self.con4));
        let energy = u[4].mul_add::<FMA>(splat(-6.0 * self.con5), kinetic);
        sum[4] = volume.mul_add::<FMA>(energy, sum[4]);
    }
}

struct Apply<'a> {
    operator: &'a Operator,
    u: &'a Field<EQUATIONS>,
    forcing: &'a Field<EQUATIONS>,
    rhs: &'a mut Field<EQUATIONS>,
    planes: Range<usize>,
}

impl Kernel for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let js = self.operator.interior[Y].clone();
        for k in self.planes {
            self.operator
                .rows::<FMA>(self.u, self.forcing, self.rhs, js.clone(), k);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::initialize::{AT_REST, forcing, initialize};
    use crate::adi::partition::Partition;
    use crate::adi::reference;

    /// A cell of a grid with ghosts, from a function of the global position.
    fn sampled(cell: &Cell, value: impl Fn([usize; 3]) -> [f64; 5]) -> Field<5> {
        let mut u = Field::new(cell.layout(), AT_REST).unwrap();
        let reach = std::array::from_fn(|d| cell.within_grid(d));
        crate::adi::exact::fill(&mut u, reach, |local| {
            value(std::array::from_fn(|d| cell.global(d, local[d])))
        });
        u
    }

    fn wavy([i, j, k]: [usize; 3]) -> [f64; 5] {
        let phase = (i * 7 + j * 13 + k * 29) as f64;
        [
            2.0 + (phase * 0.3).sin(),
            (phase * 0.7).cos(),
            (phase * 1.1).sin(),
            (phase * 0.9).cos() - 0.5,
            6.0 + (phase * 0.2).sin(),
        ]
    }

    #[test]
    fn agrees_with_the_definition_term_by_term_on_any_cell_and_level() {
        for (n, n_pes) in [
            (5, 1),
            (12, 1),
            (21, 1),
            (12, 16),
            (14, 16),
            (19, 4),
            (20, 9),
        ] {
            let constants = Constants::new(n, 0.015);
            let expected = reference::right_hand_side(&constants, &wavy);
            let partition = Partition::new(n, n_pes).unwrap();
            for cell in (0..n_pes).flat_map(|pe| partition.cells(pe)) {
                let u = sampled(&cell, wavy);
                let mut rhs = Field::new(cell.layout(), [7.0; 5]).unwrap();
                let zero = Field::new(cell.layout(), [0.0; 5]).unwrap();
                for level in Level::supported() {
                    Operator::new(&cell, &constants).apply(&u, &zero, &mut rhs, level);
                    reference::compare(&cell, &rhs, 7.0, &expected, 1e-12);
                }
            }
        }
    }

    #[test]
    fn forcing_makes_the_exact_solution_stationary() {
        let n = 13;
        let constants = Constants::new(n, 0.01);
        let h = 1.0 / (n - 1) as f64;
        let solution = |at: [usize; 3]| crate::adi::exact::exact(at.map(|x| x as f64 * h));
        let mut expected = reference::right_hand_side(&constants, &solution);
        for value in expected.values_mut().flatten() {
            *value = -*value;
        }
        let partition = Partition::new(n, 9).unwrap();
        for cell in (0..9).flat_map(|pe| partition.cells(pe)) {
            let forcing = forcing(&cell, &constants, Level::best()).unwrap();
            reference::compare(&cell, &forcing, 0.0, &expected, 1e-12);

            let u = sampled(&cell, solution);
            let mut rhs = Field::new(cell.layout(), [0.0; 5]).unwrap();
            Operator::new(&cell, &constants).apply(&u, &forcing, &mut rhs, Level::BASELINE);
            let largest = rhs.values().iter().fold(0.0f64, |max, x| max.max(x.abs()));
            assert!(largest < 1e-12, "{largest}");
        }
    }

    #[test]
    fn the_initial_state_is_not_stationary() {
        let constants = Constants::new(12, 0.01);
        let cell = Partition::new(12, 1).unwrap().cells(0)[0];
        let mut u = Field::new(cell.layout(), AT_REST).unwrap();
        initialize(&mut u, &cell, 12);
        let mut rhs = Field::new(cell.layout(), [0.0; 5]).unwrap();
        let forcing = forcing(&cell, &constants, Level::best()).unwrap();
        Operator::new(&cell, &constants).apply(&u, &forcing, &mut rhs, Level::best());
        assert!(rhs.get(5, 5, 5)[0].abs() > 1e-3);
    }
}

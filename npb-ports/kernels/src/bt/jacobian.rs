//! The blocks that a point contributes to the linear system along a line.
//!
//! The implicit step linearises the fluxes about the present solution. On a line of spacing h the
//! equation of point i, for the changes x of the five quantities, is
//!
//! ```text
//! -below(i-1) x(i-1)  +  diagonal(i) x(i)  +  above(i+1) x(i+1)  =  right(i)
//!
//! below    =     dt/2h F +   dt/h² (N + D)
//! diagonal = 1           + 2 dt/h² (N + D)
//! above    =     dt/2h F -   dt/h² (N + D)
//! ```
//!
//! with the Jacobians F of the convective and N of the viscous flux *at the point whose index is
//! given*, and the constant artificial diffusion D, which is diagonal. A point so contributes
//! three blocks, one to its own equation and one to that of each neighbour. To compute their
//! entries where they are needed is cheaper than to store them.
//!
//! Only one direction is written down. The equations along y and z are the same with the momenta
//! in another order, so the solver reads the momentum along the line first.

use super::block::{Rows, VISCOUS, Vector, ZERO, entries, unroll};
use crate::adi::constants::{C1, C2, Constants};
use crate::cpu::mul_add;

/// Coefficients of the blocks along one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coefficients {
    /// dt / 2h.
    convective: f64,
    /// dt / h² times the viscosity, of a momentum across the line.
    across: f64,
    /// The same of the momentum along the line.
    along: f64,
    /// The same of the energy.
    energy: f64,
    /// dt / h² D.
    artificial: Vector,
}

impl Coefficients {
    /// Of lines along `direction`.
    pub(super) fn new(constants: &Constants, direction: usize) -> Self {
        let viscous = constants.dt * constants.t1;
        Self {
            convective: constants.dt * constants.t2,
            across: viscous * constants.c3c4,
            along: viscous * constants.c3c4 * constants.con43,
            energy: viscous * constants.c1345,
            artificial: constants.d[direction].map(|d| viscous * d),
        }
    }
}

/// What the blocks of a point depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Of a unit of mass: volume, velocity along the line, velocities across, energy.
    pub(super) numbers: Vector,
}

impl Flow {
    /// Of a point with density, momenta and energy `u`, the momentum along the line being the
    /// first of the momenta.
    #[inline(always)]
    pub(super) fn new(u: &Vector) -> Self {
        let volume = 1.0 / u[0];
        Self {
            numbers: [
                volume,
                u[1] * volume,
                u[2] * volume,
                u[3] * volume,
                u[4] * volume,
            ],
        }
    }

    /// What the point contributes to the equation of the point after it, with a negative sign.
    /// The shape is [`COUPLING`](super::block::COUPLING).
    #[inline(always)]
    pub(super) fn below<const FMA: bool>(&self, coefficients: &Coefficients) -> Rows {
        let mut block = self.convective::<FMA>(coefficients);
        let viscous = self.viscous::<FMA>(coefficients);
        entries!(VISCOUS, I, J => {
            block[I][J] += viscous[I][J];
        });
        block
    }

    /// What the point contributes to its own equation. The shape is [`VISCOUS`].
    #[inline(always)]
    pub(super) fn diagonal<const FMA: bool>(&self, coefficients: &Coefficients) -> Rows {
        let mut block = ZERO;
        let viscous = self.viscous::<FMA>(coefficients);
        entries!(VISCOUS, I, J => {
            block[I][J] = viscous[I][J] + viscous[I][J];
            if I == J {
                block[I][J] += 1.0;
            }
        });
        block
    }

    /// What the point contributes to the equation of the point before it. The shape is
    /// [`COUPLING`](super::block::COUPLING).
    #[inline(always)]
    pub(super) fn above<const FMA: bool>(&self, coefficients: &Coefficients) -> Rows {
        let mut block = self.convective::<FMA>(coefficients);
        let viscous = self.viscous::<FMA>(coefficients);
        entries!(VISCOUS, I, J => {
            block[I][J] -= viscous[I][J];
        });
        block
    }

    /// dt/2h F.
    #[inline(always)]
    fn convective<const FMA: bool>(&self, coefficients: &Coefficients) -> Rows {
        let [_, v, v2, v3, energy] = self.numbers;
        let t = coefficients.convective;
        let along = v * t;
        let kinetic = 0.5 * mul_add::<FMA>(v, v, mul_add::<FMA>(v2, v2, v3 * v3));
        let enthalpy = C1 * energy;
        let (c2v2, c2v3) = (-C2 * v2, -C2 * v3);
        [
            [0.0, t, 0.0, 0.0, 0.0],
            [
                mul_add::<FMA>(C2 * t, kinetic, -(along * v)),
                (2.0 - C2) * along,
                c2v2 * t,
                c2v3 * t,
                C2 * t,
            ],
            [-(along * v2), v2 * t, along, 0.0, 0.0],
            [-(along * v3), v3 * t, 0.0, along, 0.0],
            [
                mul_add::<FMA>(2.0 * C2, kinetic, -enthalpy) * along,
                mul_add::<FMA>(-C2, mul_add::<FMA>(v, v, kinetic), enthalpy) * t,
                c2v2 * along,
                c2v3 * along,
                C1 * along,
            ],
        ]
    }

    /// dt/h² (N + D).
    #[inline(always)]
    fn viscous<const FMA: bool>(&self, coefficients: &Coefficients) -> Rows {
        let [volume, v, v2, v3, energy] = self.numbers;
        let across = coefficients.across * volume;
        let along = coefficients.along * volume;
        let heat = coefficients.energy * volume;
        let (heat_along, heat_across) = (along - heat, across - heat);
        let d = coefficients.artificial;
        [
            [d[0], 0.0, 0.0, 0.0, 0.0],
            [-(along * v), along + d[1], 0.0, 0.0, 0.0],
            [-(across * v2), 0.0, across + d[2], 0.0, 0.0],
            [-(across * v3), 0.0, 0.0, across + d[3], 0.0],
            [
                -mul_add::<FMA>(
                    heat_along * v,
                    v,
                    mul_add::<FMA>(heat_across, mul_add::<FMA>(v2, v2, v3 * v3), heat * energy),
                ),
                heat_along * v,
                heat_across * v2,
                heat_across * v3,
                heat + d[4],
            ],
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::COUPLING;
    use super::*;
    use crate::adi::constants::EQUATIONS;

    const STATE: Vector = [1.7, 0.6, -0.4, 0.9, 5.3];

    /// The convective flux along the line.
    fn convective_flux(_: &Constants, [density, m, m2, m3, energy]: Vector) -> Vector {
        let v = m / density;
        let pressure = 0.4 * (energy - 0.5 * (m * m + m2 * m2 + m3 * m3) / density);
        [m, m * v + pressure, m2 * v, m3 * v, (energy + pressure) * v]
    }

    /// What the viscous flux is the derivative of, as the benchmark has it.
    fn viscous_flux(c: &Constants, [density, m, m2, m3, energy]: Vector) -> Vector {
        let (v, v2, v3) = (m / density, m2 / density, m3 / density);
        let (along, across) = (c.con43 * c.c3c4 - c.c1345, c.c3c4 - c.c1345);
        let kinetic = 0.5 * (along * v * v + across * (v2 * v2 + v3 * v3));
        let heat = kinetic + c.c1345 * energy / density;
        [0.0, c.con43 * c.c3c4 * v, c.c3c4 * v2, c.c3c4 * v3, heat]
    }

    /// The derivative of `flux` by central differences.
    fn jacobian(c: &Constants, flux: impl Fn(&Constants, Vector) -> Vector) -> Rows {
        let step = 1e-5;
        let mut rows = ZERO;
        for j in 0..EQUATIONS {
            let at = |shift: f64| {
                let mut u = STATE;
                u[j] += shift;
                flux(c, u)
            };
            let (high, low) = (at(step), at(-step));
            for i in 0..EQUATIONS {
                rows[i][j] = (high[i] - low[i]) / (2.0 * step);
            }
        }
        rows
    }

    #[test]
    fn blocks_are_the_derivatives_of_the_fluxes() {
        let c = Constants::new(11, 0.02);
        let (convective, viscous) = (jacobian(&c, convective_flux), jacobian(&c, viscous_flux));
        for direction in 0..3 {
            let coefficients = Coefficients::new(&c, direction);
            let flow = Flow::new(&STATE);
            let below = flow.below::<false>(&coefficients);
            let diagonal = flow.diagonal::<false>(&coefficients);
            let above = flow.above::<false>(&coefficients);
            for i in 0..EQUATIONS {
                for j in 0..EQUATIONS {
                    let unit = f64::from(u8::from(i == j));
                    let f = 0.02 * 5.0 * convective[i][j];
                    let n = 0.02 * 100.0 * (viscous[i][j] + unit * c.d[direction][i]);
                    let close = |found: f64, expected: f64| {
                        assert!(
                            (found - expected).abs() < 1e-7,
                            "{i} {j}: {found} {expected}"
                        );
                    };
                    close(below[i][j], f + n);
                    close(diagonal[i][j], unit + 2.0 * n);
                    close(above[i][j], f - n);
                }
            }
        }
    }

    #[test]
    fn nothing_is_outside_the_shapes() {
        let flow = Flow::new(&STATE);
        let coefficients = Coefficients::new(&Constants::new(12, 0.01), 2);
        for fused in [false, true] {
            let [below, diagonal, above] = if fused {
                [
                    flow.below::<true>(&coefficients),
                    flow.diagonal::<true>(&coefficients),
                    flow.above::<true>(&coefficients),
                ]
            } else {
                [
                    flow.below::<false>(&coefficients),
                    flow.diagonal::<false>(&coefficients),
                    flow.above::<false>(&coefficients),
                ]
            };
            for i in 0..EQUATIONS {
                for j in 0..EQUATIONS {
                    assert_eq!(below[i][j] != 0.0, COUPLING[i][j]);
                    assert_eq!(above[i][j] != 0.0, COUPLING[i][j]);
                    assert_eq!(diagonal[i][j] != 0.0, VISCOUS[i][j]);
                }
            }
        }
    }
}

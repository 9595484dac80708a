//! The equations at one point of eight lines: the diagonal block, and what a point gives its three
//! successors.
//!
//! The reference programs make four 5 x 5 matrices at each point, of the point and of the three
//! before it, multiply and eliminate. Here the matrices are never made.
//!
//! * A matrix between two points is that of convection (the Jacobian of the flux) and diffusion in
//!   one direction *at the point that comes first*. So that point can multiply it with its own
//!   solution, and hand the product on: velocities and all that does not depend on the direction are
//!   computed once for three products, and a product written out in terms of them is a fraction of
//!   one of a matrix.
//! * The diagonal block has no convection, whose central differences leave the point itself out.
//!   Diffusion couples momenta to the density, and the energy to all, and nothing else: the
//!   block is a lower triangle, solved from the top.
//!
//! The spacing is the same in all directions, so the coefficients are, too. Loops stand where closures
//! would do, which are not compiled for the kernel's instructions.

use super::params::OMEGA;
use crate::adi::constants::{C1, C2, Constants, EQUATIONS};
use crate::adi::directions::DIRECTIONS;
use crate::adi::scheme::Point;
use crate::simd::F64x8;

/// Coefficients of both sweeps.
#[derive(Clone, Copy, Debug)]
pub struct Equations {
    /// Of the products, with over-relaxation: central differences,
    convection: f64,
    /// viscosity,
    viscosity: f64,
    /// heat conduction,
    conduction: f64,
    /// artificial diffusion in each direction.
    diffusion: [f64; DIRECTIONS],
    /// Of the diagonal block: all that does not depend on the state,
    diagonal: f64,
    /// viscosity,
    own_viscosity: f64,
    /// heat conduction.
    own_conduction: f64,
}

/// The state at a point in the terms of the matrices.
#[derive(Clone, Copy, Debug)]
pub struct Primitive {
    /// 1 / density.
    volume: F64x8,
    /// Velocities.
    velocity: [F64x8; DIRECTIONS],
    /// The sum of their squares.
    square: F64x8,
    /// Energy by mass.
    energy: F64x8,
}

impl Primitive {
    /// Of the state `u`.
    #[inline(always)]
    #[must_use]
    pub fn new<const FMA: bool>(u: &Point) -> Self {
        let volume = u[0].recip();
        let velocity = [u[1] * volume, u[2] * volume, u[3] * volume];
        Self {
            volume,
            velocity,
            square: dot::<FMA>(&velocity, &velocity),
            energy: u[4] * volume,
        }
    }
}

/// What a point adds to the right-hand sides of its three successors.
pub type Products = [Point; DIRECTIONS];

impl Equations {
    /// The coefficients for `constants`.
    #[must_use]
    pub fn new(constants: &Constants) -> Self {
        let dt = constants.dt;
        let second = dt * constants.t1;
        let all = 2.0 * second * constants.dmax.iter().sum::<f64>();
        Self {
            convection: OMEGA * dt * constants.t2,
            viscosity: OMEGA * second * constants.c3c4,
            conduction: OMEGA * second * constants.c1345,
            diffusion: constants.dmax.map(|d| OMEGA * second * d),
            diagonal: 1.0 + all,
            own_viscosity: 2.0 * second * constants.c3c4 * (constants.con43 + 2.0),
            own_conduction: 6.0 * second * constants.c1345,
        }
    }

    /// The solution of diagonal block times x = `right`.
    #[inline(always)]
    #[must_use]
    pub fn solve<const FMA: bool>(&self, at: &Primitive, right: &Point) -> Point {
        let splat = F64x8::splat;
        let viscous = at.volume * self.own_viscosity;
        let conducted = at.volume * self.own_conduction;
        let first = right[0] * (1.0 / self.diagonal);
        let moved = viscous * first;
        let pivot = (viscous + self.diagonal).recip();
        let mut momentum = [first; DIRECTIONS];
        for d in 0..DIRECTIONS {
            momentum[d] = at.velocity[d].mul_add::<FMA>(moved, right[d + 1]) * pivot;
        }
        // What is left of the energy's row: viscosity without what heat conduction takes from it.
        let kinetic = at
            .square
            .neg_mul_add::<FMA>(first, dot::<FMA>(&at.velocity, &momentum));
        let known = (viscous - conducted).neg_mul_add::<FMA>(kinetic, right[4]);
        let known = (conducted * at.energy).mul_add::<FMA>(first, known);
        let last = known * (conducted + splat(self.diagonal)).recip();
        [first, momentum[0], momentum[1], momentum[2], last]
    }

    /// What a point with solution `x` gives the next ones along x, y and z: `LOWER` says whether
    /// those are at higher coordinates.
    #[inline(always)]
    #[must_use]
    pub fn products<const LOWER: bool, const FMA: bool>(
        &self,
        at: &Primitive,
        x: &Point,
    ) -> Products {
        let splat = F64x8::splat;
        let convection = if LOWER {
            self.convection
        } else {
            -self.convection
        };
        let (velocity, momentum) = (&at.velocity, [x[1], x[2], x[3]]);
        // Changes of velocities, by density.
        let mut change = momentum;
        for d in 0..DIRECTIONS {
            change[d] = velocity[d].neg_mul_add::<FMA>(x[0], momentum[d]);
        }
        let along = dot::<FMA>(velocity, &momentum);
        let half = at.square * 0.5;
        let pressure = half.mul_add::<FMA>(x[0], x[4] - along) * C2;
        let enthalpy = half.mul_add::<FMA>(splat(-C2), at.energy * C1);
        let viscous = at.volume * self.viscosity;
        let conducted = at.volume * self.conduction;
        // Diffusion of energy that is the same in all directions.
        let kinetic = at.square.neg_mul_add::<FMA>(x[0], along);
        let heat = at.energy.neg_mul_add::<FMA>(x[0], x[4]);
        let diffused = (viscous - conducted).mul_add::<FMA>(kinetic, conducted * heat);

        let pressed = pressure * convection;
        let work = (x[4] + pressure) * convection;
        let carried = enthalpy * convection;
        let mut products = [[splat(0.0); EQUATIONS]; DIRECTIONS];
        for d in 0..DIRECTIONS {
            let diffusion = splat(self.diffusion[d]);
            let flow = momentum[d] * convection;
            let factor = velocity[d].mul_add::<FMA>(splat(convection), viscous);
            let to = &mut products[d];
            to[0] = x[0].mul_add::<FMA>(diffusion, flow);
            for m in 0..DIRECTIONS {
                let term = x[m + 1].mul_add::<FMA>(diffusion, velocity[m] * flow);
                to[m + 1] = change[m].mul_add::<FMA>(factor, term);
            }
            // Viscosity along the direction is 4/3 of that across.
            let more = change[d] * viscous;
            to[d + 1] = more.mul_add::<FMA>(splat(1.0 / 3.0), to[d + 1] + pressed);
            let term = x[4].mul_add::<FMA>(diffusion, diffused);
            let force = more.mul_add::<FMA>(splat(1.0 / 3.0), work);
            let term = velocity[d].mul_add::<FMA>(force, term);
            to[4] = carried.mul_add::<FMA>(change[d], term);
        }
        products
    }
}

#[inline(always)]
fn dot<const FMA: bool>(a: &[F64x8; DIRECTIONS], b: &[F64x8; DIRECTIONS]) -> F64x8 {
    a[0].mul_add::<FMA>(b[0], a[1].mul_add::<FMA>(b[1], a[2] * b[2]))
}

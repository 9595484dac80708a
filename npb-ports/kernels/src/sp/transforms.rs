//! Changes of variables at one point, which make scalars of the coupled equations.
//!
//! The flux along a direction has five wave speeds at each point: the velocity v three times,
//! v + c and v - c with the speed of sound c. In the variables of the waves the equations of that
//! direction fall apart into one system for each, which is what SP solves. So before the x
//! sweep the right-hand side is turned into the waves of x ([`txinvr`]), between the sweeps from
//! those of one direction into those of the next ([`ninvr`], [`pinvr`]; the matrices between them
//! are constant), and after the z sweep back into a change of `u` ([`tzetar`]). The names are
//! those of the reference.

use crate::adi::constants::{C1, C2};
use crate::adi::scheme::Point;
use crate::simd::F64x8;
use std::f64::consts::FRAC_1_SQRT_2;

/// What the flow is like at a point.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// 1 / density.
    pub volume: F64x8,
    /// Velocity.
    pub velocity: [F64x8; 3],
    /// Kinetic energy by mass.
    pub kinetic: F64x8,
    /// Speed of sound, squared.
    pub sound2: F64x8,
}

impl Flow {
    /// The flow in state `u`: density, momentum, energy.
    #[inline(always)]
    #[must_use]
    pub fn of<const FMA: bool>(u: &Point) -> Self {
        let volume = u[0].recip();
        let velocity = [u[1] * volume, u[2] * volume, u[3] * volume];
        let [x, y, z] = velocity;
        let kinetic = x.mul_add::<FMA>(x, y.mul_add::<FMA>(y, z * z)) * 0.5;
        let sound2 = u[4].mul_add::<FMA>(volume, -kinetic) * (C1 * C2);
        Self {
            volume,
            velocity,
            kinetic,
            sound2,
        }
    }

    /// Speed of sound.
    #[inline(always)]
    #[must_use]
    pub fn sound(&self) -> F64x8 {
        self.sound2.sqrt()
    }
}

/// From changes of mass, momentum and energy to the waves along x.
#[inline(always)]
#[must_use]
pub fn txinvr<const FMA: bool>(flow: &Flow, r: &Point) -> Point {
    let [x, y, z] = flow.velocity;
    let work = x.neg_mul_add::<FMA>(
        r[1],
        y.neg_mul_add::<FMA>(
            r[2],
            z.neg_mul_add::<FMA>(r[3], flow.kinetic.mul_add::<FMA>(r[0], r[4])),
        ),
    );
    let pressure = F64x8::splat(C2) / flow.sound2 * work;
    let scale = flow.volume * FRAC_1_SQRT_2;
    let shear = x.mul_add::<FMA>(r[0], -r[1]) * scale;
    let compression = scale * flow.sound() * pressure;
    [
        r[0] - pressure,
        z.neg_mul_add::<FMA>(r[0], r[3]) * flow.volume,
        y.mul_add::<FMA>(r[0], -r[2]) * flow.volume,
        compression - shear,
        compression + shear,
    ]
}

/// From the waves along x to those along y.
#[inline(always)]
#[must_use]
pub fn ninvr(r: &Point) -> Point {
    let across = r[2] * FRAC_1_SQRT_2;
    let sum = (r[3] + r[4]) * 0.5;
    [
        -r[1],
        r[0],
        (r[3] - r[4]) * FRAC_1_SQRT_2,
        sum - across,
        sum + across,
    ]
}

/// From the waves along y to those along z.
#[inline(always)]
#[must_use]
pub fn pinvr(r: &Point) -> Point {
    let across = r[0] * FRAC_1_SQRT_2;
    let sum = (r[3] + r[4]) * 0.5;
    [
        (r[3] - r[4]) * FRAC_1_SQRT_2,
        -r[2],
        r[1],
        sum - across,
        sum + across,
    ]
}

/// From the waves along z to changes of mass, momentum and energy. `density` is 1 / volume.
#[inline(always)]
#[must_use]
pub fn tzetar<const FMA: bool>(flow: &Flow, density: F64x8, r: &Point) -> Point {
    let [x, y, z] = flow.velocity;
    let scale = density * FRAC_1_SQRT_2;
    let sound = flow.sound();
    let compression = (scale / sound) * (r[3] + r[4]);
    let mass = r[2] + compression;
    let along = (r[3] - r[4]) * scale;
    let turned = [-(density * r[1]), density * r[0]];
    // c^2 / (C1 - 1) is the enthalpy.
    let heat = flow.sound2 * (1.0 / C2) * compression;
    let shear = x.mul_add::<FMA>(turned[0], y.mul_add::<FMA>(turned[1], heat));
    [
        mass,
        x.mul_add::<FMA>(mass, turned[0]),
        y.mul_add::<FMA>(mass, turned[1]),
        z.mul_add::<FMA>(mass, along),
        flow.kinetic
            .mul_add::<FMA>(mass, z.mul_add::<FMA>(along, shear)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(values: [f64; 5]) -> Point {
        values.map(F64x8::splat)
    }

    proptest! {
        /// Going once round, the changes of variables undo each other: each is the product of the
        /// inverse of one direction's matrix of waves and the matrix of the next.
        #[test]
        fn all_together_are_the_identity(
            density in 0.5f64..2.0,
            velocity in proptest::array::uniform3(-1.0f64..1.0),
            internal in 0.5f64..5.0,
            r in proptest::array::uniform5(-1.0f64..1.0),
        ) {
            let [x, y, z] = velocity;
            let energy = density * (internal + 0.5 * (x * x + y * y + z * z));
            let u = point([density, density * x, density * y, density * z, energy]);
            let flow = Flow::of::<false>(&u);
            prop_assert!((flow.sound2.0[3] - C1 * C2 * internal).abs() < 1e-12);
            let waves = txinvr::<false>(&flow, &point(r));
            let back = tzetar::<false>(&flow, u[0], &pinvr(&ninvr(&waves)));
            for (back, r) in back.iter().zip(r) {
                prop_assert!((back.0[0] - r).abs() < 1e-12, "{back:?} {r}");
            }
        }
    }
}

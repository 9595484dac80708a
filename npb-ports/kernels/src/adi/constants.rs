//! Coefficients of the equations and of their discretisation, the same for BT, SP and LU.
//!
//! Step and spacing are the same in all three directions of all classes, so one set of numbers
//! serves all, except for the artificial diffusion, which is stronger along z.

use super::directions::DIRECTIONS;

/// Number of equations: mass, three momenta, energy.
pub const EQUATIONS: usize = 5;

/// Ratio of the specific heats.
pub const C1: f64 = 1.4;
/// C1 - 1: pressure is C2 (energy - kinetic energy).
pub const C2: f64 = 0.4;
/// Heat conduction.
pub const C3: f64 = 0.1;
/// Viscosity.
pub const C4: f64 = 1.0;
/// Heat conduction again: C1 C5 stands in the energy equation.
pub const C5: f64 = 1.4;

/// Everything that depends on the number of points and the time step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Points a side.
    pub n: usize,
    /// Time step.
    pub dt: f64,
    /// 1 / h, h the spacing 1 / (n - 1).
    pub t3: f64,
    /// 1 / (2 h), of central differences.
    pub t2: f64,
    /// 1 / h^2, of second differences.
    pub t1: f64,
    /// Artificial diffusion of each equation in each direction: `d[direction][equation]`.
    pub d: [[f64; EQUATIONS]; DIRECTIONS],
    /// The largest of them.
    pub dmax: [f64; DIRECTIONS],
    /// Fourth-order dissipation: a quarter of the largest diffusion.
    pub dssp: f64,
    /// C3 C4.
    pub c3c4: f64,
    /// C1 C5 C3 C4.
    pub c1345: f64,
    /// 4 / 3.
    pub con43: f64,
    /// 1 / 6.
    pub con16: f64,
    /// Viscosity of the momentum along the direction: `con2 * con43`.
    pub con1: f64,
    /// Viscosity of the momenta across the direction.
    pub con2: f64,
    /// Kinetic energy in the energy equation.
    pub con3: f64,
    /// Squared velocity along the direction in the energy equation.
    pub con4: f64,
    /// Heat conduction in the energy equation.
    pub con5: f64,
}

impl Constants {
    /// The constants for `n` points a side (at least 2) and time step `dt`.
    #[must_use]
    pub fn new(n: usize, dt: f64) -> Self {
        let t3 = (n - 1) as f64;
        let c3c4 = C3 * C4;
        let viscous = c3c4 * t3 * t3;
        let (con43, con16) = (4.0 / 3.0, 1.0 / 6.0);
        Self {
            n,
            dt,
            t3,
            t2: t3 / 2.0,
            t1: t3 * t3,
            d: [[0.75; EQUATIONS], [0.75; EQUATIONS], [1.0; EQUATIONS]],
            dmax: [0.75, 0.75, 1.0],
            dssp: 0.25,
            c3c4,
            c1345: C1 * C5 * c3c4,
            con43,
            con16,
            con1: viscous * con43,
            con2: viscous,
            con3: viscous * (1.0 - C1 * C5),
            con4: viscous * con16,
            con5: viscous * C1 * C5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_for_a_spacing_of_a_tenth() {
        let c = Constants::new(11, 0.01);
        assert_eq!((c.t1, c.t2, c.t3), (100.0, 5.0, 10.0));
        assert!((c.con2 - 10.0).abs() < 1e-12);
        assert!((c.con1 - 40.0 / 3.0).abs() < 1e-12);
        assert!((c.con3 + 9.6).abs() < 1e-12);
        assert!((c.con4 - 5.0 / 3.0).abs() < 1e-12);
        assert!((c.con5 - 19.6).abs() < 1e-12);
        assert!((c.c1345 - 0.196).abs() < 1e-15);
    }
}

//! SP's part of a time step: the systems along a line, from the flow at its points.

use super::params;
use super::pentadiagonal::{Carry, KEPT, Row, Solved, UNKNOWNS, substitute};
use super::transforms::{Flow, ninvr, pinvr, txinvr, tzetar};
use crate::adi::constants::{C1, C5, Constants};
use crate::adi::directions::{DIRECTIONS, X, Y};
use crate::adi::scheme::{Ends, Params, Point, Scheme};
use crate::adi::sweep::{Sweep, Sweeps};
use crate::class::Class;
use crate::cpu::Level;
use crate::simd::F64x8;

/// The scalar penta-diagonal scheme.
#[derive(Clone, Debug)]
pub struct Sp {
    /// dt / (2 h): central differences of the waves.
    convection: f64,
    /// dt / h^2 times the diffusion of an equation: a constant for each direction, ...
    artificial: [f64; DIRECTIONS],
    /// ... and what comes to it for each unit of 1 / density.
    viscous: f64,
    /// dt times the fourth-order dissipation.
    dissipation: f64,
}

/// A point's part in the rows of its neighbours and in its own.
#[derive(Clone, Copy)]
struct Coupling {
    convection: F64x8,
    diffusion: F64x8,
    sound: F64x8,
}

impl Sp {
    #[inline(always)]
    fn coupling<const DIRECTION: usize>(&self, flow: &Flow) -> Coupling {
        Coupling {
            convection: flow.velocity[DIRECTION] * self.convection,
            diffusion: flow.volume * self.viscous + F64x8::splat(self.artificial[DIRECTION]),
            sound: flow.sound() * self.convection,
        }
    }

    /// The row of the point `here` for the waves at the speed of the flow. `weight` is that of
    /// the point in its own fourth-order difference.
    #[inline(always)]
    fn row(&self, [below, here, above]: [Coupling; 3], weight: f64) -> Row {
        let far = F64x8::splat(self.dissipation);
        let near = F64x8::splat(4.0 * self.dissipation);
        Row {
            a: far,
            b: -below.convection - below.diffusion - near,
            c: here.diffusion * 2.0 + F64x8::splat(1.0 + weight * self.dissipation),
            d: above.convection - above.diffusion - near,
            e: far,
        }
    }
}

impl Sweeps for Sp {
    fn sweep(sweep: Sweep<'_, Self>, direction: usize, level: Level) {
        sweep.run(direction, level);
    }
}

impl Scheme for Sp {
    const NAME: &'static str = "SP";

    type Kept = [F64x8; KEPT];
    type Forward = [F64x8; Carry::WORDS];
    type Backward = [F64x8; 2 * UNKNOWNS];

    fn params(class: Class) -> Params {
        params::of(class)
    }

    fn operations(params: &Params) -> f64 {
        params::operations(params)
    }

    fn new(constants: &Constants) -> Self {
        let c = constants;
        // The diffusion of a wave is bounded by the largest among the equations. With the same
        // artificial part in all, and density above zero, that is the one of heat.
        let viscosity = c.con43.max(C1 * C5) * c.c3c4;
        Self {
            convection: c.dt * c.t2,
            artificial: c.dmax.map(|d| c.dt * c.t1 * d),
            viscous: c.dt * c.t1 * viscosity,
            dissipation: c.dt * c.dssp,
        }
    }

    #[inline(always)]
    fn forward<const DIRECTION: usize, const FMA: bool>(
        &self,
        ends: Ends,
        u: &[Point],
        rhs: &mut [Point],
        kept: &mut [Self::Kept],
        carry: &mut Self::Forward,
    ) {
        let last = rhs.len() - 1;
        let mut rows = Carry::from_words(carry);
        let mut flow = Flow::of::<FMA>(&u[1]);
        let mut below = self.coupling::<DIRECTION>(&Flow::of::<FMA>(&u[0]));
        let mut here = self.coupling::<DIRECTION>(&flow);
        let points = rhs.iter_mut().zip(kept).zip(&u[2..]);
        for (s, ((rhs, kept), u_above)) in points.enumerate() {
            let flow_above = Flow::of::<FMA>(u_above);
            let above = self.coupling::<DIRECTION>(&flow_above);
            let r = match DIRECTION {
                X => txinvr::<FMA>(&flow, rhs),
                _ => *rhs,
            };
            // Beside the boundary the fourth-order difference is one-sided.
            let at_end = (ends.low && s == 0) || (ends.high && s == last);
            let row = self.row([below, here, above], if at_end { 5.0 } else { 6.0 });
            let plus = row.shifted(-below.sound, above.sound);
            let minus = row.shifted(below.sound, -above.sound);
            (*kept, *rhs) = rows.eliminate::<FMA>(row, plus, minus, r);
            (flow, below, here) = (flow_above, here, above);
        }
        *carry = rows.to_words();
    }

    #[inline(always)]
    fn backward<const DIRECTION: usize, const FMA: bool>(
        &self,
        rhs: &mut [Point],
        kept: &[Self::Kept],
        carry: &mut Self::Backward,
    ) {
        let mut solved = Solved::default();
        for (m, lanes) in carry.iter().enumerate() {
            solved[m / UNKNOWNS][m % UNKNOWNS] = *lanes;
        }
        for (rhs, kept) in rhs.iter_mut().zip(kept).rev() {
            let here = substitute::<FMA>(kept, rhs, &solved);
            solved = [here, solved[0]];
            *rhs = match DIRECTION {
                X => ninvr(&here),
                Y => pinvr(&here),
                _ => here,
            };
        }
        for (m, lanes) in carry.iter_mut().enumerate() {
            *lanes = solved[m / UNKNOWNS][m % UNKNOWNS];
        }
    }

    #[inline(always)]
    fn change<const FMA: bool>(&self, u: &Point, solution: Point) -> Point {
        tzetar::<FMA>(&Flow::of::<FMA>(u), u[0], &solution)
    }
}

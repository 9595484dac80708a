//! How the waves of the field decay: what a time step multiplies each point of the transformed field by.
//!
//! After time t the wave with numbers k has e^(-4 alpha pi^2 t k^2) of its first amplitude. That is a product of three
//! factors, one for each direction, so that instead of a field of factors there are three short tables.

use super::params::ALPHA;
use super::slab::Slab;
use crate::simd::{F64x8, LANES};
use std::f64::consts::PI;

/// The factors of a PE's lines for one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Decay {
    n: [usize; 3],
    first_y: usize,
    x: Vec<F64x8>,
    y: Vec<f64>,
    z: Vec<f64>,
}

impl Decay {
    /// The factors at the beginning: 1.
    #[must_use]
    pub fn new(slab: &Slab) -> Self {
        Self {
            n: slab.n,
            first_y: slab.pe * slab.ys(),
            x: vec![F64x8::splat(1.0); slab.vectors()],
            y: vec![1.0; slab.ys()],
            z: vec![1.0; slab.n[2]],
        }
    }

    /// Goes to the time after `step` steps.
    pub fn set(&mut self, step: u32) {
        let rate = -4.0 * ALPHA * PI * PI * f64::from(step);
        let factor = |i: usize, n: usize| {
            let wave = if i < n / 2 { i } else { n - i } as f64;
            (rate * wave * wave).exp()
        };
        let [nx, ny, nz] = self.n;
        for (g, lanes) in self.x.iter_mut().enumerate() {
            for (lane, x) in lanes.0.iter_mut().enumerate() {
                *x = factor(g + lane * (nx / LANES), nx);
            }
        }
        for (y, i) in self.y.iter_mut().zip(self.first_y..) {
            *y = factor(i, ny);
        }
        for (i, z) in self.z.iter_mut().enumerate() {
            *z = factor(i, nz);
        }
    }

    /// The factors of a line but for that of z.
    #[inline(always)]
    #[must_use]
    pub fn line(&self, line: usize) -> F64x8 {
        self.x[line / self.y.len()] * self.y[line % self.y.len()]
    }

    /// The factors along z.
    #[inline(always)]
    #[must_use]
    pub fn z(&self) -> &[f64] {
        &self.z
    }
}

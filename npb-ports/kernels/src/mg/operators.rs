//! The four operators with what they need, on planes and on whole fields, and what a coarse level has for them.

use super::grid::{Field, Shape};
use super::stencil::{self, Aside, Base, Scratch, Weights};
use super::transfer::{self, Pair};
use crate::cpu::Level as Simd;
use std::io;

/// The operators, each on a plane or on a field.
#[derive(Debug)]
pub struct Operators {
    simd: Simd,
    smoother: Weights,
    scratch: Scratch,
}

impl Operators {
    /// For blocks up to `largest`.
    ///
    /// # Errors
    /// If the system has no address space for scratch rows.
    pub fn new(simd: Simd, smoother: Weights, largest: &Shape) -> io::Result<Self> {
        Ok(Self {
            simd,
            smoother,
            scratch: Scratch::new(largest)?,
        })
    }

    /// [`stencil::residual`].
    pub fn residual(
        &mut self,
        shape: &Shape,
        r: &mut [f64],
        v: Base<'_>,
        u: [&[f64]; 3],
        aside: Aside<'_>,
    ) -> f64 {
        stencil::residual(self.simd, shape, r, v, u, aside, &mut self.scratch)
    }

    /// [`stencil::smooth`] with the class's smoother.
    pub fn smooth(&mut self, shape: &Shape, u: &mut [f64], r: [&[f64]; 3], aside: Aside<'_>) {
        let (smoother, scratch) = (&self.smoother, &mut self.scratch);
        stencil::smooth(self.simd, shape, smoother, u, r, aside, scratch);
    }

    /// [`transfer::restrict`].
    pub fn restrict(&mut self, pair: Pair<'_>, out: &mut [f64], fine: [&[f64]; 3]) {
        transfer::restrict(self.simd, pair, out, fine, &mut self.scratch);
    }

    /// Interpolates plane `k` of `fine`, as [`transfer::interpolate`]; adds to it if `add` is set.
    pub fn interpolate(
        &mut self,
        add: bool,
        shift: [usize; 3],
        fine: &mut Field,
        k: usize,
        coarse: &Field,
    ) {
        let (fine_shape, coarse_shape) = (fine.shape(), coarse.shape());
        let pair = Pair {
            fine: &fine_shape,
            coarse: &coarse_shape,
            shift,
        };
        let parents = pair.parents(2, k).map(|k| coarse.plane(k));
        let (simd, scratch) = (self.simd, &mut self.scratch);
        transfer::interpolate(simd, add, pair, fine.plane_mut(k), parents, scratch);
    }

    /// Restricts a whole field.
    pub fn restrict_all(&mut self, shift: [usize; 3], fine: &Field, coarse: &mut Field) {
        let (fine_shape, coarse_shape) = (fine.shape(), coarse.shape());
        let pair = Pair {
            fine: &fine_shape,
            coarse: &coarse_shape,
            shift,
        };
        for k in 1..=coarse_shape.cells[2] {
            let around = fine.around(pair.centre(2, k));
            self.restrict(pair, coarse.plane_mut(k), around);
        }
    }

    /// Smooths a whole field.
    pub fn smooth_all(&mut self, u: &mut Field, r: &Field) {
        for k in 1..=u.shape().cells[2] {
            self.smooth(&r.shape(), u.plane_mut(k), r.around(k), Aside::default());
        }
    }

    /// The residual on a whole field.
    pub fn residual_all(&mut self, r: &mut Field, v: &Field, u: &Field, squares: bool) -> f64 {
        let planes = 1..=r.shape().cells[2];
        planes
            .map(|k| self.residual_of(k, r, Some(v), u, squares))
            .sum()
    }

    /// r = v - A u, or r - A u without v, in plane `k`.
    fn residual_of(
        &mut self,
        k: usize,
        r: &mut Field,
        v: Option<&Field>,
        u: &Field,
        squares: bool,
    ) -> f64 {
        let base = v.map_or(Base::InPlace, |v| Base::Of(v.plane(k)));
        let aside = Aside {
            squares,
            ahead: None,
        };
        self.residual(&u.shape(), r.plane_mut(k), base, u.around(k), aside)
    }

    /// Interpolates u and makes the residual of it, plane after plane. Interpolation yields
    /// ghosts as well, so there is nothing to exchange between the two. Adds to u if `add` is set.
    pub fn correct(
        &mut self,
        add: bool,
        shift: [usize; 3],
        coarse: &Field,
        u: &mut Field,
        r: &mut Field,
        v: Option<&Field>,
    ) {
        for k in 0..u.shape().cells[2] + 2 {
            self.interpolate(add, shift, u, k, coarse);
            if k >= 2 {
                self.residual_of(k - 1, r, v, u, false);
            }
        }
    }
}

/// Solution and residual of a level below the finest.
#[derive(Debug)]
pub struct Coarse {
    /// The correction to the level above.
    pub u: Field,
    /// The residual.
    pub r: Field,
}

impl Coarse {
    /// All zero.
    ///
    /// # Errors
    /// If the system has no address space for it.
    pub fn new(shape: Shape) -> io::Result<Self> {
        Ok(Self {
            u: Field::new(shape)?,
            r: Field::new(shape)?,
        })
    }
}

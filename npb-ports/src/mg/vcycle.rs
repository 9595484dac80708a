//! The V-cycle: down from the finest level by restriction, up again by interpolation, residual
//! and smoothing on each level.
//!
//! > for level = finest ... 2: r(level - 1) = restrict r(level)\
//! > u(1) = S r(1)\
//! > for level = 2 ... finest: u = interpolate u(level - 1), r = r - A u, u = u + S r
//!
//! On the finest level the interpolated correction is added to u, the residual is that of v, and
//! at the end it is made once more, for the next cycle or the norm. That level has most of the
//! work, and two ways to do it: step by step with a stored residual, or, where a PE has whole
//! planes, all steps in one pass over them ([`pipeline`](super::pipeline)).

use super::decomposition::Decomposition;
use super::grid::{Field, Shape};
use super::halo::{Content, Halo};
use super::pipeline::Pipeline;
use super::stencil::{self, Aside, Base, Scratch, Weights};
use super::transfer::{self, Pair};
use crate::cpu::Level as Simd;
use crate::exchange::Partners;
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

    /// Interpolates plane `k` of `fine`, as [`transfer::interpolate`].
    pub fn interpolate<const ADD: bool>(
        &mut self,
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
        transfer::interpolate::<ADD>(simd, pair, fine.plane_mut(k), parents, scratch);
    }

    fn restrict_all(&mut self, shift: [usize; 3], fine: &Field, coarse: &mut Field) {
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

    fn smooth_all(&mut self, u: &mut Field, r: &Field) {
        for k in 1..=u.shape().cells[2] {
            self.smooth(&r.shape(), u.plane_mut(k), r.around(k), Aside::default());
        }
    }

    fn residual_all(&mut self, r: &mut Field, v: &Field, u: &Field, squares: bool) -> f64 {
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
    /// ghosts as well, so there is nothing to exchange between the two.
    fn correct<const ADD: bool>(
        &mut self,
        shift: [usize; 3],
        coarse: &Field,
        u: &mut Field,
        r: &mut Field,
        v: Option<&Field>,
    ) {
        for k in 0..u.shape().cells[2] + 2 {
            self.interpolate::<ADD>(shift, u, k, coarse);
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
    fn new(shape: Shape) -> io::Result<Self> {
        Ok(Self {
            u: Field::new(shape)?,
            r: Field::new(shape)?,
        })
    }
}

/// How the finest level's residual is kept.
#[derive(Debug)]
enum Finest {
    /// As a field.
    Stored(Field),
    /// Only as long as the pass over the planes needs it.
    Passing(Pipeline),
}

/// The whole hierarchy of grids on one PE.
#[derive(Debug)]
pub struct Multigrid<P> {
    place: Decomposition,
    operators: Operators,
    halo: Halo<P>,
    u: Field,
    v: Field,
    finest: Finest,
    /// Level l is at l - 1. Where this PE dropped out a level above, there is nothing.
    coarse: Vec<Option<Coarse>>,
}

impl<P: Partners> Multigrid<P> {
    /// The PE at `place`, with u and v zero.
    ///
    /// # Errors
    /// If the system has no address space for the grids.
    pub fn new(
        place: Decomposition,
        simd: Simd,
        smoother: Weights,
        partners: P,
    ) -> io::Result<Self> {
        let shape = place.shape(place.finest());
        let coarse = (1..place.finest()).map(|level| {
            let needed = place.alive(level) || place.alive(level + 1);
            needed.then(|| Coarse::new(place.shape(level))).transpose()
        });
        Ok(Self {
            operators: Operators::new(simd, smoother, &shape)?,
            coarse: coarse.collect::<io::Result<_>>()?,
            u: Field::new(shape)?,
            v: Field::new(shape)?,
            finest: if Pipeline::fits(&place) {
                Finest::Passing(Pipeline::new(&place)?)
            } else {
                Finest::Stored(Field::new(shape)?)
            },
            halo: Halo::new(place.clone(), partners),
            place,
        })
    }

    /// The right-hand side, for setting it. Its ghosts do not count.
    pub fn rhs(&mut self) -> &mut Field {
        &mut self.v
    }

    /// Gives back what the ghosts were exchanged with.
    pub fn into_partners(self) -> P {
        self.halo.into_partners()
    }

    /// Sets u = 0.
    pub fn reset(&mut self) {
        self.u.clear();
    }

    /// Makes the residual r = v - A u, which [`Multigrid::cycle`] begins with. Returns the sum of
    /// the squares of this PE's cells.
    pub fn start(&mut self) -> f64 {
        let top = self.place.finest();
        match &mut self.finest {
            Finest::Passing(pipeline) => pipeline.start(
                &mut self.operators,
                &mut self.halo,
                &self.u,
                &self.v,
                highest(&mut self.coarse),
            ),
            Finest::Stored(r) => {
                let squares = self.operators.residual_all(r, &self.v, &self.u, true);
                self.halo.exchange(top, Content::Restricted, r);
                squares
            }
        }
    }

    /// One V-cycle and the residual after it. After the `last` one returns the sum of its squares
    /// over this PE's cells, else 0; then there can be no other without [`Multigrid::start`].
    pub fn cycle(&mut self, last: bool) -> f64 {
        let top = self.place.finest();
        let shift = self.place.shift(top);
        if let Finest::Stored(r) = &self.finest {
            let coarse = highest(&mut self.coarse);
            self.operators.restrict_all(shift, r, &mut coarse.r);
        }
        self.coarse_levels();
        let Self {
            operators, halo, ..
        } = self;
        let coarse = highest(&mut self.coarse);
        match &mut self.finest {
            Finest::Passing(pipeline) => {
                pipeline.cycle(operators, halo, &mut self.u, &self.v, coarse, last)
            }
            Finest::Stored(r) => {
                let (u, v) = (&mut self.u, Some(&self.v));
                operators.correct::<true>(shift, &coarse.u, u, r, v);
                halo.exchange(top, Content::Residual, r);
                operators.smooth_all(u, r);
                halo.exchange(top, Content::Solution, u);
                let squares = operators.residual_all(r, &self.v, u, last);
                if !last {
                    halo.exchange(top, Content::Restricted, r);
                }
                squares
            }
        }
    }

    /// The part of the cycle below the finest level: from the residual of the level below it,
    /// still without ghosts, to the solution there, with ghosts.
    fn coarse_levels(&mut self) {
        let top = self.place.finest() - 1;
        for level in (1..=top).rev().filter(|&level| self.place.alive(level)) {
            let shift = self.place.shift(level);
            let (below, here) = neighbours(&mut self.coarse, level);
            self.halo.exchange(level, Content::Restricted, &mut here.r);
            match below {
                None => {
                    here.u.clear();
                    self.operators.smooth_all(&mut here.u, &here.r);
                    self.halo.exchange(level, Content::Solution, &mut here.u);
                }
                Some(below) if self.place.alive(level - 1) => {
                    self.operators.restrict_all(shift, &here.r, &mut below.r);
                }
                Some(_) => {}
            }
        }
        for level in (2..=top).filter(|&level| self.place.alive(level)) {
            let shift = self.place.shift(level);
            let (Some(below), Coarse { u, r }) = neighbours(&mut self.coarse, level) else {
                unreachable!("a PE has the level below one where it takes part");
            };
            self.halo.revive(level, &mut below.u);
            self.operators.correct::<false>(shift, &below.u, u, r, None);
            self.halo.exchange(level, Content::Residual, r);
            self.operators.smooth_all(u, r);
            self.halo.exchange(level, Content::Solution, u);
        }
    }
}

/// The level below the finest, where no PE has dropped out.
fn highest(coarse: &mut [Option<Coarse>]) -> &mut Coarse {
    coarse
        .last_mut()
        .and_then(Option::as_mut)
        .expect("every PE takes part in the highest two levels")
}

/// `level` and the one below it, where there is one.
fn neighbours(coarse: &mut [Option<Coarse>], level: usize) -> (Option<&mut Coarse>, &mut Coarse) {
    let (below, here) = coarse.split_at_mut(level - 1);
    let here = here[0].as_mut().expect("a level where this PE takes part");
    (below.last_mut().and_then(Option::as_mut), here)
}

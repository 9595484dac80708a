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
use super::grid::Field;
use super::halo::{Content, Halo};
use super::operators::{Coarse, Operators};
use super::pipeline::Pipeline;
use super::stencil::Weights;
use crate::cpu::Level as Simd;
use crate::exchange::Partners;
use std::io;

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
                operators.correct(true, shift, &coarse.u, u, r, v);
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
            self.operators.correct(false, shift, &below.u, u, r, None);
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

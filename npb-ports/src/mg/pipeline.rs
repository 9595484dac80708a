//! The finest level in one pass over its planes.
//!
//! Done one after the other, the steps of a cycle on the finest level stream its fields from
//! memory a dozen times. But each step needs three planes of the step before, so all of them can
//! follow each other through the grid a plane apart, on planes that are still in the cache:
//!
//! | step | plane |
//! |---|---|
//! | correct: u = u + interpolation | k |
//! | first residual: r = v - A u | k - 1 |
//! | smooth: u = u + S r | k - 2 |
//! | second residual: r = v - A u | k - 3 |
//! | restrict | from k - 5, k - 4 and k - 3, if these are a coarse plane's |
//!
//! u and v are read once, u written once, and the residuals are never stored: a few planes of
//! each are kept. The planes at the ends, which the neighbours along z wait for, come
//! first; the messages with them travel while the pass is under way or others are prepared.
//!
//! The steps that have most to compute, and read least, fetch what those after them are going to
//! read from memory: the smoother the next plane of v, the second residual that of u.
//!
//! It needs whole planes, so it is for grids that are divided along z only. Ghosts along x and y
//! are copies within the plane, made as soon as it is.

use super::decomposition::{Decomposition, Side};
use super::grid::{Field, Shape, wrap_plane};
use super::halo::{Content, Halo};
use super::operators::{Coarse, Operators};
use super::stencil::{Aside, Base};
use super::transfer::Pair;
use crate::exchange::Partners;
use std::io;

/// Planes that the pass begins with at either end, and the fewest that it needs in all.
const ENDS: usize = 4;
const FEWEST: usize = 2 * ENDS;

/// Planes between the first step and the one that makes the second residual.
const LAG: usize = 3;

/// Some planes of a field: the last [`ENDS`] or fewer of the block with its ghosts, and of the
/// others those that were written last.
#[derive(Debug)]
struct Window {
    planes: Field,
    /// The first plane that has a place of its own.
    kept: usize,
}

impl Window {
    /// Planes that the pass needs at the same time.
    const PASSING: usize = 4;

    fn new(shape: &Shape) -> io::Result<Self> {
        Ok(Self {
            planes: Field::new(Self::shape(shape))?,
            kept: shape.cells[2] + 2 - ENDS,
        })
    }

    fn shape(shape: &Shape) -> Shape {
        let [x, y, _] = shape.cells;
        let with_ghosts = Self::PASSING + ENDS;
        Shape::new([x, y, with_ghosts - 2])
    }

    fn place(&self, k: usize) -> usize {
        if k < self.kept {
            k % Self::PASSING
        } else {
            k - self.kept + Self::PASSING
        }
    }

    fn plane(&self, k: usize) -> &[f64] {
        self.planes.plane(self.place(k))
    }

    fn plane_mut(&mut self, k: usize) -> &mut [f64] {
        self.planes.plane_mut(self.place(k))
    }

    fn around(&self, k: usize) -> [&[f64]; 3] {
        [self.plane(k - 1), self.plane(k), self.plane(k + 1)]
    }
}

/// What is under way between the steps.
#[derive(Debug)]
pub struct Pipeline {
    level: usize,
    shape: Shape,
    /// Whether z is divided; if not, this PE is its own neighbour.
    divided: bool,
    first: Window,
    second: Window,
}

/// What a step works with, beside the windows.
struct Pass<'a, P> {
    operators: &'a mut Operators,
    halo: &'a mut Halo<P>,
    v: &'a Field,
    coarse: &'a mut Coarse,
    /// Whether the squares of the second residual are summed.
    squares: bool,
}

impl Pipeline {
    /// Whether the PE at `place` has whole planes, and enough of them.
    #[must_use]
    pub fn fits(place: &Decomposition) -> bool {
        let [_, _, z] = place.share(place.finest());
        !place.divided(0) && !place.divided(1) && z >= FEWEST
    }

    /// Numbers that are kept for a block of this shape.
    #[must_use]
    pub fn words(shape: &Shape) -> usize {
        2 * Window::shape(shape).words()
    }

    /// For the finest level of `place`.
    ///
    /// # Errors
    /// If the system has no address space for the windows.
    pub fn new(place: &Decomposition) -> io::Result<Self> {
        let level = place.finest();
        let shape = place.shape(level);
        Ok(Self {
            level,
            shape,
            divided: place.divided(2),
            first: Window::new(&shape)?,
            second: Window::new(&shape)?,
        })
    }

    /// The residual of u, restricted to `coarse`. Returns the sum of its squares.
    pub fn start<P: Partners>(
        &mut self,
        operators: &mut Operators,
        halo: &mut Halo<P>,
        u: &Field,
        v: &Field,
        coarse: &mut Coarse,
    ) -> f64 {
        let mut pass = Pass {
            operators,
            halo,
            v,
            coarse,
            squares: true,
        };
        let mut squares = self.second_residual_of_ends(&mut pass, u, false);
        for k in 2..self.shape.cells[2] {
            squares += self.second_residual(&mut pass, u, k);
            self.restrict_up_to(&mut pass, k);
        }
        self.restrict_rest(&mut pass);
        squares
    }

    /// The finest level's part of a V-cycle: corrects `u` by `coarse.u`, smooths it, and makes the
    /// residual. After the `last` cycle returns the sum of its squares, else 0, and the residual
    /// is restricted to `coarse.r`.
    pub fn cycle<P: Partners>(
        &mut self,
        operators: &mut Operators,
        halo: &mut Halo<P>,
        u: &mut Field,
        v: &Field,
        coarse: &mut Coarse,
        last: bool,
    ) -> f64 {
        let n = self.shape.cells[2];
        let mut pass = Pass {
            operators,
            halo,
            v,
            coarse,
            squares: last,
        };
        // Both ends, as far as they go without the middle.
        for k in (0..=ENDS).chain(n + 1 - ENDS..=n + 1) {
            pass.correct(u, k);
        }
        self.first_residual(&mut pass, u, 1);
        self.first_residual(&mut pass, u, n);
        self.send_residual(&mut pass);
        for k in [2, 3, n - 1, n - 2] {
            self.first_residual(&mut pass, u, k);
        }
        self.receive_residual(&mut pass);
        self.smooth(&mut pass, u, 1);
        self.smooth(&mut pass, u, n);
        self.send_solution(&mut pass, u);
        self.smooth(&mut pass, u, 2);
        self.smooth(&mut pass, u, n - 1);
        self.receive_solution(&mut pass, u);
        let mut squares = self.second_residual_of_ends(&mut pass, u, last);
        // The middle. Each step ends where the planes of the upper end begin.
        for k in ENDS + 1..n + ENDS - 1 {
            if k < n + 1 - ENDS {
                pass.correct(u, k);
            }
            if k - 1 < n - 2 {
                self.first_residual(&mut pass, u, k - 1);
            }
            if k - 2 < n - 1 {
                self.smooth(&mut pass, u, k - 2);
            }
            squares += self.second_residual(&mut pass, u, k - 3);
            if !last {
                self.restrict_up_to(&mut pass, k - 3);
            }
        }
        if !last {
            self.restrict_rest(&mut pass);
        }
        squares
    }

    fn first_residual<P>(&mut self, pass: &mut Pass<'_, P>, u: &Field, k: usize) {
        pass.residual(self.first.plane_mut(k), u, k, Aside::default());
    }

    fn second_residual<P>(&mut self, pass: &mut Pass<'_, P>, u: &Field, k: usize) -> f64 {
        let aside = Aside {
            squares: pass.squares,
            ahead: self.ahead(u, k + LAG + 1),
        };
        pass.residual(self.second.plane_mut(k), u, k, aside)
    }

    /// Plane `k` of a field that the pass through the middle is going to read.
    fn ahead<'a>(&self, field: &'a Field, k: usize) -> Option<&'a [f64]> {
        (k < self.shape.cells[2] + 1 - ENDS).then(|| field.plane(k))
    }

    fn smooth<P>(&mut self, pass: &mut Pass<'_, P>, u: &mut Field, k: usize) {
        let around = self.first.around(k);
        let aside = Aside {
            squares: false,
            ahead: self.ahead(pass.v, k + LAG - 1),
        };
        pass.operators
            .smooth(&self.shape, u.plane_mut(k), around, aside);
        wrap_plane(&self.shape, u.plane_mut(k));
    }

    /// The second residual of the first and the last plane. The lower neighbour needs the first
    /// for its restriction, unless there is none.
    fn second_residual_of_ends<P: Partners>(
        &mut self,
        pass: &mut Pass<'_, P>,
        u: &Field,
        last: bool,
    ) -> f64 {
        let n = self.shape.cells[2];
        let mut squares = self.second_residual(pass, u, 1);
        if !last {
            if self.divided {
                let plane = self.second.plane(1);
                pass.halo
                    .send(self.level, 2, Content::Restricted, Side::Upper, plane);
            } else {
                let (from, to) = (self.second.place(1), self.second.place(n + 1));
                self.second.planes.copy_plane(from, to);
            }
        }
        squares += self.second_residual(pass, u, n);
        squares
    }

    /// Restricts to the coarse plane that plane `k` of the second residual completes, if any.
    fn restrict_up_to<P>(&mut self, pass: &mut Pass<'_, P>, k: usize) {
        if k % 2 == 1 {
            let pair = Pair {
                fine: &self.shape,
                coarse: &pass.coarse.r.shape(),
                shift: [0; 3],
            };
            let out = pass.coarse.r.plane_mut(k / 2);
            pass.operators
                .restrict(pair, out, self.second.around(k - 1));
        }
    }

    /// Restricts to the last coarse plane, which needs the upper neighbour's first one.
    fn restrict_rest<P: Partners>(&mut self, pass: &mut Pass<'_, P>) {
        let n = self.shape.cells[2];
        if self.divided {
            let ghosts = self.second.plane_mut(n + 1);
            pass.halo
                .receive(self.level, 2, Content::Restricted, Side::Upper, ghosts);
        }
        self.restrict_up_to(pass, n + 1);
    }

    fn send_residual<P: Partners>(&mut self, pass: &mut Pass<'_, P>) {
        let n = self.shape.cells[2];
        if self.divided {
            for (side, k) in [(Side::Upper, 1), (Side::Lower, n)] {
                let plane = self.first.plane(k);
                pass.halo
                    .send(self.level, 2, Content::Residual, side, plane);
            }
        } else {
            for (from, to) in [(n, 0), (1, n + 1)] {
                let (from, to) = (self.first.place(from), self.first.place(to));
                self.first.planes.copy_plane(from, to);
            }
        }
    }

    fn receive_residual<P: Partners>(&mut self, pass: &mut Pass<'_, P>) {
        let n = self.shape.cells[2];
        if self.divided {
            for (side, k) in [(Side::Lower, 0), (Side::Upper, n + 1)] {
                let ghosts = self.first.plane_mut(k);
                pass.halo
                    .receive(self.level, 2, Content::Residual, side, ghosts);
            }
        }
    }

    fn send_solution<P: Partners>(&self, pass: &mut Pass<'_, P>, u: &mut Field) {
        let n = self.shape.cells[2];
        if self.divided {
            for (side, k) in [(Side::Upper, 1), (Side::Lower, n)] {
                pass.halo
                    .send(self.level, 2, Content::Solution, side, u.plane(k));
            }
        } else {
            u.copy_plane(n, 0);
            u.copy_plane(1, n + 1);
        }
    }

    fn receive_solution<P: Partners>(&self, pass: &mut Pass<'_, P>, u: &mut Field) {
        let n = self.shape.cells[2];
        if self.divided {
            for (side, k) in [(Side::Lower, 0), (Side::Upper, n + 1)] {
                pass.halo
                    .receive(self.level, 2, Content::Solution, side, u.plane_mut(k));
            }
        }
    }
}

impl<P> Pass<'_, P> {
    fn correct(&mut self, u: &mut Field, k: usize) {
        self.operators
            .interpolate(true, [0; 3], u, k, &self.coarse.u);
    }

    fn residual(&mut self, r: &mut [f64], u: &Field, k: usize, aside: Aside<'_>) -> f64 {
        let shape = u.shape();
        let (v, around) = (Base::Of(self.v.plane(k)), u.around(k));
        let squares = self.operators.residual(&shape, r, v, around, aside);
        wrap_plane(&shape, r);
        squares
    }
}

//! The time step of one PE: faces, right-hand side and lower sweep, upper sweep.
//!
//! The right-hand side of a block of planes is computed right before the lower sweep goes through
//! it, and before a message is waited for, so that PEs behind others have something to do when a
//! wavefront begins. The upper sweep changes the state as it goes along, since nobody reads the
//! state of a point in a sweep but that point.
//!
//! # Messages, and why no slot is overwritten
//!
//! Each message of a step has a landing slot of its own, which is used again in the next step. There is
//! no barrier and no acknowledgement. A PE may send into a slot only when the receiver has taken the
//! last message out of it, and it knows so from messages that it has received meanwhile. Let b follow a
//! along x or y. In the lower sweep as many messages go from a to b as there are blocks of planes, in the upper one
//! as many from b to a; the last of a sweep is sent after all of that sweep were taken, since
//! blocks go in turn.
//!
//! * *Lower sweep, a to b.* b takes all of them before its upper sweep. a has taken messages of that before its next
//!   step.
//! * *Upper sweep, b to a.* a takes all of them before it sends anything of the next step. b takes messages of the
//!   next lower sweep before it begins the upper one.
//! * *Faces, a to b and b to a.* Both take theirs at the beginning of a step, before any sweep. Until
//!   the next faces each has received messages that the other sent in a sweep of that step: b in the lower, a in
//!   the upper one.
//!
//! So between two exchanges of faces there must be sweeps; [`Solver::residual`], which exchanges
//! faces and has no sweep after it, may be called once after a step and is to be the last. On a single PE
//! there is no message.

use super::decomposition::Pencil;
use super::point::Equations;
use super::sweep::{Block, Extent, Waiting};
use super::{plan, surface};
use crate::adi::constants::{Constants, EQUATIONS};
use crate::adi::directions::{X, Y, Z};
use crate::adi::faces::{self, Side};
use crate::adi::field::Field;
use crate::adi::initialize::{AT_REST, forcing, initialize};
use crate::adi::norms;
use crate::adi::rhs::Operator;
use crate::adi::scheme::{Params, Point};
use crate::cpu::Level;
use crate::exchange::Partners;
use crate::simd::LANES;
use std::io;
use std::ops::Range;

/// The part of the grid that one PE computes.
#[derive(Debug)]
pub struct Solver {
    pub(super) pencil: Pencil,
    extent: Extent,
    equations: Equations,
    operator: Operator,
    level: Level,
    pub(super) u: Field<EQUATIONS>,
    rhs: Field<EQUATIONS>,
    forcing: Field<EQUATIONS>,
    waiting: Waiting,
    outgoing: Vec<f64>,
    constants: Constants,
}

impl Solver {
    /// The part `pencil`, in the initial state.
    ///
    /// # Errors
    /// If the system has no address space for it.
    pub fn new(pencil: Pencil, params: &Params, level: Level) -> io::Result<Self> {
        let constants = Constants::new(params.n, params.dt);
        let cell = &pencil.cell;
        let extent = Extent::of(cell);
        let mut solver = Self {
            pencil,
            equations: Equations::new(&constants),
            operator: Operator::new(cell, &constants),
            level,
            forcing: forcing(cell, &constants, level)?,
            u: Field::new(cell.layout(), AT_REST)?,
            rhs: Field::new(cell.layout(), [0.0; EQUATIONS])?,
            waiting: Waiting::new(&extent),
            extent,
            outgoing: Vec::new(),
            constants,
        };
        solver.initialize();
        Ok(solver)
    }

    /// Goes back to the initial state.
    pub fn initialize(&mut self) {
        initialize(&mut self.u, &self.pencil.cell, self.constants.n);
    }

    /// One time step.
    pub fn step(&mut self, partners: &mut impl Partners) {
        self.exchange_faces(partners);
        self.waiting.reset();
        for block in 0..self.extent.blocks() {
            self.right_hand_side(self.extent.planes(block));
            self.sweep(true, block, partners);
        }
        self.waiting.reset();
        for block in 0..self.extent.blocks() {
            self.sweep(false, block, partners);
        }
    }

    fn right_hand_side(&mut self, planes: Range<usize>) {
        let (u, rhs) = (&self.u, &mut self.rhs);
        self.operator
            .apply_to_planes(u, &self.forcing, rhs, planes, self.level);
    }

    /// Takes what comes in, goes through a block of planes, and sends what goes out.
    fn sweep(&mut self, lower: bool, block: usize, partners: &mut impl Partners) {
        let (from, to) = match lower {
            true => (Side::Low, Side::High),
            false => (Side::High, Side::Low),
        };
        for direction in [X, Y] {
            let waiting = self.waiting.towards(direction);
            if self.pencil.neighbour(direction, from).is_some() {
                let slot = plan::slot(direction, from, block);
                let len = words(waiting);
                partners.take(slot, len, |message| unpack(message, waiting));
            } else {
                waiting.fill(Point::default());
            }
        }
        let work = Block {
            equations: &self.equations,
            extent: &self.extent,
            block,
            u: &mut self.u,
            rhs: &mut self.rhs,
            waiting: &mut self.waiting,
        };
        work.sweep(lower, self.level);
        for direction in [X, Y] {
            if let Some(pe) = self.pencil.neighbour(direction, to) {
                pack(self.waiting.towards(direction), &mut self.outgoing);
                let slot = plan::slot(direction, to.opposite(), block);
                partners.send(pe, slot, &self.outgoing);
            }
        }
    }

    fn exchange_faces(&mut self, partners: &mut impl Partners) {
        let cell = &self.pencil.cell;
        let sides = || {
            [X, Y]
                .into_iter()
                .flat_map(|d| Side::ALL.map(|side| (d, side)))
        };
        for (direction, side) in sides() {
            if let Some(pe) = self.pencil.neighbour(direction, side) {
                self.outgoing.clear();
                faces::pack(&self.u, cell, direction, side, &mut self.outgoing);
                let slot = plan::face_slot(direction, side.opposite());
                partners.send(pe, slot, &self.outgoing);
            }
        }
        for (direction, side) in sides() {
            if self.pencil.neighbour(direction, side).is_some() {
                let (u, slot) = (&mut self.u, plan::face_slot(direction, side));
                partners.take(slot, faces::words(cell, direction), |mut message| {
                    faces::unpack(u, cell, direction, side, &mut message);
                });
            }
        }
    }

    /// This PE's part of the sums of squares of the right-hand side (without dt) of the present
    /// state. At most once after a step; no step may follow.
    pub fn residual(&mut self, partners: &mut impl Partners) -> [f64; EQUATIONS] {
        self.exchange_faces(partners);
        self.right_hand_side(self.pencil.cell.interior(Z));
        let mut sums = [0.0; EQUATIONS];
        norms::add_squares(&mut sums, &self.rhs, &self.pencil.cell);
        let dt = self.constants.dt;
        sums.map(|sum| sum / (dt * dt))
    }

    /// This PE's part of the sums of squares of the difference to the exact solution.
    #[must_use]
    pub fn error(&self) -> [f64; EQUATIONS] {
        let mut sums = [0.0; EQUATIONS];
        norms::add_errors(&mut sums, &self.u, &self.pencil.cell, self.constants.n);
        sums
    }

    /// This PE's part of the surface integral.
    #[must_use]
    pub fn surface(&self) -> f64 {
        surface::integral(&self.u, &self.pencil.cell, self.constants.n)
    }
}

/// Numbers of a message.
fn words(points: &[Point]) -> usize {
    points.len() * EQUATIONS * LANES
}

fn pack(points: &[Point], message: &mut Vec<f64>) {
    message.clear();
    for lanes in points.iter().flatten() {
        message.extend_from_slice(&lanes.0);
    }
}

fn unpack(message: &[f64], points: &mut [Point]) {
    let (chunks, _) = message.as_chunks();
    for (lanes, chunk) in points.iter_mut().flatten().zip(chunks) {
        lanes.0 = *chunk;
    }
}

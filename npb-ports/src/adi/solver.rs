//! The time step of one PE: faces, right-hand side, and a sweep there and back in each direction.
//!
//! # Messages, and why no slot is overwritten
//!
//! Each message of a step has a landing slot of its own, or takes turns in a few with others of the
//! same sweep ([`pipeline`](super::pipeline) says how), which is used again in the next step.
//! There is no barrier and no acknowledgement. A PE may send into a slot only when the receiver has
//! taken the last message out of it, and it knows so from messages that it has received meanwhile.
//! What is between two steps holds for every slot. Let b follow a in some direction; a step has
//! forward messages from a to b in this direction, and as many backward from b to a.
//!
//! * *Forward, a to b.* b takes a forward message before it sends the backward message of that
//!   stage and batch. a waits for all backward messages before its next step.
//! * *Backward, b to a.* a sends the forward messages of the next step after it has taken all
//!   backward messages of this one. b waits for the first of them before it sends a backward message
//!   in the next step.
//! * *Faces, a to b.* b takes its faces before it sends any message of a sweep. a has received a
//!   backward message of b before its next step.
//! * *Faces, b to a.* Likewise: b has received a forward message of a, sent after a had taken its
//!   faces.
//!
//! So between two exchanges of faces there must be sweeps; [`Solver::residual`], which exchanges
//! faces and has no sweep after it, may be called once after a step and is to be the last.
//! With two cells a side both neighbours may be the same PE; slots belong to directions and sides,
//! so nothing changes. On a single PE there is no message.

use super::constants::{Constants, EQUATIONS};
use super::directions::{DIRECTIONS, X, Y, Z};
use super::faces::{self, Side};
use super::field::{Field, GHOST};
use super::initialize::{AT_REST, forcing, initialize};
use super::norms;
use super::partition::Cell;
use super::pipeline::Task;
use super::plan::Plan;
use super::rhs::Operator;
use super::scheme::{Pack, Params, Scheme};
use super::sweep::{self, Block, Part, Scratch, Sweep, Sweeps};
use crate::cpu::Level;
use crate::exchange::Partners;
use std::io;
use std::ops::Range;

/// The part of the grid that one PE computes.
#[derive(Debug)]
pub struct Solver<S: Scheme> {
    plan: Plan,
    pe: usize,
    scheme: S,
    level: Level,
    /// By z coordinate.
    pub(super) blocks: Vec<Block<S>>,
    scratch: Scratch<S>,
    incoming: Vec<f64>,
    outgoing: Vec<f64>,
    constants: Constants,
}

impl<S: Sweeps> Solver<S> {
    /// The part of `pe`, in the initial state.
    ///
    /// # Errors
    /// If the system has no address space for it.
    pub fn new(plan: Plan, pe: usize, params: &Params, level: Level) -> io::Result<Self> {
        let constants = Constants::new(params.n, params.dt);
        let cells = plan.partition().cells(pe);
        let blocks = cells.into_iter().map(|cell| {
            let u = Field::new(cell.layout(), AT_REST)?;
            let forcing = forcing(&cell, &constants, level)?;
            let operator = Operator::new(&cell, &constants);
            Block::new(cell, u, forcing, operator, plan.stored_points(&cell))
        });
        let longest = (0..DIRECTIONS).map(|d| plan.partition().interiors(d).1);
        let mut solver = Self {
            blocks: blocks.collect::<io::Result<_>>()?,
            scratch: Scratch::new(longest.max().unwrap_or(0))?,
            plan,
            pe,
            scheme: S::new(&constants),
            level,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            constants,
        };
        solver.initialize();
        Ok(solver)
    }

    /// Goes back to the initial state.
    pub fn initialize(&mut self) {
        for block in &mut self.blocks {
            initialize(&mut block.u, &block.cell, self.constants.n);
        }
    }

    /// One time step.
    pub fn step(&mut self, partners: &mut impl Partners) {
        self.send_faces(partners);
        if self.plan.partition().stages(X) == 1 {
            let cell = self.blocks[0].cell;
            let planes = cell.interior(Z);
            let without_ghosts = without_ghosts(&cell);
            self.sweep_planes(without_ghosts.clone());
            self.receive_faces(partners);
            self.sweep_planes(planes.start..without_ghosts.start);
            self.sweep_planes(without_ghosts.end..planes.end);
        } else {
            self.receive_faces(partners);
            self.sweep(X, partners);
            self.sweep(Y, partners);
        }
        self.sweep(Z, partners);
    }

    /// Along x and y, where lines end within the cell: plane by plane, since both stay within a
    /// plane, which is then still in cache for y.
    fn sweep_planes(&mut self, planes: Range<usize>) {
        let cell = self.blocks[0].cell;
        for k in planes {
            self.sweep_cell(X, 0, Part::Whole, sweep::chunks_of_plane(&cell, X, k), 0);
            self.sweep_cell(Y, 0, Part::Whole, sweep::chunks_of_plane(&cell, Y, k), 0);
        }
    }

    /// There and back along `direction`, batch by batch.
    fn sweep(&mut self, direction: usize, partners: &mut impl Partners) {
        let pipeline = self.plan.pipeline(direction);
        let last = pipeline.stages() - 1;
        let successor = self.plan.partition().successor(self.pe, direction);
        let predecessor = self.plan.partition().predecessor(self.pe, direction);
        for task in pipeline.tasks() {
            let Task { stage, part, batch } = task;
            let Some(b) = self.block_at(direction, stage) else {
                continue;
            };
            let cell = self.blocks[b].cell;
            let chunks = pipeline.chunks(batch, sweep::chunks_of(&cell, direction));
            let lines = sweep::lines(&cell, direction, chunks.clone());
            let expected = match part {
                Part::Backward => lines * S::Backward::LEN,
                _ if stage > 0 => lines * S::Forward::LEN,
                _ => 0,
            };
            if expected > 0 {
                let message = first(&mut self.incoming, expected);
                partners.receive(self.plan.slot(direction, task), message);
            }
            let stored_at = batch % pipeline.stored(stage) * pipeline.largest();
            self.sweep_cell(direction, b, part, chunks, stored_at);
            let (to, stage, part) = match part {
                Part::Forward if stage + 1 == last => (successor, last, Part::Whole),
                Part::Forward => (successor, stage + 1, part),
                _ if stage > 0 => (predecessor, stage - 1, Part::Backward),
                _ => continue,
            };
            let slot = self.plan.slot(direction, Task { stage, part, batch });
            partners.send(to, slot, &self.outgoing);
        }
    }

    fn sweep_cell(
        &mut self,
        direction: usize,
        b: usize,
        part: Part,
        chunks: Range<usize>,
        stored_at: usize,
    ) {
        self.outgoing.clear();
        let sweep = Sweep {
            scheme: &self.scheme,
            block: &mut self.blocks[b],
            scratch: &mut self.scratch,
            part,
            chunks,
            stored_at,
            incoming: &self.incoming,
            outgoing: &mut self.outgoing,
        };
        S::sweep(sweep, direction, self.level);
    }

    /// The block whose cell is at `stage` of a sweep along `direction`, if this PE has one.
    fn block_at(&self, direction: usize, stage: usize) -> Option<usize> {
        let at_stage = |block: &Block<S>| block.cell.coordinates[direction] == stage;
        self.blocks.iter().position(at_stage)
    }

    /// Whether a neighbour has cells on that side of some of this PE's.
    fn has_neighbour(&self, direction: usize, side: Side) -> bool {
        let mut blocks = self.blocks.iter();
        blocks.any(|block| side.has_neighbour(&block.cell, direction))
    }

    fn send_faces(&mut self, partners: &mut impl Partners) {
        for direction in 0..DIRECTIONS {
            for side in Side::ALL {
                if !self.has_neighbour(direction, side) {
                    continue;
                }
                self.outgoing.clear();
                for block in &self.blocks {
                    if side.has_neighbour(&block.cell, direction) {
                        let out = &mut self.outgoing;
                        faces::pack(&block.u, &block.cell, direction, side, out);
                    }
                }
                let partition = self.plan.partition();
                let pe = match side {
                    Side::Low => partition.predecessor(self.pe, direction),
                    Side::High => partition.successor(self.pe, direction),
                };
                let slot = Plan::face_slot(direction, side.opposite());
                partners.send(pe, slot, &self.outgoing);
            }
        }
    }

    fn receive_faces(&mut self, partners: &mut impl Partners) {
        for direction in 0..DIRECTIONS {
            for side in Side::ALL {
                if !self.has_neighbour(direction, side) {
                    continue;
                }
                let with_neighbour = |b: &&Block<S>| side.has_neighbour(&b.cell, direction);
                let blocks = self.blocks.iter().filter(with_neighbour);
                let words = blocks.map(|b| faces::words(&b.cell, direction)).sum();
                let message = first(&mut self.incoming, words);
                partners.receive(Plan::face_slot(direction, side), message);
                let mut rest = &*message;
                for block in &mut self.blocks {
                    if side.has_neighbour(&block.cell, direction) {
                        faces::unpack(&mut block.u, &block.cell, direction, side, &mut rest);
                    }
                }
            }
        }
    }

    /// This PE's part of the sums of squares of the right-hand side (without dt) of the present
    /// state. At most once after a step; no step may follow.
    pub fn residual(&mut self, partners: &mut impl Partners) -> [f64; EQUATIONS] {
        self.send_faces(partners);
        self.receive_faces(partners);
        let mut sums = [0.0; EQUATIONS];
        for block in &mut self.blocks {
            let rhs = &mut block.rhs;
            block
                .operator
                .apply(&block.u, &block.forcing, rhs, self.level);
            norms::add_squares(&mut sums, rhs, &block.cell);
        }
        let dt = self.constants.dt;
        sums.map(|sum| sum / (dt * dt))
    }

    /// This PE's part of the sums of squares of the difference to the exact solution.
    #[must_use]
    pub fn error(&self) -> [f64; EQUATIONS] {
        let mut sums = [0.0; EQUATIONS];
        for block in &self.blocks {
            norms::add_errors(&mut sums, &block.u, &block.cell, self.constants.n);
        }
        sums
    }
}

/// Room for a message of `len` numbers, which keeps the room of the longest.
fn first(buffer: &mut Vec<f64>, len: usize) -> &mut [f64] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}

/// The inner planes across z whose right-hand side needs no point of a neighbour.
fn without_ghosts(cell: &Cell) -> Range<usize> {
    let planes = cell.interior(Z);
    let points = cell.points(Z);
    let first = if cell.low[Z] {
        planes.start
    } else {
        points.start + GHOST
    };
    let end = if cell.high[Z] {
        planes.end
    } else {
        points.end - GHOST
    };
    // In a cell of few planes none is left between those that do.
    let first = first.min(planes.end);
    first..end.max(first)
}

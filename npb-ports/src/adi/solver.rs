//! The time step of one PE: faces, right-hand side, and a sweep there and back in each direction.
//!
//! # Messages, and why no slot is overwritten
//!
//! Each message of a step has a landing slot of its own, which is used again in the next step:
//! one for the faces from each side and direction, one for each direction and stage of the
//! forward and of the backward sweep. There is no barrier and no acknowledgement. A PE may send
//! into a slot only when the receiver has taken the message of the last step out of it, and it
//! knows so from messages that it has received meanwhile. Let b follow a in some direction; a
//! step has p - 1 >= 1 forward messages from a to b in this direction, and as many backward
//! from b to a.
//!
//! * *Forward, a to b.* b takes the forward message of a stage before it sends the backward
//!   message of that stage. a waits for all backward messages before its next step.
//! * *Backward, b to a.* a sends the forward message of the next step after it has taken all
//!   backward messages of this one. b waits for that forward message before it sends the backward
//!   message of the next step.
//! * *Faces, a to b.* b takes its faces before it sends any message of a sweep. a has received a
//!   backward message of b before its next step.
//! * *Faces, b to a.* Likewise: b has received a forward message of a, sent after a had taken its
//!   faces.
//!
//! So between two exchanges of faces there must be sweeps; [`Solver::residual`], which exchanges
//! faces and has no sweep after it, may be called once after a step and is to be the last.
//! With p = 2 both neighbours are the same PE; slots belong to directions and sides, so nothing
//! changes. On a single PE there is no message.

use super::constants::{Constants, EQUATIONS};
use super::directions::{DIRECTIONS, X, Y, Z};
use super::faces::{self, Side};
use super::field::{Field, Layout};
use super::initialize::{AT_REST, forcing, initialize};
use super::norms;
use super::partition::Partition;
use super::rhs::Operator;
use super::scheme::{Pack, Params, Scheme};
use super::sweep::{self, Block, Part, Scratch, Sweep};
use crate::cpu::Level;
use crate::exchange::Partners;
use std::io;

/// Numbers of the landing slots.
#[derive(Clone, Copy, Debug)]
struct SlotMap {
    stages: usize,
}

impl SlotMap {
    /// Faces that land on `side` of the receiver.
    fn faces(self, direction: usize, side: Side) -> usize {
        2 * direction + usize::from(side == Side::High)
    }

    /// The message that the cell at `stage` of a sweep takes from the cell before it, or, on the
    /// way back, from the one after it. Forward it is for stages 1.., backward for 0...
    fn sweep(self, direction: usize, part: Part, stage: usize) -> usize {
        let per_sweep = self.stages - 1;
        let (sweep, message) = match part {
            Part::Backward => (1, stage),
            Part::Forward | Part::Whole => (0, stage - 1),
        };
        2 * DIRECTIONS + (2 * direction + sweep) * per_sweep + message
    }
}

/// The sizes of the landing slots, the same on all PEs; none for a single PE.
#[must_use]
pub fn slot_sizes<S: Scheme>(partition: &Partition) -> Vec<usize> {
    let stages = partition.cells_a_side();
    if stages == 1 {
        return Vec::new();
    }
    let lines = partition.max_interior().pow(2);
    let faces = (stages - 1) * lines * super::field::GHOST * EQUATIONS;
    let mut sizes = vec![faces; 2 * DIRECTIONS];
    for _ in 0..DIRECTIONS {
        sizes.extend(vec![lines * S::Forward::LEN; stages - 1]);
        sizes.extend(vec![lines * S::Backward::LEN; stages - 1]);
    }
    sizes
}

/// Bytes that a PE needs at most, landing slots included, for a grid of `n` points a side and
/// p x p PEs with `p` from 1 to n.
#[must_use]
pub fn memory<S: Scheme>(n: usize, p: usize) -> u64 {
    let size = n.div_ceil(p);
    let field = Layout::<EQUATIONS>::new([size; DIRECTIONS], 2).len();
    // u, right-hand side and forcing. While the forcing of the last cell is made, there are two
    // fields more, and its right-hand side is not there yet.
    let fields = (3 * p + 1) * field;
    let words = if p == 1 {
        0
    } else {
        let chunks = size * size.div_ceil(crate::simd::LANES);
        let line = size.next_multiple_of(crate::simd::LANES) * crate::simd::LANES;
        let stored = p * chunks * line * (EQUATIONS + S::Kept::LEN);
        let message = size * size * (S::Forward::LEN + S::Backward::LEN);
        let faces = size * size * 2 * DIRECTIONS * 2 * EQUATIONS;
        // Slots, and what is being packed and unpacked.
        stored + (p - 1) * (DIRECTIONS * message + 2 * faces) + 2 * message
    };
    ((fields + words) * size_of::<f64>()) as u64
}

/// The part of the grid that one PE computes.
#[derive(Debug)]
pub struct Solver<S: Scheme> {
    partition: Partition,
    pe: usize,
    scheme: S,
    level: Level,
    slots: SlotMap,
    /// By z coordinate.
    pub(super) blocks: Vec<Block<S>>,
    scratch: Scratch<S>,
    incoming: Vec<f64>,
    outgoing: Vec<f64>,
    constants: Constants,
}

impl<S: Scheme> Solver<S> {
    /// The part of `pe`, in the initial state.
    ///
    /// # Errors
    /// If the system has no address space for it.
    pub fn new(partition: Partition, pe: usize, params: &Params, level: Level) -> io::Result<Self> {
        let constants = Constants::new(params.n, params.dt);
        let cells = partition.cells(pe);
        let blocks = cells.into_iter().map(|cell| {
            let u = Field::new(cell.layout(), AT_REST)?;
            let forcing = forcing(&cell, &constants, level)?;
            Block::new(cell, u, forcing, Operator::new(&cell, &constants))
        });
        let mut solver = Self {
            blocks: blocks.collect::<io::Result<_>>()?,
            scratch: Scratch::new(partition.max_interior())?,
            partition,
            pe,
            scheme: S::new(&constants),
            level,
            slots: SlotMap {
                stages: partition.cells_a_side(),
            },
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
            initialize(&mut block.u, &block.cell, self.partition.points());
        }
    }

    /// One time step.
    pub fn step(&mut self, partners: &mut impl Partners) {
        if self.partition.cells_a_side() == 1 {
            self.step_alone();
        } else {
            self.exchange_faces(partners);
            self.sweep::<X>(partners);
            self.sweep::<Y>(partners);
            self.sweep::<Z>(partners);
        }
    }

    /// A step without neighbours: x and y plane by plane, since both stay within a plane, which
    /// is then still in cache for y.
    fn step_alone(&mut self) {
        let cell = self.blocks[0].cell;
        for k in sweep::planes(&cell, X) {
            self.sweep_cell::<X>(0, Part::Whole, k..k + 1);
            self.sweep_cell::<Y>(0, Part::Whole, k..k + 1);
        }
        self.sweep_cell::<Z>(0, Part::Whole, sweep::planes(&cell, Z));
    }

    /// There and back along direction `D`.
    fn sweep<const D: usize>(&mut self, partners: &mut impl Partners) {
        let stages = self.partition.cells_a_side();
        let successor = self.partition.successor(self.pe, D);
        let predecessor = self.partition.predecessor(self.pe, D);
        let there = (0..stages).map(|stage| (stage, Part::first(stage, stages)));
        let back = (0..stages - 1).rev().map(|stage| (stage, Part::Backward));
        for (stage, part) in there.chain(back) {
            let b = self.block_at(D, stage);
            let cell = self.blocks[b].cell;
            let lines = sweep::lines(&cell, D);
            let expected = match part {
                Part::Backward => lines * S::Backward::LEN,
                _ if stage > 0 => lines * S::Forward::LEN,
                _ => 0,
            };
            self.incoming.resize(expected, 0.0);
            if expected > 0 {
                partners.receive(self.slots.sweep(D, part, stage), &mut self.incoming);
            }
            self.sweep_cell::<D>(b, part, sweep::planes(&cell, D));
            match part {
                Part::Forward => {
                    let slot = self.slots.sweep(D, Part::Forward, stage + 1);
                    partners.send(successor, slot, &self.outgoing);
                }
                _ if stage > 0 => {
                    let slot = self.slots.sweep(D, Part::Backward, stage - 1);
                    partners.send(predecessor, slot, &self.outgoing);
                }
                _ => {}
            }
        }
    }

    fn sweep_cell<const D: usize>(&mut self, b: usize, part: Part, planes: std::ops::Range<usize>) {
        self.outgoing.clear();
        self.level.run(Sweep::<S, D> {
            scheme: &self.scheme,
            block: &mut self.blocks[b],
            scratch: &mut self.scratch,
            part,
            planes,
            incoming: &self.incoming,
            outgoing: &mut self.outgoing,
        });
    }

    /// The block whose cell is at `stage` of a sweep along `direction`. There is exactly one.
    fn block_at(&self, direction: usize, stage: usize) -> usize {
        let at_stage = |block: &Block<S>| block.cell.coordinates[direction] == stage;
        self.blocks
            .iter()
            .position(at_stage)
            .expect("a cell of every PE in every plane of cells")
    }

    fn exchange_faces(&mut self, partners: &mut impl Partners) {
        for direction in 0..DIRECTIONS {
            for side in Side::ALL {
                self.outgoing.clear();
                for block in &self.blocks {
                    if side.has_neighbour(&block.cell, direction) {
                        let out = &mut self.outgoing;
                        faces::pack(&block.u, &block.cell, direction, side, out);
                    }
                }
                let pe = match side {
                    Side::Low => self.partition.predecessor(self.pe, direction),
                    Side::High => self.partition.successor(self.pe, direction),
                };
                let slot = self.slots.faces(direction, side.opposite());
                partners.send(pe, slot, &self.outgoing);
            }
        }
        for direction in 0..DIRECTIONS {
            for side in Side::ALL {
                let with_neighbour = |b: &&Block<S>| side.has_neighbour(&b.cell, direction);
                let blocks = self.blocks.iter().filter(with_neighbour);
                let words = blocks.map(|b| faces::words(&b.cell, direction)).sum();
                self.incoming.resize(words, 0.0);
                partners.receive(self.slots.faces(direction, side), &mut self.incoming);
                let mut rest = &self.incoming[..];
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
        if self.partition.cells_a_side() > 1 {
            self.exchange_faces(partners);
        }
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

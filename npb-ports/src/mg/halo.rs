//! Exchange of ghosts with the neighbours on each level, and of data with PEs that come back.
//!
//! Axes are handled in turn, x, y, z, and ghosts of earlier axes travel along, so that edges and
//! corners reach their owners in three steps of messages to face neighbours. Along an axis that
//! is not divided a PE is its own neighbour, and copies.
//!
//! # Why no slot is overwritten before it is taken
//!
//! Each level, axis, direction and [`Content`] has a landing slot of its own. (Where two PEs share
//! an axis they are each other's neighbour on both sides; the direction keeps the two messages
//! apart.) A V-cycle sends into a slot once, so when a PE sends it must know that its neighbour
//! took the message of the last cycle. It does, because between the two it has received a message
//! that the neighbour sent later, in program order, than it took that one:
//!
//! | next message to the neighbour | what it has received from there in the meantime |
//! |---|---|
//! | [`Content::Restricted`] | the solution of the last cycle, sent after its restricted residual was taken |
//! | [`Content::Residual`] | the solution of the last cycle |
//! | [`Content::Solution`] | this cycle's residual; on level 1, which has none, this cycle's restricted residual |
//! | a revival | the residual of the last cycle on the level where the PE came back |
//!
//! The last three of these travel in both directions between any two neighbours of a level, also
//! where the first goes only down ([`Slots::sides`]). So one slot of each kind does what two slots
//! in turn would do for messages that are all alike. The tests replay the messages of whole runs
//! in thousands of orders.

use super::decomposition::{Decomposition, Revival, Side};
use super::grid::{Field, Shape};
use crate::exchange::Partners;
use std::ops::Range;

/// Of what ghosts are exchanged; in each V-cycle once on each level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The residual before it is restricted further (on level 1, smoothed).
    Restricted,
    /// The residual that is smoothed.
    Residual,
    /// The solution.
    Solution,
}

impl Content {
    const COUNT: usize = 3;
}

/// Which slots there are; the same on all PEs.
#[derive(Clone, Debug)]
pub struct Slots {
    words: Vec<usize>,
    /// The first slot of each level and axis.
    first: Vec<[usize; 3]>,
}

impl Slots {
    /// The slots that `place` needs.
    #[must_use]
    pub fn new(place: &Decomposition) -> Self {
        let mut slots = Self {
            words: Vec::new(),
            first: vec![[0; 3]],
        };
        for level in 1..=place.finest() {
            let shape = Shape::new(place.share(level));
            let mut first = [0; 3];
            for (axis, first) in first.iter_mut().enumerate() {
                *first = slots.words.len();
                if place.divided(axis) {
                    slots.add(place, level, axis, &shape);
                }
            }
            slots.first.push(first);
        }
        slots
    }

    fn add(&mut self, place: &Decomposition, level: usize, axis: usize, shape: &Shape) {
        let face = if axis == 2 {
            shape.plane
        } else {
            volume(&shape.layers(axis, 0..1))
        };
        for content in [Content::Restricted, Content::Residual, Content::Solution] {
            for side in Side::BOTH {
                let unused = !Self::sides(place, level, axis, content).contains(&side);
                self.words.push(if unused { 0 } else { face });
            }
        }
        let revival = if place.drops(level, axis) {
            volume(&revived(&Shape::new(place.share(level - 1)), axis))
        } else {
            0
        };
        self.words.push(revival);
    }

    /// Numbers that each slot has room for.
    #[must_use]
    pub fn words(&self) -> &[usize] {
        &self.words
    }

    /// The slot for ghosts on `side`.
    fn ghosts(&self, level: usize, axis: usize, content: Content, side: Side) -> usize {
        self.first[level][axis] + 2 * content as usize + side.index()
    }

    fn revival(&self, level: usize, axis: usize) -> usize {
        self.first[level][axis] + 2 * Content::COUNT
    }

    /// The sides on which ghosts are needed. Restriction to blocks half as long reads none on the
    /// lower side.
    #[must_use]
    pub fn sides(
        place: &Decomposition,
        level: usize,
        axis: usize,
        content: Content,
    ) -> &'static [Side] {
        if content == Content::Restricted && level > 1 && !place.drops(level, axis) {
            &[Side::Upper]
        } else {
            &Side::BOTH
        }
    }
}

/// Cells of a box.
fn volume(layers: &[Range<usize>; 3]) -> usize {
    layers.iter().map(Range::len).product()
}

/// What of the coarse block a PE needs that dropped out along `axis`: the two layers that its
/// cells lie between. For the one that hands them over these are its lower ghosts and its cell.
/// All ghosts of the other axes belong to it.
fn revived(shape: &Shape, axis: usize) -> [Range<usize>; 3] {
    std::array::from_fn(|other| {
        if other == axis {
            0..2
        } else {
            0..shape.cells[other] + 2
        }
    })
}

/// The ghosts of one PE.
#[derive(Debug)]
pub struct Halo<P> {
    place: Decomposition,
    slots: Slots,
    partners: P,
    message: Vec<f64>,
}

impl<P: Partners> Halo<P> {
    /// For the PE at `place`. `partners` have [`Slots::words`].
    #[must_use]
    pub fn new(place: Decomposition, partners: P) -> Self {
        Self {
            slots: Slots::new(&place),
            place,
            partners,
            message: Vec::new(),
        }
    }

    /// Gives back what it was made of.
    pub fn into_partners(self) -> P {
        self.partners
    }

    /// Sends a layer of cells along `axis`: to the neighbour on the other side, whose ghosts on
    /// `side` they become.
    pub fn send(&mut self, level: usize, axis: usize, content: Content, side: Side, layer: &[f64]) {
        let pe = self.place.neighbour(level, axis, side.opposite());
        let slot = self.slots.ghosts(level, axis, content, side);
        self.partners.send(pe, slot, layer);
    }

    /// Receives the ghosts on `side` of `axis`.
    pub fn receive(
        &mut self,
        level: usize,
        axis: usize,
        content: Content,
        side: Side,
        layer: &mut [f64],
    ) {
        let slot = self.slots.ghosts(level, axis, content, side);
        self.partners.receive(slot, layer);
    }

    /// Fills the ghosts of a field of `level` as far as [`Slots::sides`] says that they are needed.
    pub fn exchange(&mut self, level: usize, content: Content, field: &mut Field) {
        for axis in 0..3 {
            if self.place.divided(axis) {
                let sides = Slots::sides(&self.place, level, axis, content);
                self.exchange_axis(level, axis, content, field, sides);
            } else {
                let n = field.shape().cells[axis];
                self.copy(axis, field, n, 0);
                self.copy(axis, field, 1, n + 1);
            }
        }
    }

    fn copy(&mut self, axis: usize, field: &mut Field, from: usize, to: usize) {
        if axis == 2 {
            return field.copy_plane(from, to);
        }
        let shape = field.shape();
        self.message.clear();
        field.pack(shape.layers(axis, from..from + 1), &mut self.message);
        field.unpack(shape.layers(axis, to..to + 1), &self.message);
    }

    fn exchange_axis(
        &mut self,
        level: usize,
        axis: usize,
        content: Content,
        field: &mut Field,
        sides: &[Side],
    ) {
        let shape = field.shape();
        let n = shape.cells[axis];
        let mut message = std::mem::take(&mut self.message);
        for &side in sides {
            let from = match side {
                Side::Lower => n,
                Side::Upper => 1,
            };
            if axis == 2 {
                self.send(level, axis, content, side, field.plane(from));
            } else {
                message.clear();
                field.pack(shape.layers(axis, from..from + 1), &mut message);
                self.send(level, axis, content, side, &message);
            }
        }
        for &side in sides {
            let to = match side {
                Side::Lower => 0,
                Side::Upper => n + 1,
            };
            if axis == 2 {
                self.receive(level, axis, content, side, field.plane_mut(to));
            } else {
                let layers = shape.layers(axis, to..to + 1);
                message.resize(volume(&layers), 0.0);
                self.receive(level, axis, content, side, &mut message);
                field.unpack(layers, &message);
            }
        }
        self.message = message;
    }

    /// Hands `field`, of the level below `level`, to the PEs that dropped out there and take part
    /// in `level` again.
    pub fn revive(&mut self, level: usize, field: &mut Field) {
        for axis in 0..3 {
            let slot = self.slots.revival(level, axis);
            let layers = revived(&field.shape(), axis);
            match self.place.revival(level, axis) {
                Revival::Idle => {}
                Revival::Give(pe) => {
                    self.message.clear();
                    field.pack(layers, &mut self.message);
                    self.partners.send(pe, slot, &self.message);
                }
                Revival::Take => {
                    self.message.resize(volume(&layers), 0.0);
                    self.partners.receive(slot, &mut self.message);
                    field.unpack(layers, &self.message);
                }
            }
        }
    }
}

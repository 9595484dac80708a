//! An iteration of the inverse power method on one PE: conjugate gradients, and the messages of a product.
//!
//! A PE has the parts of all vectors that its block's rows and columns go with ([`Place`]), so that parts
//! are on as many PEs as there are blocks in a row and a column, and each changes its copy in the same way: all sums are
//! the same to the last bit wherever they arrive.
//!
//! # Messages, and why no slot is overwritten
//!
//! For a product, each PE multiplies its entries with both of its parts of the vector, and then
//!
//! 1. exchanges what it found for its columns with its mirror, whose rows they are;
//! 2. adds up what belongs to its rows with its mate and its partners in the row of blocks, by recursive doubling;
//! 3. gives the result to its mirror, whose columns it is for.
//!
//! Scalar products take the part of the block's columns: partners in the row of blocks have all parts, each
//! once. Mates compute the same. All messages are exchanges: both partners send, then both receive. A partner has taken
//! this PE's message of one exchange when its message of a *later* one arrives, which it sent afterwards; that must
//! have happened before this PE sends into the same slot again.
//!
//! * *Mirrors* exchange twice in each product, in two slots: between two messages into one of them a message for the other
//!   one has arrived.
//! * *Partners* have a sum after each product: it has arrived before the next product. The slots of *sums* themselves come in
//!   two turns: when the third is sent, the second has arrived.
//! * *Mates* exchange nothing but products: two slots in turn.

use super::decomposition::{MOST_SUMS, Place, SlotPlan};
use super::params::{Params, STEPS};
use super::share::{Pair, Share};
use super::vector_kernels::{Descend, Dot, Norms, Start, Turn};
use crate::array::Array;
use crate::cpu::Level;
use crate::exchange::Partners;
use std::io;
use std::ops::Range;

/// The part of matrix and vectors that one PE has.
#[derive(Debug)]
pub struct Solver {
    place: Place,
    slots: SlotPlan,
    level: Level,
    shift: f64,
    share: Share,
    /// The estimate of the eigenvector.
    x: Array,
    /// The solution of A z = x.
    z: Array,
    /// The residual.
    r: Array,
    /// The search direction p, and A p.
    pairs: Array<Pair>,
    outgoing: Array,
    /// Products and sums so far are odd in number.
    turns: [bool; 2],
}

/// What an iteration finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The norm of x - A z.
    pub residual: f64,
    /// The eigenvalue.
    pub zeta: f64,
}

impl Solver {
    /// The part of `place`, before the first iteration.
    ///
    /// # Errors
    /// If the system has no address space for it.
    pub fn new(params: &Params, place: Place, level: Level) -> io::Result<Self> {
        let len = place.part_len();
        let mut solver = Self {
            share: Share::new(params, place.region())?,
            slots: place.slots(),
            shift: params.shift,
            x: Array::new(len)?,
            z: Array::new(len)?,
            r: Array::new(len)?,
            pairs: Array::new(len)?,
            outgoing: Array::new(len)?,
            turns: [false; 2],
            place,
            level,
        };
        solver.initialize();
        Ok(solver)
    }

    /// Bytes that a PE needs, about, landing slots included.
    #[must_use]
    pub fn bytes(params: &Params, place: &Place) -> u64 {
        let vectors = (4 * size_of::<f64>() + size_of::<Pair>()) * place.part_len();
        Share::bytes(params, &place.region()) + (vectors + place.slots().bytes()) as u64
    }

    /// Goes back to the first estimate of the eigenvector.
    pub fn initialize(&mut self) {
        self.x.fill(1.0);
    }

    /// One iteration: solves A z = x, about, and makes z of length 1 the next x.
    pub fn step(&mut self, partners: &mut impl Partners) -> Estimate {
        let own = self.place.columns_range();
        let mut rho = [Start {
            x: &self.x,
            z: &mut self.z,
            r: &mut self.r,
            pairs: &mut self.pairs,
            own: own.clone(),
        }
        .at(self.level)];
        self.sum(&mut rho, partners);
        for _ in 0..STEPS {
            self.product(partners);
            let mut curvature = [Dot(&self.pairs[own.clone()]).at(self.level)];
            self.sum(&mut curvature, partners);
            let alpha = rho[0] / curvature[0];
            let last = rho[0];
            rho = [Descend {
                alpha,
                pairs: &self.pairs,
                r: &mut self.r,
                own: own.clone(),
            }
            .at(self.level)];
            self.sum(&mut rho, partners);
            Turn {
                alpha,
                beta: rho[0] / last,
                r: &self.r,
                z: &mut self.z,
                pairs: &mut self.pairs,
            }
            .at(self.level);
        }
        self.estimate(partners)
    }

    fn estimate(&mut self, partners: &mut impl Partners) -> Estimate {
        for (pair, z) in self.pairs.iter_mut().zip(self.z.iter()) {
            *pair = [*z, 0.0];
        }
        self.product(partners);
        let own = self.place.columns_range();
        let mut sums = Norms {
            x: &self.x[own.clone()],
            pairs: &self.pairs[own],
        }
        .at(self.level);
        self.sum(&mut sums, partners);
        let [residual, xz, zz] = sums;
        let factor = 1.0 / zz.sqrt();
        for (x, z) in self.x.iter_mut().zip(self.z.iter()) {
            *x = factor * z;
        }
        Estimate {
            residual: residual.sqrt(),
            zeta: self.shift + 1.0 / xz,
        }
    }

    /// Adds A times the first numbers of all pairs to the second ones, which are 0.
    fn product(&mut self, partners: &mut impl Partners) {
        self.share.product(&mut self.pairs, self.level);
        let (rows, columns) = (self.place.rows_range(), self.place.columns_range());
        if let Some(pe) = self.place.mirror() {
            let slot = SlotPlan::MIRROR_PART;
            self.send_product(columns.clone(), pe, slot, partners);
            self.add(rows.clone(), slot, partners);
        }
        if let Some(pe) = self.place.mate() {
            let turn = &mut self.turns[0];
            *turn = !*turn;
            let slot = self.slots.mate(*turn);
            self.send_product(rows.clone(), pe, slot, partners);
            self.add(rows.clone(), slot, partners);
        }
        for (step, pe) in self.place.row_partners().enumerate() {
            let slot = self.slots.product(step);
            self.send_product(rows.clone(), pe, slot, partners);
            self.add(rows.clone(), slot, partners);
        }
        if let Some(pe) = self.place.mirror() {
            let slot = SlotPlan::MIRROR_WHOLE;
            self.send_product(rows, pe, slot, partners);
            let pairs = &mut self.pairs[columns];
            partners.take(slot, pairs.len(), |message| {
                for ([_, y], new) in pairs.iter_mut().zip(message) {
                    *y = *new;
                }
            });
        }
    }

    fn send_product(
        &mut self,
        part: Range<usize>,
        pe: usize,
        slot: usize,
        partners: &mut impl Partners,
    ) {
        let message = &mut self.outgoing[..part.len()];
        for (to, [_, y]) in message.iter_mut().zip(&self.pairs[part]) {
            *to = *y;
        }
        partners.send(pe, slot, message);
    }

    fn add(&mut self, part: Range<usize>, slot: usize, partners: &mut impl Partners) {
        let pairs = &mut self.pairs[part];
        partners.take(slot, pairs.len(), |message| {
            for ([_, y], more) in pairs.iter_mut().zip(message) {
                *y += more;
            }
        });
    }

    /// Adds up what each PE found for the columns of its block.
    fn sum<const N: usize>(&mut self, values: &mut [f64; N], partners: &mut impl Partners) {
        const { assert!(N <= MOST_SUMS) };
        let turn = &mut self.turns[1];
        *turn = !*turn;
        for (step, pe) in self.place.row_partners().enumerate() {
            let slot = self.slots.sum(step, *turn);
            partners.send(pe, slot, values);
            partners.take(slot, N, |message| {
                for (value, more) in values.iter_mut().zip(message) {
                    *value += more;
                }
            });
        }
    }
}

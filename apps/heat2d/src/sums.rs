//! A sum over all blocks that nobody waits for, and that is the same to the last bit however many blocks there are.
//!
//! The library's reductions wait for all PEs. Here a PE [contributes](Sums::contribute), goes on with its steps,
//! passes on what has come ([`advance`](Sums::advance)), and [takes](Sums::take) the sum many steps later, when it has
//! been there for long: it goes along a tree to the block in the middle and back. The tree's edges are
//! those on which halos travel, so no PE has one peer more for it.
//!
//! Floating-point sums depend on the order of their parts, and so on the blocks. Here every part is a multiple of
//! one power of two, and no sum has more than 2^53 of it: nothing is rounded but the parts themselves.

use shmem::{Cmp, SignalOp::Set, SymSlice};

use crate::blocks::{Block, SIDES, Side, opposite};

/// What [`rounding`] rounds to, in bounds: at most so much.
pub(crate) const UNIT: f64 = 1.0 / (1u64 << 50) as f64;

/// Adding this to a number from `-bound` to `bound` and taking it away again rounds it to a multiple of 2^-50 times the
/// largest power of two that `bound` reaches, since then the last bit of the sum counts that. Sums of such
/// numbers are exact up to four times `bound`.
pub(crate) fn rounding(bound: f64) -> f64 {
    // Numbers that are all below the smallest normal ones do not matter.
    let bound = bound.clamp(1e-290, 1e290);
    let power = f64::from_bits(bound.to_bits() >> 52 << 52);
    6.0 * power
}

/// The number, rounded by what [`rounding`] gives.
pub(crate) fn rounded(value: f64, rounding: f64) -> f64 {
    (value + rounding) - rounding
}

/// The sums of one block, one after the other.
pub(crate) struct Sums {
    block: Block,
    /// What has come, of the neighbour on each side; and the number of the sum for which it has. From inwards comes
    /// the whole, from outwards a part.
    values: SymSlice<f64>,
    come: SymSlice<u64>,
    /// Which sum is under way, from 1 on.
    number: u64,
    state: State,
    /// Bytes that were put.
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Nothing is under way.
    Idle,
    /// Parts are awaited from outwards; this is the own one.
    Parts(f64),
    /// The whole is awaited from inwards.
    Whole,
    /// It is here, and was passed on.
    Done(f64),
}

impl Sums {
    /// For a block; `values` and `come` have an element for each side, and `come` is 0.
    ///
    /// A value is not overwritten before it was read: a part of the next sum comes after the whole of this one
    /// went out, and the whole of the next one after this block's part of it.
    pub(crate) fn new(block: Block, values: SymSlice<f64>, come: SymSlice<u64>) -> Self {
        Self {
            block,
            values,
            come,
            number: 0,
            state: State::Idle,
            bytes: 0,
        }
    }

    /// Whether a sum was begun whose result was not taken.
    pub(crate) fn is_pending(&self) -> bool {
        self.state != State::Idle
    }

    /// Begins the next sum with this block's part.
    pub(crate) fn contribute(&mut self, part: f64) {
        assert!(!self.is_pending(), "sum {} was not taken", self.number);
        self.number += 1;
        self.state = State::Parts(part);
        self.advance();
    }

    /// Passes on what has come. It waits for nothing.
    pub(crate) fn advance(&mut self) {
        if let State::Parts(own) = self.state {
            let outer = SIDES.into_iter().filter(|&side| self.block.outwards[side]);
            if !outer.clone().all(|side| self.is_here(side)) {
                return;
            }
            let sum = outer.fold(own, |sum, side| sum + self.values.read(side));
            self.state = match self.block.inwards {
                Some(side) => {
                    self.put(side, sum);
                    State::Whole
                }
                None => self.whole(sum),
            };
        }
        if self.state == State::Whole
            && let Some(side) = self.block.inwards
            && self.is_here(side)
        {
            self.state = self.whole(self.values.read(side));
        }
    }

    /// The sum that is under way, waited for if need be.
    pub(crate) fn take(&mut self) -> f64 {
        loop {
            self.advance();
            let wanted = match self.state {
                State::Done(sum) => {
                    self.state = State::Idle;
                    return sum;
                }
                State::Parts(_) => SIDES
                    .into_iter()
                    .find(|&side| self.block.outwards[side] && !self.is_here(side)),
                State::Whole => self.block.inwards,
                State::Idle => panic!("no sum is under way"),
            };
            if let Some(side) = wanted {
                shmem::wait_until(self.come.elem(side), Cmp::Ge, self.number);
            }
        }
    }

    /// Whether that of the sum under way has come from a side.
    fn is_here(&self, side: Side) -> bool {
        shmem::test(self.come.elem(side), Cmp::Ge, self.number)
    }

    /// Passes the whole on outwards.
    fn whole(&mut self, sum: f64) -> State {
        for side in SIDES {
            if self.block.outwards[side] {
                self.put(side, sum);
            }
        }
        State::Done(sum)
    }

    fn put(&mut self, side: Side, value: f64) {
        if let Some(pe) = self.block.neighbours[side] {
            let there = opposite(side);
            let (to, come) = (self.values.elem(there), self.come.elem(there));
            shmem::put_signal(to, &[value], come, self.number, Set, pe);
            self.bytes += size_of::<f64>() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_numbers_add_up_alike_in_every_order() {
        let numbers: Vec<f64> = (0..1000)
            .map(|i| (f64::from(i) * 0.7).sin().abs().powi(9))
            .collect();
        let bound = numbers.iter().sum::<f64>();
        let to = rounding(bound);
        let parts: Vec<f64> = numbers.iter().map(|&n| rounded(n, to)).collect();
        let forward = parts.iter().sum::<f64>();
        let backward = parts.iter().rev().sum::<f64>();
        let halves = parts[..300].iter().sum::<f64>() + parts[300..].iter().sum::<f64>();
        assert_eq!([forward; 2], [backward, halves]);
        assert!((forward - bound).abs() < 1e-12 * bound);
        assert_ne!(
            numbers.iter().sum::<f64>(),
            numbers.iter().rev().sum::<f64>()
        );
    }

    #[test]
    fn rounding_has_a_unit_for_every_bound() {
        for bound in [0.0, 1e-320, 1e-9, 1.0, 1.5, 2.0, 4e18, f64::MAX] {
            let to = rounding(bound);
            assert!(to.is_finite() && to > 0.0);
            if (1e-290..1e290).contains(&bound) {
                assert!((rounded(bound, to) - bound).abs() <= bound * UNIT);
            }
        }
    }
}

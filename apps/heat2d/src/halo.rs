//! Halos: the outermost points of a block, put beside the neighbours' blocks, with a signal behind each.
//!
//! Nobody waits for delivery, and there is no barrier: who sees the signal of message `m` has its points. There are two
//! places for messages of a side, used in turn. A neighbour sends message `m + 1` only after it has got this block's
//! message `m`, which is sent after message `m - 1` was taken; so what lies where `m + 1` comes was taken before.

use shmem::{Cmp, SignalOp::Set, SymSlice};

use crate::blocks::{Block, SIDES, Side, opposite};
use crate::field::Field;
use crate::sweep::Exchange;

/// The halos of one block.
pub(crate) struct Halo {
    neighbours: [Option<usize>; 4],
    /// Places for what comes: for even and odd messages, of each side, so many numbers each.
    places: SymSlice<f64>,
    longest: usize,
    /// The last message that has come from each side.
    come: SymSlice<u64>,
    outgoing: [Vec<f64>; 4],
    incoming: Vec<f64>,
    /// Bytes that were put.
    pub(crate) bytes: u64,
}

impl Halo {
    /// Elements of `places`, if no side of any block has more than `longest` points.
    pub(crate) fn places(longest: usize) -> usize {
        2 * SIDES.len() * longest
    }

    /// For a block; `come` has an element for each side, 0 in the beginning.
    pub(crate) fn new(
        block: &Block,
        places: SymSlice<f64>,
        longest: usize,
        come: SymSlice<u64>,
    ) -> Self {
        Self {
            neighbours: block.neighbours,
            places,
            longest,
            come,
            outgoing: SIDES.map(|_| Vec::with_capacity(longest)),
            incoming: vec![0.0; longest],
            bytes: 0,
        }
    }

    fn sides(&self) -> impl Iterator<Item = Side> + use<> {
        let neighbours = self.neighbours;
        SIDES
            .into_iter()
            .filter(move |&side| neighbours[side].is_some())
    }

    fn place(&self, number: u64, side: Side) -> SymSlice<f64> {
        let at = ((number % 2) as usize * SIDES.len() + side) * self.longest;
        self.places.at(at..at + self.longest)
    }
}

impl Exchange for Halo {
    fn exchange(
        &mut self,
        number: u64,
        field: &mut Field,
        colour: usize,
        meanwhile: impl FnOnce(&mut Field),
    ) {
        if number == 0 {
            return meanwhile(field);
        }
        for side in self.sides() {
            let out = &mut self.outgoing[side];
            field.pack(side, colour, out);
            self.bytes += size_of_val(&out[..]) as u64;
        }
        // Long ones are sent from where they are: for that they stay as they are until the end of the scope.
        shmem::nbi_local(|puts| {
            for side in self.sides() {
                if let Some(pe) = self.neighbours[side] {
                    let there = opposite(side);
                    let (place, come) = (self.place(number, there), self.come.elem(there));
                    puts.put_signal(place, &self.outgoing[side], come, number, Set, pe);
                }
            }
            meanwhile(field);
        });
        for side in self.sides() {
            shmem::wait_until(self.come.elem(side), Cmp::Ge, number);
            let place = self.place(number, side);
            let incoming = &mut self.incoming[..field.packed(side, colour)];
            place.read_to(incoming);
            field.unpack(side, colour, incoming);
        }
    }
}

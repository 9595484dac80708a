//! The field of one PE, its transform there and back, and its messages.
//!
//! # Messages, and why no slot is overwritten
//!
//! Each transform has one exchange, in which each PE sends a message to each other one for each part of its slab
//! ([`Slab::parts`]). Messages are numbered through all exchanges. Let a be [`Slab::ahead`]. Before a PE sends its messages number m, it
//! takes those with number m - a of all others; at the end of an exchange it takes the rest. So when PE p sends message m to q, it has
//! taken number m - a of q, which q sent after it took number m - 2 a of p. That is the one which was in the slot, since
//! there are 2 a of them for each sender, which take turns.
//!
//! There is no barrier and no acknowledgement; messages travel while the next part is computed.

use super::checksum::Points;
use super::decay::Decay;
use super::fft::Fft;
use super::lanes::Stored;
use super::line::{Copied, Evolved, Gathered};
use super::plane::{Back, Initial, Room};
use super::slab::{NUMBERS, Slab};
use crate::array::Array;
use crate::cpu::Level;
use crate::exchange::Partners;
use std::io;

/// The part of the field that one PE has.
#[derive(Debug)]
pub struct Solver {
    slab: Slab,
    level: Level,
    fft: [Fft; 3],
    decay: Decay,
    points: Points,
    /// The transformed field at the beginning, line by line, its real and imaginary parts exchanged.
    lines: Array<Stored>,
    /// The field between transforms along z and the others: planes on the way back, layers of the PE's lines on the way there.
    planes: Array<Stored>,
    /// The plane that is being transformed.
    plane: Array<Stored>,
    work: Array<Stored>,
    line: Array<Stored>,
    outgoing: Array<Stored>,
    /// Messages to each other PE in earlier exchanges.
    messages: usize,
}

impl Solver {
    /// The field of `slab`.
    ///
    /// # Errors
    /// If the system has no address space for it.
    pub fn new(slab: Slab, level: Level) -> io::Result<Self> {
        let longest = slab.n.into_iter().max().unwrap_or(0);
        Ok(Self {
            level,
            fft: slab.n.map(Fft::new),
            decay: Decay::new(&slab),
            points: Points::new(&slab),
            lines: Array::new(slab.lines() * slab.n[2])?,
            planes: Array::new(slab.planes_len())?,
            plane: Array::new(slab.vectors() * slab.row_stride())?,
            work: Array::new(longest)?,
            line: Array::new(longest)?,
            outgoing: Array::new(slab.outgoing_len())?,
            messages: 0,
            slab,
        })
    }

    /// Makes the initial state and transforms it.
    pub fn initialize(&mut self, partners: &mut impl Partners) {
        for fft in &mut self.fft {
            fft.prepare();
        }
        let (vectors, rows) = (self.slab.vectors(), self.slab.part_rows());
        for part in 0..self.slab.parts {
            for row in part * rows..(part + 1) * rows {
                if row % vectors == 0 {
                    self.make_plane(row / vectors);
                }
                self.pack_row(row, row - part * rows);
            }
            self.exchange(part, partners, Self::unpack_rows);
        }
        self.finish_exchange(partners, Self::unpack_rows);
        Gathered {
            fft: &self.fft[2],
            layers: &self.planes,
            stride: self.slab.layer_stride(),
            work: &mut self.work,
            lines: &mut self.lines,
        }
        .at(self.level);
    }

    /// Evolves the initial state by `step` steps, transforms it back and gives this PE's part of the checksum.
    pub fn checksum(&mut self, step: u32, partners: &mut impl Partners) -> [f64; 2] {
        self.decay.set(step);
        for part in 0..self.slab.parts {
            self.evolve_lines(part);
            self.exchange(part, partners, Self::unpack_lines);
        }
        self.finish_exchange(partners, Self::unpack_lines);
        let mut sum = [0.0; 2];
        for plane in 0..self.slab.planes() {
            let start = plane * self.slab.plane_stride();
            Back {
                slab: &self.slab,
                fft: [&self.fft[0], &self.fft[1]],
                field: &mut self.planes[start..],
                room: Room {
                    plane: &mut self.plane,
                    work: &mut self.work,
                    line: &mut self.line,
                },
            }
            .at(self.level);
            self.points.add(plane, &self.planes[start..], &mut sum);
        }
        // The parts were exchanged on the way there, and the definition divides here.
        let points: f64 = self.slab.n.iter().map(|n| *n as f64).product();
        [sum[1] / points, sum[0] / points]
    }

    /// The initial state of the PE's plane number `plane`, transformed along x and y.
    fn make_plane(&mut self, plane: usize) {
        Initial {
            slab: &self.slab,
            fft: [&self.fft[0], &self.fft[1]],
            z: self.slab.pe * self.slab.planes() + plane,
            room: Room {
                plane: &mut self.plane,
                work: &mut self.work,
                line: &mut self.line,
            },
        }
        .at(self.level);
    }

    /// Copies row number `row` of the slab to the messages, where it has the place `at`, and the PE's own part of it to its layer.
    fn pack_row(&mut self, row: usize, at: usize) {
        let (slab, ys) = (&self.slab, self.slab.ys());
        let from = &self.plane[row % slab.vectors() * slab.row_stride()..][..slab.n[1]];
        for (pe, from) in from.chunks_exact(ys).enumerate() {
            let to = if pe == slab.pe {
                &mut self.planes[slab.layer_row(pe, row)..]
            } else {
                &mut self.outgoing[pe * slab.message() + at * ys..]
            };
            to[..ys].copy_from_slice(from);
        }
    }

    /// Copies rows of part `part` that have come from PE `pe` to their layers.
    fn unpack_rows(&mut self, pe: usize, part: usize, message: &[Stored]) {
        let (slab, ys) = (&self.slab, self.slab.ys());
        let rows = part * slab.part_rows()..;
        for (row, from) in rows.zip(message.chunks_exact(ys)) {
            self.planes[slab.layer_row(pe, row)..][..ys].copy_from_slice(from);
        }
    }

    /// The lines of part `part` after some time, transformed, in the messages and the PE's own planes.
    fn evolve_lines(&mut self, part: usize) {
        let slab = &self.slab;
        let count = slab.part_lines();
        let range = part * count..(part + 1) * count;
        Evolved {
            fft: &self.fft[2],
            decay: &self.decay,
            lines: &self.lines,
            range,
            work: &mut self.work,
            slab,
            planes: &mut self.planes,
            outgoing: &mut self.outgoing,
        }
        .at(self.level);
    }

    /// Copies lines of part `part` that have come from PE `pe`, a layer for each of this PE's planes, to these planes.
    fn unpack_lines(&mut self, pe: usize, part: usize, layers: &[Stored]) {
        let (slab, lines) = (&self.slab, self.slab.part_lines());
        let run = lines.min(slab.ys());
        for (plane, layer) in layers.chunks_exact(lines).enumerate() {
            let starts = (part * lines..).step_by(run);
            for (line, from) in starts.zip(layer.chunks_exact(run)) {
                let to = &mut self.planes[slab.plane_line(plane, pe, line)..][..run];
                Copied { from, to }.at(self.level);
            }
        }
    }

    /// Sends the messages of `part`, having taken those that must be taken before.
    fn exchange(
        &mut self,
        part: usize,
        partners: &mut impl Partners,
        unpack: impl Fn(&mut Self, usize, usize, &[Stored]),
    ) {
        if let Some(part) = part.checked_sub(self.slab.ahead) {
            self.take(part, partners, unpack);
        }
        let (pe, n_pes, message) = (self.slab.pe, self.slab.n_pes, self.slab.message());
        for distance in 1..n_pes {
            let to = (pe + distance) % n_pes;
            let message = &self.outgoing[to * message..][..message];
            let message = message.as_flattened().as_flattened();
            let slot = self.slab.slot(distance, self.messages + part);
            partners.send(to, slot, message);
        }
    }

    /// Takes the messages that are left.
    fn finish_exchange(
        &mut self,
        partners: &mut impl Partners,
        unpack: impl Fn(&mut Self, usize, usize, &[Stored]),
    ) {
        let parts = self.slab.parts;
        for part in parts.saturating_sub(self.slab.ahead)..parts {
            self.take(part, partners, &unpack);
        }
        self.messages += parts;
    }

    /// Takes the messages of `part`.
    fn take(
        &mut self,
        part: usize,
        partners: &mut impl Partners,
        unpack: impl Fn(&mut Self, usize, usize, &[Stored]),
    ) {
        let (pe, n_pes) = (self.slab.pe, self.slab.n_pes);
        for distance in 1..n_pes {
            let from = (pe + n_pes - distance) % n_pes;
            let slot = self.slab.slot(distance, self.messages + part);
            partners.take(slot, self.slab.message() * NUMBERS, |message| {
                let (vectors, _) = message.as_chunks().0.as_chunks();
                unpack(self, from, part, vectors);
            });
        }
    }
}

//! How the grid is cut: slabs of it for each PE, and in which parts slabs are exchanged.
//!
//! Transforms along x and y need whole planes of constant z, those along z whole lines. A PE has a slab of planes
//! when it does the ones, and a slab of lines, all those of some y, when it does the others; in between everybody sends a
//! part of its slab to everybody.
//!
//! Points are kept as vectors of eight along x. Vector g has the points g, g + nx / 8, g + 2 nx / 8, ..,
//! which are those that the first pass of a transform along x combines, and the last one makes.

use super::lanes::Stored;
use crate::simd::LANES;

/// Bytes of a message: no more, so that what is computed is sent while it is in the cache, ..
const MOST: usize = 128 << 10;

/// .. and no less for the sake of landing slots that are small beside the slab.
const LEAST: usize = 16 << 10;

/// Numbers of a vector.
pub const NUMBERS: usize = size_of::<Stored>() / size_of::<f64>();

/// The part of the grid that a PE has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// Points of the grid.
    pub n: [usize; 3],
    /// Whose it is.
    pub pe: usize,
    /// Of how many.
    pub n_pes: usize,
    /// Into how many parts a slab is cut for the exchange.
    pub parts: usize,
    /// How many parts a PE may send before it takes any. There are twice as many landing slots for each sender.
    pub ahead: usize,
}

impl Slab {
    /// The largest number of PEs for a grid: each has one plane or more, and the lines of one y or more.
    #[must_use]
    pub fn most_pes([_, ny, nz]: [usize; 3]) -> usize {
        ny.min(nz)
    }

    /// The slab of `pe`.
    ///
    /// # Panics
    /// If `n_pes` is no power of two, or larger than [`Slab::most_pes`].
    #[must_use]
    pub fn new(n: [usize; 3], pe: usize, n_pes: usize) -> Self {
        assert!(
            n_pes.is_power_of_two() && n_pes <= Self::most_pes(n),
            "{n_pes} PEs for {n:?} points"
        );
        let mut slab = Self {
            n,
            pe,
            n_pes,
            parts: 1,
            // So that a PE that loses its core for a moment does not keep the others waiting; among many, there is always somebody to wait for.
            ahead: (32 / n_pes).clamp(1, 4),
        };
        // Whole lines go one way, and rows of planes the other way.
        let most = slab.lines().min(slab.planes() * slab.vectors());
        let bytes = slab.vectors() * slab.ys() * slab.planes() * size_of::<Stored>();
        let small_slots = 4 * slab.ahead;
        let parts = (bytes / MOST).max(small_slots.min(bytes / LEAST));
        slab.parts = parts.next_power_of_two().min(most);
        slab
    }

    /// Vectors along x.
    #[inline]
    #[must_use]
    pub fn vectors(&self) -> usize {
        self.n[0] / LANES
    }

    /// Values of y of which the PE has the lines.
    #[inline]
    #[must_use]
    pub fn ys(&self) -> usize {
        self.n[1] / self.n_pes
    }

    /// Planes that the PE has.
    #[inline]
    #[must_use]
    pub fn planes(&self) -> usize {
        self.n[2] / self.n_pes
    }

    /// Lines of vectors along z that the PE has; line l is the one of vector l / ys and of the PE's y number l % ys.
    #[inline]
    #[must_use]
    pub fn lines(&self) -> usize {
        self.vectors() * self.ys()
    }

    /// Lines of a part.
    #[inline]
    #[must_use]
    pub fn part_lines(&self) -> usize {
        self.lines() / self.parts
    }

    /// Rows of a part; row r is vector r % vectors of plane r / vectors, all y.
    #[inline]
    #[must_use]
    pub fn part_rows(&self) -> usize {
        self.planes() * self.vectors() / self.parts
    }

    /// Vectors of a message: what one PE sends to another of one part.
    #[inline]
    #[must_use]
    pub fn message(&self) -> usize {
        self.part_lines() * self.planes()
    }

    /// From a plane of the grid to the next in the slab of planes. Planes are a vector more apart than they need be: a
    /// power of two would put all points of a line into the same few sets of the caches.
    #[inline]
    #[must_use]
    pub fn plane_stride(&self) -> usize {
        self.vectors() * self.n[1] + 1
    }

    /// The same where planes have the PE's lines only.
    #[inline]
    #[must_use]
    pub fn layer_stride(&self) -> usize {
        self.lines() + 1
    }

    /// From a row to the next in the plane that is being transformed.
    #[inline]
    #[must_use]
    pub fn row_stride(&self) -> usize {
        self.n[1] + LANES
    }

    /// Where line number `line` of PE `pe` is in this PE's plane number `plane`.
    #[inline]
    #[must_use]
    pub fn plane_line(&self, plane: usize, pe: usize, line: usize) -> usize {
        let (vector, y) = (line / self.ys(), line % self.ys());
        plane * self.plane_stride() + vector * self.n[1] + pe * self.ys() + y
    }

    /// Where this PE's part of row number `row` of PE `pe` is in its layers.
    #[inline]
    #[must_use]
    pub fn layer_row(&self, pe: usize, row: usize) -> usize {
        let (plane, vector) = (row / self.vectors(), row % self.vectors());
        (pe * self.planes() + plane) * self.layer_stride() + vector * self.ys()
    }

    /// Vectors of the slab of planes, in either layout.
    #[must_use]
    pub fn planes_len(&self) -> usize {
        (self.planes() * self.plane_stride()).max(self.n[2] * self.layer_stride())
    }

    /// Vectors of what is ready to be sent.
    #[must_use]
    pub fn outgoing_len(&self) -> usize {
        match self.n_pes {
            1 => 0,
            n_pes => n_pes * self.message(),
        }
    }

    /// The landing slots, as numbers: for each other PE some, which take turns. Those of the PE that is `distance`
    /// below the receiver are [`Slab::slot`].
    #[must_use]
    pub fn slot_sizes(&self) -> Vec<usize> {
        vec![self.message() * NUMBERS; 2 * self.ahead * (self.n_pes - 1)]
    }

    /// Bytes that a PE needs, without landing slots.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let longest = self.n.into_iter().max().unwrap_or(0);
        let vectors = self.lines() * self.n[2]
            + self.planes_len()
            + self.vectors() * self.row_stride()
            + self.outgoing_len()
            + 2 * longest;
        (vectors * size_of::<Stored>()) as u64
    }

    /// The landing slot of message number `message` from the PE that is `distance` below the receiver, round the end.
    #[inline]
    #[must_use]
    pub fn slot(&self, distance: usize, message: usize) -> usize {
        let turns = 2 * self.ahead;
        turns * (distance - 1) + message % turns
    }
}

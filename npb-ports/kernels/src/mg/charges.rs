//! The right-hand side: point charges, +1 in the ten cells where the random sequence is largest,
//! -1 where it is smallest, 0 elsewhere.
//!
//! The sequence has a number for each cell, x fastest. A PE draws those of its own cells, row by
//! row, and keeps the extreme ones. Then all PEs join these short lists.
//!
//! First all PEs count together how many numbers lie how far out ([`Extremes::counts`]), so that each knows which of
//! its own can't be among the ten. What is left ([`Extremes::words_within`]), some twenty of either kind on all PEs
//! together, is a kilobyte or so, at any number of PEs.

use super::grid::Field;
use super::params::Params;
use crate::random::{Lcg, SEED};

/// Charges of either sign.
pub const CHARGES: usize = 10;

/// Words of a candidate in a message: its number and its cell, which an `f64` holds exactly.
const WORDS: usize = 2;

/// The most words of one PE's candidates.
pub const MOST: usize = 2 * CHARGES * WORDS;

/// Numbers that are counted together: [`Extremes::counts`].
pub const COUNTS: usize = 2 * OCTAVES;

/// Distances from 0 or 1 are counted by powers of two. Random numbers are multiples of 2^-46.
const OCTAVES: usize = 47;

fn octave(b: usize) -> f64 {
    0.5f64.powi(b as i32)
}

/// How far `value` is from the end of its range.
fn distance(value: f64, largest: bool) -> f64 {
    if largest { 1.0 - value } else { value }
}

/// A cell that may get a charge.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    /// Its random number.
    value: f64,
    /// Its position in the sequence, from 0.
    cell: u64,
}

/// Cells of extreme numbers, [`CHARGES`] of either kind or as many as there are.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Extremes {
    /// Largest first.
    largest: Vec<Candidate>,
    /// Smallest first.
    smallest: Vec<Candidate>,
}

/// Inserts into a list that `before` sorts, and keeps it short.
fn insert(list: &mut Vec<Candidate>, new: Candidate, before: impl Fn(f64, f64) -> bool) {
    let at = list.partition_point(|old| !before(new.value, old.value));
    if at < CHARGES {
        list.truncate(CHARGES - 1);
        list.insert(at, new);
    }
}

/// The shortest distance 2^-b, as b, within which all PEs together have ten of the largest, and
/// ten of the smallest. `total` are the sums of [`Extremes::counts`].
fn within(total: &[f64; COUNTS]) -> [usize; 2] {
    let enough = |count: &f64| *count >= CHARGES as f64;
    let (of_largest, of_smallest) = total.split_at(OCTAVES);
    // Where there are fewer than ten at any distance, none is left out.
    [of_largest, of_smallest].map(|counts| counts.iter().rposition(enough).unwrap_or(0))
}

/// How many words [`Extremes::words_within`] gives on all PEs together, or more.
#[must_use]
pub fn words_of_all(total: &[f64; COUNTS]) -> usize {
    let [largest, smallest] = within(total);
    (total[largest] + total[OCTAVES + smallest]) as usize * WORDS
}

impl Extremes {
    /// Of the cells of a block: `first` are the global coordinates of its first cell, from 0.
    #[must_use]
    pub fn of_block(params: &Params, first: [usize; 3], cells: [usize; 3]) -> Self {
        let n = params.cells() as u64;
        let mut extremes = Self::default();
        let mut row = vec![0.0; cells[0]];
        for k in 0..cells[2] {
            for j in 0..cells[1] {
                let [x, y, z] = [first[0], first[1] + j, first[2] + k].map(|at| at as u64);
                let start = x + n * (y + n * z);
                let mut sequence = Lcg::new(SEED);
                sequence.jump(start);
                sequence.fill(&mut row);
                extremes.add_row(&row, start);
            }
        }
        extremes
    }

    fn add_row(&mut self, row: &[f64], start: u64) {
        let [mut high, mut low] = self.bounds();
        for (value, cell) in row.iter().copied().zip(start..) {
            if value > high || value < low {
                self.add(Candidate { value, cell });
                [high, low] = self.bounds();
            }
        }
    }

    fn add(&mut self, new: Candidate) {
        insert(&mut self.largest, new, |a, b| a > b);
        insert(&mut self.smallest, new, |a, b| a < b);
    }

    /// What a number must exceed to be among the largest, and stay below to be among the smallest.
    /// All are between 0 and 1.
    fn bounds(&self) -> [f64; 2] {
        let last = |list: &[Candidate]| list.get(CHARGES - 1).map(|candidate| candidate.value);
        [
            last(&self.largest).unwrap_or(0.0),
            last(&self.smallest).unwrap_or(1.0),
        ]
    }

    /// How many of the largest are less than 2^-b away from 1, for each b below `OCTAVES`, then
    /// how many of the smallest from 0.
    #[must_use]
    pub fn counts(&self) -> [f64; COUNTS] {
        std::array::from_fn(|i| {
            let (list, b) = match i.checked_sub(OCTAVES) {
                None => (&self.largest, i),
                Some(b) => (&self.smallest, b),
            };
            let largest = i < OCTAVES;
            let near = |a: &&Candidate| distance(a.value, largest) < octave(b);
            list.iter().filter(near).count() as f64
        })
    }

    /// Those that can be among the ten of all PEs, whose [`Extremes::counts`] add up to `total`:
    /// words of a message, no cell twice.
    #[must_use]
    pub fn words_within(&self, total: &[f64; COUNTS]) -> Vec<f64> {
        let mut chosen = Vec::new();
        for ((list, largest), b) in [(&self.largest, true), (&self.smallest, false)]
            .into_iter()
            .zip(within(total))
        {
            let near = |a: &&Candidate| distance(a.value, largest) < octave(b);
            chosen.extend(list.iter().filter(near));
        }
        chosen.sort_by_key(|candidate: &&Candidate| candidate.cell);
        chosen.dedup_by_key(|candidate| candidate.cell);
        let words = |a: &Candidate| [a.value, a.cell as f64];
        chosen.into_iter().flat_map(words).collect()
    }

    /// Those that are in the words of all PEs, one after another.
    #[must_use]
    pub fn of_words(words: &[f64]) -> Self {
        let mut extremes = Self::default();
        for [value, cell] in words.as_chunks::<WORDS>().0 {
            extremes.add(Candidate {
                value: *value,
                cell: *cell as u64,
            });
        }
        extremes
    }

    /// Puts the charges into `v`, a block whose first cell has the global coordinates `first`,
    /// from 0. Charges elsewhere are left out.
    pub fn place(&self, params: &Params, first: [usize; 3], v: &mut Field) {
        v.clear();
        let n = params.cells();
        let shape = v.shape();
        for (list, charge) in [(&self.largest, 1.0), (&self.smallest, -1.0)] {
            for candidate in list {
                let cell = usize::try_from(candidate.cell).expect("a cell of this grid");
                let at = [cell % n, cell / n % n, cell / n / n];
                // From 1 in the block; what lies before it wraps around to large numbers.
                let [i, j, k] =
                    std::array::from_fn(|axis| at[axis].wrapping_sub(first[axis]).wrapping_add(1));
                let inside = |at: usize, axis: usize| (1..=shape.cells[axis]).contains(&at);
                if inside(i, 0) && inside(j, 1) && inside(k, 2) {
                    v.plane_mut(k)[shape.with_ghosts(j)][i] = charge;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::Shape;
    use super::*;
    use crate::class::Class;

    /// First cell and size of all blocks of a grid of `n` cells a side that is cut into `parts` along each axis.
    fn blocks(n: usize, parts: usize) -> Vec<([usize; 3], [usize; 3])> {
        let size = n / parts;
        let block = |b: usize| {
            let at = [b % parts, b / parts % parts, b / parts / parts];
            (at.map(|at| at * size), [size; 3])
        };
        (0..parts.pow(3)).map(block).collect()
    }

    #[test]
    fn lists_hold_the_extremes_of_the_sequence() {
        let params = Params::of(Class::S);
        let n = params.cells();
        let extremes = Extremes::of_block(&params, [0; 3], [n; 3]);
        let mut all = vec![0.0; n * n * n];
        Lcg::new(SEED).fill(&mut all);
        let mut order: Vec<_> = (0..all.len()).collect();
        order.sort_by(|&a, &b| all[a].total_cmp(&all[b]));
        let cells = |list: &[Candidate]| list.iter().map(|a| a.cell as usize).collect::<Vec<_>>();
        assert_eq!(cells(&extremes.smallest), order[..CHARGES]);
        order.reverse();
        assert_eq!(cells(&extremes.largest), order[..CHARGES]);
    }

    #[test]
    fn parts_join_to_the_whole() {
        let params = Params::of(Class::S);
        let n = params.cells();
        let whole = Extremes::of_block(&params, [0; 3], [n; 3]);
        for parts in [1, 2, 4, 16] {
            let n_pes = parts * parts * parts;
            let parts: Vec<_> = blocks(n, parts)
                .into_iter()
                .map(|(first, cells)| Extremes::of_block(&params, first, cells))
                .collect();
            let counts = parts.iter().map(Extremes::counts);
            let total = counts
                .reduce(|a, b| std::array::from_fn(|i| a[i] + b[i]))
                .unwrap();
            let words: Vec<_> = parts
                .iter()
                .flat_map(|part| part.words_within(&total))
                .collect();
            assert_eq!(Extremes::of_words(&words), whole, "{n_pes} PEs");
            // The room for them does not grow with the number of PEs.
            let room = words_of_all(&total);
            assert!(
                (words.len()..=4 * CHARGES * WORDS).contains(&room),
                "{n_pes} PEs"
            );
        }
    }

    #[test]
    fn charges_lie_in_the_blocks_that_own_them() {
        let params = Params::of(Class::S);
        let n = params.cells();
        let extremes = Extremes::of_block(&params, [0; 3], [n; 3]);
        let (mut positive, mut negative) = (0, 0);
        for (first, cells) in blocks(n, 4) {
            let mut v = Field::new(Shape::new(cells)).unwrap();
            extremes.place(&params, first, &mut v);
            let mut cells = Vec::new();
            v.pack([1..9, 1..9, 1..9], &mut cells);
            positive += cells.iter().filter(|&&x| x == 1.0).count();
            negative += cells.iter().filter(|&&x| x == -1.0).count();
            assert!(cells.iter().all(|x| [0.0, 1.0, -1.0].contains(x)));
        }
        assert_eq!((positive, negative), (CHARGES, CHARGES));
    }
}

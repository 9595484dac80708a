//! Transforms of a plane along x and y while it is in the cache.
//!
//! Along y, lanes are neighbours in x. Along x they are neighbours in y: blocks of 8 x 8 numbers are transposed when the first pass
//! loads them, or after the last one.

use super::fft::{Ahead, Fft, RADIX, Sink, Source, Strided, StridedMut};
use super::lanes::{Complex8, Stored, load_turned, store_turned};
use super::slab::Slab;
use crate::cpu::entries;
use crate::cpu::vectors::{Vector, VectorKernel};
use crate::random::{Lanes, MULTIPLIER, SEED, uniform};
use crate::simd::LANES;

entries!(VectorKernel, run_vectors: Initial<'_>, Back<'_>);

/// Room for one plane, and for lines.
#[derive(Debug)]
pub struct Room<'a> {
    /// Rows of vectors, [`Slab::row_stride`] apart; a row has all y of a vector.
    pub plane: &'a mut [Stored],
    /// A line that is being transformed.
    pub work: &'a mut [Stored],
    /// A line of random numbers.
    pub line: &'a mut [Stored],
}

/// Makes the initial state of plane `z` of the grid, and transforms it along x and y.
#[derive(Debug)]
pub struct Initial<'a> {
    /// The grid.
    pub slab: &'a Slab,
    /// Along x and y.
    pub fft: [&'a Fft; 2],
    /// Which plane.
    pub z: usize,
    /// Where.
    pub room: Room<'a>,
}

impl VectorKernel for Initial<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self {
            slab,
            fft: [along_x, along_y],
            z,
            room: Room { plane, work, line },
        } = self;
        let [nx, ny, _] = slab.n;
        let (line, stride) = (&mut line[..nx], slab.row_stride());
        for y in (0..ny).step_by(LANES) {
            random(line, ((z * ny + y) * 2 * nx) as u64);
            let points = Strided {
                points: line,
                stride: 1,
            };
            along_x.begin::<V>(&points, work);
            let blocks = &mut plane[y..];
            along_x.finish::<V>(work, &mut Turned { blocks, stride });
        }
        for row in plane.chunks_exact_mut(stride) {
            let points = Strided {
                points: row,
                stride: 1,
            };
            along_y.begin::<V>(&points, work);
            let mut results = StridedMut {
                points: row,
                stride: 1,
            };
            along_y.finish::<V>(work, &mut results);
        }
    }
}

/// Blocks of eight vectors, `stride` apart, with lanes along x: a block has the points along x that are combined. To transform along x,
/// lanes are along y.
#[derive(Debug)]
struct Turned<B> {
    blocks: B,
    stride: usize,
}

impl Source<RADIX> for Turned<&[Stored]> {
    #[inline(always)]
    fn points<V: Vector>(&self, start: usize, _: usize) -> [Complex8<V>; RADIX] {
        load_turned::<V>(&self.blocks[start * self.stride..])
    }
}

impl Sink for Turned<&mut [Stored]> {
    #[inline(always)]
    fn results<V: Vector>(&mut self, start: usize, _: usize, x: [Complex8<V>; RADIX]) {
        store_turned::<V>(x, &mut self.blocks[start * self.stride..]);
    }
}

/// The same blocks of the result, whose lanes are left along y.
struct Blocks<'a> {
    blocks: &'a mut [Stored],
    stride: usize,
}

impl Sink for Blocks<'_> {
    #[inline(always)]
    fn results<V: Vector>(&mut self, start: usize, _: usize, x: [Complex8<V>; RADIX]) {
        let block = &mut self.blocks[start * self.stride..][..LANES];
        for (x, to) in x.into_iter().zip(block) {
            x.stream(to);
        }
    }
}

/// Fills a row of points, lanes being rows: the first lane begins `start` numbers after the seed. A point is two numbers of
/// the random sequence.
#[inline(always)]
fn random(line: &mut [Stored], start: u64) {
    let stride = 2 * line.len() as u64;
    let mut words = Lanes::<LANES>::new(SEED, start + 1, stride).words;
    for point in line {
        for part in point {
            for (x, word) in part.iter_mut().zip(&mut words) {
                *x = uniform(*word);
                *word = word.wrapping_mul(MULTIPLIER);
            }
        }
    }
}

/// Transforms a plane along y, then x. The result (x, y) is in lane y % 8; see [`Points`](super::checksum::Points).
#[derive(Debug)]
pub struct Back<'a> {
    /// The grid.
    pub slab: &'a Slab,
    /// Along x and y.
    pub fft: [&'a Fft; 2],
    /// The plane, all y of the first vector, and so on, and what follows it. The result takes its place.
    pub field: &'a mut [Stored],
    /// Where it is between the transforms.
    pub room: Room<'a>,
}

impl VectorKernel for Back<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self {
            slab,
            fft: [along_x, along_y],
            field,
            room: Room { plane, work, .. },
        } = self;
        let (ny, stride) = (slab.n[1], slab.row_stride());
        for (vector, row) in plane.chunks_exact_mut(stride).enumerate() {
            let (points, next) = field[vector * ny..].split_at(ny);
            along_y.begin::<V>(&Strided { points, stride: 1 }, work);
            let to = StridedMut {
                points: row,
                stride: 1,
            };
            along_y.finish::<V>(work, &mut Ahead { next, to });
        }
        for y in (0..ny).step_by(LANES) {
            let blocks = &plane[y..];
            along_x.begin_by_eight::<V>(&Turned { blocks, stride }, work);
            let blocks = &mut field[y..];
            along_x.finish::<V>(work, &mut Blocks { blocks, stride: ny });
        }
    }
}

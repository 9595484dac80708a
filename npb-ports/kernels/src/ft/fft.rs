//! The Fourier transform of a line, eight lines at once.
//!
//! A line of 2^k points is transformed in passes, each of which combines 8 points (once 2 or 4, if k
//! is no multiple of 3). Passes are in place in a work line, which fits the first-level cache for most classes; the first
//! one reads the points where they are, the last writes each where it belongs, in order. Whoever has points to
//! make, to scale or to scatter does that in the [`Source`] and [`Sink`] of these: it is no pass of its own.
//!
//! The transform is sum over j of x_j e^(-2 pi i j k / n).

use super::lanes::{Complex8, Stored, transform};
use crate::cpu::prefetch_row;
use crate::cpu::vectors::Vector;
use std::f64::consts::TAU;

/// Points that the last pass combines, and the first one where there are 64 or more.
pub const RADIX: usize = 8;

/// Where the points of eight lines come from. (Closures might be left out of line, and compiled for the baseline.)
pub trait Source<const R: usize> {
    /// The points `start`, `start + apart`, and so on. The first pass asks for each point once.
    fn points<V: Vector>(&self, start: usize, apart: usize) -> [Complex8<V>; R];
}

/// Where results go to.
pub trait Sink {
    /// Takes the results `start`, `start + apart`, and so on, where `apart` is n / 8. The last pass gives each result once.
    fn results<V: Vector>(&mut self, start: usize, apart: usize, x: [Complex8<V>; RADIX]);
}

/// Vectors of eight points, `stride` apart.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a> {
    /// From the first on.
    pub points: &'a [Stored],
    /// From one to the next.
    pub stride: usize,
}

impl<const R: usize> Source<R> for Strided<'_> {
    #[inline(always)]
    fn points<V: Vector>(&self, start: usize, apart: usize) -> [Complex8<V>; R] {
        let (mut at, step) = (start * self.stride, apart * self.stride);
        let mut x = [Complex8::load(&self.points[at]); R];
        for x in &mut x[1..] {
            at += step;
            *x = Complex8::load(&self.points[at]);
        }
        x
    }
}

/// The same to write to.
#[derive(Debug)]
pub struct StridedMut<'a> {
    /// From the first on.
    pub points: &'a mut [Stored],
    /// From one to the next.
    pub stride: usize,
}

impl Sink for StridedMut<'_> {
    #[inline(always)]
    fn results<V: Vector>(&mut self, start: usize, apart: usize, x: [Complex8<V>; RADIX]) {
        let (mut at, step) = (start * self.stride, apart * self.stride);
        for x in x {
            x.store(&mut self.points[at]);
            at += step;
        }
    }
}

/// Fetches another line into the cache while results are stored.
#[derive(Debug)]
pub struct Ahead<'a, S> {
    /// The line that is transformed next, or nothing.
    pub next: &'a [Stored],
    /// Where the results go to.
    pub to: S,
}

impl<S: Sink> Sink for Ahead<'_, S> {
    #[inline(always)]
    fn results<V: Vector>(&mut self, start: usize, apart: usize, x: [Complex8<V>; RADIX]) {
        // Each start comes once, so these are all of the line.
        if let Some(points) = self.next.get(start * RADIX..(start + 1) * RADIX) {
            prefetch_row(points.as_flattened().as_flattened());
        }
        self.to.results(start, apart, x);
    }
}

/// How lines of one length are transformed.
#[derive(Clone, Debug, PartialEq)]
pub struct Fft {
    n: usize,
    /// All passes but the last.
    passes: Vec<Pass>,
    /// Where the first result of each block of the last pass belongs; the others follow n / 8 apart.
    order: Vec<usize>,
}

/// Blocks of `radix * apart` points; the points of a block that are `apart` from each other are combined.
#[derive(Clone, Debug, PartialEq)]
struct Pass {
    radix: usize,
    apart: usize,
    /// For each of the `apart` combinations of a block the factors of its results but the first.
    factors: Vec<[f64; 2]>,
}

impl Fft {
    /// For lines of `n` points.
    ///
    /// # Panics
    /// If `n` is no power of two, or less than 32.
    #[must_use]
    pub fn new(n: usize) -> Self {
        assert!(n.is_power_of_two() && n >= 32, "a line of {n} points");
        let mut radices = Vec::new();
        let mut left = n / RADIX;
        while left > 1 {
            // An odd radix comes second, or first of two.
            let odd = 1 << (left.ilog2() % 3);
            let radix = if odd > 1 && (left < 8 || !radices.is_empty()) {
                odd
            } else {
                RADIX
            };
            radices.push(radix);
            left /= radix;
        }
        let mut order = vec![0];
        let mut passes = Vec::new();
        let mut block = n;
        for radix in radices {
            let scale = n / block;
            let digits = |start: usize| (0..radix).map(move |k| start + scale * k);
            order = order.into_iter().flat_map(digits).collect();
            block /= radix;
            passes.push(Pass {
                radix,
                apart: block,
                factors: vec![[0.0; 2]; block * (radix - 1)],
            });
        }
        let mut fft = Self { n, passes, order };
        fft.prepare();
        fft
    }

    /// Computes the factors of all passes, again if it must be.
    pub fn prepare(&mut self) {
        for pass in &mut self.passes {
            pass.prepare();
        }
    }

    /// Points of a line, and of its work line.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.n
    }

    /// The first pass: fills `work`.
    #[inline(always)]
    pub fn begin<V: Vector>(&self, from: &(impl Source<4> + Source<8>), work: &mut [Stored]) {
        match self.passes[0].radix {
            4 => self.first::<V, 4>(from, work),
            _ => self.first::<V, 8>(from, work),
        }
    }

    /// The same from where points can be had by eight only.
    ///
    /// # Panics
    /// If the lines have less than 64 points.
    #[inline(always)]
    pub fn begin_by_eight<V: Vector>(&self, from: &impl Source<RADIX>, work: &mut [Stored]) {
        assert_eq!(self.passes[0].radix, RADIX, "a short line");
        self.first::<V, RADIX>(from, work);
    }

    #[inline(always)]
    fn first<V: Vector, const R: usize>(&self, from: &impl Source<R>, work: &mut [Stored]) {
        let pass = &self.passes[0];
        let work = &mut work[..self.n];
        for p in 0..pass.apart {
            let x = transform(from.points::<V>(p, pass.apart));
            pass.store::<V, R>(x, p, work);
        }
    }

    /// The other passes.
    #[inline(always)]
    pub fn finish<V: Vector>(&self, work: &mut [Stored], to: &mut impl Sink) {
        let work = &mut work[..self.n];
        for pass in &self.passes[1..] {
            match pass.radix {
                2 => pass.run::<V, 2>(work),
                4 => pass.run::<V, 4>(work),
                _ => pass.run::<V, 8>(work),
            }
        }
        for (block, &k) in work.as_chunks::<RADIX>().0.iter().zip(&self.order) {
            let points = Strided {
                points: block,
                stride: 1,
            };
            let x: [Complex8<V>; RADIX] = points.points::<V>(0, 1);
            to.results::<V>(k, self.n / RADIX, transform(x));
        }
    }
}

impl Pass {
    fn prepare(&mut self) {
        let block = (self.apart * self.radix) as f64;
        for (p, factors) in self.factors.chunks_exact_mut(self.radix - 1).enumerate() {
            for (k, factor) in factors.iter_mut().enumerate() {
                let (sin, cos) = (TAU * (p * (k + 1)) as f64 / block).sin_cos();
                *factor = [cos, -sin];
            }
        }
    }

    /// In place, in all blocks.
    #[inline(always)]
    fn run<V: Vector, const R: usize>(&self, work: &mut [Stored]) {
        for p in 0..self.apart {
            for block in work.chunks_exact_mut(R * self.apart) {
                let points = Strided {
                    points: block,
                    stride: 1,
                };
                let x: [Complex8<V>; R] = points.points::<V>(p, self.apart);
                self.store::<V, R>(transform(x), p, block);
            }
        }
    }

    /// Multiplies the results of combination `p` of a block by their factors.
    #[inline(always)]
    fn store<V: Vector, const R: usize>(
        &self,
        x: [Complex8<V>; R],
        p: usize,
        block: &mut [Stored],
    ) {
        let factors = &self.factors[p * (R - 1)..][..R - 1];
        x[0].store(&mut block[p]);
        for k in 1..R {
            x[k].turn(factors[k - 1])
                .store(&mut block[p + k * self.apart]);
        }
    }
}

//! Transforms along z.

use super::decay::Decay;
use super::fft::{Ahead, Fft, RADIX, Sink, Source, Strided};
use super::lanes::{Complex8, Stored};
use super::slab::Slab;
use crate::cpu::entries;
use crate::cpu::vectors::{Vector, VectorKernel};
use std::ops::Range;

entries!(VectorKernel, run_vectors: Gathered<'_>, Evolved<'_>, Copied<'_>);

/// Transforms all lines, gathered from layers, and stores them for the way back, real and imaginary parts exchanged
/// ([`Complex8::exchanged`]).
#[derive(Debug)]
pub struct Gathered<'a> {
    /// Along z.
    pub fft: &'a Fft,
    /// A layer for each z, in each a vector for each line.
    pub layers: &'a [Stored],
    /// From one to the next.
    pub stride: usize,
    /// A line that is being transformed.
    pub work: &'a mut [Stored],
    /// The result, line by line.
    pub lines: &'a mut [Stored],
}

impl VectorKernel for Gathered<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let nz = self.fft.len();
        for (l, line) in self.lines.chunks_exact_mut(nz).enumerate() {
            let (points, stride) = (&self.layers[l..], self.stride);
            self.fft.begin::<V>(&Strided { points, stride }, self.work);
            self.fft.finish::<V>(self.work, &mut Exchanged(line));
        }
    }
}

/// A line of which real and imaginary parts are exchanged.
struct Exchanged<'a>(&'a mut [Stored]);

impl Sink for Exchanged<'_> {
    #[inline(always)]
    fn results<V: Vector>(&mut self, start: usize, apart: usize, x: [Complex8<V>; RADIX]) {
        for (k, x) in x.into_iter().enumerate() {
            x.exchanged().store(&mut self.0[start + k * apart]);
        }
    }
}

/// Some lines as they are after some time, transformed and scattered to layers.
#[derive(Debug)]
pub struct Evolved<'a> {
    /// Along z.
    pub fft: &'a Fft,
    /// The factors of that time.
    pub decay: &'a Decay,
    /// All lines at the beginning.
    pub lines: &'a [Stored],
    /// Those that are meant.
    pub range: Range<usize>,
    /// A line that is being transformed.
    pub work: &'a mut [Stored],
    /// Which z are the PE's own.
    pub slab: &'a Slab,
    /// The layers of those.
    pub planes: &'a mut [Stored],
    /// All layers, of which the others are written, to be sent.
    pub outgoing: &'a mut [Stored],
}

/// The results of lines: for each z a layer with a vector for each line.
struct Layers<'a> {
    /// Which z are the PE's own.
    slab: &'a Slab,
    /// The layers of those, from the present line on.
    planes: &'a mut [Stored],
    /// All layers, of which the others are written, to be sent.
    outgoing: &'a mut [Stored],
}

impl Sink for Layers<'_> {
    #[inline(always)]
    fn results<V: Vector>(&mut self, start: usize, apart: usize, x: [Complex8<V>; RADIX]) {
        let (slab, planes) = (self.slab, self.slab.planes());
        for (k, x) in x.into_iter().enumerate() {
            let z = start + k * apart;
            let own = z.wrapping_sub(slab.pe * planes);
            if own < planes {
                x.stream(&mut self.planes[own * slab.plane_stride()]);
            } else {
                x.store(&mut self.outgoing[z * slab.part_lines()]);
            }
        }
    }
}

impl VectorKernel for Evolved<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let (nz, slab) = (self.fft.len(), self.slab);
        let factors = &self.decay.z()[..nz];
        for (number, l) in self.range.enumerate() {
            let (line, decay) = (&self.lines[l * nz..][..nz], self.decay.line(l));
            let decay = &decay.0;
            let decayed = Decayed {
                line,
                decay,
                factors,
            };
            self.fft.begin::<V>(&decayed, self.work);
            let to = Layers {
                slab,
                planes: &mut self.planes[slab.plane_line(0, slab.pe, l)..],
                outgoing: self.outgoing.get_mut(number..).unwrap_or_default(),
            };
            let next = &self.lines[(l + 1) * nz..];
            self.fft.finish::<V>(self.work, &mut Ahead { next, to });
        }
    }
}

/// Copies vectors to memory that is not read for long.
#[derive(Debug)]
pub struct Copied<'a> {
    /// What is copied.
    pub from: &'a [Stored],
    /// As many vectors.
    pub to: &'a mut [Stored],
}

impl VectorKernel for Copied<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        for (from, to) in self.from.iter().zip(self.to) {
            Complex8::<V>::load(from).stream(to);
        }
    }
}

/// A line as it is after some time.
struct Decayed<'a> {
    line: &'a [Stored],
    /// The factors but for that of z.
    decay: &'a [f64; 8],
    factors: &'a [f64],
}

impl<const R: usize> Source<R> for Decayed<'_> {
    #[inline(always)]
    fn points<V: Vector>(&self, start: usize, apart: usize) -> [Complex8<V>; R] {
        let points = Strided {
            points: self.line,
            stride: 1,
        };
        let mut x: [Complex8<V>; R] = points.points::<V>(start, apart);
        let decay = V::load(self.decay);
        for (k, x) in x.iter_mut().enumerate() {
            *x = x.scale(decay * V::splat(self.factors[start + k * apart]));
        }
        x
    }
}

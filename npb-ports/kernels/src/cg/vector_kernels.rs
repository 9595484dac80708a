//! Passes over vectors between two products. Each does all that can be done before the next sum is known.

use super::share::Pair;
use crate::cpu::{Kernel, entries, mul_add};
use crate::simd::LANES;
use std::ops::Range;

entries!(Kernel, run: Start<'_>, Dot<'_>, Descend<'_>, Turn<'_>, Norms<'_>);

/// Sums in as many lanes as the longest vectors have, which makes the last bits the same wherever a part of a vector is.
type Lanes = [f64; LANES];

/// Adds `f` of what `a` and `b` have at the same place, eight at a time.
#[inline(always)]
fn sum<A: Copy, B: Copy>(a: &[A], b: &[B], f: impl Fn(A, B, f64) -> f64) -> f64 {
    let mut sums: Lanes = [0.0; LANES];
    let len = a.len().min(b.len());
    let (a, a_rest) = a[..len].as_chunks::<LANES>();
    let (b, b_rest) = b[..len].as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for l in 0..LANES {
            sums[l] = f(a[l], b[l], sums[l]);
        }
    }
    for ((sum, a), b) in sums.iter_mut().zip(a_rest).zip(b_rest) {
        *sum = f(*a, *b, *sum);
    }
    sums.iter().sum()
}

/// The beginning: z = 0, r = p = x. Yields the square of r's own part.
#[derive(Debug)]
pub struct Start<'a> {
    /// The estimate of the eigenvector.
    pub x: &'a [f64],
    /// The solution of A z = x.
    pub z: &'a mut [f64],
    /// The residual.
    pub r: &'a mut [f64],
    /// The search direction p, and A p.
    pub pairs: &'a mut [Pair],
    /// Where the part of the block's columns is.
    pub own: Range<usize>,
}

impl Kernel for Start<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        self.z.fill(0.0);
        self.r.copy_from_slice(self.x);
        for (pair, x) in self.pairs.iter_mut().zip(self.x) {
            *pair = [*x, 0.0];
        }
        let x = &self.x[self.own];
        sum(x, x, mul_add::<FMA>)
    }
}

/// The scalar product of p and A p.
#[derive(Debug)]
pub struct Dot<'a>(
    /// p and A p.
    pub &'a [Pair],
);

impl Kernel for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        sum(self.0, self.0, |[p, _], [_, q], sum| {
            mul_add::<FMA>(p, q, sum)
        })
    }
}

/// r -= alpha A p. Yields the square of r's own part, which is the end of it or all.
#[derive(Debug)]
pub struct Descend<'a> {
    /// The length of the step.
    pub alpha: f64,
    /// The search direction p, and A p.
    pub pairs: &'a [Pair],
    /// The residual.
    pub r: &'a mut [f64],
    /// Where the part of the block's columns is.
    pub own: Range<usize>,
}

impl Kernel for Descend<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        let Self {
            alpha,
            pairs,
            r,
            own,
        } = self;
        let (rows, r) = r.split_at_mut(own.start);
        let (rows_pairs, pairs) = pairs.split_at(own.start);
        for (r, [_, q]) in rows.iter_mut().zip(rows_pairs) {
            *r = mul_add::<FMA>(-alpha, *q, *r);
        }
        for (r, [_, q]) in r.iter_mut().zip(pairs) {
            *r = mul_add::<FMA>(-alpha, *q, *r);
        }
        sum(r, r, mul_add::<FMA>)
    }
}

/// z += alpha p, then p = r + beta p, and room for the next product.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The length of the step.
    pub alpha: f64,
    /// What is left of the last direction.
    pub beta: f64,
    /// The residual.
    pub r: &'a [f64],
    /// The solution of A z = x.
    pub z: &'a mut [f64],
    /// The search direction p, and A p.
    pub pairs: &'a mut [Pair],
}

impl Kernel for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { alpha, beta, .. } = self;
        for ((pair, z), r) in self.pairs.iter_mut().zip(self.z).zip(self.r) {
            let p = pair[0];
            *z = mul_add::<FMA>(alpha, p, *z);
            *pair = [mul_add::<FMA>(beta, p, *r), 0.0];
        }
    }
}

/// The squares of x - A z, x z and z z, of pairs of z and A z.
#[derive(Debug)]
pub struct Norms<'a> {
    /// The estimate of the eigenvector.
    pub x: &'a [f64],
    /// z and A z.
    pub pairs: &'a [Pair],
}

impl Kernel for Norms<'_> {
    type Output = [f64; 3];

    #[inline(always)]
    fn run<const FMA: bool>(self) -> [f64; 3] {
        let Self { x, pairs } = self;
        [
            sum(x, pairs, |x, [_, q], sum| {
                let r = x - q;
                mul_add::<FMA>(r, r, sum)
            }),
            sum(x, pairs, |x, [z, _], sum| mul_add::<FMA>(x, z, sum)),
            sum(pairs, pairs, |[z, _], [y, _], sum| {
                mul_add::<FMA>(z, y, sum)
            }),
        ]
    }
}

//! Eight complex numbers side by side, and the smallest transforms.
//!
//! Real and imaginary parts are vectors of their own, so that a product needs no shuffle, and a
//! multiplication by i is none at all.

use crate::cpu::vectors::Vector;
use crate::simd::LANES;
use std::ops::{Add, Sub};

/// Eight complex numbers in memory: their real parts, then their imaginary ones.
pub type Stored = [[f64; LANES]; 2];

/// Zeros.
pub const ZERO: Stored = [[0.0; LANES]; 2];

/// Eight complex numbers to compute with.
#[derive(Clone, Copy, Debug)]
pub struct Complex8<V> {
    re: V,
    im: V,
}

impl<V: Vector> Complex8<V> {
    /// From memory.
    #[inline(always)]
    #[must_use]
    pub fn load(from: &Stored) -> Self {
        Self {
            re: V::load(&from[0]),
            im: V::load(&from[1]),
        }
    }

    /// To memory.
    #[inline(always)]
    pub fn store(self, to: &mut Stored) {
        self.re.store(&mut to[0]);
        self.im.store(&mut to[1]);
    }

    /// To memory that is not read for long.
    #[inline(always)]
    pub fn stream(self, to: &mut Stored) {
        self.re.stream(&mut to[0]);
        self.im.stream(&mut to[1]);
    }

    /// Real and imaginary parts exchanged. The inverse transform is the transform of what is so exchanged,
    /// exchanged again.
    #[inline(always)]
    #[must_use]
    pub fn exchanged(self) -> Self {
        Self {
            re: self.im,
            im: self.re,
        }
    }

    /// The product with a real number for each lane.
    #[inline(always)]
    #[must_use]
    pub fn scale(self, by: V) -> Self {
        Self {
            re: self.re * by,
            im: self.im * by,
        }
    }

    /// The product with one complex number for all lanes.
    #[inline(always)]
    #[must_use]
    pub fn turn(self, [re, im]: [f64; 2]) -> Self {
        let (re, im) = (V::splat(re), V::splat(im));
        Self {
            re: self.im.neg_mul_add(im, self.re * re),
            im: self.re.mul_add(im, self.im * re),
        }
    }

    /// self - i other.
    #[inline(always)]
    fn minus_i_times(self, other: Self) -> Self {
        Self {
            re: self.re + other.im,
            im: self.im - other.re,
        }
    }

    /// self + i other.
    #[inline(always)]
    fn plus_i_times(self, other: Self) -> Self {
        Self {
            re: self.re - other.im,
            im: self.im + other.re,
        }
    }
}

impl<V: Vector> Add for Complex8<V> {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }
}

impl<V: Vector> Sub for Complex8<V> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self {
            re: self.re - other.re,
            im: self.im - other.im,
        }
    }
}

/// The transform of `R` numbers, 2, 4 or 8: sum over k of x_k e^(-2 pi i j k / R) for each j.
#[inline(always)]
#[must_use]
pub fn transform<V: Vector, const R: usize>(mut x: [Complex8<V>; R]) -> [Complex8<V>; R] {
    match R {
        2 => [x[0], x[1]] = [x[0] + x[1], x[0] - x[1]],
        4 => [x[0], x[1], x[2], x[3]] = four([x[0], x[1], x[2], x[3]]),
        8 => {
            let sums = [x[0] + x[4], x[1] + x[5], x[2] + x[6], x[3] + x[7]];
            let [b0, b1, b2, b3] = [x[0] - x[4], x[1] - x[5], x[2] - x[6], x[3] - x[7]];
            [x[0], x[2], x[4], x[6]] = four(sums);
            // The others are multiplied by e^(-i pi k / 4) first: (1 - i) / sqrt 2, -i, (-1 - i) / sqrt 2.
            let half = V::splat(std::f64::consts::FRAC_1_SQRT_2);
            let b1 = Complex8 {
                re: b1.re + b1.im,
                im: b1.im - b1.re,
            };
            let minus_b3 = Complex8 {
                re: b3.re - b3.im,
                im: b3.re + b3.im,
            };
            let [sum, difference] = [b1 - minus_b3, b1 + minus_b3];
            let [even, odd] = [b0.minus_i_times(b2), b0.plus_i_times(b2)];
            let (sum, difference) = (sum.scale(half), difference.scale(half));
            [x[1], x[5]] = [even + sum, even - sum];
            [x[3], x[7]] = [odd.minus_i_times(difference), odd.plus_i_times(difference)];
        }
        _ => unreachable!("a radix that no plan has"),
    }
    x
}

#[inline(always)]
fn four<V: Vector>(x: [Complex8<V>; 4]) -> [Complex8<V>; 4] {
    let [a0, b0] = [x[0] + x[2], x[0] - x[2]];
    let [a1, b1] = [x[1] + x[3], x[1] - x[3]];
    [a0 + a1, b0.minus_i_times(b1), a0 - a1, b0.plus_i_times(b1)]
}

/// Loads eight vectors of eight lanes as eight lanes of eight vectors.
///
/// # Panics
/// If there are fewer.
#[inline(always)]
#[must_use]
pub fn load_turned<V: Vector>(from: &[Stored]) -> [Complex8<V>; LANES] {
    let mut x = [Complex8::load(&from[0]); LANES];
    for (x, from) in x.iter_mut().zip(&from[..LANES]) {
        *x = Complex8::load(from);
    }
    turned(x)
}

/// Stores eight vectors of eight lanes as eight lanes of eight vectors.
///
/// # Panics
/// If there is no room.
#[inline(always)]
pub fn store_turned<V: Vector>(x: [Complex8<V>; LANES], to: &mut [Stored]) {
    for (x, to) in turned(x).into_iter().zip(&mut to[..LANES]) {
        x.store(to);
    }
}

#[inline(always)]
fn turned<V: Vector>(mut x: [Complex8<V>; LANES]) -> [Complex8<V>; LANES] {
    let [a, b, c, d, e, f, g, h] = x;
    let re = V::transpose([a.re, b.re, c.re, d.re, e.re, f.re, g.re, h.re]);
    let im = V::transpose([a.im, b.im, c.im, d.im, e.im, f.im, g.im, h.im]);
    for (x, (re, im)) in x.iter_mut().zip(re.into_iter().zip(im)) {
        *x = Complex8 { re, im };
    }
    x
}

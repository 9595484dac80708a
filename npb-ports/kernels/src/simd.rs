//! Eight numbers side by side: the unit in which solvers work on many independent lines at once.
//!
//! A recurrence along a line can't be made vector code, but the same recurrence along eight lines
//! can: one lane a line. The type is an array with arithmetic; inside a [`Kernel`](crate::cpu::Kernel)
//! the compiler makes one instruction of each operation with AVX-512, two with AVX2.

use crate::cpu::mul_add;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};

/// Lanes of an [`F64x8`].
pub const LANES: usize = 8;

/// Eight `f64`. All arithmetic is by lane.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[repr(align(64))]
pub struct F64x8(pub [f64; LANES]);

impl F64x8 {
    /// The same number in all lanes.
    #[inline(always)]
    #[must_use]
    pub const fn splat(x: f64) -> Self {
        Self([x; LANES])
    }

    /// The first eight numbers of `from`.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    #[must_use]
    pub fn load(from: &[f64]) -> Self {
        let mut lanes = [0.0; LANES];
        lanes.copy_from_slice(&from[..LANES]);
        Self(lanes)
    }

    /// Writes the lanes to the first eight numbers of `to`.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub fn store(self, to: &mut [f64]) {
        to[..LANES].copy_from_slice(&self.0);
    }

    /// self * b + c, in one rounding if `FMA` is set (see [`mul_add`]).
    #[inline(always)]
    #[must_use]
    pub fn mul_add<const FMA: bool>(self, b: Self, c: Self) -> Self {
        let mut out = self;
        for ((out, b), c) in out.0.iter_mut().zip(b.0).zip(c.0) {
            *out = mul_add::<FMA>(*out, b, c);
        }
        out
    }

    /// c - self * b, in one rounding if `FMA` is set.
    #[inline(always)]
    #[must_use]
    pub fn neg_mul_add<const FMA: bool>(self, b: Self, c: Self) -> Self {
        (-self).mul_add::<FMA>(b, c)
    }

    /// The square roots.
    #[inline(always)]
    #[must_use]
    pub fn sqrt(self) -> Self {
        self.each(f64::sqrt)
    }

    /// 1 / self.
    #[inline(always)]
    #[must_use]
    pub fn recip(self) -> Self {
        self.each(|x| 1.0 / x)
    }

    #[inline(always)]
    fn each(mut self, f: impl Fn(f64) -> f64) -> Self {
        for x in &mut self.0 {
            *x = f(*x);
        }
        self
    }

    #[inline(always)]
    fn with(mut self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        for (x, y) in self.0.iter_mut().zip(other.0) {
            *x = f(*x, y);
        }
        self
    }
}

macro_rules! by_lane {
    ($($trait:ident $method:ident $op:tt;)*) => {$(
        impl $trait for F64x8 {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.with(other, |x, y| x $op y)
            }
        }
        impl $trait<f64> for F64x8 {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: f64) -> Self {
                self.each(|x| x $op other)
            }
        }
    )*};
}

by_lane! {
    Add add +;
    Sub sub -;
    Mul mul *;
    Div div /;
}

impl Neg for F64x8 {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.each(|x| -x)
    }
}

impl AddAssign for F64x8 {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for F64x8 {
    #[inline(always)]
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: F64x8 = F64x8([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);

    #[test]
    fn arithmetic_is_by_lane() {
        let b = F64x8::splat(2.0);
        assert_eq!((A + b).0[7], 10.0);
        assert_eq!((A - b).0[0], -1.0);
        assert_eq!((A * b).0[2], 6.0);
        assert_eq!((A / b).0[1], 1.0);
        assert_eq!((-A).0[3], -4.0);
        assert_eq!((A * A).sqrt(), A);
        assert_eq!(b.recip(), F64x8::splat(0.5));
        assert_eq!(A.mul_add::<true>(b, A).0[1], 6.0);
        assert_eq!(A.neg_mul_add::<false>(b, A).0[1], -2.0);
    }

    #[test]
    fn load_and_store_take_the_first_eight() {
        let from: Vec<f64> = (1..10).map(f64::from).collect();
        assert_eq!(F64x8::load(&from), A);
        let mut to = [0.0; 9];
        A.store(&mut to);
        assert_eq!((to[7], to[8]), (8.0, 0.0));
    }
}

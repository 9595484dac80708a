//! What reductions do with elements, for all types of C.

use crate::long_double;
use crate::types::{ComplexD, ComplexF, LongDouble};

/// An operation on elements of type `T`.
pub(crate) trait Op<T> {
    fn apply(a: T, b: T) -> T;
}

/// Bitwise and.
pub(crate) struct And;
/// Bitwise or.
pub(crate) struct Or;
/// Bitwise exclusive or.
pub(crate) struct Xor;
/// The larger one; a NaN loses against a number.
pub(crate) struct Max;
/// The smaller one; a NaN loses against a number.
pub(crate) struct Min;
/// The sum; integers wrap.
pub(crate) struct Sum;
/// The product; integers wrap.
pub(crate) struct Prod;

/// Combines `n` elements: `into[i] = into[i] op from[i]`, as `shmem::raw` wants it.
///
/// # Safety
/// As [`shmem::raw::Combine`] says.
pub(crate) unsafe fn combine<T: Copy, O: Op<T>>(into: *mut u8, from: *const u8, n: usize) {
    // SAFETY: by the caller; any bytes are values.
    let (into, from) = unsafe {
        (
            std::slice::from_raw_parts_mut(into.cast::<T>(), n),
            std::slice::from_raw_parts(from.cast::<T>(), n),
        )
    };
    for (into, from) in into.iter_mut().zip(from) {
        *into = O::apply(*into, *from);
    }
}

macro_rules! ops {
    ($($op:ident: $($t:ty)*, |$a:ident, $b:ident| $value:expr;)*) => { $($(
        impl Op<$t> for $op {
            #[inline]
            fn apply($a: $t, $b: $t) -> $t {
                $value
            }
        }
    )*)* };
}

ops! {
    And: u8 u16 u32 u64 usize i8 i16 i32 i64 isize, |a, b| a & b;
    Or: u8 u16 u32 u64 usize i8 i16 i32 i64 isize, |a, b| a | b;
    Xor: u8 u16 u32 u64 usize i8 i16 i32 i64 isize, |a, b| a ^ b;
    Max: u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64, |a, b| a.max(b);
    Min: u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64, |a, b| a.min(b);
    Sum: u8 u16 u32 u64 usize i8 i16 i32 i64 isize, |a, b| a.wrapping_add(b);
    Prod: u8 u16 u32 u64 usize i8 i16 i32 i64 isize, |a, b| a.wrapping_mul(b);
    Sum: f32 f64, |a, b| a + b;
    Prod: f32 f64, |a, b| a * b;
    Max: LongDouble, |a, b| long_double::max(a, b);
    Min: LongDouble, |a, b| long_double::min(a, b);
    Sum: LongDouble, |a, b| long_double::add(a, b);
    Prod: LongDouble, |a, b| long_double::mul(a, b);
}

macro_rules! complex {
    ($($t:ident)*) => { $(
        impl Op<$t> for Sum {
            #[inline]
            fn apply($t([a, b]): $t, $t([c, d]): $t) -> $t {
                $t([a + c, b + d])
            }
        }
        impl Op<$t> for Prod {
            #[inline]
            fn apply($t([a, b]): $t, $t([c, d]): $t) -> $t {
                $t([a * c - b * d, a * d + b * c])
            }
        }
    )* };
}
complex! { ComplexF ComplexD }

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T: Copy + PartialEq + std::fmt::Debug, O: Op<T>, const N: usize>(
        mut into: [T; N],
        from: [T; N],
        want: [T; N],
    ) {
        // SAFETY: arrays of N elements of the type.
        unsafe { combine::<T, O>(into.as_mut_ptr().cast(), from.as_ptr().cast(), N) };
        assert_eq!(into, want);
    }

    #[test]
    fn elements_are_combined_one_by_one() {
        run::<i32, Sum, 2>([1, i32::MAX], [2, 1], [3, i32::MIN]);
        run::<u8, Prod, 2>([3, 16], [4, 16], [12, 0]);
        run::<i8, Min, 2>([-1, 5], [1, 4], [-1, 4]);
        run::<u16, Max, 2>([1, 60000], [2, 1], [2, 60000]);
        run::<f64, Max, 2>([f64::NAN, 1.0], [2.0, f64::NAN], [2.0, 1.0]);
        run::<u64, Xor, 1>([6], [3], [5]);
        run::<i64, And, 1>([6], [3], [2]);
        run::<usize, Or, 1>([6], [3], [7]);
    }

    #[test]
    fn complex_numbers_multiply_as_such() {
        let (a, b) = (ComplexD([1.0, 2.0]), ComplexD([3.0, -1.0]));
        run::<_, Prod, 1>([a], [b], [ComplexD([5.0, 5.0])]);
        run::<_, Sum, 1>([a], [b], [ComplexD([4.0, 1.0])]);
        let (a, b) = (ComplexF([0.0, 1.0]), ComplexF([0.0, 1.0]));
        run::<_, Prod, 1>([a], [b], [ComplexF([-1.0, 0.0])]);
    }
}

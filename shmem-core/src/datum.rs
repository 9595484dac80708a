//! Which Rust types may lie in symmetric memory, and what can be done with them there.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A type whose values are plain bytes: it can be copied between PEs, and any bytes are a value.
///
/// Numbers and arrays of them are. A struct is by [the macro of the same name](derive@crate::Datum), which needs no `unsafe`.
///
/// # Safety
/// The type has no padding, no pointers, no invalid bit patterns, and an alignment of at most 64.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in symmetric memory: it is no `Datum`",
    label = "not a `Datum`",
    note = "other PEs write any bytes there, so all bytes must be values of it: numbers, and arrays and structs of them",
    note = "for a struct: `#[derive(Clone, Copy, Debug, shmem::Datum)]` and `#[repr(C)]`",
    note = "for a `bool`, `u8` with 0 and 1; for an enum, its number; for text, `u8`s; references and `Vec`s mean nothing to other PEs",
    note = "collectives of a slice or a `Vec` are others: `broadcast_slice`, `gather_parts`, `scatter_parts`, `alltoallv`"
)]
pub unsafe trait Datum: Copy + Send + Sync + Debug + 'static {}

macro_rules! datum {
    ($($t:ty)*) => { $(
        // SAFETY: a primitive number: every bit pattern is a value and there is no padding.
        unsafe impl Datum for $t {}
    )* };
}
datum!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: elements follow each other without padding, and each is a `Datum`.
unsafe impl<T: Datum, const N: usize> Datum for [T; N] {}

/// A number that reductions and scans can add and multiply. A struct of numbers is one by
/// [the macro of the same name](derive@crate::Arithmetic).
#[diagnostic::on_unimplemented(
    message = "a reduction cannot add or multiply values of type `{Self}`",
    label = "not `Arithmetic`",
    note = "it can add numbers, `Complex`, arrays of them, and structs with `#[derive(shmem::Arithmetic)]`",
    note = "for a slice or a `Vec` there are `sum_slice(&mut values)`, `prod_slice` and `reduce_slice`"
)]
pub trait Arithmetic: Datum {
    /// Sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// Product; integers wrap.
    fn times(self, other: Self) -> Self;
}

/// A number that reductions can compare, too.
#[diagnostic::on_unimplemented(
    message = "a reduction cannot compare values of type `{Self}`",
    label = "not a `Number`",
    note = "it can compare integers and floating-point numbers",
    note = "for a slice or a `Vec` there are `min_slice(&mut values)` and `max_slice`; for other types, `reduce_value` with a closure"
)]
pub trait Number: Arithmetic + PartialOrd {
    /// The smaller one. A NaN loses against a number.
    fn smaller(self, other: Self) -> Self;
    /// The larger one. A NaN loses against a number.
    fn larger(self, other: Self) -> Self;
}

/// An integer, for bitwise reductions.
pub trait Bits: Number {
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => { $(
        impl Arithmetic for $t {
            #[inline] fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline] fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
        }
        impl Number for $t {
            #[inline] fn smaller(self, other: Self) -> Self { self.min(other) }
            #[inline] fn larger(self, other: Self) -> Self { self.max(other) }
        }
        impl Bits for $t {
            #[inline] fn and(self, other: Self) -> Self { self & other }
            #[inline] fn or(self, other: Self) -> Self { self | other }
            #[inline] fn xor(self, other: Self) -> Self { self ^ other }
        }
    )* };
}
integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

/// Element by element.
impl<T: Arithmetic, const N: usize> Arithmetic for [T; N] {
    #[inline]
    fn plus(self, other: Self) -> Self {
        std::array::from_fn(|i| self[i].plus(other[i]))
    }
    #[inline]
    fn times(self, other: Self) -> Self {
        std::array::from_fn(|i| self[i].times(other[i]))
    }
}

macro_rules! floats {
    ($($t:ty)*) => { $(
        impl Arithmetic for $t {
            #[inline] fn plus(self, other: Self) -> Self { self + other }
            #[inline] fn times(self, other: Self) -> Self { self * other }
        }
        impl Number for $t {
            #[inline] fn smaller(self, other: Self) -> Self { self.min(other) }
            #[inline] fn larger(self, other: Self) -> Self { self.max(other) }
        }
    )* };
}
floats!(f32 f64);

/// A complex number, laid out as C's `float _Complex` and `double _Complex` are.
///
/// ```
/// use shmem::{Arithmetic, Complex};
///
/// let i = Complex { re: 0.0, im: 1.0 };
/// assert_eq!(i.times(i), Complex { re: -1.0, im: 0.0 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    /// The real part.
    pub re: T,
    /// The imaginary part.
    pub im: T,
}

macro_rules! complex {
    ($($t:ty)*) => { $(
        // SAFETY: two numbers without padding between or after them.
        unsafe impl Datum for Complex<$t> {}
        impl Arithmetic for Complex<$t> {
            #[inline]
            fn plus(self, other: Self) -> Self {
                Self { re: self.re + other.re, im: self.im + other.im }
            }
            #[inline]
            fn times(self, other: Self) -> Self {
                Self {
                    re: self.re * other.re - self.im * other.im,
                    im: self.re * other.im + self.im * other.re,
                }
            }
        }
    )* };
}
complex!(f32 f64);

mod sealed {
    /// The hardware word behind an atomic type.
    pub trait Word {
        /// 4 or 8.
        const BYTES: usize;
    }
}

/// A type that atomic memory operations work on: 32 or 64 bits (OpenSHMEM 1.6, standard and
/// extended AMO types).
pub trait Atomic: Datum + PartialEq + sealed::Word {
    /// The bits, in the low bytes.
    fn to_bits(self) -> u64;
    /// The value with these bits.
    fn from_bits(bits: u64) -> Self;
}

/// An integer that atomics can add to and combine bitwise (standard and bitwise AMO types).
#[diagnostic::on_unimplemented(
    message = "atomics cannot add to a `{Self}`, nor combine or compare it",
    label = "not an integer of 32 or 64 bits",
    note = "those of OpenSHMEM take `u32`, `i32`, `u64`, `i64`, `usize` and `isize`; a floating-point number can be set, swapped and fetched",
    note = "several PEs add floating-point numbers by `sum`, or one after the other under a `Mutex`"
)]
pub trait AtomicInt: Atomic + Bits {}

macro_rules! atomics {
    ($bytes:literal, $word:ty; $($t:ty)*) => { $(
        impl sealed::Word for $t { const BYTES: usize = $bytes; }
        impl Atomic for $t {
            #[inline] fn to_bits(self) -> u64 { u64::from(self as $word) }
            #[inline] fn from_bits(bits: u64) -> Self { bits as $word as Self }
        }
        impl AtomicInt for $t {}
    )* };
}
atomics!(4, u32; u32 i32);
atomics!(8, u64; u64 i64 usize isize);

impl sealed::Word for f32 {
    const BYTES: usize = 4;
}
impl Atomic for f32 {
    fn to_bits(self) -> u64 {
        u64::from(self.to_bits())
    }
    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits as u32)
    }
}
impl sealed::Word for f64 {
    const BYTES: usize = 8;
}
impl Atomic for f64 {
    fn to_bits(self) -> u64 {
        self.to_bits()
    }
    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }
}

const _: () = assert!(size_of::<AtomicU32>() == 4 && size_of::<AtomicU64>() == 8);
const _: () = assert!(usize::BITS == 64, "shmem needs a 64-bit machine");

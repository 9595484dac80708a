//! The 128-bit number of IEEE 754, which is `long double` on AArch64. Processors do not calculate with it: the
//! routines that C compilers call for it do. They take and give it in vector registers.
//!
//! x86-64 has the routines too, for `__float128`, and passes it alike, so the tests of this are for both.

use std::arch::asm;
use std::cmp::Ordering;

use super::LongDouble;

#[cfg(target_arch = "aarch64")]
type Register = std::arch::aarch64::uint8x16_t;
#[cfg(target_arch = "x86_64")]
type Register = std::arch::x86_64::__m128i;

impl LongDouble {
    const fn into_register(self) -> Register {
        // SAFETY: both are 16 bytes of which any are valid.
        unsafe { std::mem::transmute(self) }
    }

    const fn from_register(register: Register) -> Self {
        // SAFETY: as above.
        unsafe { std::mem::transmute(register) }
    }
}

/// Of the compiler's support library: libgcc's, compiler-rt's, or that of Rust. Not declared as they are, for want of
/// the type.
mod library {
    unsafe extern "C" {
        pub(super) fn __addtf3();
        pub(super) fn __multf3();
        pub(super) fn __letf2();
        pub(super) fn __unordtf2();
        #[cfg(test)]
        pub(super) fn __extenddftf2();
        #[cfg(test)]
        pub(super) fn __trunctfdf2();
    }
}

/// Defines an operation on two numbers.
macro_rules! operation {
    ($($name:ident $routine:ident;)*) => { $(
        pub(super) fn $name(a: LongDouble, b: LongDouble) -> LongDouble {
            let (mut result, b) = (a.into_register(), b.into_register());
            // SAFETY: a call as the C calling convention has it, of a function without other effects.
            unsafe {
                #[cfg(target_arch = "aarch64")]
                asm!("bl {f}", f = sym library::$routine,
                    inout("v0") result, in("v1") b, clobber_abi("C"));
                #[cfg(target_arch = "x86_64")]
                asm!("call {f}", f = sym library::$routine,
                    inout("xmm0") result, in("xmm1") b, clobber_abi("C"));
            }
            LongDouble::from_register(result)
        }
    )* };
}
operation! {
    add __addtf3;
    mul __multf3;
}

/// Defines a comparison of two numbers, which gives an `int`.
macro_rules! comparison {
    ($($name:ident $routine:ident;)*) => { $(
        fn $name(a: LongDouble, b: LongDouble) -> i32 {
            let (a, b) = (a.into_register(), b.into_register());
            let result;
            // SAFETY: as for the operations.
            unsafe {
                #[cfg(target_arch = "aarch64")]
                asm!("bl {f}", f = sym library::$routine,
                    in("v0") a, in("v1") b, lateout("x0") result, clobber_abi("C"));
                #[cfg(target_arch = "x86_64")]
                asm!("call {f}", f = sym library::$routine,
                    in("xmm0") a, in("xmm1") b, lateout("eax") result, clobber_abi("C"));
            }
            result
        }
    )* };
}
comparison! {
    sign __letf2;
    unordered __unordtf2;
}

/// `None` if either is a NaN.
pub(super) fn compare(a: LongDouble, b: LongDouble) -> Option<Ordering> {
    (unordered(a, b) == 0).then(|| sign(a, b).cmp(&0))
}

/// Doubles to such numbers and back.
#[cfg(test)]
pub(super) mod convert {
    use super::*;

    pub(crate) fn long(value: f64) -> LongDouble {
        let long: Register;
        // SAFETY: as for the operations.
        unsafe {
            #[cfg(target_arch = "aarch64")]
            asm!("bl {f}", f = sym library::__extenddftf2,
                in("v0") value, lateout("v0") long, clobber_abi("C"));
            #[cfg(target_arch = "x86_64")]
            asm!("call {f}", f = sym library::__extenddftf2,
                in("xmm0") value, lateout("xmm0") long, clobber_abi("C"));
        }
        LongDouble::from_register(long)
    }

    pub(crate) fn short(long: LongDouble) -> f64 {
        let value: f64;
        // SAFETY: as for the operations.
        unsafe {
            #[cfg(target_arch = "aarch64")]
            asm!("bl {f}", f = sym library::__trunctfdf2,
                in("v0") long.into_register(), lateout("v0") value, clobber_abi("C"));
            #[cfg(target_arch = "x86_64")]
            asm!("call {f}", f = sym library::__trunctfdf2,
                in("xmm0") long.into_register(), lateout("xmm0") value, clobber_abi("C"));
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::convert::{long, short};
    use super::*;

    #[test]
    fn numbers_lie_in_memory_as_ieee_has_them() {
        // Little-endian: 112 bits of fraction, 15 of exponent, the sign.
        assert_eq!(u128::from_le_bytes(long(-1.5).0), 0xbfff_8000 << 96);
    }

    #[test]
    fn sums_have_113_bits() {
        let big = (1u128 << 112) as f64;
        let sum = add(long(big), long(1.0));
        assert_eq!(short(add(sum, long(-big))), 1.0);
        let more = add(long(2.0 * big), long(1.0));
        assert_eq!(short(add(more, long(-2.0 * big))), 0.0);
    }
}

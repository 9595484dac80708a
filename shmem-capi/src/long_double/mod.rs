//! `long double`, which Rust has no type for: its arithmetic, and the four routines (with twins) that
//! pass it by value.
//!
//! On x86-64 it is the number of the x87 unit; arguments travel in memory and results in `st(0)`. On AArch64 it
//! is that of IEEE 754 with 128 bits; arguments and results travel in `q0`. Elsewhere the routines that pass it by
//! value are missing, and reductions end the job with a message.

#[cfg(any(target_arch = "aarch64", all(test, target_arch = "x86_64")))]
mod binary128;
#[cfg(target_arch = "x86_64")]
mod x87;

use std::cmp::Ordering;
use std::ffi::c_int;

use shmem::{Arithmetic, Datum, Number};

use crate::handles::Ctx;
use crate::rma;

#[cfg(target_arch = "aarch64")]
use binary128::{add, compare, mul};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use unknown::{add, compare, mul};
#[cfg(target_arch = "x86_64")]
use x87::{add, compare, mul};

/// `long double`, of which Rust knows the size only.
#[derive(Clone, Copy, Debug, Datum)]
#[repr(C, align(16))]
pub(crate) struct LongDouble([u8; 16]);

impl Arithmetic for LongDouble {
    fn plus(self, other: Self) -> Self {
        add(self, other)
    }
    fn times(self, other: Self) -> Self {
        mul(self, other)
    }
}

impl PartialEq for LongDouble {
    fn eq(&self, other: &Self) -> bool {
        compare(*self, *other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        compare(*self, *other)
    }
}

impl Number for LongDouble {
    fn smaller(self, other: Self) -> Self {
        choose(self, other, Ordering::Less, compare)
    }
    fn larger(self, other: Self) -> Self {
        choose(self, other, Ordering::Greater, compare)
    }
}

/// The second one, unless the first one compares so with it, or the second one is no number.
fn choose(
    a: LongDouble,
    b: LongDouble,
    better: Ordering,
    compare: fn(LongDouble, LongDouble) -> Option<Ordering>,
) -> LongDouble {
    if compare(a, b) == Some(better) || compare(b, b).is_none() {
        a
    } else {
        b
    }
}

/// What the routines that take a value by value call: it is in memory.
///
/// # Safety
/// As for the routine; `value` is readable.
unsafe extern "C" fn put_one(dest: *mut LongDouble, pe: c_int, value: *const LongDouble) {
    // SAFETY: by the caller.
    unsafe { rma::put("shmem_longdouble_p", Ctx::DEFAULT, dest, value, 1, pe) };
}

/// As [`put_one`].
///
/// # Safety
/// As for [`put_one`].
unsafe extern "C" fn ctx_put_one(
    ctx: Ctx,
    dest: *mut LongDouble,
    pe: c_int,
    value: *const LongDouble,
) {
    // SAFETY: by the caller.
    unsafe { rma::put("shmem_ctx_longdouble_p", ctx, dest, value, 1, pe) };
}

/// What the routines that return a value call: it is given in memory.
///
/// # Safety
/// As for the routine; `value` is writable.
unsafe extern "C" fn get_one(source: *const LongDouble, pe: c_int, value: *mut LongDouble) {
    // SAFETY: by the caller.
    unsafe { rma::get("shmem_longdouble_g", Ctx::DEFAULT, value, source, 1, pe) };
}

/// As [`get_one`].
///
/// # Safety
/// As for [`get_one`].
unsafe extern "C" fn ctx_get_one(
    ctx: Ctx,
    source: *const LongDouble,
    pe: c_int,
    value: *mut LongDouble,
) {
    // SAFETY: by the caller.
    unsafe { rma::get("shmem_ctx_longdouble_g", ctx, value, source, 1, pe) };
}

/// Defines a function and its twin that pass a `long double`, by the instructions that move it
/// between memory and where C expects it.
macro_rules! by_value {
    ($($name:ident $twin:ident => $target:ident: $($line:literal),*;)*) => { $(
        by_value!(@ $name $target $($line),*);
        by_value!(@ $twin $target $($line),*);
    )* };
    (@ $name:ident $target:ident $($line:literal),*) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!($($line,)* target = sym $target)
        }
    };
}

// The argument lies above the return address; the registers are as the target takes them, which
// returns in place of this function.
#[cfg(target_arch = "x86_64")]
by_value! {
    shmem_longdouble_p pshmem_longdouble_p => put_one:
        "lea rdx, [rsp + 8]", "jmp {target}";
    shmem_ctx_longdouble_p pshmem_ctx_longdouble_p => ctx_put_one:
        "lea rcx, [rsp + 8]", "jmp {target}";
    shmem_longdouble_g pshmem_longdouble_g => get_one:
        "sub rsp, 24", "mov rdx, rsp", "call {target}", "fld tbyte ptr [rsp]", "add rsp, 24", "ret";
    shmem_ctx_longdouble_g pshmem_ctx_longdouble_g => ctx_get_one:
        "sub rsp, 24", "mov rcx, rsp", "call {target}", "fld tbyte ptr [rsp]", "add rsp, 24", "ret";
}

#[cfg(target_arch = "aarch64")]
by_value! {
    shmem_longdouble_p pshmem_longdouble_p => put_one:
        "stp x29, x30, [sp, #-32]!", "str q0, [sp, #16]", "add x2, sp, #16", "bl {target}",
        "ldp x29, x30, [sp], #32", "ret";
    shmem_ctx_longdouble_p pshmem_ctx_longdouble_p => ctx_put_one:
        "stp x29, x30, [sp, #-32]!", "str q0, [sp, #16]", "add x3, sp, #16", "bl {target}",
        "ldp x29, x30, [sp], #32", "ret";
    shmem_longdouble_g pshmem_longdouble_g => get_one:
        "stp x29, x30, [sp, #-32]!", "add x2, sp, #16", "bl {target}", "ldr q0, [sp, #16]",
        "ldp x29, x30, [sp], #32", "ret";
    shmem_ctx_longdouble_g pshmem_ctx_longdouble_g => ctx_get_one:
        "stp x29, x30, [sp, #-32]!", "add x3, sp, #16", "bl {target}", "ldr q0, [sp, #16]",
        "ldp x29, x30, [sp], #32", "ret";
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod unknown {
    use std::cmp::Ordering;

    use super::LongDouble;
    use crate::check;

    fn unsupported() -> ! {
        check::refuse(
            "long double",
            format_args!("reductions and scans of this type are for x86-64 and AArch64"),
        )
    }

    pub(super) fn add(_: LongDouble, _: LongDouble) -> LongDouble {
        unsupported()
    }

    pub(super) fn mul(_: LongDouble, _: LongDouble) -> LongDouble {
        unsupported()
    }

    pub(super) fn compare(_: LongDouble, _: LongDouble) -> Option<Ordering> {
        unsupported()
    }
}

/// That C's values come through the exported functions is tested by `tests/c/rma.c`.
#[cfg(test)]
mod tests {
    use super::*;

    /// The tests of a format.
    macro_rules! tests_of {
        ($($format:ident)*) => { $(
            mod $format {
                use super::super::$format::convert::{long, short};
                use super::super::$format::{add, compare, mul};
                use super::super::{LongDouble, choose};
                use std::cmp::Ordering::{self, Equal, Greater, Less};

                #[test]
                fn numbers_are_added_multiplied_and_compared() {
                    let run = |f: fn(LongDouble, LongDouble) -> LongDouble, a, b| short(f(long(a), long(b)));
                    let of = |better: Ordering, a, b| short(choose(long(a), long(b), better, compare));
                    assert_eq!(run(add, 1.5, 2.25), 3.75);
                    assert_eq!(run(mul, -1.5, 2.0), -3.0);
                    assert_eq!(of(Greater, -1.5, 2.0), 2.0);
                    assert_eq!(of(Greater, 2.0, -1.5), 2.0);
                    assert_eq!(of(Less, -1.5, 2.0), -1.5);
                    assert_eq!(of(Less, 3.0, 3.0), 3.0);
                    assert_eq!(of(Greater, f64::NAN, 2.0), 2.0);
                    assert_eq!(of(Less, 2.0, f64::NAN), 2.0);
                    assert!(of(Greater, f64::NAN, f64::NAN).is_nan());
                    let compare = |a, b| compare(long(a), long(b));
                    assert_eq!(compare(1.0, 1.0), Some(Equal));
                    assert_eq!(compare(0.0, -0.0), Some(Equal));
                    assert_eq!(compare(1.0, 1.5), Some(Less));
                    assert_eq!(compare(2.0, -1.5), Some(Greater));
                    assert_eq!(compare(1.0, f64::INFINITY), Some(Less));
                    assert_eq!(compare(1.0, f64::NAN), None);
                    assert_eq!(compare(f64::NAN, 1.0), None);
                }

                #[test]
                fn more_digits_are_kept_than_doubles_have() {
                    // 2^60 + 1 has 61 significant bits: in doubles the 1 is lost.
                    let big = (1u64 << 60) as f64;
                    let sum = add(long(big), long(1.0));
                    assert_eq!(short(add(sum, long(-big))), 1.0);
                }
            }
        )* };
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    tests_of!(binary128);
    #[cfg(target_arch = "x86_64")]
    tests_of!(x87);

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn operators_are_those_of_the_target() {
        #[cfg(target_arch = "aarch64")]
        use super::binary128::convert::{long, short};
        #[cfg(target_arch = "x86_64")]
        use super::x87::convert::{long, short};
        let (a, b) = (long(1.5), long(-2.0));
        assert_eq!((short(a.plus(b)), short(a.times(b))), (-0.5, -3.0));
        assert_eq!((short(a.smaller(b)), short(a.larger(b))), (-2.0, 1.5));
        assert!(a == a && a != b && b < a);
    }
}

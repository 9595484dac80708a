//! `long double`, which Rust has no type for: its arithmetic, and the four routines (with twins) that
//! pass it by value.
//!
//! On x86-64 it is the 80-bit number of the x87 unit in 16 bytes; arguments travel in memory and
//! results in `st(0)`. On AArch64 it is a 128-bit number that processors do not calculate with;
//! arguments and results travel in `q0`, and the reductions end the job with a message.

use std::cmp::Ordering;
use std::ffi::c_int;

use shmem::{Arithmetic, Datum, Number};

use crate::handles::Ctx;
use crate::rma;
use arithmetic::{add, compare, mul};

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
        self.unless(other, Ordering::Less)
    }
    fn larger(self, other: Self) -> Self {
        self.unless(other, Ordering::Greater)
    }
}

impl LongDouble {
    /// The other one, unless this one compares so with it, or the other one is no number.
    fn unless(self, other: Self, better: Ordering) -> Self {
        if compare(self, other) == Some(better) || compare(other, other).is_none() {
            self
        } else {
            other
        }
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

#[cfg(target_arch = "x86_64")]
mod arithmetic {
    use std::arch::asm;
    use std::cmp::Ordering;

    use super::LongDouble;

    /// Defines an operation of the x87 unit on two numbers.
    macro_rules! operation {
        ($($name:ident $instruction:literal;)*) => { $(
            pub(super) fn $name(a: LongDouble, b: LongDouble) -> LongDouble {
                let mut result = a;
                // SAFETY: the operands are in memory of their size; the unit's stack is as deep after
                // as before. What lies beyond ten bytes stays.
                unsafe {
                    asm!(
                        "fld tbyte ptr [{a}]",
                        "fld tbyte ptr [{b}]",
                        $instruction,
                        "fstp tbyte ptr [{a}]",
                        a = in(reg) &raw mut result,
                        b = in(reg) &raw const b,
                        out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                        out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                        options(nostack),
                    );
                }
                result
            }
        )* };
    }
    operation! {
        add "faddp st(1), st";
        mul "fmulp st(1), st";
    }

    /// `None` if either is a NaN.
    pub(super) fn compare(a: LongDouble, b: LongDouble) -> Option<Ordering> {
        let (greater, equal, unordered): (u8, u8, u8);
        // SAFETY: as for the operations.
        unsafe {
            asm!(
                "fld tbyte ptr [{b}]",
                "fld tbyte ptr [{a}]",
                "fucomip st, st(1)",
                "seta {greater}",
                "sete {equal}",
                "setp {unordered}",
                "fstp st(0)",
                a = in(reg) &raw const a,
                b = in(reg) &raw const b,
                greater = out(reg_byte) greater,
                equal = out(reg_byte) equal,
                unordered = out(reg_byte) unordered,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack, readonly),
            );
        }
        match (unordered, greater, equal) {
            (1, ..) => None,
            (_, 1, _) => Some(Ordering::Greater),
            (.., 1) => Some(Ordering::Equal),
            _ => Some(Ordering::Less),
        }
    }

    #[cfg(test)]
    mod tests {
        use shmem::{Arithmetic, Number};

        use super::*;

        fn long(value: f64) -> LongDouble {
            let mut long = LongDouble([0; 16]);
            // SAFETY: both are memory of their size.
            unsafe {
                asm!(
                    "fld qword ptr [{from}]", "fstp tbyte ptr [{to}]",
                    from = in(reg) &raw const value, to = in(reg) &raw mut long,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                );
            }
            long
        }

        fn short(long: LongDouble) -> f64 {
            let mut value = 0f64;
            // SAFETY: both are memory of their size.
            unsafe {
                asm!(
                    "fld tbyte ptr [{from}]", "fstp qword ptr [{to}]",
                    from = in(reg) &raw const long, to = in(reg) &raw mut value,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                );
            }
            value
        }

        #[test]
        fn numbers_are_added_multiplied_and_compared() {
            let run =
                |f: fn(LongDouble, LongDouble) -> LongDouble, a, b| short(f(long(a), long(b)));
            let (min, max) = (LongDouble::smaller, LongDouble::larger);
            assert_eq!(run(LongDouble::plus, 1.5, 2.25), 3.75);
            assert_eq!(run(LongDouble::times, -1.5, 2.0), -3.0);
            assert_eq!(run(max, -1.5, 2.0), 2.0);
            assert_eq!(run(max, 2.0, -1.5), 2.0);
            assert_eq!(run(min, -1.5, 2.0), -1.5);
            assert_eq!(run(min, 3.0, 3.0), 3.0);
            assert_eq!(run(max, f64::NAN, 2.0), 2.0);
            assert_eq!(run(min, 2.0, f64::NAN), 2.0);
            assert!(run(max, f64::NAN, f64::NAN).is_nan());
            assert!(long(1.0) == long(1.0) && long(1.0) < long(1.5) && long(2.0) > long(1.5));
            assert_eq!(long(1.0).partial_cmp(&long(f64::NAN)), None);
        }

        #[test]
        fn more_digits_are_kept_than_doubles_have() {
            // 2^60 + 1 has 61 significant bits: in doubles the 1 is lost.
            let big = (1u64 << 60) as f64;
            let sum = add(long(big), long(1.0));
            assert_eq!(short(add(sum, long(-big))), 1.0);
        }

        /// Calls the exported functions as C does would need a job; that they pass values is tested
        /// by `shmem-capi/tests/c/rma.c`.
        #[test]
        fn padding_is_left_alone() {
            let mut a = long(1.0);
            a.0[10..].fill(7);
            assert_eq!(add(a, long(1.0)).0[10..], [7; 6]);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod arithmetic {
    use std::cmp::Ordering;

    use super::LongDouble;
    use crate::check;

    fn unsupported() -> ! {
        check::refuse(
            "long double",
            format_args!("reductions and scans of this type are supported on x86-64 only"),
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

//! The 80-bit number of the x87 unit, in 16 bytes, which is `long double` on x86-64.

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

/// Doubles to such numbers and back.
#[cfg(test)]
pub(super) mod convert {
    use super::*;

    pub(crate) fn long(value: f64) -> LongDouble {
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

    pub(crate) fn short(long: LongDouble) -> f64 {
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
}

#[cfg(test)]
mod tests {
    use super::convert::long;
    use super::*;

    #[test]
    fn padding_is_left_alone() {
        let mut a = long(1.0);
        a.0[10..].fill(7);
        assert_eq!(add(a, long(1.0)).0[10..], [7; 6]);
    }
}

//! How reductions combine elements, with the types erased: the algorithms know sizes and one of
//! these functions, and are compiled once.

use crate::datum::{Arithmetic, Bits, Number};
use crate::heap::access;

/// Combines `n` elements: `into[i] = into[i] op from[i]`.
///
/// # Safety
/// What such a function asks of its caller: both arrays hold `n` elements of its type, aligned,
/// `into` is writable, and nobody writes either meanwhile. They do not overlap.
pub type Combine = unsafe fn(into: *mut u8, from: *const u8, n: usize);

macro_rules! combines {
    ($($name:ident: $bound:ident, $method:ident;)*) => { $(
        #[doc = concat!("[`Combine`] by [`", stringify!($bound), "::", stringify!($method), "`].")]
        ///
        /// # Safety
        /// As [`Combine`] says.
        pub(crate) unsafe fn $name<T: $bound>(into: *mut u8, from: *const u8, n: usize) {
            // SAFETY: by the caller.
            unsafe { access::combine(into.cast::<T>(), from.cast::<T>(), n, T::$method) };
        }
    )* };
}

combines! {
    sum: Arithmetic, plus;
    prod: Arithmetic, times;
    min: Number, smaller;
    max: Number, larger;
    and: Bits, and;
    or: Bits, or;
    xor: Bits, xor;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_combined_one_by_one() {
        fn run<T: Copy + PartialEq + std::fmt::Debug>(f: Combine, a: [T; 3], b: [T; 3], c: [T; 3]) {
            let mut into = a;
            // SAFETY: arrays of three elements of the function's type.
            unsafe { f(into.as_mut_ptr().cast(), b.as_ptr().cast(), 3) };
            assert_eq!(into, c);
        }
        run::<i32>(sum::<i32>, [1, -2, i32::MAX], [3, 4, 1], [4, 2, i32::MIN]);
        run::<f64>(
            prod::<f64>,
            [1.5, 2.0, 0.0],
            [2.0, -1.0, 5.0],
            [3.0, -2.0, 0.0],
        );
        run::<f32>(
            min::<f32>,
            [1.0, f32::NAN, 3.0],
            [2.0, 7.0, -3.0],
            [1.0, 7.0, -3.0],
        );
        run::<u8>(max::<u8>, [1, 200, 3], [2, 100, 3], [2, 200, 3]);
        run::<u16>(and::<u16>, [6, 0, 9], [3, 1, 8], [2, 0, 8]);
        run::<u64>(or::<u64>, [6, 0, 9], [3, 1, 2], [7, 1, 11]);
        run::<i64>(xor::<i64>, [6, 0, 9], [3, 1, 9], [5, 1, 0]);
    }
}

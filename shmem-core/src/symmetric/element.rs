//! What atomics, waits and signals take: one symmetric element.

#![forbid(unsafe_code)]

use super::array::SymSlice;
use crate::datum::Datum;

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// One symmetric element: a [`Sym`](crate::Sym), or a [`SymSlice`] with exactly one element.
///
/// Functions that take one element reject a longer array, in which an index was forgotten: `array.elem(i)` and
/// `array.value(i)` are one element.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not one symmetric element of type `{T}`",
    label = "not one symmetric element",
    note = "give a `Sym<{T}>`, or a `SymSlice<{T}>` with one element, such as `array.elem(i)`; signals are `u64`"
)]
pub trait Element<T: Datum>: Copy + sealed::Sealed {
    /// The array of one element.
    ///
    /// # Panics
    /// If the array has another number of elements.
    #[doc(hidden)]
    fn one(self) -> SymSlice<T>;
}

impl<T: Datum> sealed::Sealed for SymSlice<T> {}

impl<T: Datum> Element<T> for SymSlice<T> {
    #[inline]
    #[track_caller]
    fn one(self) -> SymSlice<T> {
        if self.len() != 1 {
            not_one(self.len());
        }
        self
    }
}

#[cold]
#[track_caller]
fn not_one(len: usize) -> ! {
    panic!(
        "one element is wanted here, and the array has {len}: give one of them, as `array.elem(i)`"
    )
}

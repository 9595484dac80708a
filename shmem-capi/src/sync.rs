//! Waiting for words of this PE's memory, and locks.

use std::ffi::{c_int, c_long};

use shmem::raw::{self, Cmp, Mask, SymAddr, Values, Waitable, Words};

use crate::check;

fn comparison(name: &str, cmp: c_int) -> Cmp {
    Cmp::from_number(cmp).unwrap_or_else(|| {
        check::refuse(
            name,
            format_args!("cmp = {cmp} is no comparison: use SHMEM_CMP_EQ, NE, GT, GE, LT or LE"),
        )
    })
}

/// Checks words that are waited for: what no other PE can write will never come.
fn words<T>(name: &str, arg: &str, at: *const T, nelems: usize) {
    check::symmetric(name, arg, at, check::bytes::<T>(nelems));
    check::aligned(name, arg, at);
}

pub(crate) unsafe fn wait_for<T: Waitable>(
    name: &str,
    arg: &str,
    at: *const T,
    cmp: c_int,
    value: T,
) -> T {
    words(name, arg, at, 1);
    // SAFETY: an aligned word of symmetric memory, as was checked.
    unsafe { raw::wait_until(at, comparison(name, cmp), value) }
}

pub(crate) unsafe fn wait_until<T: Waitable>(name: &str, ivar: *mut T, cmp: c_int, value: T) {
    // SAFETY: by the caller.
    unsafe { wait_for(name, "ivar", ivar, cmp, value) };
}

/// The oldest form: waits while the word has a value.
pub(crate) unsafe fn wait<T: Waitable>(name: &str, ivar: *mut T, value: T) {
    words(name, "ivar", ivar, 1);
    // SAFETY: an aligned word of symmetric memory, as was checked.
    unsafe { raw::wait_until(ivar, Cmp::Ne, value) };
}

pub(crate) unsafe fn test<T: Waitable>(name: &str, ivar: *mut T, cmp: c_int, value: T) -> c_int {
    words(name, "ivar", ivar, 1);
    // SAFETY: an aligned word of symmetric memory, as was checked.
    unsafe { raw::test(ivar, comparison(name, cmp), value) }.into()
}

fn several<T: Waitable>(
    name: &str,
    ivars: *const T,
    nelems: usize,
    status: *const c_int,
    cmp: c_int,
    values: Values<T>,
) -> Words<T> {
    if nelems > 0 {
        words(name, "ivars", ivars, nelems);
    }
    check::running(name);
    Words {
        at: ivars,
        n: nelems,
        mask: Mask::from_status(status),
        cmp: comparison(name, cmp),
        values,
    }
}

/// What the forms for several words give.
pub(crate) trait Answer {
    type C;
    fn c(self) -> Self::C;
}

impl Answer for () {
    type C = ();
    fn c(self) {}
}

impl Answer for bool {
    type C = c_int;
    fn c(self) -> c_int {
        self.into()
    }
}

/// A position; there is none.
impl Answer for Option<usize> {
    type C = usize;
    fn c(self) -> usize {
        self.unwrap_or(usize::MAX)
    }
}

/// Defines the routines for several words that give one answer: with one value, and with many.
macro_rules! all_and_any {
    ($($name:ident $vector:ident -> $answer:ty;)*) => { $(
        pub(crate) unsafe fn $name<T: Waitable>(
            name: &str,
            ivars: *mut T,
            nelems: usize,
            status: *const c_int,
            cmp: c_int,
            value: T,
        ) -> <$answer as Answer>::C {
            let words = several(name, ivars, nelems, status, cmp, Values::One(value));
            // SAFETY: the words were checked; the rest by the caller.
            unsafe { raw::$name(words) }.c()
        }
        pub(crate) unsafe fn $vector<T: Waitable>(
            name: &str,
            ivars: *mut T,
            nelems: usize,
            status: *const c_int,
            cmp: c_int,
            values: *const T,
        ) -> <$answer as Answer>::C {
            let words = several(name, ivars, nelems, status, cmp, Values::Each(values));
            // SAFETY: as above.
            unsafe { raw::$name(words) }.c()
        }
    )* };
}
all_and_any! {
    wait_until_all wait_until_all_vector -> ();
    wait_until_any wait_until_any_vector -> Option<usize>;
    test_all test_all_vector -> bool;
    test_any test_any_vector -> Option<usize>;
}

/// Defines the routines that list positions: with one value, and with many.
macro_rules! some {
    ($($name:ident $vector:ident;)*) => { $(
        pub(crate) unsafe fn $name<T: Waitable>(
            name: &str,
            ivars: *mut T,
            nelems: usize,
            indices: *mut usize,
            status: *const c_int,
            cmp: c_int,
            value: T,
        ) -> usize {
            let words = several(name, ivars, nelems, status, cmp, Values::One(value));
            // SAFETY: the words were checked; the rest by the caller.
            unsafe { raw::$name(words, into(indices)) }
        }
        pub(crate) unsafe fn $vector<T: Waitable>(
            name: &str,
            ivars: *mut T,
            nelems: usize,
            indices: *mut usize,
            status: *const c_int,
            cmp: c_int,
            values: *const T,
        ) -> usize {
            let words = several(name, ivars, nelems, status, cmp, Values::Each(values));
            // SAFETY: as above.
            unsafe { raw::$name(words, into(indices)) }
        }
    )* };
}
some! {
    wait_until_some wait_until_some_vector;
    test_some test_some_vector;
}

/// Writes positions one after the other.
///
/// # Safety
/// There is room for all that come.
unsafe fn into(indices: *mut usize) -> impl FnMut(usize) {
    let mut next = indices;
    move |index| {
        // SAFETY: by the caller.
        unsafe {
            next.write(index);
            next = next.add(1);
        }
    }
}

fn lock(name: &str, lock: *const c_long) -> SymAddr {
    words(name, "lock", lock, 1);
    check::symmetric(name, "lock", lock, size_of::<c_long>())
}

pub(crate) unsafe fn set_lock(name: &str, at: *mut c_long) {
    // SAFETY: `lock` has checked the address; its use by the caller.
    unsafe { raw::lock_set(lock(name, at)) };
}

pub(crate) unsafe fn clear_lock(name: &str, at: *mut c_long) {
    // SAFETY: as for setting it.
    unsafe { raw::lock_clear(lock(name, at)) };
}

/// 0 if it was taken.
pub(crate) unsafe fn test_lock(name: &str, at: *mut c_long) -> c_int {
    // SAFETY: as for setting it.
    (!unsafe { raw::lock_test(lock(name, at)) }).into()
}

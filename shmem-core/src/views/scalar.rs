//! One value on every PE, with its operations as methods.

use crate::allocate::typed::alloc_from;
use crate::atomics;
use crate::datum::{Atomic, AtomicInt, Datum};
use crate::error::Error;
use crate::rma::typed as rma;
use crate::symmetric::array::SymSlice;
use crate::symmetric::element::{Element, sealed};
use crate::wait::typed as wait;
use crate::wait::words::{Cmp, Waitable};

/// A symmetric value: one `T` on every PE. A handle, free to copy, as [`SymSlice`] is, of which it is the
/// case of one element.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// # let world = shmem::init()?;
/// let counter = shmem::alloc_value(0u64)?;
/// counter.add(1, 0);
/// world.barrier();
/// assert_eq!(counter.get(0), world.n_pes() as u64);
/// # Ok(())
/// # }
/// ```
///
/// Methods with a `pe` reach that PE's value, those without one this PE's own; completion is that of the
/// function with the longer name ([`put`](Self::put) is [`p`](crate::p), [`add`](Self::add) is
/// [`atomic_add`](crate::atomic_add)). For another context, or a function that has no method,
/// [`slice`](Self::slice) gives the array of one.
pub struct Sym<T>(SymSlice<T>);

impl<T> Clone for Sym<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Sym<T> {}

impl<T> std::fmt::Debug for Sym<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sym").field(&self.0).finish()
    }
}

impl<T: Datum> sealed::Sealed for Sym<T> {}

impl<T: Datum> Element<T> for Sym<T> {
    #[inline]
    fn one(self) -> SymSlice<T> {
        self.0
    }
}

/// Allocates a value on every PE, which has the value that the PE gives.
///
/// **Collective**: as [`alloc`](crate::alloc); the values may differ.
///
/// # Errors
/// As for [`alloc`](crate::alloc).
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_malloc`.
#[track_caller]
pub fn alloc_value<T: Datum>(value: T) -> Result<Sym<T>, Error> {
    alloc_from(&[value]).map(Sym)
}

/// A field of a symmetric struct, as a [`Sym`]: `field!(element, Struct, field)`.
///
/// The element is a `Sym`, or a `SymSlice` of one element. Fields of fields are written with dots.
///
/// ```
/// #[derive(Clone, Copy, Debug, Default, shmem::Datum)]
/// #[repr(C)]
/// struct Slot {
///     hash: u64,
///     count: u64,
/// }
///
/// # let world = shmem::init().unwrap();
/// let slots = shmem::alloc::<Slot>(16).unwrap();
/// let count = shmem::field!(slots.elem(3), Slot, count);
/// count.add(1, 0);
/// world.barrier();
/// assert_eq!(slots.value(3).get(0).count, world.n_pes() as u64);
/// # world.barrier();
/// ```
///
/// What is not a field of the struct, or no [`Datum`](trait@crate::Datum), does not compile.
///
/// # Panics
/// If the element is an array of another number of elements than one.
#[macro_export]
macro_rules! field {
    ($element:expr, $of:ty, $($field:tt).+) => {
        $crate::Sym::field_at(
            $element,
            ::core::mem::offset_of!($of, $($field).+),
            |it: &$of| &it.$($field).+,
        )
    };
}

impl<T: Datum> Sym<T> {
    /// For [`field!`](crate::field): the field of an element that begins at byte `offset` of it, and has the type that
    /// `_of_type` says.
    ///
    /// # Panics
    /// If the element is none, or has no `T` there.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn field_at<S: Datum>(
        element: impl Element<S>,
        offset: usize,
        _of_type: fn(&S) -> &T,
    ) -> Self {
        let fits = offset
            .checked_add(size_of::<T>())
            .is_some_and(|end| end <= size_of::<S>());
        let aligned = offset.is_multiple_of(align_of::<T>());
        assert!(fits && aligned, "there is no such field at byte {offset}");
        Self(SymSlice::from_raw(element.one().offset() + offset, 1))
    }
}

impl<T: Datum> SymSlice<T> {
    /// Element `i` as a value of its own.
    ///
    /// # Panics
    /// If `i` is out of range.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn value(&self, i: usize) -> Sym<T> {
        Sym(self.elem(i))
    }
}

impl<T: Datum> Sym<T> {
    /// The array of this one element.
    #[inline]
    #[must_use]
    pub fn slice(self) -> SymSlice<T> {
        self.0
    }

    /// This PE's value ([`SymSlice::read`]).
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn read(self) -> T {
        self.0.read(0)
    }

    /// Sets this PE's value ([`SymSlice::write`]).
    #[inline]
    #[track_caller]
    pub fn write(self, value: T) {
        self.0.write(0, value);
    }

    /// The value of `pe` ([`g`](crate::g)).
    ///
    /// # Panics
    /// If there is no such PE.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn get(self, pe: usize) -> T {
        rma::g(self.0, pe)
    }

    /// Sets the value of `pe` ([`p`](crate::p)): delivered at the latest by quiet.
    ///
    /// # Panics
    /// If there is no such PE.
    #[inline]
    #[track_caller]
    pub fn put(self, value: T, pe: usize) {
        rma::p(self.0, value, pe);
    }
}

impl<T: Waitable> Sym<T> {
    /// Waits until this PE's value compares as asked; gives it then ([`wait_until`](crate::wait_until)).
    #[inline]
    #[track_caller]
    pub fn wait_until(self, cmp: Cmp, value: T) -> T {
        wait::wait_until(self.0, cmp, value)
    }

    /// Whether this PE's value compares as asked ([`test`](crate::test())).
    #[inline]
    #[must_use = "it only looks, and does not wait"]
    #[track_caller]
    pub fn test(self, cmp: Cmp, value: T) -> bool {
        wait::test(self.0, cmp, value)
    }
}

macro_rules! atomics {
    ($bound:ident: $($(#[$doc:meta])* $name:ident = $function:ident($($arg:ident),*) $(-> $ret:ty)?;)*) => {
        impl<T: $bound> Sym<T> { $(
            $(#[$doc])*
            #[doc = concat!("([`", stringify!($function), "`](crate::", stringify!($function), ")).")]
            ///
            /// # Panics
            /// If there is no such PE.
            #[inline]
            #[track_caller]
            pub fn $name(self, $($arg: T,)* pe: usize) $(-> $ret)? {
                atomics::$function(self.0, $($arg,)* pe)
            }
        )* }
    };
}

atomics! { Atomic:
    /// The value of `pe`, read atomically
    fetch = atomic_fetch() -> T;
    /// Sets the value of `pe`, atomically; delivered at the latest by quiet
    set = atomic_set(value);
    /// Replaces the value of `pe`, atomically; gives the old one
    swap = atomic_swap(value) -> T;
}

atomics! { AtomicInt:
    /// Replaces the value of `pe` by `new` if it equals `current`, atomically: `Ok` or `Err` with the old one
    compare_exchange = atomic_compare_exchange(current, new) -> Result<T, T>;
    /// Adds to the value of `pe`, atomically; delivered at the latest by quiet
    add = atomic_add(value);
    /// Adds to the value of `pe`, atomically; gives the old one
    fetch_add = atomic_fetch_add(value) -> T;
    /// Combines the value of `pe` by bitwise and, atomically; gives the old one
    fetch_and = atomic_fetch_and(value) -> T;
    /// Combines the value of `pe` by bitwise or, atomically; gives the old one
    fetch_or = atomic_fetch_or(value) -> T;
    /// Combines the value of `pe` by exclusive or, atomically; gives the old one
    fetch_xor = atomic_fetch_xor(value) -> T;
}

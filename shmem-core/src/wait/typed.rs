//! Waiting for and testing elements of symmetric arrays.

use crate::symmetric::array::SymSlice;
use crate::symmetric::element::Element;
use crate::wait::words::{self, Cmp, Mask, Values, Waitable, Words};

/// Waits until `word` of this PE compares as asked; gives its value then.
///
/// A PE that sleeps here is woken by what others put or execute there. A store through
/// [`SymSlice::ptr`], or of another thread of this PE, wakes nobody and is seen late: after 32 ms at
/// most, or after 4 ms for every PE of the node that waits, if that is more (times the emulated nodes of
/// the machine).
///
/// # Completion
/// What the PE that wrote the value had put to this PE before it, with a fence between, is
/// visible on return.
///
/// # Panics
/// If `word` is an array of another number of elements than one.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_wait_until`.
#[inline]
#[track_caller]
pub fn wait_until<T: Waitable>(word: impl Element<T>, cmp: Cmp, value: T) -> T {
    // SAFETY: the word lies aligned in this PE's segment.
    unsafe { words::wait_until(word.one().as_ptr(), cmp, value) }
}

/// Whether `word` of this PE compares as asked.
///
/// # Completion
/// As for [`wait_until`], if true.
///
/// # Panics
/// If `word` is an array of another number of elements than one.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_test`.
#[inline]
#[track_caller]
#[must_use = "it only looks, and does not wait"]
pub fn test<T: Waitable>(word: impl Element<T>, cmp: Cmp, value: T) -> bool {
    // SAFETY: the word lies aligned in this PE's segment.
    unsafe { words::test(word.one().as_ptr(), cmp, value) }
}

/// Waits until a signal of this PE compares as asked; gives its value then. What comes with a
/// signal (`put_signal`) is visible on return.
///
/// # Panics
/// If `signal` is an array of another number of elements than one.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_signal_wait_until`.
#[inline]
#[track_caller]
pub fn signal_wait_until(signal: impl Element<u64>, cmp: Cmp, value: u64) -> u64 {
    wait_until(signal, cmp, value)
}

/// The words of an array that take part, and what they are compared with.
#[track_caller]
fn select<T: Waitable>(
    array: SymSlice<T>,
    skip: Option<&[bool]>,
    cmp: Cmp,
    values: Expected<'_, T>,
) -> Words<T> {
    let n = array.len();
    let values = match values {
        Expected::All(value) => Values::One(value),
        Expected::Each(values) => {
            assert!(
                values.len() == n,
                "{} values for {n} words: give one for each",
                values.len()
            );
            Values::Each(values.as_ptr())
        }
    };
    let mask = match skip {
        None => Mask::All,
        Some(skip) => {
            assert!(
                skip.len() == n,
                "a mask of {} for {n} words: give one bool for each",
                skip.len()
            );
            Mask::Skip(skip.as_ptr())
        }
    };
    Words {
        at: array.as_ptr(),
        n,
        mask,
        cmp,
        values,
    }
}

/// What the words of an array are compared with. Functions take a value, or a reference to a slice, array or vector.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'v, T> {
    /// All with the same value.
    All(T),
    /// Each with its own.
    Each(&'v [T]),
}

impl<T> From<T> for Expected<'_, T> {
    fn from(value: T) -> Self {
        Self::All(value)
    }
}

impl<'v, T> From<&'v [T]> for Expected<'v, T> {
    fn from(values: &'v [T]) -> Self {
        Self::Each(values)
    }
}

impl<'v, T, const N: usize> From<&'v [T; N]> for Expected<'v, T> {
    fn from(values: &'v [T; N]) -> Self {
        Self::Each(values)
    }
}

impl<'v, T> From<&'v Vec<T>> for Expected<'v, T> {
    fn from(values: &'v Vec<T>) -> Self {
        Self::Each(values)
    }
}

/// The forms for many words.
macro_rules! forms {
    ($(
        $(#[$doc:meta])*
        $name:ident $(, $indices:ident)? => $result:ty;
    )*) => { $(
        $(#[$doc])*
        ///
        /// # Panics
        /// If `skip` has not the length of `array`, or there are several `values`, but not one for each word.
        ///
        /// # Spec
        #[doc = concat!(
            "OpenSHMEM 1.6, `shmem_", stringify!($name), "`; with a value for each word `shmem_", stringify!($name),
            "_vector`."
        )]
        #[track_caller]
        pub fn $name<'v, T: Waitable>(
            array: SymSlice<T>,
            $($indices: &mut Vec<usize>,)?
            skip: Option<&[bool]>,
            cmp: Cmp,
            values: impl Into<Expected<'v, T>>,
        ) -> $result {
            let words = select(array, skip, cmp, values.into());
            // SAFETY: the words lie aligned in this PE's segment; the mask has one bool for each, and there is one value or
            // one for each.
            unsafe { words::$name(words $(, collect($indices))?) }
        }
    )* };
}

/// Puts positions into an emptied vector.
fn collect(indices: &mut Vec<usize>) -> impl FnMut(usize) {
    indices.clear();
    |i| indices.push(i)
}

forms! {
    /// Waits until each word of `array` has compared as asked, but for those that `skip` marks.
    /// Returns at once if no word takes part.
    ///
    /// # Completion
    /// As for [`wait_until`], for every word.
    wait_until_all => ();

    /// Waits until a word of `array` compares as asked, but for those that `skip` marks, and gives
    /// its position; `None`, at once, if no word takes part. Where several do, each is given sooner
    /// or later by calls that follow.
    ///
    /// ```
    /// # fn main() -> Result<(), shmem::Error> {
    /// # let _world = shmem::init()?;
    /// use shmem::{Cmp, alloc, atomic_inc, barrier_all, my_pe, n_pes, wait_until_any};
    /// // Every PE tells every other that it has come; whoever comes first is served first.
    /// let (me, n) = (my_pe(), n_pes());
    /// let arrived = alloc::<u64>(n)?;
    /// (0..n).for_each(|pe| atomic_inc(arrived.elem(me), pe));
    /// let mut served = vec![false; n];
    /// while let Some(pe) = wait_until_any(arrived, Some(&served), Cmp::Eq, 1) {
    ///     served[pe] = true;
    /// }
    /// assert!(served.iter().all(|&s| s));
    /// # barrier_all();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Completion
    /// As for [`wait_until`], for the word that is given.
    wait_until_any => Option<usize>;

    /// Waits until at least one word of `array` compares as asked, but for those that `skip` marks;
    /// puts the positions of all that do into `indices`, which it empties first, and gives their
    /// number. 0, at once, if no word takes part.
    ///
    /// # Completion
    /// As for [`wait_until`], for the words that are given.
    wait_until_some, indices => usize;

    /// Whether each word of `array` compares as asked, but for those that `skip` marks; also if no
    /// word takes part.
    ///
    /// # Completion
    /// As for [`wait_until`], if true.
    test_all => bool;

    /// Position of a word of `array` that compares as asked, but for those that `skip` marks, if
    /// there is one. Where there are several, each is given sooner or later by calls that follow.
    ///
    /// # Completion
    /// As for [`wait_until`], for the word that is given.
    test_any => Option<usize>;

    /// Puts the positions of all words of `array` that compare as asked, but for those that `skip`
    /// marks, into `indices`, which it empties first, and gives their number.
    ///
    /// # Completion
    /// As for [`wait_until`], for the words that are given.
    test_some, indices => usize;
}

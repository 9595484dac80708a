//! Words in this PE's memory that are compared with values, given by their addresses.
//!
//! One engine for all forms of waiting and testing. A form differs in what it makes of the words
//! that compare as asked; whether it waits is one more difference.

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use shmem_node::waiting::{Comparison, Form, Number, Wait, Word};

use crate::datum::Datum;
use crate::fault;
use crate::heap::access;
use crate::runtime::{Runtime, rt};

/// How a word is compared with a value. The numbers are those of `SHMEM_CMP_*` in C.
///
/// # Spec
/// OpenSHMEM 1.6, `SHMEM_CMP_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Cmp {
    /// Equal.
    Eq = 1,
    /// Not equal.
    Ne = 2,
    /// Greater than.
    Gt = 3,
    /// Greater than or equal.
    Ge = 4,
    /// Less than.
    Lt = 5,
    /// Less than or equal.
    Le = 6,
}

impl Cmp {
    /// The comparison with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Eq,
            2 => Self::Ne,
            3 => Self::Gt,
            4 => Self::Ge,
            5 => Self::Lt,
            6 => Self::Le,
            _ => return None,
        })
    }

    const fn comparison(self) -> Comparison {
        match self {
            Self::Eq => Comparison::Eq,
            Self::Ne => Comparison::Ne,
            Self::Gt => Comparison::Gt,
            Self::Ge => Comparison::Ge,
            Self::Lt => Comparison::Lt,
            Self::Le => Comparison::Le,
        }
    }

    #[inline]
    pub(crate) fn holds<T: PartialOrd>(self, a: &T, b: &T) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Gt => a > b,
            Self::Ge => a >= b,
            Self::Lt => a < b,
            Self::Le => a <= b,
        }
    }
}

mod sealed {
    use shmem_node::waiting::Number;

    /// Loading a word that other PEs write.
    pub trait Load: Sized + Copy {
        /// What it is, for those who are told of waits.
        const NUMBER: Number;

        /// Its bits, the lowest first.
        fn bits(self) -> u64;

        /// Its value now.
        ///
        /// # Safety
        /// The word is mapped and aligned.
        unsafe fn load(at: *const Self) -> Self;
    }
}
use sealed::Load;

/// A number that a PE can wait for: of 16, 32 or 64 bits.
///
/// OpenSHMEM 1.6 has these for integers of 32 and 64 bits, and those of 16 bits as
/// deprecated ones; floating-point numbers are ours.
pub trait Waitable: Datum + PartialOrd + Load {}

macro_rules! waitable {
    ($($word:ident, |$bits:ident| $from:expr, |$own:ident| $to:expr; $($t:ty: $number:ident)*;)*) => { $($(
        impl Load for $t {
            const NUMBER: Number = Number::$number;

            fn bits(self) -> u64 {
                let $own = self;
                $to
            }

            #[inline]
            unsafe fn load(at: *const Self) -> Self {
                // ORDERING(quiet): acquires what the writer released.
                // SAFETY: by the caller.
                let $bits = unsafe { $word::from_ptr(at.cast_mut().cast()) }.load(Ordering::Acquire);
                access::acquire_of_devices();
                $from
            }
        }
        impl Waitable for $t {}
    )*)* };
}
waitable! {
    AtomicU16, |bits| bits as Self, |own| own as u64; u16: U16 i16: I16;
    AtomicU32, |bits| bits as Self, |own| own as u64; u32: U32 i32: I32;
    AtomicU64, |bits| bits as Self, |own| own as u64; u64: U64 i64: I64 usize: U64 isize: I64;
    AtomicU32, |bits| Self::from_bits(bits), |own| own.to_bits().into(); f32: F32;
    AtomicU64, |bits| Self::from_bits(bits), |own| own.to_bits(); f64: F64;
}

/// What words are compared with.
#[derive(Debug, Clone, Copy)]
pub enum Values<T> {
    /// All with the same value.
    One(T),
    /// Each with its own, from this address on (the `_vector` forms).
    Each(*const T),
}

/// Which words take part.
#[derive(Debug, Clone, Copy)]
pub enum Mask {
    /// All.
    All,
    /// Those whose status, from this address on, is 0.
    Status(*const i32),
    /// Those for which, from this address on, there is `false`.
    Skip(*const bool),
}

impl Mask {
    /// A status array as C has it: all words take part if it is null.
    #[inline]
    #[must_use]
    pub const fn from_status(status: *const i32) -> Self {
        if status.is_null() {
            Self::All
        } else {
            Self::Status(status)
        }
    }
}

/// Words that are waited for or tested together.
#[derive(Debug, Clone, Copy)]
pub struct Words<T> {
    /// The first.
    pub at: *const T,
    /// How many there are.
    pub n: usize,
    /// Which of them take part.
    pub mask: Mask,
    /// How they are compared.
    pub cmp: Cmp,
    /// With what.
    pub values: Values<T>,
}

impl<T: Waitable> Words<T> {
    /// Whether word `i` takes part.
    ///
    /// # Safety
    /// `i` is less than `n`; the mask is readable.
    #[inline]
    unsafe fn counts(&self, i: usize) -> bool {
        match self.mask {
            Mask::All => true,
            // SAFETY: by the caller.
            Mask::Status(status) => unsafe { status.add(i).read() == 0 },
            // SAFETY: by the caller.
            Mask::Skip(skip) => unsafe { !skip.add(i).read() },
        }
    }

    /// Whether word `i` compares as asked now.
    ///
    /// # Safety
    /// `i` is less than `n`; the word is mapped and aligned, its value readable.
    #[inline]
    unsafe fn holds(&self, i: usize) -> bool {
        // SAFETY: by the caller.
        unsafe {
            let value = match self.values {
                Values::One(value) => value,
                Values::Each(values) => values.add(i).read(),
            };
            self.cmp.holds(&T::load(self.at.add(i)), &value)
        }
    }

    /// A wait for words from the `i`th on, which the program called at `called`, for reports to others.
    ///
    /// # Safety
    /// As for the functions of this module.
    unsafe fn told(&self, rt: &Runtime, form: Form, i: usize, called: Caller) -> Wait {
        // SAFETY: by the caller; a word that takes part is less than `n`.
        let i = (i..self.n)
            .find(|&i| unsafe { self.counts(i) })
            .unwrap_or(i);
        let value = match self.values {
            Values::One(value) => value,
            // SAFETY: by the caller.
            Values::Each(values) => unsafe { values.add(i).read() },
        };
        let at = self.at.wrapping_add(i);
        waits_for(rt, (form, called), at, self.cmp, value, self.n - i)
    }

    /// Whether no word takes part.
    ///
    /// # Safety
    /// As for the functions of this module.
    unsafe fn is_empty(&self) -> bool {
        // SAFETY: by the caller.
        (0..self.n).all(|i| unsafe { !self.counts(i) })
    }

    /// The first word from `from` on that does not compare as asked.
    ///
    /// # Safety
    /// As for the functions of this module.
    unsafe fn first_missing(&self, from: usize) -> Option<usize> {
        // SAFETY: by the caller.
        (from..self.n).find(|&i| unsafe { self.counts(i) && !self.holds(i) })
    }

    /// A word that compares as asked. The search begins anywhere: of words that hold, each is
    /// found sooner or later however often the others are found.
    ///
    /// # Safety
    /// As for the functions of this module.
    unsafe fn any(&self) -> Option<usize> {
        let start = somewhere(self.n);
        // SAFETY: by the caller.
        (start..self.n)
            .chain(0..start)
            .find(|&i| unsafe { self.counts(i) && self.holds(i) })
    }

    /// All words that compare as asked; gives their number.
    ///
    /// # Safety
    /// As for the functions of this module.
    unsafe fn some(&self, found: &mut impl FnMut(usize)) -> usize {
        let mut count = 0;
        for i in 0..self.n {
            // SAFETY: by the caller.
            if unsafe { self.counts(i) && self.holds(i) } {
                found(i);
                count += 1;
            }
        }
        count
    }
}

/// A number below `n` (0 if that is 0), another one each time.
fn somewhere(n: usize) -> usize {
    static STATE: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    // Threads that lose an update get the same number: no harm.
    let state = STATE
        .load(Ordering::Relaxed)
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f);
    STATE.store(state, Ordering::Relaxed);
    // The high bits are the random ones.
    ((u128::from(state) * n as u128) >> 64) as usize
}

/// A caller's place.
type Caller = &'static Location<'static>;

/// A wait of a form and a caller for `n` words from `at` on.
fn waits_for<T: Waitable>(
    rt: &Runtime,
    (form, called): (Form, Caller),
    at: *const T,
    cmp: Cmp,
    value: T,
    n: usize,
) -> Wait {
    let sym = rt.ranges.find(at as usize, size_of::<T>());
    Wait::Memory {
        word: Word {
            form,
            cmp: cmp.comparison(),
            number: T::NUMBER,
            at: sym.map_or(Word::ELSEWHERE, |sym| sym.offset() as u64),
            value: value.bits(),
            count: n as u64,
        },
        called: fault::place_in_program(called),
    }
}

/// What a test that fails has to do: a program that polls must not starve the network on a core of
/// its own.
#[inline]
#[track_caller]
fn or_progress<R>(result: R, failed: bool) -> R {
    if failed {
        rt().progress();
    }
    result
}

/// Waits until the word compares as asked; gives its value then.
///
/// # Completion
/// What the PE that wrote the value had put to this PE before it, with a fence between, is visible
/// on return.
///
/// # Safety
/// The word is mapped and aligned until the call returns. Whoever writes it meanwhile does so by
/// the library's operations or by atomics.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_wait_until`, `shmem_signal_wait_until`.
#[inline]
#[track_caller]
pub unsafe fn wait_until<T: Waitable>(at: *const T, cmp: Cmp, value: T) -> T {
    let rt = rt();
    // SAFETY: by the caller.
    let mut seen = unsafe { T::load(at) };
    if !cmp.holds(&seen, &value) {
        let by = (Form::Until, Location::caller());
        let what = || waits_for(rt, by, at, cmp, value, 1);
        rt.wait_for_memory(what, || {
            // SAFETY: by the caller.
            seen = unsafe { T::load(at) };
            cmp.holds(&seen, &value)
        });
    }
    seen
}

/// Whether the word compares as asked.
///
/// # Safety
/// As for [`wait_until`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_test`.
#[inline]
#[track_caller]
pub unsafe fn test<T: Waitable>(at: *const T, cmp: Cmp, value: T) -> bool {
    // SAFETY: by the caller.
    let holds = cmp.holds(&unsafe { T::load(at) }, &value);
    or_progress(holds, !holds)
}

/// Waits until every word has compared as asked. Returns at once if none takes part.
///
/// # Safety
/// As for [`wait_until`], for all words; values and mask are readable.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_wait_until_all`, `shmem_wait_until_all_vector`.
#[track_caller]
pub unsafe fn wait_until_all<T: Waitable>(words: Words<T>) {
    let (rt, called) = (rt(), Location::caller());
    let mut next = 0;
    // SAFETY: by the caller; `i` is less than `n`.
    while let Some(i) = unsafe { words.first_missing(next) } {
        // SAFETY: as above.
        let what = || unsafe { words.told(rt, Form::All, i, called) };
        // SAFETY: as above.
        rt.wait_for_memory(what, || unsafe { words.holds(i) });
        next = i + 1;
    }
}

/// Waits until a word compares as asked; gives its position. `None` if no word takes part.
///
/// Where several do, each is given sooner or later by calls that follow.
///
/// # Safety
/// As for [`wait_until_all`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_wait_until_any`, `shmem_wait_until_any_vector`.
#[track_caller]
pub unsafe fn wait_until_any<T: Waitable>(words: Words<T>) -> Option<usize> {
    let (rt, called) = (rt(), Location::caller());
    // SAFETY: by the caller.
    if unsafe { words.is_empty() } {
        return None;
    }
    let found = Cell::new(None);
    // The first word while there is none that compares as asked, and then this one: the PE that wrote it has ended the wait.
    // SAFETY: by the caller; there is a word that takes part.
    let what = || unsafe { words.told(rt, Form::Any, found.get().unwrap_or(0), called) };
    rt.wait_for_memory(what, || {
        // SAFETY: by the caller.
        found.set(unsafe { words.any() });
        found.get().is_some()
    });
    found.get()
}

/// Waits until at least one word compares as asked; tells `found` the positions of all that do, in
/// ascending order, and gives their number. 0 if no word takes part.
///
/// # Safety
/// As for [`wait_until_all`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_wait_until_some`, `shmem_wait_until_some_vector`.
#[track_caller]
pub unsafe fn wait_until_some<T: Waitable>(words: Words<T>, mut found: impl FnMut(usize)) -> usize {
    let (rt, called) = (rt(), Location::caller());
    // SAFETY: by the caller.
    if unsafe { words.is_empty() } {
        return 0;
    }
    let first = Cell::new(None);
    // As in `wait_until_any`.
    // SAFETY: by the caller; there is a word that takes part.
    let what = || unsafe { words.told(rt, Form::Some, first.get().unwrap_or(0), called) };
    loop {
        rt.wait_for_memory(what, || {
            // SAFETY: by the caller.
            first.set(unsafe { words.any() });
            first.get().is_some()
        });
        // SAFETY: as above.
        let count = unsafe { words.some(&mut found) };
        // Words may have changed once more.
        if count > 0 {
            return count;
        }
    }
}

/// Whether every word compares as asked; also if none takes part.
///
/// # Safety
/// As for [`wait_until_all`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_test_all`, `shmem_test_all_vector`.
#[track_caller]
pub unsafe fn test_all<T: Waitable>(words: Words<T>) -> bool {
    // SAFETY: by the caller.
    let holds = unsafe { words.first_missing(0) }.is_none();
    or_progress(holds, !holds)
}

/// Position of a word that compares as asked, if there is one; with several, as for
/// [`wait_until_any`].
///
/// # Safety
/// As for [`wait_until_all`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_test_any`, `shmem_test_any_vector`.
#[track_caller]
pub unsafe fn test_any<T: Waitable>(words: Words<T>) -> Option<usize> {
    // SAFETY: by the caller.
    let found = unsafe { words.any() };
    or_progress(found, found.is_none())
}

/// Tells `found` the positions of all words that compare as asked, in ascending order, and gives
/// their number.
///
/// # Safety
/// As for [`wait_until_all`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_test_some`, `shmem_test_some_vector`.
#[track_caller]
pub unsafe fn test_some<T: Waitable>(words: Words<T>, mut found: impl FnMut(usize)) -> usize {
    // SAFETY: by the caller.
    let count = unsafe { words.some(&mut found) };
    or_progress(count, count == 0)
}

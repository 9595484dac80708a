//! Waiting for memory that other PEs write.

use crate::datum::Atomic;
use crate::heap::access;
use crate::heap::sym::SymSlice;
use crate::runtime::{Runtime, rt};

/// How a word is compared with a value.
///
/// # Spec
/// OpenSHMEM 1.6, `SHMEM_CMP_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater than.
    Gt,
    /// Greater than or equal.
    Ge,
    /// Less than.
    Lt,
    /// Less than or equal.
    Le,
}

impl Cmp {
    fn holds<T: PartialOrd>(self, a: &T, b: &T) -> bool {
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

impl Runtime {
    /// Returns when `ready()` holds. Polls while cores are to spare, then sleeps; memory written
    /// by other PEs, of this node or of others, wakes it.
    pub(crate) fn wait_for(&self, ready: impl Fn() -> bool) {
        if ready() {
            return;
        }
        for i in 0..self.spins {
            std::hint::spin_loop();
            if ready() {
                return;
            }
            if i % 16 == 0 {
                self.progress();
            }
        }
        while !ready() {
            self.block.doorbell.sleep(&ready);
        }
    }
}

/// Waits until this PE's first element of `word` compares as asked; gives its value then.
///
/// # Completion
/// What the PE that wrote the value had put to this PE before it, with a fence between, is
/// visible on return.
///
/// # Panics
/// If `word` is empty.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_wait_until`.
#[track_caller]
pub fn wait_until<T: Atomic + PartialOrd>(word: SymSlice<T>, cmp: Cmp, value: T) -> T {
    let rt = rt();
    let at = word.elem(0).as_ptr().cast_const().cast::<u8>();
    // SAFETY: the word lies aligned in this PE's segment.
    let read = || T::from_bits(unsafe { access::load(at, size_of::<T>()) });
    let seen = std::cell::Cell::new(read());
    // ORDERING(quiet): the load acquires what the writer released.
    rt.wait_for(|| {
        seen.set(read());
        cmp.holds(&seen.get(), &value)
    });
    seen.get()
}

/// Whether this PE's first element of `word` compares as asked.
///
/// # Completion
/// As for [`wait_until`], if true.
///
/// # Panics
/// If `word` is empty.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_test`.
#[track_caller]
pub fn test<T: Atomic + PartialOrd>(word: SymSlice<T>, cmp: Cmp, value: T) -> bool {
    let rt = rt();
    let at = word.elem(0).as_ptr().cast_const().cast::<u8>();
    // SAFETY: the word lies aligned in this PE's segment.
    let holds = cmp.holds(
        &T::from_bits(unsafe { access::load(at, size_of::<T>()) }),
        &value,
    );
    // A program that polls must not starve the network on a core of its own.
    if !holds {
        rt.progress();
    }
    holds
}

//! Atomic memory operations on 32 and 64-bit words of any PE.
//!
//! All of them are coherent with each other: on one node they are the processor's own atomics on
//! shared memory. On another node the HCA executes its two (64-bit fetch-and-add and
//! compare-and-swap, of which the others are composed) if its atomics are coherent with the
//! processor's, as the software HCA's are. Otherwise the PE that owns the word executes all of them
//! with the processor's atomics (`SHMEM_ATOMICS`).

use shmem_ib::atomic::{self, AtomicOp, Width};

use crate::datum::{Atomic, AtomicInt};
use crate::heap::sym::SymSlice;
use crate::runtime::{Place, Runtime, rt};

impl Runtime {
    /// Executes `op` on the word at `offset` of `pe`'s segment; gives the old value.
    #[inline]
    #[track_caller]
    pub(crate) fn atomic(&self, pe: usize, offset: usize, width: Width, op: AtomicOp) -> u64 {
        match self.place(pe, offset) {
            Place::Here(at) => {
                // SAFETY: handles to 4 and 8-byte types lie aligned inside the segment.
                let old = unsafe { atomic::execute(at, width, op) };
                self.ring(pe);
                old
            }
            Place::There => self.atomic_far(pe, offset, width, op),
        }
    }

    /// Executes `op` without need of the old value; complete at quiet.
    #[inline]
    #[track_caller]
    pub(crate) fn atomic_nbi(&self, pe: usize, offset: usize, width: Width, op: AtomicOp) {
        match self.place(pe, offset) {
            Place::Here(_) => {
                self.atomic(pe, offset, width, op);
            }
            Place::There => {
                let (part, at) = self.remote().registrar.parts().word(offset);
                self.far(|net| net.atomic_nbi_in(pe as u32, part, at, width, op));
            }
        }
    }

    #[cold]
    #[track_caller]
    fn atomic_far(&self, pe: usize, offset: usize, width: Width, op: AtomicOp) -> u64 {
        let (part, at) = self.remote().registrar.parts().word(offset);
        self.far(|net| net.atomic_in(pe as u32, part, at, width, op))
    }
}

/// The width of a type that atomics work on.
#[inline]
const fn width<T: Atomic>() -> Width {
    match Width::of(size_of::<T>()) {
        Some(width) => width,
        None => unreachable!(),
    }
}

/// Reads the first element of `source` on `pe`, atomically.
///
/// # Panics
/// If the array is empty, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_atomic_fetch`.
#[track_caller]
pub fn atomic_fetch<T: Atomic>(source: SymSlice<T>, pe: usize) -> T {
    T::from_bits(rt().atomic(pe, source.elem(0).offset(), width::<T>(), AtomicOp::Fetch))
}

/// Sets the first element of `dest` on `pe`, atomically. Delivered at the latest by `quiet`.
///
/// # Panics
/// If the array is empty, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_atomic_set`.
#[track_caller]
pub fn atomic_set<T: Atomic>(dest: SymSlice<T>, value: T, pe: usize) {
    let op = AtomicOp::Swap(value.to_bits());
    rt().atomic_nbi(pe, dest.elem(0).offset(), width::<T>(), op);
}

/// Replaces the first element of `dest` on `pe` and gives its old value.
///
/// # Panics
/// If the array is empty, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_atomic_swap`.
#[track_caller]
pub fn atomic_swap<T: Atomic>(dest: SymSlice<T>, value: T, pe: usize) -> T {
    let op = AtomicOp::Swap(value.to_bits());
    T::from_bits(rt().atomic(pe, dest.elem(0).offset(), width::<T>(), op))
}

/// Replaces the first element of `dest` on `pe` by `value` if it equals `cond`; gives its old
/// value, which equals `cond` exactly if it was replaced.
///
/// # Panics
/// If the array is empty, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_atomic_compare_swap`.
#[track_caller]
pub fn atomic_compare_swap<T: AtomicInt>(dest: SymSlice<T>, cond: T, value: T, pe: usize) -> T {
    let op = AtomicOp::CompareSwap {
        compare: cond.to_bits(),
        new: value.to_bits(),
    };
    T::from_bits(rt().atomic(pe, dest.elem(0).offset(), width::<T>(), op))
}

macro_rules! arithmetic {
    ($($(#[$doc:meta])* $plain:ident, $fetching:ident, $op:ident, $spec:literal, $fspec:literal;)*)
    => { $(
        $(#[$doc])*
        /// Integers wrap. Delivered at the latest by `quiet`.
        ///
        /// # Panics
        /// If the array is empty, or there is no such PE.
        ///
        /// # Spec
        #[doc = concat!("OpenSHMEM 1.6, `", $spec, "`.")]
        #[track_caller]
        pub fn $plain<T: AtomicInt>(dest: SymSlice<T>, value: T, pe: usize) {
            let op = AtomicOp::$op(value.to_bits());
            rt().atomic_nbi(pe, dest.elem(0).offset(), width::<T>(), op);
        }

        $(#[$doc])*
        /// Integers wrap. Gives the old value.
        ///
        /// # Panics
        /// If the array is empty, or there is no such PE.
        ///
        /// # Spec
        #[doc = concat!("OpenSHMEM 1.6, `", $fspec, "`.")]
        #[track_caller]
        pub fn $fetching<T: AtomicInt>(dest: SymSlice<T>, value: T, pe: usize) -> T {
            let op = AtomicOp::$op(value.to_bits());
            T::from_bits(rt().atomic(pe, dest.elem(0).offset(), width::<T>(), op))
        }
    )* };
}

arithmetic! {
    /// Adds to the first element of `dest` on `pe`, atomically.
    atomic_add, atomic_fetch_add, Add, "shmem_atomic_add", "shmem_atomic_fetch_add";
    /// Combines the first element of `dest` on `pe` with `value` by bitwise and, atomically.
    atomic_and, atomic_fetch_and, And, "shmem_atomic_and", "shmem_atomic_fetch_and";
    /// Combines the first element of `dest` on `pe` with `value` by bitwise or, atomically.
    atomic_or, atomic_fetch_or, Or, "shmem_atomic_or", "shmem_atomic_fetch_or";
    /// Combines the first element of `dest` on `pe` with `value` by exclusive or, atomically.
    atomic_xor, atomic_fetch_xor, Xor, "shmem_atomic_xor", "shmem_atomic_fetch_xor";
}

/// Adds 1 to the first element of `dest` on `pe`, atomically. Delivered at the latest by `quiet`.
///
/// # Panics
/// If the array is empty, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_atomic_inc`.
#[track_caller]
pub fn atomic_inc<T: AtomicInt>(dest: SymSlice<T>, pe: usize) {
    atomic_add(dest, T::from_bits(1), pe);
}

/// Adds 1 to the first element of `dest` on `pe`, atomically, and gives its old value.
///
/// # Panics
/// If the array is empty, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_atomic_fetch_inc`.
#[track_caller]
pub fn atomic_fetch_inc<T: AtomicInt>(dest: SymSlice<T>, pe: usize) -> T {
    atomic_fetch_add(dest, T::from_bits(1), pe)
}

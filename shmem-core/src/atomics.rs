//! Atomic memory operations on 32 and 64-bit words of any PE.
//!
//! All of them are coherent with each other: on one node they are the processor's own atomics on
//! shared memory, and the HCA of a PE on another node executes its two (64-bit fetch-and-add and
//! compare-and-swap) with the processor's atomics on that same memory. What an HCA does not have
//! (swap, bitwise, 32-bit) is composed of compare-and-swap on the aligned 64-bit word around the
//! target.

use crate::datum::{Atomic, AtomicInt};
use crate::heap::access::{self, AtomicOp};
use crate::heap::sym::SymSlice;
use crate::runtime::{Place, Runtime, rt};

impl Runtime {
    /// Executes `op` on the word at `offset` of `pe`'s segment; gives the old value.
    #[inline]
    #[track_caller]
    fn atomic(&self, pe: usize, offset: usize, bytes: usize, op: AtomicOp) -> u64 {
        match self.place(pe, offset) {
            Place::Here(at) => {
                // SAFETY: handles to 4 and 8-byte types lie aligned inside the segment.
                let old = unsafe { access::atomic(at, bytes, op) };
                self.ring(pe);
                old
            }
            Place::There => self.atomic_far(pe, offset, bytes, op),
        }
    }

    /// Executes `op` without need of the old value; complete at quiet.
    #[inline]
    #[track_caller]
    fn atomic_nbi(&self, pe: usize, offset: usize, bytes: usize, op: AtomicOp) {
        match (self.place(pe, offset), op) {
            (Place::There, AtomicOp::Add(n)) if bytes == 8 => {
                let (part, offset) = self.remote().registrar.parts().word(offset);
                self.far(|net| net.add_nbi_in(pe as u32, part, offset, n));
            }
            _ => {
                self.atomic(pe, offset, bytes, op);
            }
        }
    }

    #[cold]
    fn atomic_far(&self, pe: usize, offset: usize, bytes: usize, op: AtomicOp) -> u64 {
        let peer = pe as u32;
        let (part, at) = self.remote().registrar.parts().word(offset);
        let cas =
            |compare, new| self.far(|net| net.compare_swap_in(peer, part, at & !7, compare, new));
        match op {
            AtomicOp::Add(n) if bytes == 8 => {
                return self.far(|net| net.fetch_add_in(peer, part, at, n));
            }
            AtomicOp::Fetch if bytes == 8 => {
                return self.far(|net| net.fetch_add_in(peer, part, at, 0));
            }
            AtomicOp::CompareSwap { compare, new } if bytes == 8 => return cas(compare, new),
            _ => {}
        }
        // The word of 8 bytes around the target; a 4-byte target is one of its halves.
        let shift = if bytes == 4 {
            (offset as u64 & 4) * 8
        } else {
            0
        };
        let mask = if bytes == 4 {
            0xffff_ffff << shift
        } else {
            u64::MAX
        };
        // The first guess costs nothing and is right for memory that was never written.
        let mut seen = 0;
        loop {
            let old = (seen & mask) >> shift;
            let new = (seen & !mask) | (op.apply(old, bytes) << shift);
            let was = cas(seen, new);
            if was == seen {
                return old;
            }
            seen = was;
        }
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
    T::from_bits(rt().atomic(pe, source.elem(0).offset(), size_of::<T>(), AtomicOp::Fetch))
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
    rt().atomic_nbi(pe, dest.elem(0).offset(), size_of::<T>(), op);
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
    T::from_bits(rt().atomic(pe, dest.elem(0).offset(), size_of::<T>(), op))
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
    T::from_bits(rt().atomic(pe, dest.elem(0).offset(), size_of::<T>(), op))
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
            rt().atomic_nbi(pe, dest.elem(0).offset(), size_of::<T>(), op);
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
            T::from_bits(rt().atomic(pe, dest.elem(0).offset(), size_of::<T>(), op))
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

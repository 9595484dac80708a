//! Atomic memory operations on 32 and 64-bit words of any PE.
//!
//! All of them are coherent with each other: on one node they are the processor's own atomics on
//! shared memory. On another node the HCA executes its two (64-bit fetch-and-add and
//! compare-and-swap, of which the others are composed) if its atomics are coherent with the
//! processor's, as the software HCA's are. Otherwise the PE that owns the word executes all of them
//! with the processor's atomics (`SHMEM_ATOMICS`).

pub use shmem_ib::atomic::{AtomicOp, Width};
use shmem_node::recording::Routine;

use crate::context::{Ctx, operate, routines};
use crate::datum::{Atomic, AtomicInt};
use crate::heap::address::SymAddr;
use crate::recording::RecordedCall;
use crate::runtime::Runtime;
use crate::symmetric::element::Element;

impl Ctx {
    /// Executes `op` on an aligned word of `pe`; gives the old value.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn atomic(&self, at: SymAddr, width: Width, op: AtomicOp, pe: usize) -> u64 {
        let call = move |pe| RecordedCall::on(Routine::AtomicFetching, pe, width.bytes(), at);
        operate!(self, pe, [at], call, {
            // SAFETY: the word lies aligned inside the segment.
            Near(word) => unsafe { word.atomic(width, op) },
            Far(rt, pe) => {
                let (part, offset) = rt.remote_word(at);
                rt.far(self.stream(), |net| {
                    net.atomic(pe as u32, part, offset, width, op)
                })
            }
        })
    }

    /// Executes `op` without need of the old value; complete at quiet.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn atomic_plain(&self, at: SymAddr, width: Width, op: AtomicOp, pe: usize) {
        let call = move |pe| RecordedCall::on(Routine::AtomicPlain, pe, width.bytes(), at);
        operate!(self, pe, [at], call, {
            // SAFETY: the word lies aligned inside the segment.
            Near(word) => unsafe { word.post(width, op) },
            Far(rt, pe) => {
                let (part, offset) = rt.remote_word(at);
                rt.far(self.stream(), |net| {
                    net.atomic_plain(pe as u32, part, offset, width, op)
                });
            }
        });
    }

    /// Executes `op`; the old value lies in `fetch` at quiet.
    ///
    /// # Safety
    /// `fetch` is writable for the word's width until quiet, and nobody looks at it before.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn atomic_into(
        &self,
        fetch: *mut u8,
        at: SymAddr,
        width: Width,
        op: AtomicOp,
        pe: usize,
    ) {
        let call = move |pe| RecordedCall::on(Routine::AtomicNbi, pe, width.bytes(), at);
        operate!(self, pe, [at], call, {
            // SAFETY: the word lies aligned inside the segment; `fetch` by the caller; the value is in the low bytes.
            Near(word) => unsafe {
                let old = word.atomic(width, op);
                match width {
                    Width::W4 => fetch.cast::<u32>().write_unaligned(old as u32),
                    Width::W8 => fetch.cast::<u64>().write_unaligned(old),
                }
            },
            Far(rt, pe) => {
                let (part, offset) = rt.remote_word(at);
                // SAFETY: by the caller.
                rt.far(self.stream(), |net| unsafe {
                    net.atomic_fetch_into(pe as u32, part, offset, width, op, fetch)
                });
            }
        });
    }
}

impl Runtime {
    /// The part of a segment elsewhere in which the word at `at` lies, and its offset there.
    fn remote_word(&self, at: SymAddr) -> (u8, u64) {
        self.network().registrar.parts().word(at.offset())
    }
}

#[inline]
#[track_caller]
fn check_aligned(at: SymAddr, width: Width, op: AtomicOp) {
    if !at.offset().is_multiple_of(width.bytes()) {
        misaligned(at, width, op);
    }
}

#[cold]
#[track_caller]
fn misaligned(at: SymAddr, width: Width, op: AtomicOp) -> ! {
    panic!(
        "{} of {} bytes at symmetric offset {:#x}: the address must be a multiple of {}",
        op.name(),
        width.bytes(),
        at.offset(),
        width.bytes()
    )
}

/// Executes `op` on a word of PE `pe` of the context; gives the old value, in the low bytes.
///
/// # Safety
/// `at` is the address of a symmetric word of this width, which whoever uses it meanwhile accesses by
/// atomics, and of which any bits are a value.
///
/// # Panics
/// If the address is no multiple of the width, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_atomic_fetch`, `shmem_atomic_swap`, `shmem_atomic_compare_swap`,
/// `shmem_atomic_fetch_add` and the others that give a value.
#[inline]
#[track_caller]
pub unsafe fn atomic(ctx: &Ctx, at: SymAddr, width: Width, op: AtomicOp, pe: usize) -> u64 {
    check_aligned(at, width, op);
    ctx.atomic(at, width, op, pe)
}

/// Executes `op` on a word of PE `pe` of the context; delivered at the latest by quiet.
///
/// # Safety
/// `at` is the address of a symmetric word of this width, which whoever uses it meanwhile accesses by
/// atomics, and of which any bits are a value.
///
/// # Panics
/// If the address is no multiple of the width, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_atomic_set`, `shmem_atomic_add` and the others that give nothing.
#[inline]
#[track_caller]
pub unsafe fn atomic_post(ctx: &Ctx, at: SymAddr, width: Width, op: AtomicOp, pe: usize) {
    check_aligned(at, width, op);
    ctx.atomic_plain(at, width, op, pe);
}

/// Executes `op` on a word of PE `pe` of the context; the old value lies in `fetch` after quiet.
///
/// # Safety
/// As for [`atomic()`]; `fetch` is writable for the word's width until quiet, and nobody looks at it
/// before.
///
/// # Panics
/// If the address is no multiple of the width, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_atomic_fetch_nbi` and its like.
#[inline]
#[track_caller]
pub unsafe fn atomic_nbi(
    ctx: &Ctx,
    fetch: *mut u8,
    at: SymAddr,
    width: Width,
    op: AtomicOp,
    pe: usize,
) {
    check_aligned(at, width, op);
    // SAFETY: by the caller.
    unsafe { ctx.atomic_into(fetch, at, width, op, pe) };
}

/// The width of a type that atomics work on.
#[inline]
pub const fn width<T: Atomic>() -> Width {
    match Width::of(size_of::<T>()) {
        Some(width) => width,
        None => unreachable!(),
    }
}

/// Defines operations that give the old value.
macro_rules! fetching {
    ($(
        $(#[$doc:meta])*
        $name:ident, $spec:literal; $bound:ident($($arg:ident),*) => $op:expr;
    )*) => { routines! { $(
        $(#[$doc])*
        /// Gives the old value.
        ///
        /// # Panics
        /// If `dest` is an array of another number of elements than one, or there is no such PE.
        ///
        /// # Spec
        #[doc = concat!("OpenSHMEM 1.6, `", $spec, "`.")]
        pub fn $name<T: $bound>(&ctx, dest: impl Element<T>, $($arg: T,)* pe: usize) -> T {
            T::from_bits(ctx.atomic(dest.one().addr(), width::<T>(), $op, pe))
        }
    )* } };
}

fetching! {
    /// Reads `dest` on `pe`, atomically.
    atomic_fetch, "shmem_atomic_fetch"; Atomic() => AtomicOp::Fetch;
    /// Replaces `dest` on `pe`, atomically.
    atomic_swap, "shmem_atomic_swap"; Atomic(value) => AtomicOp::Swap(value.to_bits());
    /// Replaces `dest` on `pe` by `value` if it equals `cond`, atomically. The old
    /// value equals `cond` exactly if it was replaced. [`atomic_compare_exchange`] says which.
    atomic_compare_swap, "shmem_atomic_compare_swap"; AtomicInt(cond, value) => AtomicOp::CompareSwap {
        compare: cond.to_bits(),
        new: value.to_bits(),
    };
    /// Adds 1 to `dest` on `pe`, atomically. Integers wrap.
    atomic_fetch_inc, "shmem_atomic_fetch_inc"; AtomicInt() => AtomicOp::Add(1);
    /// Adds to `dest` on `pe`, atomically. Integers wrap.
    atomic_fetch_add, "shmem_atomic_fetch_add"; AtomicInt(value) => AtomicOp::Add(value.to_bits());
    /// Combines `dest` on `pe` with `value` by bitwise and, atomically.
    atomic_fetch_and, "shmem_atomic_fetch_and"; AtomicInt(value) => AtomicOp::And(value.to_bits());
    /// Combines `dest` on `pe` with `value` by bitwise or, atomically.
    atomic_fetch_or, "shmem_atomic_fetch_or"; AtomicInt(value) => AtomicOp::Or(value.to_bits());
    /// Combines `dest` on `pe` with `value` by exclusive or, atomically.
    atomic_fetch_xor, "shmem_atomic_fetch_xor"; AtomicInt(value) => AtomicOp::Xor(value.to_bits());
}

routines! {
    /// Replaces `dest` on `pe` by `new` if it equals `current`, atomically. `Ok` has the
    /// old value where it was replaced, `Err` where it was another one: as of the standard library's atomics.
    ///
    /// ```
    /// # let _world = shmem::init().unwrap();
    /// // Claims a slot of PE 0's table that nobody has.
    /// let slot = shmem::alloc::<usize>(1).unwrap();
    /// match shmem::atomic_compare_exchange(slot, 0, shmem::my_pe() + 1, 0) {
    ///     Ok(_) => println!("it is mine"),
    ///     Err(owner) => println!("PE {} has it", owner - 1),
    /// }
    /// ```
    ///
    /// # Panics
    /// If `dest` is an array of another number of elements than one, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_atomic_compare_swap`.
    pub fn atomic_compare_exchange<T: AtomicInt>(
        &ctx, dest: impl Element<T>, current: T, new: T, pe: usize,
    ) -> Result<T, T> {
        let (compare, new) = (current.to_bits(), new.to_bits());
        let op = AtomicOp::CompareSwap { compare, new };
        let old = T::from_bits(ctx.atomic(dest.one().addr(), width::<T>(), op, pe));
        if old.to_bits() == compare { Ok(old) } else { Err(old) }
    }
}

/// Defines operations that give nothing.
macro_rules! plain {
    ($(
        $(#[$doc:meta])*
        $name:ident, $spec:literal; $bound:ident($($arg:ident)?) => $op:expr;
    )*) => { routines! { $(
        $(#[$doc])*
        /// Delivered at the latest by quiet.
        ///
        /// # Panics
        /// If `dest` is an array of another number of elements than one, or there is no such PE.
        ///
        /// # Spec
        #[doc = concat!("OpenSHMEM 1.6, `", $spec, "`.")]
        pub fn $name<T: $bound>(&ctx, dest: impl Element<T>, $($arg: T,)? pe: usize) {
            ctx.atomic_plain(dest.one().addr(), width::<T>(), $op, pe);
        }
    )* } };
}

plain! {
    /// Sets `dest` on `pe`, atomically.
    atomic_set, "shmem_atomic_set"; Atomic(value) => AtomicOp::Swap(value.to_bits());
    /// Adds 1 to `dest` on `pe`, atomically. Integers wrap.
    atomic_inc, "shmem_atomic_inc"; AtomicInt() => AtomicOp::Add(1);
    /// Adds to `dest` on `pe`, atomically. Integers wrap.
    atomic_add, "shmem_atomic_add"; AtomicInt(value) => AtomicOp::Add(value.to_bits());
    /// Combines `dest` on `pe` with `value` by bitwise and, atomically.
    atomic_and, "shmem_atomic_and"; AtomicInt(value) => AtomicOp::And(value.to_bits());
    /// Combines `dest` on `pe` with `value` by bitwise or, atomically.
    atomic_or, "shmem_atomic_or"; AtomicInt(value) => AtomicOp::Or(value.to_bits());
    /// Combines `dest` on `pe` with `value` by exclusive or, atomically.
    atomic_xor, "shmem_atomic_xor"; AtomicInt(value) => AtomicOp::Xor(value.to_bits());
}

//! Atomic memory operations.

use std::ffi::c_int;

use shmem::Atomic;
use shmem::raw::{self, AtomicOp, SymAddr, width};

use crate::check;
use crate::handles::Ctx;
use crate::rma;

fn word<T>(name: &str, arg: &str, at: *const T) -> SymAddr {
    let sym = check::symmetric(name, arg, at, size_of::<T>());
    check::aligned(name, arg, at);
    sym
}

/// The short way to an aligned word, where there is one.
#[inline(always)]
fn near<T: Atomic>(ctx: Ctx, at: *const T, pe: c_int) -> Option<raw::Near> {
    let near = rma::near(ctx, at, size_of::<T>(), pe)?;
    at.is_aligned().then_some(near)
}

// The operation comes as a function, made anew on each way: one value for both would have to lie in
// memory for the call, and the short way would look up there what it is.
#[inline(always)]
unsafe fn give<T: Atomic>(
    name: &str,
    ctx: Ctx,
    at: *const T,
    op: impl Fn() -> AtomicOp,
    pe: c_int,
) -> T {
    let bits = match near(ctx, at, pe) {
        // SAFETY: a word of this width, aligned.
        Some(near) => unsafe { near.atomic(width::<T>(), op()) },
        // SAFETY: by the caller.
        None => unsafe { give_checked(name, ctx, at, op(), pe) },
    };
    T::from_bits(bits)
}

#[inline(never)]
unsafe fn give_checked<T: Atomic>(
    name: &str,
    ctx: Ctx,
    at: *const T,
    op: AtomicOp,
    pe: c_int,
) -> u64 {
    let at = word(name, "dest", at);
    // SAFETY: by the caller.
    let ctx = unsafe { ctx.get(name) };
    // SAFETY: `word` has checked the address; its use by the caller.
    unsafe {
        raw::atomic(
            ctx,
            at,
            width::<T>(),
            op,
            check::target(name, "dest", at, ctx, pe),
        )
    }
}

#[inline(always)]
unsafe fn post<T: Atomic>(
    name: &str,
    ctx: Ctx,
    at: *const T,
    op: impl Fn() -> AtomicOp,
    pe: c_int,
) {
    let Some(near) = near(ctx, at, pe) else {
        // SAFETY: by the caller.
        return unsafe { post_checked(name, ctx, at, op(), pe) };
    };
    // SAFETY: a word of this width, aligned.
    unsafe {
        match op() {
            AtomicOp::Swap(value) => near.set(width::<T>(), value),
            op => {
                near.atomic(width::<T>(), op);
            }
        }
    }
}

#[inline(never)]
unsafe fn post_checked<T: Atomic>(name: &str, ctx: Ctx, at: *const T, op: AtomicOp, pe: c_int) {
    let at = word(name, "dest", at);
    // SAFETY: by the caller.
    let ctx = unsafe { ctx.get(name) };
    // SAFETY: `word` has checked the address; its use by the caller.
    unsafe {
        raw::atomic_post(
            ctx,
            at,
            width::<T>(),
            op,
            check::target(name, "dest", at, ctx, pe),
        )
    };
}

#[inline(never)]
unsafe fn give_later<T: Atomic>(
    name: &str,
    ctx: Ctx,
    fetch: *mut T,
    at: *const T,
    op: AtomicOp,
    pe: c_int,
) {
    let at = word(name, "dest", at);
    // SAFETY: by the caller.
    unsafe {
        let ctx = ctx.get(name);
        raw::atomic_nbi(
            ctx,
            fetch.cast(),
            at,
            width::<T>(),
            op,
            check::target(name, "dest", at, ctx, pe),
        );
    }
}

/// Defines routines that give the old value, and their non-blocking forms.
macro_rules! fetching {
    ($($name:ident $nbi:ident ($($arg:ident),*) $ptr:ident => $op:expr;)*) => { $(
        #[inline(always)]
        pub(crate) unsafe fn $name<T: Atomic>(
            name: &str, ctx: Ctx, dest: fetching!(@ $ptr), $($arg: T,)* pe: c_int,
        ) -> T {
            // SAFETY: by the caller.
            unsafe { give(name, ctx, dest, || $op, pe) }
        }
        pub(crate) unsafe fn $nbi<T: Atomic>(
            name: &str, ctx: Ctx, fetch: *mut T, dest: fetching!(@ $ptr), $($arg: T,)* pe: c_int,
        ) {
            // SAFETY: by the caller.
            unsafe { give_later(name, ctx, fetch, dest, $op, pe) };
        }
    )* };
    (@ mutable) => { *mut T };
    (@ constant) => { *const T };
}
fetching! {
    atomic_fetch atomic_fetch_nbi () constant => AtomicOp::Fetch;
    atomic_swap atomic_swap_nbi (value) mutable => AtomicOp::Swap(value.to_bits());
    atomic_compare_swap atomic_compare_swap_nbi (cond, value) mutable => AtomicOp::CompareSwap {
        compare: cond.to_bits(),
        new: value.to_bits(),
    };
    atomic_fetch_inc atomic_fetch_inc_nbi () mutable => AtomicOp::Add(1);
    atomic_fetch_add atomic_fetch_add_nbi (value) mutable => AtomicOp::Add(value.to_bits());
    atomic_fetch_and atomic_fetch_and_nbi (value) mutable => AtomicOp::And(value.to_bits());
    atomic_fetch_or atomic_fetch_or_nbi (value) mutable => AtomicOp::Or(value.to_bits());
    atomic_fetch_xor atomic_fetch_xor_nbi (value) mutable => AtomicOp::Xor(value.to_bits());
}

/// Defines routines that give nothing.
macro_rules! posting {
    ($($name:ident ($($arg:ident),*) => $op:expr;)*) => { $(
        #[inline(always)]
        pub(crate) unsafe fn $name<T: Atomic>(
            name: &str, ctx: Ctx, dest: *mut T, $($arg: T,)* pe: c_int,
        ) {
            // SAFETY: by the caller.
            unsafe { post(name, ctx, dest, || $op, pe) };
        }
    )* };
}
posting! {
    atomic_set (value) => AtomicOp::Swap(value.to_bits());
    atomic_inc () => AtomicOp::Add(1);
    atomic_add (value) => AtomicOp::Add(value.to_bits());
    atomic_and (value) => AtomicOp::And(value.to_bits());
    atomic_or (value) => AtomicOp::Or(value.to_bits());
    atomic_xor (value) => AtomicOp::Xor(value.to_bits());
}

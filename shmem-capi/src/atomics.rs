//! Atomic memory operations. A type matters by its width, and floating-point numbers by their bits.

use std::ffi::c_int;

use shmem::raw::{self, AtomicOp, Sym, Width};

use crate::check;
use crate::handles::Ctx;
use crate::rma;

/// A type that there are atomics for.
pub(crate) trait Word: Copy {
    const WIDTH: Width;
    /// The bits, in the low bytes.
    fn bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
}

macro_rules! words {
    ($($width:ident $bits:ident: $($t:ty)*;)*) => { $($(
        impl Word for $t {
            const WIDTH: Width = Width::$width;
            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from(self as $bits)
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $bits as Self
            }
        }
    )*)* };
}
words! {
    W4 u32: i32 u32;
    W8 u64: i64 u64 isize usize;
}

macro_rules! floats {
    ($($width:ident $bits:ident: $t:ident;)*) => { $(
        impl Word for $t {
            const WIDTH: Width = Width::$width;
            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                $t::from_bits(bits as $bits)
            }
        }
    )* };
}
floats! {
    W4 u32: f32;
    W8 u64: f64;
}

fn word<T>(name: &str, arg: &str, at: *const T) -> Sym {
    let sym = check::symmetric(name, arg, at, size_of::<T>());
    check::aligned(name, arg, at);
    sym
}

/// The short way to an aligned word, where there is one.
#[inline(always)]
fn near<T: Word>(ctx: Ctx, at: *const T, pe: c_int) -> Option<raw::Near> {
    let near = rma::near(ctx, at, size_of::<T>(), pe)?;
    at.is_aligned().then_some(near)
}

// The operation comes as a function, made anew on each way: one value for both would have to lie in
// memory for the call, and the short way would look up there what it is.
#[inline(always)]
unsafe fn give<T: Word>(
    name: &str,
    ctx: Ctx,
    at: *const T,
    op: impl Fn() -> AtomicOp,
    pe: c_int,
) -> T {
    let bits = match near(ctx, at, pe) {
        // SAFETY: a word of this width, aligned.
        Some(near) => unsafe { near.atomic(T::WIDTH, op()) },
        // SAFETY: by the caller.
        None => unsafe { give_checked(name, ctx, at, op(), pe) },
    };
    T::from_bits(bits)
}

#[inline(never)]
unsafe fn give_checked<T: Word>(
    name: &str,
    ctx: Ctx,
    at: *const T,
    op: AtomicOp,
    pe: c_int,
) -> u64 {
    let at = word(name, "dest", at);
    // SAFETY: by the caller.
    let ctx = unsafe { ctx.get(name) };
    raw::atomic(ctx, at, T::WIDTH, op, check::pe(name, ctx, pe))
}

#[inline(always)]
unsafe fn post<T: Word>(name: &str, ctx: Ctx, at: *const T, op: impl Fn() -> AtomicOp, pe: c_int) {
    let Some(near) = near(ctx, at, pe) else {
        // SAFETY: by the caller.
        return unsafe { post_checked(name, ctx, at, op(), pe) };
    };
    // SAFETY: a word of this width, aligned.
    unsafe {
        match op() {
            AtomicOp::Swap(value) => near.set(T::WIDTH, value),
            op => {
                near.atomic(T::WIDTH, op);
            }
        }
    }
}

#[inline(never)]
unsafe fn post_checked<T: Word>(name: &str, ctx: Ctx, at: *const T, op: AtomicOp, pe: c_int) {
    let at = word(name, "dest", at);
    // SAFETY: by the caller.
    let ctx = unsafe { ctx.get(name) };
    raw::atomic_post(ctx, at, T::WIDTH, op, check::pe(name, ctx, pe));
}

#[inline(never)]
unsafe fn give_later<T: Word>(
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
            T::WIDTH,
            op,
            check::pe(name, ctx, pe),
        );
    }
}

/// Defines routines that give the old value, and their non-blocking forms.
macro_rules! fetching {
    ($($name:ident $nbi:ident ($($arg:ident),*) $ptr:ident => $op:expr;)*) => { $(
        #[inline(always)]
        pub(crate) unsafe fn $name<T: Word>(
            name: &str, ctx: Ctx, dest: fetching!(@ $ptr), $($arg: T,)* pe: c_int,
        ) -> T {
            // SAFETY: by the caller.
            unsafe { give(name, ctx, dest, || $op, pe) }
        }
        pub(crate) unsafe fn $nbi<T: Word>(
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
    fetch fetch_nbi () constant => AtomicOp::Fetch;
    swap swap_nbi (value) mutable => AtomicOp::Swap(value.bits());
    compare_swap compare_swap_nbi (cond, value) mutable => AtomicOp::CompareSwap {
        compare: cond.bits(),
        new: value.bits(),
    };
    fetch_inc fetch_inc_nbi () mutable => AtomicOp::Add(1);
    fetch_add fetch_add_nbi (value) mutable => AtomicOp::Add(value.bits());
    fetch_and fetch_and_nbi (value) mutable => AtomicOp::And(value.bits());
    fetch_or fetch_or_nbi (value) mutable => AtomicOp::Or(value.bits());
    fetch_xor fetch_xor_nbi (value) mutable => AtomicOp::Xor(value.bits());
}

/// Defines routines that give nothing.
macro_rules! posting {
    ($($name:ident ($($arg:ident),*) => $op:expr;)*) => { $(
        #[inline(always)]
        pub(crate) unsafe fn $name<T: Word>(
            name: &str, ctx: Ctx, dest: *mut T, $($arg: T,)* pe: c_int,
        ) {
            // SAFETY: by the caller.
            unsafe { post(name, ctx, dest, || $op, pe) };
        }
    )* };
}
posting! {
    set (value) => AtomicOp::Swap(value.bits());
    inc () => AtomicOp::Add(1);
    add (value) => AtomicOp::Add(value.bits());
    and (value) => AtomicOp::And(value.bits());
    or (value) => AtomicOp::Or(value.bits());
    xor (value) => AtomicOp::Xor(value.bits());
}

//! Puts and gets. Types matter by their size only.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use shmem::raw::{self, Blocks, Signal};

use crate::check;
use crate::handles::Ctx;
use crate::signal::{operation, signal_word};

#[inline(always)]
unsafe fn write(
    name: &str,
    ctx: Ctx,
    dest: *mut u8,
    source: *const u8,
    bytes: usize,
    pe: c_int,
    nbi: bool,
) {
    let dest = check::symmetric(name, "dest", dest, bytes);
    // SAFETY: by the caller; the target was checked.
    unsafe {
        let ctx = ctx.get(name);
        raw::put(ctx, dest, source, bytes, check::pe(name, ctx, pe), nbi);
    }
}

#[inline(always)]
unsafe fn read(
    name: &str,
    ctx: Ctx,
    dest: *mut u8,
    source: *const u8,
    bytes: usize,
    pe: c_int,
    nbi: bool,
) {
    let source = check::symmetric(name, "source", source, bytes);
    // SAFETY: by the caller; the source was checked.
    unsafe {
        let ctx = ctx.get(name);
        raw::get(ctx, dest, source, bytes, check::pe(name, ctx, pe), nbi);
    }
}

#[inline(always)]
pub(crate) unsafe fn p<T>(name: &str, ctx: Ctx, dest: *mut T, value: T, pe: c_int) {
    let source = (&raw const value).cast();
    // SAFETY: by the caller.
    unsafe { write(name, ctx, dest.cast(), source, size_of::<T>(), pe, false) };
}

#[inline(always)]
pub(crate) unsafe fn g<T>(name: &str, ctx: Ctx, source: *const T, pe: c_int) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: by the caller; a blocking get has written the whole value, and any bytes are one.
    unsafe {
        let dest = value.as_mut_ptr().cast();
        read(name, ctx, dest, source.cast(), size_of::<T>(), pe, false);
        value.assume_init()
    }
}

/// Routines that copy an array.
macro_rules! copies {
    ($($(#[$inline:meta])* $name:ident: $way:ident, $nbi:literal;)*) => { $(
        $(#[$inline])*
        pub(crate) unsafe fn $name<T>(
            name: &str,
            ctx: Ctx,
            dest: *mut T,
            source: *const T,
            nelems: usize,
            pe: c_int,
        ) {
            let bytes = check::bytes::<T>(nelems);
            // SAFETY: by the caller.
            unsafe { $way(name, ctx, dest.cast(), source.cast(), bytes, pe, $nbi) };
        }
    )* };
}
copies! {
    #[inline(always)]
    put: write, false;
    #[inline(always)]
    get: read, false;
    put_nbi: write, true;
    get_nbi: read, true;
}

/// The shape of a strided copy, and the bytes from its first to its last one at destination and
/// source. `None` if there is nothing to copy.
fn shape<T>(
    name: &str,
    dst: isize,
    sst: isize,
    bsize: usize,
    nblocks: usize,
) -> Option<(Blocks, usize, usize)> {
    if bsize == 0 || nblocks == 0 {
        return None;
    }
    let least = bsize as isize;
    for (arg, stride) in [("dst", dst), ("sst", sst)] {
        if stride < least && nblocks > 1 {
            check::refuse(
                name,
                format_args!("{arg} = {stride}: blocks of {bsize} elements would overlap"),
            );
        }
    }
    let extent = |stride: isize| {
        let starts = (nblocks - 1).saturating_mul(stride.unsigned_abs());
        check::bytes::<T>(starts.saturating_add(bsize))
    };
    let blocks = Blocks::new(nblocks, bsize, size_of::<T>(), dst, sst);
    Some((blocks, extent(dst), extent(sst)))
}

pub(crate) unsafe fn ibput<T>(
    name: &str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    bsize: usize,
    nblocks: usize,
    pe: c_int,
) {
    check::running(name);
    let Some((blocks, extent, _)) = shape::<T>(name, dst, sst, bsize, nblocks) else {
        return;
    };
    let dest = check::symmetric(name, "dest", dest, extent);
    // SAFETY: by the caller; the whole extent of the target was checked.
    unsafe {
        let ctx = ctx.get(name);
        raw::put_blocks(ctx, dest, source.cast(), blocks, check::pe(name, ctx, pe));
    }
}

pub(crate) unsafe fn ibget<T>(
    name: &str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    bsize: usize,
    nblocks: usize,
    pe: c_int,
) {
    check::running(name);
    let Some((blocks, _, extent)) = shape::<T>(name, dst, sst, bsize, nblocks) else {
        return;
    };
    let source = check::symmetric(name, "source", source, extent);
    // SAFETY: by the caller; the whole extent of the source was checked.
    unsafe {
        let ctx = ctx.get(name);
        raw::get_blocks(ctx, dest.cast(), source, blocks, check::pe(name, ctx, pe));
    }
}

pub(crate) unsafe fn iput<T>(
    name: &str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    nelems: usize,
    pe: c_int,
) {
    // SAFETY: by the caller.
    unsafe { ibput(name, ctx, dest, source, dst, sst, 1, nelems, pe) };
}

pub(crate) unsafe fn iget<T>(
    name: &str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    nelems: usize,
    pe: c_int,
) {
    // SAFETY: by the caller.
    unsafe { ibget(name, ctx, dest, source, dst, sst, 1, nelems, pe) };
}

/// Puts that are announced by a signal.
macro_rules! with_signal {
    ($($name:ident: $nbi:literal;)*) => { $(
        pub(crate) unsafe fn $name<T>(
            name: &str,
            ctx: Ctx,
            dest: *mut T,
            source: *const T,
            nelems: usize,
            sig_addr: *mut u64,
            signal: u64,
            sig_op: c_int,
            pe: c_int,
        ) {
            let bytes = check::bytes::<T>(nelems);
            let dest = check::symmetric(name, "dest", dest, bytes);
            let signal = Signal {
                at: signal_word(name, sig_addr),
                value: signal,
                op: operation(name, sig_op),
            };
            // SAFETY: by the caller; the target was checked.
            unsafe {
                let ctx = ctx.get(name);
                let pe = check::pe(name, ctx, pe);
                raw::put_signal(ctx, dest, source.cast(), bytes, signal, pe, $nbi);
            }
        }
    )* };
}
with_signal! {
    put_signal: false;
    put_signal_nbi: true;
}

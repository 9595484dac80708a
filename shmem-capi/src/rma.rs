//! Puts and gets. Types matter by their size only.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use shmem::raw::{self, Completion, Signal};

use crate::check;
use crate::handles::Ctx;
use crate::signal::{operation, signal_word};

/// A call of a routine that copies bytes.
#[derive(Clone, Copy)]
struct CopyCall<'a> {
    name: &'a str,
    ctx: Ctx,
    bytes: usize,
    pe: c_int,
    completion: Completion,
}

impl<'a> CopyCall<'a> {
    /// Of a routine that copies a value.
    fn of_value<T>(name: &'a str, ctx: Ctx, pe: c_int) -> Self {
        Self {
            name,
            ctx,
            bytes: size_of::<T>(),
            pe,
            completion: Completion::OnReturn,
        }
    }

    /// Writes to a neighbour at once; what is not plainly one goes the long way, with all checks.
    #[inline(always)]
    unsafe fn put(self, dest: *mut u8, source: *const u8) {
        match near(self.ctx, dest, self.bytes, self.pe) {
            // SAFETY: by the caller.
            Some(near) => unsafe { near.put(source, self.bytes) },
            // SAFETY: by the caller.
            None => unsafe { self.put_checked(dest, source) },
        }
    }

    #[inline(never)]
    unsafe fn put_checked(self, dest: *mut u8, source: *const u8) {
        let dest = check::symmetric(self.name, "dest", dest, self.bytes);
        // SAFETY: by the caller; the target was checked.
        unsafe {
            let ctx = self.ctx.get(self.name);
            let pe = check::target(self.name, "dest", dest, ctx, self.pe);
            ctx.put_bytes(dest, source, self.bytes, pe, self.completion);
        }
    }

    /// As [`put`](Self::put), from a neighbour.
    #[inline(always)]
    unsafe fn get(self, dest: *mut u8, source: *const u8) {
        match near(self.ctx, source, self.bytes, self.pe) {
            // SAFETY: by the caller.
            Some(near) => unsafe { near.get(dest, self.bytes) },
            // SAFETY: by the caller.
            None => unsafe { self.get_checked(dest, source) },
        }
    }

    #[inline(never)]
    unsafe fn get_checked(self, dest: *mut u8, source: *const u8) {
        let source = check::symmetric(self.name, "source", source, self.bytes);
        // SAFETY: by the caller; the source was checked.
        unsafe {
            let ctx = self.ctx.get(self.name);
            let pe = check::target(self.name, "source", source, ctx, self.pe);
            ctx.get_bytes(dest, source, self.bytes, pe, self.completion);
        }
    }
}

/// The short way, where there is one: on the default context, whose PEs are those of the job.
#[inline(always)]
pub(crate) fn near<T>(ctx: Ctx, at: *const T, bytes: usize, pe: c_int) -> Option<raw::Near> {
    if ctx != Ctx::DEFAULT {
        return None;
    }
    // A negative number becomes one that is too large.
    raw::near(at.cast(), bytes, pe as usize)
}

/// A type whose values are their bytes.
pub(crate) trait Plain: Sized {
    /// # Safety
    /// As for [`raw::Near::store`].
    unsafe fn store(self, near: raw::Near);
    /// # Safety
    /// As for [`raw::Near::load`].
    unsafe fn load(near: raw::Near) -> Self;
}

macro_rules! plain {
    ($($t:ty)*) => { $(
        impl Plain for $t {
            #[inline(always)]
            unsafe fn store(self, near: raw::Near) {
                // SAFETY: by the caller.
                unsafe { near.store(self.to_ne_bytes()) };
            }
            #[inline(always)]
            unsafe fn load(near: raw::Near) -> Self {
                // SAFETY: by the caller.
                Self::from_ne_bytes(unsafe { near.load() })
            }
        }
    )* };
}
plain! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 }

#[inline(always)]
pub(crate) unsafe fn p<T: Plain>(name: &str, ctx: Ctx, dest: *mut T, value: T, pe: c_int) {
    match near(ctx, dest, size_of::<T>(), pe) {
        // SAFETY: the range was found for a value of this size.
        Some(near) => unsafe { value.store(near) },
        None => {
            let (dest, source) = (dest.cast(), (&raw const value).cast());
            // SAFETY: by the caller.
            unsafe { CopyCall::of_value::<T>(name, ctx, pe).put_checked(dest, source) };
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn g<T: Plain>(name: &str, ctx: Ctx, source: *const T, pe: c_int) -> T {
    match near(ctx, source, size_of::<T>(), pe) {
        // SAFETY: the range was found for a value of this size.
        Some(near) => unsafe { T::load(near) },
        None => {
            let mut value = MaybeUninit::<T>::uninit();
            let (dest, source) = (value.as_mut_ptr().cast(), source.cast());
            // SAFETY: by the caller; a blocking get has written the whole value, and any bytes are
            // one.
            unsafe {
                CopyCall::of_value::<T>(name, ctx, pe).get_checked(dest, source);
                value.assume_init()
            }
        }
    }
}

/// Routines that copy an array.
macro_rules! copies {
    ($($(#[$inline:meta])* $name:ident: $way:ident, $completion:ident;)*) => { $(
        $(#[$inline])*
        pub(crate) unsafe fn $name<T>(
            name: &str,
            ctx: Ctx,
            dest: *mut T,
            source: *const T,
            nelems: usize,
            pe: c_int,
        ) {
            let (bytes, completion) = (check::bytes::<T>(nelems), Completion::$completion);
            let call = CopyCall { name, ctx, bytes, pe, completion };
            // SAFETY: by the caller.
            unsafe { call.$way(dest.cast(), source.cast()) };
        }
    )* };
}
copies! {
    #[inline(always)]
    put: put, OnReturn;
    #[inline(always)]
    get: get, OnReturn;
    put_nbi: put, AtQuiet;
    get_nbi: get, AtQuiet;
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
    if bsize == 0 || nblocks == 0 {
        return;
    }
    let (blocks, extent, _) = check::blocks::<T>(name, dst, sst, bsize, nblocks);
    let dest = check::symmetric(name, "dest", dest, extent);
    // SAFETY: by the caller; the whole extent of the target was checked.
    unsafe {
        let ctx = ctx.get(name);
        let (pe, completion) = (
            check::target(name, "dest", dest, ctx, pe),
            Completion::OnReturn,
        );
        raw::put_blocks(ctx, dest, source.cast(), blocks, pe, completion);
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
    if bsize == 0 || nblocks == 0 {
        return;
    }
    let (blocks, _, extent) = check::blocks::<T>(name, dst, sst, bsize, nblocks);
    let source = check::symmetric(name, "source", source, extent);
    // SAFETY: by the caller; the whole extent of the source was checked.
    unsafe {
        let ctx = ctx.get(name);
        raw::get_blocks(
            ctx,
            dest.cast(),
            source,
            blocks,
            check::target(name, "source", source, ctx, pe),
            Completion::OnReturn,
        );
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
    ($($name:ident: $completion:ident;)*) => { $(
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
                check::target(name, "sig_addr", signal.at, ctx, pe);
                let pe = check::target(name, "dest", dest, ctx, pe);
                raw::put_signal(ctx, dest, source.cast(), bytes, signal, pe, Completion::$completion);
            }
        }
    )* };
}
with_signal! {
    put_signal: OnReturn;
    put_signal_nbi: AtQuiet;
}

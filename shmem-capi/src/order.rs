//! Fence and quiet. On the invalid context they do nothing.

use std::ffi::c_int;

use shmem::raw;

use crate::check;
use crate::handles::Ctx;

pub(crate) unsafe fn fence(name: &str, ctx: Ctx) {
    check::running(name);
    // SAFETY: by the caller.
    if let Some(ctx) = unsafe { ctx.find() } {
        ctx.fence();
    }
}

#[inline(always)]
pub(crate) unsafe fn quiet(name: &str, ctx: Ctx) {
    if !raw::quiet_alone() {
        // SAFETY: by the caller.
        unsafe { quiet_checked(name, ctx) };
    }
}

#[inline(never)]
unsafe fn quiet_checked(name: &str, ctx: Ctx) {
    check::running(name);
    // SAFETY: by the caller.
    if let Some(ctx) = unsafe { ctx.find() } {
        ctx.quiet();
    }
}

pub(crate) unsafe fn pe_quiet(name: &str, ctx: Ctx, target_pes: *const c_int, npes: usize) {
    check::running(name);
    // SAFETY: by the caller.
    let Some(ctx) = (unsafe { ctx.find() }) else {
        return;
    };
    if npes > 0 {
        // SAFETY: by the caller.
        let pes = unsafe { std::slice::from_raw_parts(target_pes, npes) };
        ctx.pe_quiet(pes.iter().map(|&pe| check::pe(name, ctx, pe)));
    }
}

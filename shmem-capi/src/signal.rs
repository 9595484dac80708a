//! Signal words.

use std::ffi::c_int;

use shmem::raw::{self, AtomicOp, SignalOp, SymAddr, Width};

use crate::check;
use crate::constants::{SHMEM_SIGNAL_ADD, SHMEM_SIGNAL_SET};
use crate::handles::Ctx;
use crate::sync;

/// Where a signal word is.
#[inline]
pub(crate) fn signal_word(name: &str, at: *const u64) -> SymAddr {
    let sym = check::symmetric(name, "sig_addr", at, size_of::<u64>());
    check::aligned(name, "sig_addr", at);
    sym
}

/// A `sig_op`.
#[inline]
pub(crate) fn operation(name: &str, sig_op: c_int) -> SignalOp {
    match sig_op {
        SHMEM_SIGNAL_SET => SignalOp::Set,
        SHMEM_SIGNAL_ADD => SignalOp::Add,
        _ => check::refuse(
            name,
            format_args!(
                "sig_op = {sig_op} is neither SHMEM_SIGNAL_SET ({SHMEM_SIGNAL_SET}) nor \
                 SHMEM_SIGNAL_ADD ({SHMEM_SIGNAL_ADD})"
            ),
        ),
    }
}

unsafe fn update(name: &str, ctx: Ctx, at: *mut u64, op: AtomicOp, pe: c_int) {
    let at = signal_word(name, at);
    // SAFETY: by the caller.
    let ctx = unsafe { ctx.get(name) };
    // SAFETY: the address was checked; its use by the caller.
    unsafe {
        raw::atomic_post(
            ctx,
            at,
            Width::W8,
            op,
            check::target(name, "sig_addr", at, ctx, pe),
        )
    };
}

pub(crate) unsafe fn signal_add(name: &str, ctx: Ctx, sig_addr: *mut u64, signal: u64, pe: c_int) {
    // SAFETY: by the caller.
    unsafe { update(name, ctx, sig_addr, AtomicOp::Add(signal), pe) };
}

pub(crate) unsafe fn signal_set(name: &str, ctx: Ctx, sig_addr: *mut u64, signal: u64, pe: c_int) {
    // SAFETY: by the caller.
    unsafe { update(name, ctx, sig_addr, AtomicOp::Swap(signal), pe) };
}

pub(crate) unsafe fn signal_fetch(name: &str, sig_addr: *const u64) -> u64 {
    signal_word(name, sig_addr);
    // SAFETY: an aligned word of symmetric memory, as was checked.
    unsafe { raw::signal_word(sig_addr) }
}

pub(crate) unsafe fn signal_wait_until(
    name: &str,
    sig_addr: *mut u64,
    cmp: c_int,
    value: u64,
) -> u64 {
    // SAFETY: by the caller.
    unsafe { sync::wait_for(name, "sig_addr", sig_addr, cmp, value) }
}

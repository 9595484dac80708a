//! Where nobody has written the assembly: byte by byte.

use std::sync::atomic::{AtomicU8, Ordering, fence};

/// # Safety
/// As for `access::copy`.
pub(crate) unsafe fn few(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the caller.
    unsafe { bulk(from, to, len) }
}

/// # Safety
/// As for `access::copy`.
#[inline(never)]
pub(crate) unsafe fn bulk(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the caller.
    let byte = |i: usize| unsafe {
        let value = AtomicU8::from_ptr(from.add(i).cast_mut()).load(Ordering::Relaxed);
        AtomicU8::from_ptr(to.add(i)).store(value, Ordering::Relaxed);
    };
    // What is read must not have been overwritten.
    match from.addr() < to.addr() {
        true => (0..len).rev().for_each(byte),
        false => (0..len).for_each(byte),
    }
}

/// # Safety
/// As for `access::zero`.
#[inline]
pub(crate) unsafe fn zero(at: *mut u8, len: usize) {
    for i in 0..len {
        // SAFETY: by the caller.
        unsafe { AtomicU8::from_ptr(at.add(i)) }.store(0, Ordering::Relaxed);
    }
}

pub(crate) fn full_fence() {
    fence(Ordering::SeqCst);
}

// Nobody has looked up how these processors order what devices write, so the choice takes no device here. A
// processor that counts as known there needs a file of its own with the barrier.
const _: () = assert!(!shmem_ib::device::choice::ORDERS_DEVICES);

pub(crate) fn acquire_of_devices() {}

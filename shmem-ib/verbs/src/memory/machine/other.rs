//! Where nobody has written the assembly: byte by byte.

use std::sync::atomic::{AtomicU8, Ordering, fence};

/// Whether [`acquire_of_devices`] orders what a device writes into memory.
pub const ORDERS_DEVICES: bool = false;

macro_rules! loads {
    ($($name:ident: $word:ty;)*) => { $(
        /// # Safety
        /// The word is mapped and aligned.
        #[inline(always)]
        pub(crate) unsafe fn $name(from: *const u8) -> $word {
            // SAFETY: by the caller. It is volatile, since an atomic takes memory only that may be written.
            unsafe { from.cast::<$word>().read_volatile() }
        }
    )* };
}

loads! {
    load_8: u64;
    load_4: u32;
    load_2: u16;
    load_1: u8;
}

/// # Safety
/// As for `memory::copy`.
pub(crate) unsafe fn few(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the caller.
    unsafe { bulk(from, to, len) }
}

/// # Safety
/// As for `memory::copy`.
#[inline(never)]
pub(crate) unsafe fn bulk(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the caller.
    let byte = |i: usize| unsafe {
        let value = load_1(from.add(i));
        AtomicU8::from_ptr(to.add(i)).store(value, Ordering::Relaxed);
    };
    // What is read must not have been overwritten.
    match from.addr() < to.addr() {
        true => (0..len).rev().for_each(byte),
        false => (0..len).for_each(byte),
    }
}

/// # Safety
/// As for `memory::zero`.
#[inline]
pub(crate) unsafe fn zero(at: *mut u8, len: usize) {
    for i in 0..len {
        // SAFETY: by the caller.
        unsafe { AtomicU8::from_ptr(at.add(i)) }.store(0, Ordering::Relaxed);
    }
}

/// Orders all accesses of this thread before it against all after it, for all who look.
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Nobody has looked up how these processors order what devices write, so no device is chosen here.
pub fn acquire_of_devices() {}

//! AArch64: NEON, which all of these processors have.

use std::arch::asm;
use std::sync::atomic::{Ordering, fence};

/// Whether [`acquire_of_devices`] orders what a device writes into memory.
pub const ORDERS_DEVICES: bool = true;

// A word in one access, as a relaxed atomic loads it.
macro_rules! loads {
    ($($name:ident: $word:ty, $register:ty, $load:literal;)*) => { $(
        /// # Safety
        /// The word is mapped and aligned.
        #[inline(always)]
        pub(crate) unsafe fn $name(from: *const u8) -> $word {
            let value: $register;
            // SAFETY: by the caller; it only loads.
            unsafe {
                asm!(
                    $load,
                    value = out(reg) value,
                    from = in(reg) from,
                    options(nostack, preserves_flags, readonly),
                );
            }
            value as $word
        }
    )* };
}

loads! {
    load_8: u64, u64, "ldr {value:x}, [{from}]";
    load_4: u32, u32, "ldr {value:w}, [{from}]";
    load_2: u16, u32, "ldrh {value:w}, [{from}]";
    load_1: u8, u32, "ldrb {value:w}, [{from}]";
}

/// Copies 16 to 64 bytes without a call, which would cost more than the copy. All is loaded before
/// anything is stored.
///
/// In assembly, because the copy may race: see the head of `memory`.
///
/// # Safety
/// As for `memory::copy`; `len` is 16 to 64.
#[inline(always)]
pub(crate) unsafe fn few(from: *const u8, to: *mut u8, len: usize) {
    debug_assert!((16..=64).contains(&len));
    let (from_end, to_end) = (from.wrapping_add(len), to.wrapping_add(len));
    // The end is copied from its end: the halves of what is no power of two overlap.
    // SAFETY: with 16 bytes at least, the first and the last 16 lie in both ranges; with more than 32, the
    // second and the last but one too.
    unsafe {
        if len <= 32 {
            asm!(
                "ldr {a:q}, [{from}]",
                "ldur {b:q}, [{from_end}, #-16]",
                "str {a:q}, [{to}]",
                "stur {b:q}, [{to_end}, #-16]",
                a = out(vreg) _, b = out(vreg) _,
                from = in(reg) from, from_end = in(reg) from_end,
                to = in(reg) to, to_end = in(reg) to_end,
                options(nostack, preserves_flags),
            );
        } else {
            asm!(
                "ldp {a:q}, {b:q}, [{from}]",
                "ldp {c:q}, {d:q}, [{from_end}, #-32]",
                "stp {a:q}, {b:q}, [{to}]",
                "stp {c:q}, {d:q}, [{to_end}, #-32]",
                a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
                from = in(reg) from, from_end = in(reg) from_end,
                to = in(reg) to, to_end = in(reg) to_end,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// A copy that is worth a call.
///
/// # Safety
/// As for `memory::copy`.
#[inline(never)]
pub(crate) unsafe fn bulk(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the caller; a call as the C calling convention has it, of a function that does not
    // unwind.
    unsafe {
        asm!(
            "bl {memmove}",
            memmove = sym libc::memmove,
            in("x0") to, in("x1") from, in("x2") len,
            clobber_abi("C"),
        );
    }
}

/// # Safety
/// As for `memory::zero`.
#[inline]
pub(crate) unsafe fn zero(at: *mut u8, len: usize) {
    // SAFETY: as in `bulk`.
    unsafe {
        asm!(
            "bl {memset}",
            memset = sym libc::memset,
            in("x0") at, in("x1") 0, in("x2") len,
            clobber_abi("C"),
        );
    }
}

#[inline(always)]
/// Orders all accesses of this thread before it against all after it, for all who look.
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Acquiring orders what processors do. Devices that are no part of their coherence may need more: this is
/// `udma_from_device_barrier` of rdma-core. The software HCA is a processor's work. Every look
/// and every atomic operation executes the barrier, also on a machine without devices: a test would be needed each time.
#[inline(always)]
pub fn acquire_of_devices() {
    // SAFETY: a barrier; it touches no memory and no register.
    unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) };
}

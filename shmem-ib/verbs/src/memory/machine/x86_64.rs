//! x86-64: SSE2 always, AVX where the processor has it.

use std::arch::asm;
use std::sync::atomic::{Ordering, compiler_fence};

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
    load_8: u64, u64, "mov {value}, [{from}]";
    load_4: u32, u32, "mov {value:e}, [{from}]";
    load_2: u16, u32, "movzx {value:e}, word ptr [{from}]";
    load_1: u8, u32, "movzx {value:e}, byte ptr [{from}]";
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
    // The end is copied from its end: the halves of what is no power of two overlap.
    // SAFETY: SSE2 is part of x86-64. With 16 bytes at least, the first and the last 16 lie in both
    // ranges; with more than 32, the second and the last but one too.
    unsafe {
        if len <= 32 {
            asm!(
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + {len} - 16]",
                "movdqu [{to}], {a}",
                "movdqu [{to} + {len} - 16], {b}",
                a = out(xmm_reg) _, b = out(xmm_reg) _,
                from = in(reg) from, to = in(reg) to, len = in(reg) len,
                options(nostack, preserves_flags),
            );
        } else {
            asm!(
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + {len} - 32]",
                "movdqu {d}, [{from} + {len} - 16]",
                "movdqu [{to}], {a}",
                "movdqu [{to} + 16], {b}",
                "movdqu [{to} + {len} - 32], {c}",
                "movdqu [{to} + {len} - 16], {d}",
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                from = in(reg) from, to = in(reg) to, len = in(reg) len,
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
    if wide::SIZES.contains(&len)
        && (from as usize).abs_diff(to as usize) >= len
        && std::arch::is_x86_feature_detected!("avx")
    {
        // SAFETY: by the caller; the processor has AVX, the ranges do not overlap.
        return unsafe { wide::copy(from, to, len) };
    }
    // SAFETY: by the caller; a call as the C calling convention has it, of a function that does not
    // unwind.
    unsafe {
        asm!(
            "call {memmove}",
            memmove = sym libc::memmove,
            in("rdi") to, in("rsi") from, in("rdx") len,
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
            "call {memset}",
            memset = sym libc::memset,
            in("rdi") at, in("rsi") 0, in("rdx") len,
            clobber_abi("C"),
        );
    }
}

/// A locked instruction that changes nothing orders as MFENCE does, in a fraction of the time.
#[inline(always)]
/// Orders all accesses of this thread before it against all after it, for all who look.
pub fn full_fence() {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: adds nothing to a word of this thread's stack; flags are clobbered as is the default.
    unsafe {
        asm!("lock or dword ptr [rsp], 0");
    }
    compiler_fence(Ordering::SeqCst);
}

/// Every load acquires, whoever wrote.
#[inline(always)]
pub fn acquire_of_devices() {}

/// Copies in vectors of 32 bytes.
///
/// Where processors say that they are good at `rep movsb`, the C library copies with it from a few
/// KiB on. On some of them that crawls, a byte at a time, if the target lies a few bytes behind the
/// source within a page, which is what memory from `malloc` does to arrays that begin a page. Stores
/// to aligned addresses are as fast as memory everywhere.
mod wide {
    use std::arch::asm;
    use std::ops::RangeInclusive;

    /// Where it pays: below, the C library uses vectors itself; above, it goes round the caches.
    pub(super) const SIZES: RangeInclusive<usize> = 512..=4 << 20;

    /// # Safety
    /// As for `memory::copy`; the processor has AVX, the ranges do not overlap, and `len` is in
    /// [`SIZES`].
    #[inline]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // Four vectors a turn, to aligned addresses; the first vector and the last four cover what the
        // turns leave.
        // SAFETY: what is loaded and stored lies in both ranges, as they are longer than a turn and a
        // vector. No register of a caller's has an upper half that is in use.
        unsafe {
            asm!(
                "vmovdqu ymm0, [rdi]",
                "vmovdqu [rsi], ymm0",
                ".p2align 4",
                "2:",
                "vmovdqu ymm0, [rdi + rax]",
                "vmovdqu ymm1, [rdi + rax + 32]",
                "vmovdqu ymm2, [rdi + rax + 64]",
                "vmovdqu ymm3, [rdi + rax + 96]",
                "vmovdqa [rsi + rax], ymm0",
                "vmovdqa [rsi + rax + 32], ymm1",
                "vmovdqa [rsi + rax + 64], ymm2",
                "vmovdqa [rsi + rax + 96], ymm3",
                "sub rax, -128",
                "cmp rax, rdx",
                "jbe 2b",
                "vmovdqu ymm0, [rdi + rdx + 96]",
                "vmovdqu [rsi + rdx + 96], ymm0",
                "vmovdqu ymm0, [rdi + rdx + 64]",
                "vmovdqu [rsi + rdx + 64], ymm0",
                "vmovdqu ymm0, [rdi + rdx + 32]",
                "vmovdqu [rsi + rdx + 32], ymm0",
                "vmovdqu ymm0, [rdi + rdx]",
                "vmovdqu [rsi + rdx], ymm0",
                "vzeroupper",
                in("rdi") from,
                in("rsi") to,
                in("rdx") len - 128,
                inlateout("rax") 32 - to.addr() % 32 => _,
                clobber_abi("C"),
                options(nostack),
            );
        }
    }
}

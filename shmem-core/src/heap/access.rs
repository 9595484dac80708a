//! The only place that dereferences addresses of symmetric memory, but for [`shmem_ib::atomic`].
//!
//! See the Safety section of the parent module for why these operations are sound although other
//! processes touch the same bytes.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Copies `len` bytes. Naturally aligned words of 1, 2, 4 or 8 bytes are copied in one access, so
/// flags and counters never appear torn.
///
/// # Safety
/// Both ranges are mapped for the whole copy, and `to` is writable. They may overlap.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // Copies a word in one access if it is aligned.
    macro_rules! word {
        ($atomic:ident) => {
            if (from as usize | to as usize).is_multiple_of(size_of::<$atomic>()) {
                // SAFETY: mapped by the caller, and aligned.
                unsafe {
                    let value = $atomic::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
                    $atomic::from_ptr(to.cast()).store(value, Ordering::Relaxed);
                }
                return;
            }
        };
    }
    // The most frequent lengths come first.
    if len == 8 {
        word!(AtomicU64);
    }
    #[cfg(target_arch = "x86_64")]
    if (16..=64).contains(&len) {
        // SAFETY: by the caller.
        return unsafe { few(from, to, len) };
    }
    match len {
        4 => word!(AtomicU32),
        2 => word!(AtomicU16),
        1 => word!(AtomicU8),
        _ => {}
    }
    // SAFETY: by the caller.
    unsafe { bulk(from, to, len) }
}

/// Copies 16 to 64 bytes without a call, which would cost more than the copy. All is loaded before
/// anything is stored.
///
/// In assembly, because the copy may race: see the parent module's Safety section.
///
/// # Safety
/// As for [`copy`]; `len` is 16 to 64.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn few(from: *const u8, to: *mut u8, len: usize) {
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
/// As for [`copy`].
#[inline(never)]
unsafe fn bulk(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if wide::SIZES.contains(&len)
        && (from as usize).abs_diff(to as usize) >= len
        && std::arch::is_x86_feature_detected!("avx")
    {
        // SAFETY: by the caller; the processor has AVX, the ranges do not overlap.
        return unsafe { wide::copy(from, to, len) };
    }
    // SAFETY: by the caller.
    unsafe { machine::copy(from, to, len) }
}

/// The C library's routines as machine code. The compiler knows what `memmove` and `memset` do, and may
/// reason about a call of them as about any access of the program's own, which must not race; what a
/// block of assembly calls it knows nothing about.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod machine {
    use std::arch::asm;

    /// # Safety
    /// As for [`copy`](super::copy).
    #[inline]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: by the caller; a call as the C calling convention has it, of a function that does not
        // unwind.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                "call {memmove}",
                memmove = sym libc::memmove,
                in("rdi") to, in("rsi") from, in("rdx") len,
                clobber_abi("C"),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                "bl {memmove}",
                memmove = sym libc::memmove,
                in("x0") to, in("x1") from, in("x2") len,
                clobber_abi("C"),
            );
        }
    }

    /// # Safety
    /// As for [`zero`](super::zero).
    #[inline]
    pub(super) unsafe fn zero(at: *mut u8, len: usize) {
        // SAFETY: as above.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                "call {memset}",
                memset = sym libc::memset,
                in("rdi") at, in("rsi") 0, in("rdx") len,
                clobber_abi("C"),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                "bl {memset}",
                memset = sym libc::memset,
                in("x0") at, in("x1") 0, in("x2") len,
                clobber_abi("C"),
            );
        }
    }
}

/// Where nobody has written the assembly: byte by byte.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    use std::sync::atomic::{AtomicU8, Ordering};

    /// # Safety
    /// As for [`copy`](super::copy).
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
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
    /// As for [`zero`](super::zero).
    pub(super) unsafe fn zero(at: *mut u8, len: usize) {
        for i in 0..len {
            // SAFETY: by the caller.
            unsafe { AtomicU8::from_ptr(at.add(i)) }.store(0, Ordering::Relaxed);
        }
    }
}

/// Copies in vectors of 32 bytes.
///
/// Where processors say that they are good at `rep movsb`, the C library copies with it from a few
/// KiB on. On some of them that crawls, a byte at a time, if the target lies a few bytes behind the
/// source within a page, which is what memory from `malloc` does to arrays that begin a page. Stores
/// to aligned addresses are as fast as memory everywhere.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::asm;
    use std::ops::RangeInclusive;

    /// Where it pays: below, the C library uses vectors itself; above, it goes round the caches.
    pub(super) const SIZES: RangeInclusive<usize> = 512..=4 << 20;

    /// # Safety
    /// As for [`copy`](super::copy); the processor has AVX, the ranges do not overlap, and `len` is in
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

/// Sets `len` bytes to zero.
///
/// # Safety
/// The range is mapped and writable.
pub(crate) unsafe fn zero(at: *mut u8, len: usize) {
    // SAFETY: by the caller.
    unsafe { machine::zero(at, len) }
}

/// Loads an aligned word of 8 bytes, after which comes what this thread reads then.
///
/// # Safety
/// The word is mapped and aligned.
#[inline]
pub(crate) unsafe fn load(at: *const u8) -> u64 {
    // SAFETY: by the caller.
    unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) }.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_length_and_alignment() {
        let from: Vec<u8> = (0..100).collect();
        for offset in 0..8 {
            for len in 0..90 {
                let mut to = [0xee; 100];
                // SAFETY: both ranges lie inside their buffers.
                unsafe { copy(from.as_ptr().add(offset), to.as_mut_ptr().add(3), len) };
                assert_eq!(to[..3], [0xee; 3]);
                assert_eq!(to[3..3 + len], from[offset..offset + len]);
                assert_eq!(to[3 + len..], [0xee; 100][3 + len..]);
            }
        }
    }

    #[test]
    fn long_copies_of_every_alignment() {
        const LENS: [usize; 8] = [511, 512, 513, 639, 640, 4096, 5001, 65_536];
        let from: Vec<u8> = (0..70_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        for len in LENS {
            for (source, target) in (0..34).flat_map(|a| [(a, 0), (0, a), (a, 33 - a)]) {
                let mut to = vec![0xee; len + 100];
                // SAFETY: both ranges lie inside their buffers.
                unsafe { copy(from.as_ptr().add(source), to.as_mut_ptr().add(target), len) };
                let copied = &to[target..target + len];
                assert!(
                    copied == &from[source..source + len],
                    "{len} at {source}, {target}"
                );
                let around = to[..target].iter().chain(&to[target + len..]);
                assert!(around.copied().all(|b| b == 0xee), "{len} at {target}");
            }
        }
    }

    #[test]
    fn zeroes_are_written_to_the_range_alone() {
        for (at, len) in [(0, 0), (1, 1), (3, 7), (5, 64), (0, 1000), (7, 5000)] {
            let mut bytes = vec![0xee; at + len + 9];
            // SAFETY: the range lies inside the buffer.
            unsafe { zero(bytes.as_mut_ptr().add(at), len) };
            let inside = |i: usize| (at..at + len).contains(&i);
            let right = |(i, &b): (usize, &u8)| b == if inside(i) { 0 } else { 0xee };
            assert!(bytes.iter().enumerate().all(right), "{len} at {at}");
        }
    }

    #[test]
    fn ranges_may_overlap() {
        for len in [16, 24, 32, 40, 64, 100, 2500, 10_000] {
            for shift in [1, 8, 15, 32, 63, 64, 2000] {
                let before: Vec<u8> = (0..len + shift).map(|i| ((i * 11) >> 2) as u8).collect();
                let (mut up, mut down) = (before.clone(), before.clone());
                // SAFETY: both ranges lie inside the buffers.
                unsafe {
                    copy(up.as_ptr(), up.as_mut_ptr().add(shift), len);
                    copy(down.as_ptr().add(shift), down.as_mut_ptr(), len);
                }
                assert!(up[shift..] == before[..len], "{len} up by {shift}");
                assert!(down[..len] == before[shift..], "{len} down by {shift}");
            }
        }
    }
}

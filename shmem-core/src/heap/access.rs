//! The only place that dereferences addresses of symmetric memory, but for [`shmem_ib::atomic`].
//!
//! See the Safety section of the parent module for why these operations are sound although other
//! processes touch the same bytes.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::ptr;
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

/// The copy that may race. Not inlined: see the parent module's Safety section.
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
    unsafe { ptr::copy(from, to, len) }
}

/// Copies in vectors of 32 bytes.
///
/// Where processors say that they are good at `rep movsb`, the C library copies with it from a few
/// KiB on. On some of them that crawls, a byte at a time, if the target lies a few bytes behind the
/// source within a page, which is what memory from `malloc` does to arrays that begin a page. Stores
/// to aligned addresses are as fast as memory everywhere.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_store_si256, _mm256_storeu_si256};
    use std::ops::RangeInclusive;

    /// Where it pays: below, the C library uses vectors itself; above, it goes round the caches.
    pub(super) const SIZES: RangeInclusive<usize> = 512..=4 << 20;
    const VECTOR: usize = size_of::<__m256i>();
    /// Bytes of a turn of the loop.
    const TURN: usize = 4 * VECTOR;

    /// # Safety
    /// As for [`copy`](super::copy); the ranges do not overlap, and `len` is in [`SIZES`].
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        let end = len - VECTOR;
        // SAFETY: what is loaded and stored lies in both ranges, as they are longer than a turn. The
        // stores of the turns are aligned, and the last vectors cover what the turns leave.
        unsafe {
            _mm256_storeu_si256(to.cast(), _mm256_loadu_si256(from.cast()));
            let mut at = VECTOR - to as usize % VECTOR;
            while at + TURN <= len {
                let (from, to) = (from.add(at).cast::<__m256i>(), to.add(at).cast::<__m256i>());
                let a = _mm256_loadu_si256(from);
                let b = _mm256_loadu_si256(from.add(1));
                let c = _mm256_loadu_si256(from.add(2));
                let d = _mm256_loadu_si256(from.add(3));
                _mm256_store_si256(to, a);
                _mm256_store_si256(to.add(1), b);
                _mm256_store_si256(to.add(2), c);
                _mm256_store_si256(to.add(3), d);
                at += TURN;
            }
            for back in (0..TURN).step_by(VECTOR) {
                let vector = _mm256_loadu_si256(from.add(end - back).cast());
                _mm256_storeu_si256(to.add(end - back).cast(), vector);
            }
        }
    }
}

/// Loads an aligned word of 4 or 8 bytes.
///
/// # Safety
/// The word is mapped and aligned.
#[inline]
pub(crate) unsafe fn load(at: *const u8, bytes: usize) -> u64 {
    // SAFETY: by the caller.
    unsafe {
        if bytes == 4 {
            u64::from(AtomicU32::from_ptr(at.cast_mut().cast()).load(Ordering::Acquire))
        } else {
            AtomicU64::from_ptr(at.cast_mut().cast()).load(Ordering::Acquire)
        }
    }
}

/// Combines `n` elements into `into`: `into[i] = f(into[i], from[i])`.
///
/// # Safety
/// Both arrays are mapped and aligned for `n` elements, `into` is writable and nobody else's
/// meanwhile, any bytes are a `T`. They are the same array or do not overlap.
pub(crate) unsafe fn combine<T: Copy>(
    into: *mut T,
    from: *const T,
    n: usize,
    f: impl Fn(T, T) -> T,
) {
    for i in 0..n {
        // SAFETY: by the caller.
        unsafe { into.add(i).write(f(into.add(i).read(), from.add(i).read())) };
    }
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

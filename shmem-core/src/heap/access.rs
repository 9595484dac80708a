//! The only place that dereferences addresses of symmetric memory, but for [`shmem_ib::atomic`].
//!
//! See the Safety section of the parent module for why these operations are sound although other
//! processes touch the same bytes.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Copies `len` bytes. Naturally aligned words of 1, 2, 4 or 8 bytes are copied in one access, so
/// flags and counters never appear torn.
///
/// # Safety
/// Both ranges are mapped for the whole copy, and `to` is writable. They may overlap.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let aligned = |n: usize| (from as usize | to as usize).is_multiple_of(n);
    // SAFETY: mapped by the caller; alignment was just checked for each width.
    unsafe {
        match len {
            8 if aligned(8) => {
                let v = AtomicU64::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
                AtomicU64::from_ptr(to.cast()).store(v, Ordering::Relaxed);
            }
            4 if aligned(4) => {
                let v = AtomicU32::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
                AtomicU32::from_ptr(to.cast()).store(v, Ordering::Relaxed);
            }
            2 if aligned(2) => {
                let v = AtomicU16::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
                AtomicU16::from_ptr(to.cast()).store(v, Ordering::Relaxed);
            }
            1 => {
                let v = AtomicU8::from_ptr(from.cast_mut()).load(Ordering::Relaxed);
                AtomicU8::from_ptr(to).store(v, Ordering::Relaxed);
            }
            _ => bulk(from, to, len),
        }
    }
}

/// The copy that may race. Not inlined: see the parent module's Safety section.
///
/// # Safety
/// As for [`copy`].
#[inline(never)]
unsafe fn bulk(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the caller.
    unsafe { ptr::copy(from, to, len) }
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
        let from: Vec<u8> = (0..64).collect();
        for offset in 0..8 {
            for len in 0..40 {
                let mut to = [0xee; 64];
                // SAFETY: both ranges lie inside their buffers.
                unsafe { copy(from.as_ptr().add(offset), to.as_mut_ptr().add(3), len) };
                assert_eq!(to[3..3 + len], from[offset..offset + len]);
                assert_eq!(to[3 + len], 0xee);
            }
        }
    }
}

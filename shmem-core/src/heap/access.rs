//! The only place that dereferences addresses of symmetric memory.
//!
//! See the Safety section of the parent module for why these operations are sound although other
//! processes touch the same bytes.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// What an atomic memory operation does to a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    /// Reads.
    Fetch,
    /// Replaces.
    Swap(u64),
    /// Replaces if equal.
    CompareSwap {
        /// What the word must hold.
        compare: u64,
        /// What it gets.
        new: u64,
    },
    /// Adds, wrapping.
    Add(u64),
    /// Combines bitwise.
    And(u64),
    /// Combines bitwise.
    Or(u64),
    /// Combines bitwise.
    Xor(u64),
}

impl AtomicOp {
    /// The new value of a word of `bytes` bytes that holds `old`.
    pub(crate) fn apply(self, old: u64, bytes: usize) -> u64 {
        let new = match self {
            Self::Fetch => old,
            Self::Swap(new) => new,
            Self::CompareSwap { compare, new } => {
                if old == compare {
                    new
                } else {
                    old
                }
            }
            Self::Add(n) => old.wrapping_add(n),
            Self::And(n) => old & n,
            Self::Or(n) => old | n,
            Self::Xor(n) => old ^ n,
        };
        if bytes == 4 { new & 0xffff_ffff } else { new }
    }
}

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

/// Executes an atomic operation on an aligned word of 4 or 8 bytes; gives the old value.
///
/// # Safety
/// The word is mapped, writable and aligned.
#[inline]
pub(crate) unsafe fn atomic(at: *mut u8, bytes: usize, op: AtomicOp) -> u64 {
    macro_rules! run {
        ($atomic:ty, $word:ty) => {{
            // SAFETY: by the caller.
            let word = unsafe { <$atomic>::from_ptr(at.cast()) };
            let old = match op {
                AtomicOp::Fetch => word.load(Ordering::SeqCst),
                AtomicOp::Swap(v) => word.swap(v as $word, Ordering::SeqCst),
                AtomicOp::CompareSwap { compare, new } => word
                    .compare_exchange(
                        compare as $word,
                        new as $word,
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    )
                    .unwrap_or_else(|seen| seen),
                AtomicOp::Add(v) => word.fetch_add(v as $word, Ordering::SeqCst),
                AtomicOp::And(v) => word.fetch_and(v as $word, Ordering::SeqCst),
                AtomicOp::Or(v) => word.fetch_or(v as $word, Ordering::SeqCst),
                AtomicOp::Xor(v) => word.fetch_xor(v as $word, Ordering::SeqCst),
            };
            u64::from(old)
        }};
    }
    if bytes == 4 {
        run!(AtomicU32, u32)
    } else {
        run!(AtomicU64, u64)
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
    fn apply_is_what_atomic_does() {
        let ops = [
            AtomicOp::Fetch,
            AtomicOp::Swap(0x1_0000_0007),
            AtomicOp::CompareSwap {
                compare: 0xffff_fff0,
                new: 3,
            },
            AtomicOp::CompareSwap { compare: 1, new: 3 },
            AtomicOp::Add(0x20),
            AtomicOp::And(0xff),
            AtomicOp::Or(0xf),
            AtomicOp::Xor(u64::MAX),
        ];
        for bytes in [4, 8] {
            for op in ops {
                let mut word = 0xffff_fff0u64;
                let at = (&raw mut word).cast::<u8>();
                // SAFETY: a local, aligned word.
                let old = unsafe { atomic(at, bytes, op) };
                assert_eq!(old, 0xffff_fff0);
                // SAFETY: as above.
                let new = unsafe { load(at, bytes) };
                assert_eq!(new, op.apply(old, bytes), "{op:?} on {bytes} bytes");
            }
        }
    }

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

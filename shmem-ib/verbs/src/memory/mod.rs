//! Memory that others write at any time: copies, zeroes and looks at words.
//!
//! Others are processes of the node, devices, and threads of the own program. Therefore nobody makes `&T` or `&mut T` to
//! such memory. Naturally aligned words are loaded and stored by atomics, and all else is copied in assembly: Rust
//! has no copy of many bytes that may race. What a block of assembly does to memory is for the compiler like what another
//! thread does with atomics of bytes, and the processor knows no data races. A copy that races with another access
//! yields some mix of old and new bytes.

mod machine;

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

pub use machine::{ORDERS_DEVICES, acquire_of_devices, full_fence};

/// Copies `len` bytes. Naturally aligned words of 1, 2, 4 or 8 bytes are copied in one access, so
/// flags and counters never appear torn.
///
/// # Safety
/// Both ranges are mapped for the whole copy, and `to` is writable. They may overlap.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // Copies a word in one access if it is aligned. `from` may be what nobody may write, which an atomic does not take.
    macro_rules! word {
        ($load:ident, $atomic:ident) => {
            if (from as usize | to as usize).is_multiple_of(size_of::<$atomic>()) {
                // SAFETY: mapped by the caller, and aligned.
                unsafe {
                    let value = machine::$load(from);
                    $atomic::from_ptr(to.cast()).store(value, Ordering::Relaxed);
                }
                return;
            }
        };
    }
    // The most frequent lengths come first.
    if len == 8 {
        word!(load_8, AtomicU64);
    }
    if (16..=64).contains(&len) {
        // SAFETY: by the caller.
        return unsafe { machine::few(from, to, len) };
    }
    match len {
        4 => word!(load_4, AtomicU32),
        2 => word!(load_2, AtomicU16),
        1 => word!(load_1, AtomicU8),
        _ => {}
    }
    // SAFETY: by the caller.
    unsafe { machine::bulk(from, to, len) }
}

/// Sets `len` bytes to zero.
///
/// # Safety
/// The range is mapped and writable.
pub unsafe fn zero(at: *mut u8, len: usize) {
    // SAFETY: by the caller.
    unsafe { machine::zero(at, len) }
}

/// Loads an aligned word of 8 bytes, after which comes what this thread reads then.
///
/// # Safety
/// The word is mapped, writable and aligned.
#[inline]
pub unsafe fn load(at: *const u8) -> u64 {
    // SAFETY: by the caller.
    let value = unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) }.load(Ordering::Acquire);
    acquire_of_devices();
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a borrowed source allows is enough.
    #[test]
    fn words_come_from_memory_that_is_not_to_be_written() {
        static WORD: u64 = 0x0807_0605_0403_0201;
        let from = (&raw const WORD).cast::<u8>();
        for len in [1, 2, 4, 8] {
            let mut to = 0u64;
            // SAFETY: both words have 8 bytes.
            unsafe { copy(from, (&raw mut to).cast(), len) };
            assert_eq!(to, WORD & u64::MAX >> (64 - 8 * len), "{len}");
        }
    }

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

//! Atomic memory operations on words, executed by the processor.
//!
//! PEs execute them on memory of their own node, and owners of memory execute them for peers whose
//! HCAs cannot ([`connect::endpoint::Atomics`](crate::endpoint::Atomics)). Both do it here, so
//! that they are atomic with respect to each other.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What an atomic memory operation does to a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOp {
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

/// Size of the word that an atomic works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// 4 bytes.
    W4,
    /// 8 bytes.
    W8,
}

impl Width {
    /// The width of words of so many bytes, if atomics work on such.
    #[must_use]
    #[inline]
    pub const fn of(bytes: usize) -> Option<Self> {
        match bytes {
            4 => Some(Self::W4),
            8 => Some(Self::W8),
            _ => None,
        }
    }

    /// In bytes.
    #[must_use]
    #[inline]
    pub const fn bytes(self) -> usize {
        match self {
            Self::W4 => 4,
            Self::W8 => 8,
        }
    }
}

impl AtomicOp {
    /// The new value of a word that holds `old`.
    #[must_use]
    pub const fn apply(self, old: u64, width: Width) -> u64 {
        let mask = match width {
            Width::W4 => 0xffff_ffff,
            Width::W8 => u64::MAX,
        };
        let new = match self {
            Self::Fetch => old,
            Self::Swap(new) => new,
            Self::CompareSwap { compare, new } => {
                // Of a signed number of 4 bytes the rest is its sign.
                if old == compare & mask { new } else { old }
            }
            Self::Add(n) => old.wrapping_add(n),
            Self::And(n) => old & n,
            Self::Or(n) => old | n,
            Self::Xor(n) => old ^ n,
        };
        new & mask
    }

    /// The name as used in error messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fetch => "atomic fetch",
            Self::Swap(_) => "atomic swap",
            Self::CompareSwap { .. } => "atomic compare-and-swap",
            Self::Add(_) => "atomic add",
            Self::And(_) => "atomic and",
            Self::Or(_) => "atomic or",
            Self::Xor(_) => "atomic exclusive or",
        }
    }
}

/// Executes an atomic operation on a word; gives the old value. All of them are in one order that
/// every processor sees.
///
/// # Safety
/// The word is mapped, writable, and aligned to its width; whoever else accesses it meanwhile does so
/// by atomics.
#[inline]
pub unsafe fn execute(at: *mut u8, width: Width, op: AtomicOp) -> u64 {
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
    match width {
        Width::W4 => run!(AtomicU32, u32),
        Width::W8 => run!(AtomicU64, u64),
    }
}

/// Sets a word, atomically, after everything that this thread has written before.
///
/// # Safety
/// As for [`execute`].
#[inline]
pub unsafe fn store(at: *mut u8, width: Width, value: u64) {
    // SAFETY: by the caller.
    unsafe {
        match width {
            Width::W4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::Release),
            Width::W8 => AtomicU64::from_ptr(at.cast()).store(value, Ordering::Release),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apply_is_what_execute_does() {
        let ops = [
            AtomicOp::Fetch,
            AtomicOp::Swap(0x1_0000_0007),
            AtomicOp::CompareSwap {
                compare: 0xffff_fff0,
                new: 3,
            },
            AtomicOp::CompareSwap { compare: 1, new: 3 },
            // The number of 4 bytes with its sign extended.
            AtomicOp::CompareSwap {
                compare: 0xffff_ffff_ffff_fff0,
                new: 3,
            },
            AtomicOp::Add(0x20),
            AtomicOp::And(0xff),
            AtomicOp::Or(0xf),
            AtomicOp::Xor(u64::MAX),
        ];
        for width in [Width::W4, Width::W8] {
            for op in ops {
                let mut word = 0xffff_fff0u64;
                let at = (&raw mut word).cast::<u8>();
                // SAFETY: a local, aligned word.
                let old = unsafe { execute(at, width, op) };
                assert_eq!(old, 0xffff_fff0);
                // SAFETY: as above.
                let new = unsafe { execute(at, width, AtomicOp::Fetch) };
                assert_eq!(new, op.apply(old, width), "{op:?} on {width:?}");
                assert!(width == Width::W8 || word >> 32 == 0, "{op:?}");
            }
        }
    }
}

//! Which PEs of other nodes are known to have the static data of this PE, and which are known to have other data.

use std::sync::atomic::{AtomicU64, Ordering};

/// PEs in a word.
const PER_WORD: usize = 32;
/// Bits of a PE: its layout is this PE's, or it is another one.
const ALIKE: u64 = 0b01;
const OTHER: u64 = 0b10;

/// Two bits for each PE of the job. A layout never changes, so what was found once holds for all lives.
pub(super) struct Layouts(Box<[AtomicU64]>);

impl Layouts {
    /// Nothing is known of `n_pes` PEs.
    pub(super) fn of(n_pes: usize) -> Self {
        let words = (0..n_pes.div_ceil(PER_WORD)).map(|_| AtomicU64::new(0));
        Self(words.collect())
    }

    /// Whether the static data of `pe` is laid out as this PE's, if that is known.
    #[inline]
    pub(super) fn is_alike(&self, pe: usize) -> Option<bool> {
        let word = self.0[pe / PER_WORD].load(Ordering::Relaxed);
        match word >> (pe % PER_WORD * 2) & (ALIKE | OTHER) {
            0 => None,
            bits => Some(bits == ALIKE),
        }
    }

    /// Notes, and returns, whether it is.
    pub(super) fn note(&self, pe: usize, alike: bool) -> bool {
        let bit = if alike { ALIKE } else { OTHER };
        self.0[pe / PER_WORD].fetch_or(bit << (pe % PER_WORD * 2), Ordering::Relaxed);
        alike
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pe_is_asked_once() {
        let layouts = Layouts::of(100);
        assert!((0..100).all(|pe| layouts.is_alike(pe).is_none()));
        for pe in 0..99 {
            assert_eq!(layouts.note(pe, pe % 3 != 0), pe % 3 != 0);
        }
        assert!((0..99).all(|pe| layouts.is_alike(pe) == Some(pe % 3 != 0)));
        assert_eq!(layouts.is_alike(99), None);
    }
}

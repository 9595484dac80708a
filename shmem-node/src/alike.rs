//! Whether the PEs of a node have their static data laid out alike.
//!
//! PEs may be of different programs, or of different builds of one. An offset in static data then means another
//! variable to another PE. Every PE notes its own layout before the barrier of init and looks after it, so where all are
//! alike, as nearly always, no operation has to ask.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::elf::PRIVATE_LAYOUT;

/// In the first region of the heap memory. Zeroed memory notes nobody.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Alike {
    /// The layout that the first PE has noted.
    layout: AtomicU64,
    /// Not 0 if another PE has noted something else.
    differ: AtomicU32,
}

impl Alike {
    /// Notes the layout of a PE, before the barrier of init; 0 if its static data is not symmetric.
    pub fn note(&self, layout: u64) {
        let layout = if layout == 0 { PRIVATE_LAYOUT } else { layout };
        // The barrier orders all of it.
        let noted = self
            .layout
            .compare_exchange(0, layout, Ordering::Relaxed, Ordering::Relaxed);
        if noted.is_err_and(|first| first != layout) {
            self.differ.store(1, Ordering::Relaxed);
        }
    }

    /// Whether PEs of the node differ, after that barrier.
    pub fn differ(&self) -> bool {
        self.differ.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pes_differ_if_one_of_them_does() {
        for (layouts, differ) in [
            (&[7, 7, 7][..], false),
            (&[7, 7, 9], true),
            (&[9, 7, 7], true),
            (&[0, 0], false),
            (&[0, 7], true),
            (&[7, 0], true),
        ] {
            let alike = Alike::default();
            layouts.iter().for_each(|&layout| alike.note(layout));
            assert_eq!(alike.differ(), differ, "{layouts:?}");
        }
    }
}

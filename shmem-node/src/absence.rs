//! PEs that ended without ever initialising, for those who would wait for them.
//!
//! Init meets all PEs of the node, and one that never calls it is no mistake as long as nobody does: any
//! program can be started. So the NLA notes the first that ended without, and looks who is in init
//! already; who comes later finds the note. Both write first and look then, so one of them sees.

use crate::sync::{AtomicU32, Ordering, fence};

/// In the first region of the heap memory, behind the node barrier. Zeroed memory notes nobody.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Absence {
    /// 1 + the rank.
    rank: AtomicU32,
    /// Not 0 once a PE of the node has been in finalize.
    leaving: AtomicU32,
}

impl Absence {
    /// For the NLA: notes a PE. Returns whether it is the first, so that the NLA has to look who
    /// waits for it; who comes after that finds it noted.
    pub fn note(&self, rank: u32) -> bool {
        let noted = self
            .rank
            .compare_exchange(0, rank + 1, Ordering::Relaxed, Ordering::Relaxed);
        // ORDERING(absence): the note comes before the look at PEs' states.
        fence(Ordering::SeqCst);
        noted.is_ok()
    }

    /// For a PE that has said that it is in init: the rank of one that never will be.
    pub fn noted(&self) -> Option<u32> {
        // ORDERING(absence): the PE's state comes before the look at the note.
        fence(Ordering::SeqCst);
        self.rank.load(Ordering::Relaxed).checked_sub(1)
    }

    /// For a PE that is in finalize: whether it is the first of its node, which tells the agent.
    pub fn leaves_first(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) == 0 && self.leaving.swap(1, Ordering::Relaxed) == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_noted() {
        let absence = Absence::default();
        assert_eq!(absence.noted(), None);
        assert!(absence.note(0));
        assert!(!absence.note(7));
        assert_eq!(absence.noted(), Some(0));
        assert!(absence.leaves_first());
        assert!(!absence.leaves_first());
    }
}

//! Which slot a team has, and what lies in it.
//!
//! A *slot* is a piece of the runtime's part of every segment. All members of a team use the slot
//! of the same number, each for its own segment, which makes its contents symmetric. Teams without
//! a common member may have the same slot: nothing in it is reached but by members.
//!
//! Almost everything in a slot is used by *leaders* only, the first members of a team on their
//! nodes, and a page that nobody touches takes no memory.

#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use shmem_node::layout::INTERNAL_SIZE;

use crate::tree::MAX_CHILDREN;

/// Number of slots, so of teams that a PE can be in at a time, the world and the shared team
/// included.
pub const MAX_TEAMS: usize = 63;

/// Bytes of a slot.
pub(crate) const SLOT_SIZE: usize = 64 << 10;

pub(crate) use shmem_node::layout::LINE;

// The first page: barrier, flags and words.
/// The meeting point of the members on the node whose leader has this segment.
pub(crate) const BARRIER: usize = 0;
/// Flag of messages that come down the tree.
pub(crate) const DOWN_FLAG: usize = 512;
/// Flags of messages from children, a line each.
pub(crate) const UP_FLAGS: usize = DOWN_FLAG + LINE;
/// In the same lines, for operations in rounds with leaders 1, 2, 4 ... nodes away: how many messages the one to the left has sent,
/// and how many the one to the right allows.
pub(crate) const ARRIVED: usize = UP_FLAGS + 8;
pub(crate) const ALLOWED: usize = UP_FLAGS + 16;
/// There, too: the number of a reduction for which a partner has sent its sums.
pub(crate) const DOUBLED: usize = UP_FLAGS + 24;
/// Numbers that only this member itself uses: rounds of the tree, exchanges of lines, operations in rounds, and
/// reductions by doubling.
pub(crate) const COUNTERS: usize = UP_FLAGS + MAX_CHILDREN * LINE;
/// A word of this member for the others of its node: its part in a collective. Two more for this member: what
/// the PE that acts for all gives it.
pub(crate) const ARGUMENT: usize = COUNTERS + LINE;
/// Two words, what a member proposes and what all agree on.
pub(crate) const PROPOSAL: usize = ARGUMENT + LINE;
pub(crate) const AGREED: usize = PROPOSAL + 8;
/// What this member says of the collective that it begins, where members compare that.
pub(crate) const ANNOUNCED: usize = PROPOSAL + LINE;
/// Two lines that this member shows the others, so far apart that no processor fetches one with the other.
pub(crate) const LINES: usize = 3 << 10;
pub(crate) const LINES_APART: usize = 256;
/// Bytes of data that a line has; a number follows.
pub(crate) const LINE_DATA: usize = LINE - 8;
/// A value that this member gives to a reduction, and what it gets from that.
pub(crate) const VALUE: usize = LINES + 2 * LINES_APART;
/// Bytes of the place for it.
pub(crate) const VALUE_SIZE: usize = 512;

// The boxes. `collectives::links` says which PE writes them when.
/// Where messages of other leaders land.
pub(crate) const LANDING: usize = 4 << 10;
/// What the leader shows to its node and sends to its children.
pub(crate) const SHOWN: usize = LANDING + BOX;
/// Bytes of either.
pub(crate) const BOX: usize = 18 << 10;
/// Bytes of a landing box that belong to one child where partial results come up.
pub(crate) const MAILBOX: usize = 1 << 10;
/// Staging room, for what is added to something or passed on: two pieces. A PE that writes there has been allowed to by the
/// receiver, but for reductions by doubling.
pub(crate) const STAGING: usize = SHOWN + BOX;
pub(crate) const STAGED: usize = 2 * PIECE;
/// Bytes of a piece.
pub(crate) const PIECE: usize = 12 << 10;

const _: () = assert!(LINES + LINES_APART + LINE <= VALUE);
const _: () = assert!(VALUE + VALUE_SIZE <= LANDING);
const _: () = assert!(MAX_CHILDREN * MAILBOX <= BOX);
const _: () = assert!(STAGING + STAGED <= SLOT_SIZE);
const _: () = assert!(MAX_TEAMS * SLOT_SIZE <= INTERNAL_SIZE);
const _: () = assert!(MAX_TEAMS < 64);

/// Slots of the teams that always exist.
pub(crate) const WORLD: usize = 0;
pub(crate) const SHARED: usize = 1;

/// Slots that are free when only these teams exist, a bit each.
pub(crate) const FREE_AT_FIRST: u64 = ((1 << MAX_TEAMS) - 1) & !(1 << WORLD | 1 << SHARED);

/// The slots in which a PE has no team. Threads of the PE may split different teams at the same time.
#[derive(Debug)]
pub(crate) struct Free(Mutex<State>);

#[derive(Debug)]
struct State {
    /// A bit each.
    slots: u64,
    /// How many claims may still be given up.
    pending: u32,
    /// How often `slots` has changed.
    changes: u64,
}

impl State {
    const NEW: Self = Self {
        slots: FREE_AT_FIRST,
        pending: 0,
        changes: 0,
    };
}

/// What is free at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) slots: u64,
    /// Changes so far.
    changes: u64,
    pending: bool,
}

impl Look {
    /// Whether what is free now was free ever since an earlier look, and nobody is about to give up
    /// what is not. If that is so on all PEs, and all had looked before any of them looked again, there
    /// was a moment at which all this was so together.
    pub(crate) fn is_settled(&self, since: Option<Self>) -> bool {
        !self.pending && since.is_some_and(|since| since.changes == self.changes)
    }
}

impl Free {
    /// All but those of the teams that always exist.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State::NEW))
    }

    /// The same again.
    pub(crate) fn renew(&self) {
        *self.state() = State::NEW;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn look(&self) -> Look {
        let state = self.state();
        Look {
            slots: state.slots,
            changes: state.changes,
            pending: state.pending > 0,
        }
    }

    /// Takes all of these slots, if they are free, until [`settle`](Self::settle). Returns whether it
    /// did.
    pub(crate) fn claim(&self, slots: u64) -> bool {
        let mut state = self.state();
        if state.slots & slots != slots {
            return false;
        }
        if slots != 0 {
            state.slots &= !slots;
            state.pending += 1;
            state.changes += 1;
        }
        true
    }

    /// Keeps what was claimed, or gives it up.
    pub(crate) fn settle(&self, slots: u64, keep: bool) {
        if slots == 0 {
            return;
        }
        self.state().pending -= 1;
        if !keep {
            self.release(slots);
        }
    }

    /// These slots have no team any more.
    pub(crate) fn release(&self, slots: u64) {
        let mut state = self.state();
        state.slots |= slots;
        state.changes += 1;
    }
}

/// Offset of a slot in a segment.
pub(crate) const fn offset(slot: usize) -> usize {
    slot * SLOT_SIZE
}

/// The `N` lowest slots of a set.
pub(crate) fn lowest<const N: usize>(mut free: u64) -> Option<[usize; N]> {
    let mut slots = [0; N];
    for slot in &mut slots {
        *slot = (free != 0).then(|| free.trailing_zeros() as usize)?;
        free &= free - 1;
    }
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_moves_is_settled() {
        let free = Free::new();
        let first = free.look();
        assert!(!first.is_settled(None) && free.look().is_settled(Some(first)));
        assert!(free.claim(0b1100) && !free.claim(0b11000) && free.claim(0));
        let claimed = free.look();
        assert_eq!(claimed.slots, FREE_AT_FIRST & !0b1100);
        assert!(!claimed.is_settled(Some(first)) && !free.look().is_settled(Some(claimed)));
        free.settle(0, false);
        free.settle(0b1100, true);
        // What was not free then is not free now.
        assert!(free.look().is_settled(Some(claimed)));
        assert!(free.claim(0b10000));
        free.settle(0b10000, false);
        assert_eq!(free.look().slots, claimed.slots);
        assert!(!free.look().is_settled(Some(claimed)));
        free.release(0b1100);
        assert_eq!(free.look().slots, FREE_AT_FIRST);
    }

    #[test]
    fn slots_are_taken_from_below_and_run_out() {
        assert_eq!(lowest(FREE_AT_FIRST), Some([2]));
        assert_eq!(lowest(0b1010_0000), Some([5, 7]));
        assert_eq!(lowest::<2>(1 << 62), None);
        assert_eq!(lowest::<1>(0), None);
        let mut free = FREE_AT_FIRST;
        let mut taken = 2;
        while let Some([slot]) = lowest(free) {
            assert!(offset(slot) + SLOT_SIZE <= INTERNAL_SIZE);
            free &= !(1 << slot);
            taken += 1;
        }
        assert_eq!(taken, MAX_TEAMS);
    }
}

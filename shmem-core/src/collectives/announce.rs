//! Finding members that are in different collectives, or in the same with other sizes: in debug
//! builds each says what it is in, and whoever acts for a node compares.
//!
//! Only members of one node are compared. A release build takes no time for that; it only notes, without a
//! message to anybody, which collective this PE is in, for those who ask what it waits for.

use std::fmt;
use std::sync::atomic::Ordering;

use shmem_node::waiting::{Collective, Wait};

use super::select::Operation;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::ANNOUNCED;

/// The words of an announcement: the operation's number and one with it, and bytes.
const WORDS: usize = 2;

/// Where announcements lie in a slot: the current one, and those of the last two exchanges of lines.
const CURRENT: usize = 0;

/// What a member says.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Announcement([u64; WORDS]);

impl Announcement {
    fn new(operation: Operation, bytes: usize, root: usize) -> Self {
        // All zero is no announcement.
        Self([(1 + operation as u64) | ((root as u64) << 8), bytes as u64])
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, bytes] = self.0;
        let number = usize::from(first as u8).checked_sub(1);
        let Some(operation) = number.and_then(|number| Operation::ALL.get(number)) else {
            return f.write_str("no collective");
        };
        let (bytes, root) = (bytes.to_string(), (first >> 8).to_string());
        f.write_str(&operation.text().replace('N', &bytes).replace('R', &root))
    }
}

impl Runtime {
    /// Says what collective this member is in. Bytes are those of one PE's contribution.
    #[inline]
    pub(super) fn announce(&self, team: &Team, operation: Operation, bytes: usize, root: usize) {
        self.announce_as(operation.collective(), team, operation, bytes, root);
    }

    /// The same where the program called something that is done by another operation.
    #[inline]
    pub(super) fn announce_as(
        &self,
        call: Collective,
        team: &Team,
        operation: Operation,
        bytes: usize,
        root: usize,
    ) {
        let number = team.begin(call);
        if team.is_world() {
            self.block.begun.store(number, Ordering::Relaxed);
        }
        if cfg!(debug_assertions) {
            self.say(team, CURRENT, Announcement::new(operation, bytes, root));
        }
    }

    /// For what this PE waits in a collective of `team`.
    pub(super) fn in_collective(&self, team: &Team) -> Wait {
        let (call, number) = team.begun();
        Wait::Collective {
            call,
            team: team.told(),
            number,
        }
    }

    fn say(&self, team: &Team, place: usize, said: Announcement) {
        for (i, word) in said.0.into_iter().enumerate() {
            self.set_word(team.slot(ANNOUNCED) + 8 * (WORDS * place + i), word);
        }
    }

    fn said(&self, team: &Team, place: usize, i: usize) -> Announcement {
        let local = team.mapping().local(i);
        Announcement(std::array::from_fn(|word| {
            let at = team.slot(ANNOUNCED) + 8 * (WORDS * place + word);
            // SAFETY: an aligned word of a segment of this node.
            unsafe { crate::heap::access::load(self.neighbour(local, at)) }
        }))
    }

    /// Keeps what this member says until the exchange of lines after the next.
    #[inline]
    pub(super) fn announce_lines(&self, team: &Team, number: u64) {
        if cfg!(debug_assertions) {
            let said = self.said(team, CURRENT, team.mapping().index());
            self.say(team, 1 + (number % 2) as usize, said);
        }
    }

    /// When the members of this node have exchanged lines.
    ///
    /// # Panics
    /// If they are in different collectives.
    #[inline]
    pub(super) fn compare_lines(&self, team: &Team, number: u64) {
        self.compare(team, 1 + (number % 2) as usize);
    }

    /// While the members of this node wait.
    ///
    /// # Panics
    /// If they are in different collectives.
    #[inline]
    pub(super) fn compare_meeting(&self, team: &Team) {
        self.compare(team, CURRENT);
    }

    #[inline]
    fn compare(&self, team: &Team, place: usize) {
        if cfg!(debug_assertions) {
            let mine = self.said(team, place, team.mapping().index());
            for i in 0..team.mapping().n_here() {
                let theirs = self.said(team, place, i);
                assert!(
                    mine == theirs,
                    "PE {} is in {mine} of {team}, but PE {} in {theirs}; all members must call the \
                     same collectives in the same order with matching arguments",
                    self.me,
                    self.node.ranks()[team.mapping().local(i)],
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_say_what_they_are() {
        let text = |operation| Announcement::new(operation, 24, 3).to_string();
        assert_eq!(Announcement([0, 0]).to_string(), "no collective");
        assert_eq!(text(Operation::Broadcast), "a broadcast of 24 bytes from 3");
        assert_eq!(text(Operation::Reduce), "a reduction of 24 bytes");
        assert_eq!(text(Operation::Finalize), "finalize, or the end of main");
    }
}

//! Finding members that are in different collectives, or in the same with other sizes: in debug
//! builds each says what it is in, and whoever acts for a node compares.
//!
//! Only members of one node are compared. A release build takes no time for it.

use std::fmt;

use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::ANNOUNCED;

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Call {
    Sync = 1,
    Broadcast,
    Collect,
    Fcollect,
    Alltoall,
    Reduce,
    Scan,
    Finalize,
}

/// The words of an announcement: what is announced is made of two numbers.
const WORDS: usize = 2;

/// Where announcements lie in a slot: the current one, and those of the last two trades.
const CURRENT: usize = 0;

/// What a member says.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Announcement([u64; WORDS]);

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [call, bytes] = self.0;
        let root = call >> 8;
        match call as u8 {
            1 => f.write_str("a synchronisation"),
            2 => write!(f, "a broadcast of {bytes} bytes from {root}"),
            3 => f.write_str("collect"),
            4 => write!(f, "fcollect of {bytes} bytes"),
            5 => write!(f, "alltoall of blocks of {bytes} bytes"),
            6 => write!(f, "a reduction of {bytes} bytes"),
            7 => write!(f, "a scan of {bytes} bytes"),
            8 => f.write_str("finalize, or the end of main"),
            _ => f.write_str("no collective"),
        }
    }
}

impl Runtime {
    /// Says what collective this member is in. Bytes are those of one PE's contribution.
    #[inline]
    pub(super) fn announce(&self, team: &Team, call: Call, bytes: usize, root: usize) {
        if cfg!(debug_assertions) {
            let said = Announcement([call as u64 | (root as u64) << 8, bytes as u64]);
            self.say(team, CURRENT, said);
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

    /// Keeps what this member says until the trade after the next.
    #[inline]
    pub(super) fn announce_trade(&self, team: &Team, number: u64) {
        if cfg!(debug_assertions) {
            let said = self.said(team, CURRENT, team.mapping().index());
            self.say(team, 1 + (number % 2) as usize, said);
        }
    }

    /// When the members of this node have traded.
    ///
    /// # Panics
    /// If they are in different collectives.
    #[inline]
    pub(super) fn compare_trade(&self, team: &Team, number: u64) {
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
        let text = |call: Call| Announcement([call as u64 | 3 << 8, 24]).to_string();
        assert_eq!(text(Call::Sync), "a synchronisation");
        assert_eq!(text(Call::Broadcast), "a broadcast of 24 bytes from 3");
        assert_eq!(text(Call::Collect), "collect");
        assert_eq!(text(Call::Fcollect), "fcollect of 24 bytes");
        assert_eq!(text(Call::Alltoall), "alltoall of blocks of 24 bytes");
        assert_eq!(text(Call::Reduce), "a reduction of 24 bytes");
        assert_eq!(text(Call::Scan), "a scan of 24 bytes");
        assert_eq!(text(Call::Finalize), "finalize, or the end of main");
    }
}

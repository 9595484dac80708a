//! The agreement that a collective begins with where that is asked for (`SHMEM_CHECK`): all members have
//! announced the same, or the job ends before one of them writes anything for another.
//!
//! Each member writes its announcement into its slot, and the members of a node meet. Who acts for them
//! compares. Between nodes that is a round of the tree: a leader hears its children out, passes on what
//! it has said itself, as all below it have said the same, and lets them go when its parent does.
//! Announcements come up into the mailboxes of partial results, by the rules of
//! [`links`](super::links). Whoever finds two that differ says both and ends the job, and with it the
//! wait of all others.
//!
//! A member that calls no collective of the team is not found out; all others wait for it.

use std::mem::MaybeUninit;

use super::announce::Announcement;
use crate::fault;
use crate::heap::access;
use crate::rma::Completion;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{ANNOUNCED, COMPARED, LANDING, MAILBOX};
use crate::tree;

const SIZE: usize = size_of::<Announcement>();

const _: () = assert!(ANNOUNCED + SIZE <= COMPARED);
const _: () = assert!(SIZE + 8 <= MAILBOX && SIZE.is_multiple_of(8));

/// Words for PEs of which one has been asked to compare what it calls, and another one has not.
pub(crate) fn only_one_compares(rt: &Runtime, one: usize, other: usize) -> String {
    let node = |pe: usize| rt.node_of[pe];
    format!(
        "PE {one} (node {}) compares what PEs call (SHMEM_CHECK), but PE {other} (node {}) does not: set it alike for \
         all PEs, where some of them are programs of debug builds and others are not",
        node(one),
        node(other)
    )
}

impl Runtime {
    /// Returns when all members of `team` have announced the same; else the job ends.
    #[cold]
    #[inline(never)]
    pub(super) fn agree(&self, team: &Team, mine: &Announcement) {
        if team.n_pes() == 1 {
            return;
        }
        let at = self.own(team.slot(ANNOUNCED));
        // SAFETY: the slot has room for it, and nobody reads there since the last meeting.
        unsafe { access::copy((&raw const *mine).cast(), at, SIZE) };
        self.meet(team, || {
            let mapping = team.mapping();
            for local in (0..mapping.n_here()).map(|i| mapping.local(i)) {
                let pe = self.node.ranks()[local] as usize;
                let at = self.neighbour(local, team.slot(ANNOUNCED));
                self.compare(team, mine, pe, at);
            }
            if mapping.n_nodes() > 1 {
                self.agree_with_leaders(team, mine);
            }
        });
    }

    /// For leaders, whose members here agree. The number of the round goes with what they say, up and down:
    /// who has not been asked to compare does not send it.
    fn agree_with_leaders(&self, team: &Team, mine: &Announcement) {
        let (mapping, round) = (team.mapping(), self.next_round(team));
        let mailbox = |k: usize| team.slot(LANDING) + k * MAILBOX;
        let number = (&raw const round).cast();
        for (k, child) in self.children(team) {
            self.await_child(team, k, round);
            let (pe, at) = (mapping.leader(child), mailbox(k));
            if self.word(at + SIZE) != round {
                self.does_not_compare(pe);
            }
            self.compare(team, mine, pe, self.own(at));
        }
        if let Some(parent) = self.parent(team) {
            let to = mailbox(tree::child_index(mapping.node()));
            let from = self.own(team.slot(ANNOUNCED));
            // It stays in the slot until the next meeting.
            self.write(parent, to, from, SIZE, Completion::AtQuiet);
            self.write(parent, to + SIZE, number, 8, Completion::OnReturn);
            self.tell_parent(team, round);
            self.await_parent(team, round);
            if self.word(team.slot(COMPARED)) != round {
                self.does_not_compare(parent);
            }
        }
        for (_, child) in self.children(team).rev() {
            let to = team.slot(COMPARED);
            self.write(mapping.leader(child), to, number, 8, Completion::OnReturn);
            self.tell_child(team, child, round);
        }
    }

    #[cold]
    fn does_not_compare(&self, pe: usize) -> ! {
        fault::fail(&only_one_compares(self, self.me, pe))
    }

    /// Ends the job unless what `pe` has announced, which lies at `at`, is what this PE has.
    fn compare(&self, team: &Team, mine: &Announcement, pe: usize, at: *const u8) {
        let mut theirs = MaybeUninit::<Announcement>::uninit();
        // SAFETY: an announcement lies there, in a segment of this node, and its owner waits. Any bytes are
        // one.
        let theirs = unsafe {
            access::copy(at, theirs.as_mut_ptr().cast(), SIZE);
            theirs.assume_init()
        };
        if !mine.agrees(&theirs) {
            self.differ(team, mine, pe, &theirs);
        }
    }

    #[cold]
    fn differ(&self, team: &Team, mine: &Announcement, pe: usize, theirs: &Announcement) -> ! {
        let world = team.is_world();
        let mut both = [
            (self.me, mine.beside(theirs, world).to_string()),
            (pe, theirs.beside(mine, world).to_string()),
        ];
        both.sort();
        let [(first, does), (second, other)] = both;
        let node = |pe: usize| self.node_of[pe];
        fault::fail(&format!(
            "PE {first} (node {}) is in {does}, but PE {second} (node {}) in {other}: all members of {team} must call \
             the same collectives in the same order with matching arguments",
            node(first),
            node(second),
        ))
    }
}

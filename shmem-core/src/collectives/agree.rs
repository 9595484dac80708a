//! The agreement that a collective begins with where that is asked for (`SHMEM_CHECK`): all members have
//! announced the same, or the job ends before one of them writes anything for another.
//!
//! Each member writes its announcement into its slot, and the members of a node meet. The PE that acts for them
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
use crate::team::slots::{ANNOUNCED, LANDING, LINES, MAILBOX};
use crate::tree;

const SIZE: usize = size_of::<Announcement>();

const _: () = assert!(ANNOUNCED + SIZE <= LINES);
const _: () = assert!(SIZE <= MAILBOX && SIZE.is_multiple_of(8));

impl Runtime {
    /// Returns when all members of `team` have announced the same; else the job ends.
    #[cold]
    #[inline(never)]
    pub(super) fn agree(&self, team: &Team, mine: &Announcement) {
        if team.n_pes() == 1 {
            return;
        }
        let at = self.own(team.slot(ANNOUNCED));
        // SAFETY: the slot has room for it. Members of this node read there before the end of the meeting alone, and
        // the network until the parent has answered.
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

    /// For leaders, whose members here agree.
    fn agree_with_leaders(&self, team: &Team, mine: &Announcement) {
        let (mapping, round) = (team.mapping(), self.next_round(team));
        let mailbox = |k: usize| team.slot(LANDING) + k * MAILBOX;
        for (k, child) in self.children(team) {
            self.await_child(team, k, round);
            self.compare(team, mine, mapping.leader(child), self.own(mailbox(k)));
        }
        if let Some(parent) = self.parent(team) {
            let to = mailbox(tree::child_index(mapping.node()));
            let from = self.own(team.slot(ANNOUNCED));
            // The parent's answer says that it has arrived, and so that it may be overwritten.
            self.write(parent, to, from, SIZE, Completion::AtQuiet);
            self.tell_parent(team, round);
            self.await_parent(team, round);
        }
        for (_, child) in self.children(team).rev() {
            self.tell_child(team, child, round);
        }
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
        fault::fail(&format!(
            "this PE is in {}, but PE {pe} (node {}) is in {}: all members of {team} must call the same collectives in \
             the same order with matching arguments",
            mine.beside(theirs, world),
            self.nodes.node_of[pe],
            theirs.beside(mine, world),
        ))
    }
}

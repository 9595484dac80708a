//! How the leaders of a team pass messages to each other, and how they do so along a tree.
//!
//! A message is an RDMA write of data followed, on the same ordered connection, by a write of a
//! number into a flag in the receiver's slot of the team; the receiver waits for its flag to reach
//! that number. Numbers only grow, so a flag that is overwritten by the next message still says
//! what it said.
//!
//! # Tree
//! Every operation along the tree is a *round*, whose number the flags carry. There is a flag for
//! each child and one for the parent. Where data goes straight into the arrays of the program
//! nothing can be in the way: OpenSHMEM has callers see to it that these arrays are ready on all PEs.
//!
//! Otherwise data goes through two boxes of each slot (see [`slots`]). *Landing*
//! is written by other leaders, up the tree into ranges of their own and down the tree. *Shown* is
//! written by the leader itself; its node and its children get what lies there. No acknowledgements
//! are needed, because such a round goes up and down the whole tree:
//! * A child writes its range of *landing* in round r + 1 only after it got the parent's message of
//!   an earlier round, which the parent sent after it took from *landing* what had come up.
//! * A parent writes its child's *landing* only after the child's message of the round, which the
//!   child sent after it had taken what its own children sent up.
//! * A leader writes *shown* only after its node has arrived, so nobody there reads what it showed
//!   before. What it sent up has long been received then. What it sent down may not have been, so
//!   that is sent as bytes that do not stay.
//!
//! # Rounds
//! Where much is to be sent, or many have something for all, leaders talk to those 1, 2, 4 ... nodes away
//! ([`circulant`](super::circulant), [`doubling`](super::doubling)).

use crate::heap::access;
use crate::rma::Completion;
use crate::runtime::Runtime;
use crate::team::{Team, slots};
use crate::tree;

/// Bytes up to which copying them is quicker than waiting until they have arrived.
const COPIED: usize = 16 << 10;

/// How to send from an array of the program, `bytes` in all, which may be changed after
/// [`complete`](Runtime::complete).
pub(super) fn completion(bytes: usize) -> Completion {
    if bytes <= COPIED {
        Completion::OnReturn
    } else {
        Completion::AtQuiet
    }
}

/// Numbers that a PE keeps in its slot, because what others have in theirs outlives a finalize.
#[derive(Clone, Copy)]
pub(super) enum Counter {
    /// Rounds on the tree.
    Rounds = 0,
    /// Exchanges of lines on this node: all members count them.
    Lines = 1,
    /// Operations of leaders in rounds.
    Exchanges = 2,
    /// Reductions by doubling.
    Doublings = 3,
}

impl Runtime {
    /// The word at `offset` of this PE's segment.
    pub(crate) fn word(&self, offset: usize) -> u64 {
        // SAFETY: an aligned word of the runtime's part of the segment.
        unsafe { access::load(self.own(offset)) }
    }

    /// Writes the word at `offset` of this PE's segment.
    pub(crate) fn set_word(&self, offset: usize, value: u64) {
        // SAFETY: an aligned word of the runtime's part of the segment.
        unsafe { access::copy((&raw const value).cast(), self.own(offset), 8) };
    }

    /// Adds to a counter of this PE; gives what it was.
    pub(super) fn count(&self, team: &Team, counter: Counter, more: usize) -> u64 {
        let before = self.word(team.slot(slots::COUNTERS) + 8 * counter as usize);
        self.set_counter(team, counter, before + more as u64);
        before
    }

    pub(super) fn set_counter(&self, team: &Team, counter: Counter, value: u64) {
        self.set_word(team.slot(slots::COUNTERS) + 8 * counter as usize, value);
    }

    /// Begins a slot anew, before any PE may send into it.
    pub(crate) fn reset_links(&self, team: &Team) {
        for at in (slots::DOWN_FLAG..slots::COUNTERS).step_by(8) {
            self.set_word(team.slot(at), 0);
        }
        for counter in [Counter::Rounds, Counter::Exchanges, Counter::Doublings] {
            self.set_counter(team, counter, 0);
        }
    }

    /// Starts to connect to leaders who are about to be written to.
    pub(super) fn connect_ahead(&self, leaders: impl Iterator<Item = usize>) {
        if let Some(network) = &self.network {
            network.endpoint.connect_ahead(leaders.map(|pe| pe as u32));
        }
    }

    /// Starts a round.
    pub(super) fn next_round(&self, team: &Team) -> u64 {
        self.count(team, Counter::Rounds, 1) + 1
    }

    /// The nodes that are this one's children, with their index.
    pub(super) fn children(
        &self,
        team: &Team,
    ) -> impl DoubleEndedIterator<Item = (usize, usize)> + use<> {
        tree::children(team.mapping().node(), team.mapping().n_nodes())
    }

    /// Writes to the leader `pe`. Bytes that stay do so until quiet, or until an answer shows that
    /// they have arrived.
    pub(super) fn write(
        &self,
        pe: usize,
        to: usize,
        from: *const u8,
        len: usize,
        completion: Completion,
    ) {
        if len > 0 {
            // SAFETY: callers pass ranges of the slot or of arrays of the program, which lie in the
            // segments, and leave them alone.
            unsafe { self.put_raw(pe, to, from, len, completion) };
        }
    }

    /// After sending arrays of the program as [`completion`] says: it may change them now.
    pub(super) fn complete(&self, completion: Completion) {
        if completion == Completion::AtQuiet {
            self.quiet_raw();
        }
    }

    /// Writes a flag of the leader `pe`.
    pub(super) fn tell(&self, pe: usize, flag: usize, value: u64) {
        // SAFETY: a flag is an aligned word of the runtime's part of a segment.
        unsafe { self.put_raw(pe, flag, (&raw const value).cast(), 8, Completion::OnReturn) };
    }

    /// Waits until a flag of this leader has the value, or a later one.
    pub(super) fn await_flag(&self, team: &Team, flag: usize, value: u64) {
        let at = self.own(flag).cast_const();
        // SAFETY: an aligned word of the own segment.
        // ORDERING(quiet): the acquiring load pairs with the HCA's release after an inbound write.
        self.wait_for(
            || self.in_collective(team),
            || unsafe { access::load(at) } >= value,
        );
    }

    pub(super) fn await_child(&self, team: &Team, k: usize, round: u64) {
        self.await_flag(team, team.slot(slots::UP_FLAGS) + k * slots::LINE, round);
    }

    pub(super) fn await_parent(&self, team: &Team, round: u64) {
        self.await_flag(team, team.slot(slots::DOWN_FLAG), round);
    }

    /// The leader of the parent node.
    pub(super) fn parent(&self, team: &Team) -> Option<usize> {
        tree::parent(team.mapping().node()).map(|node| team.mapping().leader(node))
    }

    pub(super) fn tell_parent(&self, team: &Team, round: u64) {
        if let Some(parent) = self.parent(team) {
            let k = tree::child_index(team.mapping().node());
            self.tell(parent, team.slot(slots::UP_FLAGS) + k * slots::LINE, round);
        }
    }

    pub(super) fn tell_child(&self, team: &Team, child: usize, round: u64) {
        let pe = team.mapping().leader(child);
        self.tell(pe, team.slot(slots::DOWN_FLAG), round);
    }

    /// One round without data: every leader has entered it when any leaves it.
    pub(super) fn meet_leaders(&self, team: &Team) {
        let round = self.next_round(team);
        for (k, _) in self.children(team) {
            self.await_child(team, k, round);
        }
        if self.parent(team).is_some() {
            self.tell_parent(team, round);
            self.await_parent(team, round);
        }
        // Farthest first: theirs are the largest subtrees.
        for (_, child) in self.children(team).rev() {
            self.tell_child(team, child, round);
        }
    }
}

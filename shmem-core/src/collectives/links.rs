//! How node leaders pass messages along the tree: mailboxes and flags in their segments.
//!
//! Every collective between nodes is a sequence of *rounds*. In a round, data moves up the tree
//! from every leader to node 0, then down again. A message is an RDMA write into the receiver's
//! mailbox followed, on the same ordered connection, by a write of the round's number into the
//! mailbox's flag; the receiver waits for its flag. There is one mailbox per child and one for the
//! parent.
//!
//! No acknowledgements are needed: a leader sends up in round r + 1 only after it took round r's
//! message from its parent, and a parent sends that only after it took what its children sent up.
//! So a mailbox is always empty when the next message for it is written. By the same argument the
//! buffer that was sent up is free in the next round, and the one that was sent down is free once
//! the children's next messages have come up.

use std::sync::atomic::{AtomicU64, Ordering};

use shmem_node::layout::INTERNAL_SIZE;

use super::tree::{self, MAX_CHILDREN};
use crate::heap::access;
use crate::rma::Source;
use crate::runtime::Runtime;

/// Bytes of a mailbox: larger data goes in several rounds.
pub(crate) const CHUNK: usize = 64 << 10;

// The runtime's part of a leader's segment.
const LINE: usize = 64;
const DOWN_FLAG: usize = 0;
const UP_FLAGS: usize = LINE;
const UP_BOXES: usize = 4096;
const DOWN_BOX: usize = UP_BOXES + MAX_CHILDREN * CHUNK;
/// What this leader sends up.
pub(crate) const UP_BUFFER: usize = DOWN_BOX + CHUNK;
/// What this leader sends down and its node's PEs read.
pub(crate) const DOWN_BUFFER: usize = UP_BUFFER + CHUNK;
/// One `u64` for each PE: lengths in `collect`.
pub(crate) const COUNTS: usize = DOWN_BUFFER + CHUNK;
/// PEs for which there is room in [`COUNTS`].
pub(crate) const MAX_PES: usize = (INTERNAL_SIZE - COUNTS) / 8;

const _: () = assert!(UP_FLAGS + MAX_CHILDREN * LINE <= UP_BOXES);
const _: () = assert!(MAX_PES >= 1 << 17);

/// Number of the last round; only leaders use it. Collectives are called by one thread at a time
/// (OpenSHMEM 1.6 section 9.9), so the atomic needs no ordering.
#[derive(Debug, Default)]
pub(crate) struct Links(AtomicU64);

impl Runtime {
    /// Starts a round.
    pub(super) fn next_round(&self) -> u64 {
        self.links.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn tree_children(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> {
        tree::children(self.node.node(), self.node.n_nodes())
    }

    fn leader_of(&self, node: usize) -> usize {
        self.node.leader_of()[node] as usize
    }

    /// Waits for child `k`'s message; gives the offset of its mailbox in the own segment.
    pub(super) fn await_child(&self, k: usize, round: u64) -> usize {
        self.await_flag(UP_FLAGS + k * LINE, round);
        UP_BOXES + k * CHUNK
    }

    /// Waits for the parent's message; gives the offset of its mailbox in the own segment.
    pub(super) fn await_parent(&self, round: u64) -> usize {
        self.await_flag(DOWN_FLAG, round);
        DOWN_BOX
    }

    /// Sends `len` bytes at `offset` of the own segment up, if there is a parent.
    pub(super) fn to_parent(&self, round: u64, offset: usize, len: usize) {
        let node = self.node.node();
        if let Some(parent) = tree::parent(node) {
            let k = tree::child_index(node);
            let pe = self.leader_of(parent);
            self.send(
                pe,
                UP_BOXES + k * CHUNK,
                UP_FLAGS + k * LINE,
                round,
                offset,
                len,
            );
        }
    }

    /// Sends `len` bytes at `offset` of the own segment to all children, farthest first: theirs are
    /// the largest subtrees.
    pub(super) fn to_children(&self, round: u64, offset: usize, len: usize) {
        for (_, child) in self.tree_children().rev() {
            self.send(
                self.leader_of(child),
                DOWN_BOX,
                DOWN_FLAG,
                round,
                offset,
                len,
            );
        }
    }

    fn send(&self, pe: usize, to: usize, flag: usize, round: u64, from: usize, len: usize) {
        assert!(len <= CHUNK);
        // SAFETY: both offsets lie in the runtime's part of the segments; the buffer stays as it
        // is until the message was received (see the module's documentation).
        unsafe {
            if len > 0 {
                self.put_raw(pe, to, self.own(from), len, Source::Stays);
            }
            self.put_raw(pe, flag, (&raw const round).cast(), 8, Source::Reusable);
        }
    }

    /// Sends a message without data to the leader `pe`, whose child or parent this leader is.
    pub(super) fn flag_parent(&self, round: u64) {
        self.to_parent(round, UP_BUFFER, 0);
    }

    pub(super) fn flag_child(&self, child: usize, round: u64) {
        self.send(
            self.leader_of(child),
            DOWN_BOX,
            DOWN_FLAG,
            round,
            DOWN_BUFFER,
            0,
        );
    }

    fn await_flag(&self, offset: usize, round: u64) {
        let at = self.own(offset).cast_const();
        // SAFETY: an aligned word of the own segment.
        // ORDERING(quiet): the acquiring load pairs with the HCA's release after an inbound write.
        self.wait_for(|| unsafe { access::load(at, 8) } >= round);
    }

    /// One round without data: every leader has entered it when any leaves it.
    pub(super) fn meet_leaders(&self) {
        let round = self.next_round();
        for (k, _) in self.tree_children() {
            self.await_child(k, round);
        }
        self.flag_parent(round);
        if self.node.node() != 0 {
            self.await_parent(round);
        }
        self.to_children(round, DOWN_BUFFER, 0);
    }
}

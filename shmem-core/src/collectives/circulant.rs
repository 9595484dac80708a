//! Rounds between leaders who are 1, 2, 4 ... nodes apart, around a circle: in each round a leader sends to the one
//! so far to the right, and hears from the one so far to the left. All nodes do the same, whatever their number, and
//! after as many rounds as it has binary digits every leader has something from every other.
//!
//! # Allgather
//! After Bruck, Ho, Kipnis, Upfal and Weathersby (1997): before the round for a distance a leader has the blocks of
//! so many nodes, its own and those to the left, and passes them on. Each comes once, straight to where it
//! belongs.
//!
//! # Broadcast
//! After van de Geijn: the root's data is scattered along the binomial tree whose edges these are, half of it to
//! the leader farthest away and so on, and an allgather puts it together. The root sends it twice, however many
//! nodes there are, and nobody more.
//!
//! # Flags
//! A leader's flag for a round is written by one other leader only, so numbers in it grow: in front that of the
//! operation, behind it that of the message. Data goes where the program wants it, so no message has to be
//! allowed. Where it does not ([`exchange`](super::exchange), [`halving`](super::halving)) a flag in the same line says
//! what the one to the right allows.

use std::ops::Range;

use super::links::Counter;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{ALLOWED, ARRIVED, LINE};
use crate::tree;

/// Rounds among so many nodes.
pub(super) const fn rounds(nodes: usize) -> usize {
    nodes.next_power_of_two().trailing_zeros() as usize
}

/// `count` of the numbers below `n` that follow each other, from `start` on and round the circle: first those up
/// to the end, then the others.
pub(super) fn around(start: usize, count: usize, n: usize) -> [Range<usize>; 2] {
    let start = if start < n { start } else { start - n };
    let end = n.min(start + count);
    [start..end, 0..count - (end - start)]
}

/// The blocks that a node passes on in a round of an allgather: those that the one to the right lacks.
pub(super) fn passed_on(node: usize, nodes: usize, round: usize) -> [Range<usize>; 2] {
    let distance = 1 << round;
    let count = distance.min(nodes - distance);
    around(node + nodes + 1 - count, count, nodes)
}

/// One operation in rounds.
#[derive(Clone, Copy)]
pub(super) struct Rounds<'a> {
    rt: &'a Runtime,
    pub(super) team: &'a Team,
    number: u64,
}

/// Numbers of messages in a flag, behind that of the operation.
const MESSAGES: u32 = 24;

impl Runtime {
    /// Begins an operation of leaders. The first one of a team connects them, all at a time.
    pub(super) fn begin_rounds<'a>(&'a self, team: &'a Team) -> Rounds<'a> {
        let before = self.count(team, Counter::Exchanges, 1);
        let rounds = Rounds {
            rt: self,
            team,
            number: before + 1,
        };
        if before == 0 {
            let n = super::circulant::rounds(team.mapping().n_nodes());
            self.connect_ahead((0..n).map(|round| rounds.right(round)));
        }
        rounds
    }
}

impl Rounds<'_> {
    /// The leader to whom this one sends in a round.
    pub(super) fn right(&self, round: usize) -> usize {
        let mapping = self.team.mapping();
        mapping.leader((mapping.node() + (1 << round)) % mapping.n_nodes())
    }

    /// The leader from whom this one hears in a round.
    pub(super) fn left(&self, round: usize) -> usize {
        let (mapping, nodes) = (self.team.mapping(), self.team.mapping().n_nodes());
        mapping.leader((mapping.node() + nodes - (1 << round)) % nodes)
    }

    fn flag(&self, of: usize, round: usize) -> usize {
        self.team.slot(of) + round * LINE
    }

    fn value(&self, message: usize) -> u64 {
        self.number << MESSAGES | message as u64
    }

    /// Says to the right that the messages of a round up to this one, counted from one, are sent.
    pub(super) fn tell(&self, round: usize, message: usize) {
        let flag = self.flag(ARRIVED, round);
        self.rt.tell(self.right(round), flag, self.value(message));
    }

    pub(super) fn has_arrived(&self, round: usize, message: usize) -> bool {
        self.rt.word(self.flag(ARRIVED, round)) >= self.value(message)
    }

    pub(super) fn await_message(&self, round: usize, message: usize) {
        let flag = self.flag(ARRIVED, round);
        self.rt.await_flag(self.team, flag, self.value(message));
    }

    /// Allows the one to the left to send so many messages in a round.
    pub(super) fn allow(&self, round: usize, messages: usize) {
        let flag = self.flag(ALLOWED, round);
        self.rt.tell(self.left(round), flag, self.value(messages));
    }

    pub(super) fn is_allowed(&self, round: usize, message: usize) -> bool {
        self.rt.word(self.flag(ALLOWED, round)) >= self.value(message)
    }

    /// An allgather of a block of each node: `send` writes blocks that follow each other to a leader.
    /// `messages` gives the numbers of a round's message that goes and that comes.
    pub(super) fn allgather(
        &self,
        messages: impl Fn(usize) -> (usize, usize),
        send: impl Fn(usize, Range<usize>),
    ) {
        let mapping = self.team.mapping();
        for round in 0..rounds(mapping.n_nodes()) {
            let blocks = passed_on(mapping.node(), mapping.n_nodes(), round);
            let (goes, comes) = messages(round);
            self.pass(round, goes, blocks, &send);
            self.await_message(round, comes);
        }
    }

    fn pass(
        &self,
        round: usize,
        message: usize,
        blocks: [Range<usize>; 2],
        send: impl Fn(usize, Range<usize>),
    ) {
        for blocks in blocks {
            if !blocks.is_empty() {
                send(self.right(round), blocks);
            }
        }
        self.tell(round, message);
    }

    /// A broadcast from the node `root` of as many blocks as there are nodes: `send` writes some that follow each
    /// other. Nothing is written to the root.
    pub(super) fn scatter_allgather(&self, root: usize, send: impl Fn(usize, Range<usize>)) {
        let mapping = self.team.mapping();
        let nodes = mapping.n_nodes();
        let place = (mapping.node() + nodes - root) % nodes;
        if place > 0 {
            self.await_message(tree::child_index(place), 1);
        }
        for (round, child) in tree::children(place, nodes).rev() {
            send(self.right(round), tree::subtree(child, nodes));
            self.tell(round, 1);
        }
        for round in 0..rounds(nodes) {
            if place + (1 << round) != nodes {
                self.pass(round, 2, passed_on(place, nodes, round), &send);
            }
            if place > 0 {
                self.await_message(round, 2);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn all_sizes() -> impl Iterator<Item = usize> {
        (1..70).chain([127, 128, 129, 512, 1000])
    }

    /// Passes on blocks as an allgather does; fails if a leader gets what it has.
    fn gather(nodes: usize, has: &mut [Vec<bool>], sends: impl Fn(usize, usize) -> bool) {
        for round in 0..rounds(nodes) {
            let before = has.to_vec();
            for (node, before) in before.iter().enumerate() {
                let to = (node + (1 << round)) % nodes;
                if sends(node, to) {
                    for block in passed_on(node, nodes, round).into_iter().flatten() {
                        assert!(before[block], "{nodes} nodes: {node} lacks {block}");
                        has[to][block] = true;
                    }
                }
            }
        }
    }

    #[test]
    fn rounds_are_digits() {
        let found: Vec<usize> = [1, 2, 3, 4, 5, 8, 9, 4096].map(rounds).into();
        assert_eq!(found, [0, 1, 2, 2, 3, 3, 4, 12]);
    }

    #[test]
    fn all_gather_each_block_once() {
        for nodes in all_sizes() {
            let mut has: Vec<Vec<bool>> = (0..nodes)
                .map(|node| (0..nodes).map(|block| block == node).collect())
                .collect();
            gather(nodes, &mut has, |_, _| true);
            assert!(has.iter().flatten().all(|&has| has), "{nodes} nodes");
            let sent: usize = (0..rounds(nodes))
                .map(|round| {
                    passed_on(3 % nodes, nodes, round)
                        .into_iter()
                        .flatten()
                        .count()
                })
                .sum();
            assert_eq!(sent, nodes - 1);
        }
    }

    #[test]
    fn what_is_scattered_is_gathered() {
        for nodes in all_sizes() {
            let mut has: Vec<Vec<bool>> = (0..nodes)
                .map(|place| {
                    let subtree = tree::subtree(place, nodes);
                    (0..nodes).map(|block| subtree.contains(&block)).collect()
                })
                .collect();
            for place in 0..nodes {
                for (round, child) in tree::children(place, nodes) {
                    assert_eq!(child, place + (1 << round));
                    assert_eq!(tree::child_index(child), round);
                }
            }
            gather(nodes, &mut has, |_, to| to > 0);
            assert!(has.iter().flatten().all(|&has| has), "{nodes} nodes");
        }
    }

    #[test]
    fn ranges_go_around() {
        assert_eq!(around(5, 3, 7), [5..7, 0..1]);
        assert_eq!(around(9, 3, 7), [2..5, 0..0]);
        assert_eq!(around(7, 7, 7), [0..7, 0..0]);
    }
}

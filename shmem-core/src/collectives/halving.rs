//! Reductions of vectors that are too long to be sent whole: each leader comes to have the sums of one block of
//! elements, and an allgather hands them out.
//!
//! This is Rabenseifner's algorithm on the [circulant graph](super::circulant), as Träff (2023) has it, which asks
//! for no power of two: in the round for a distance a leader passes on, to the one so far to the right, all blocks
//! whose leaders are at least as far, about half of what it had, and adds what comes to the rest. So it takes twice as
//! many rounds as the number of nodes has binary digits, and nobody sends more than twice the vector.
//!
//! Partial sums go to a room in the receiver's slot, in pieces. The receiver allows as many ahead as there are
//! rooms, those of rounds to come included. A leader that leaves has something from everybody that has taken all its
//! pieces, so the rooms are free for whatever comes next.

use std::ops::Range;

use super::circulant::{around, rounds};
use super::combine::Reduction;
use super::combine::{Block, Elements};
use super::links;
use super::shares::part;
use crate::heap::access;
use crate::runtime::Runtime;
use crate::team::slots::{LINE, PIECE, STAGED, STAGING};
use crate::tree::MAX_CHILDREN;

/// How a vector goes through the rooms.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Elements of the vector.
    n: usize,
    nodes: usize,
    rooms: usize,
    /// Bytes of a room.
    room: usize,
    /// Elements that are added at a time: as many as a room has place for, or one that takes several pieces.
    batch: usize,
    per_batch: usize,
}

/// What goes as one message: a room full of bytes.
struct Piece {
    /// The elements that it is part of.
    batch: [Range<usize>; 2],
    /// Which piece of these it is.
    number: usize,
}

impl Plan {
    fn new(n: usize, nodes: usize, of: Elements) -> Self {
        let rounds = rounds(nodes);
        // As many blocks as come in one of the first two rounds, with one element more than some have.
        let far = 1 << (rounds - 1);
        let most = (nodes - far).max(far / 2) * n.div_ceil(nodes) * of.size;
        let enough = rounds.max(STAGED / PIECE);
        let each = STAGED / enough / LINE * LINE;
        let (rooms, room) = match most <= each {
            true => (enough, each),
            false => (STAGED / PIECE, PIECE),
        };
        let batch = of.in_room(room);
        Self {
            n,
            nodes,
            rooms,
            room,
            batch,
            per_batch: (batch * of.size).div_ceil(room),
        }
    }

    /// The elements of partial sums that come to a node in a round, around the vector: where they begin, and
    /// how many.
    fn come(&self, node: usize, round: usize) -> (usize, usize) {
        let held = self.nodes.min(2 << round);
        let node = node % self.nodes;
        let [to_end, behind] = around(node, held - (1 << round), self.nodes);
        let block = |i| part(self.n, self.nodes, i);
        let behind = behind.end.checked_sub(1).map_or(0, |last| block(last).end);
        let start = block(node).start;
        (start, block(to_end.end - 1).end - start + behind)
    }

    /// In how many pieces they come.
    fn pieces(&self, node: usize, round: usize) -> usize {
        self.come(node, round).1.div_ceil(self.batch) * self.per_batch
    }

    /// How many have come before to the node. Rounds go from the last to the first.
    fn pieces_before(&self, node: usize, round: usize) -> usize {
        let before = round + 1..rounds(self.nodes);
        before.map(|round| self.pieces(node, round)).sum()
    }

    /// The elements of a batch, around the vector.
    fn batch(&self, (start, len): (usize, usize), number: usize) -> [Range<usize>; 2] {
        let at = number * self.batch;
        around(start + at, self.batch.min(len - at), self.n)
    }

    /// The `i`th piece of these elements.
    fn piece(&self, elements: (usize, usize), i: usize) -> Piece {
        Piece {
            batch: self.batch(elements, i / self.per_batch),
            number: i % self.per_batch,
        }
    }
}

/// Pieces that a leader sends one after the other until all blocks are with their leaders.
#[cfg(test)]
pub(super) fn pieces(bytes: usize, nodes: usize) -> usize {
    let combine = super::combine::combine::<u64, _>(super::op::Sum);
    let plan = Plan::new(bytes.div_ceil(8), nodes, Elements { size: 8, combine });
    (0..rounds(nodes)).map(|round| plan.pieces(0, round)).sum()
}

impl Runtime {
    /// Combines the leaders' destination arrays in place. For leaders.
    pub(super) fn reduce_by_halving(&self, r: Reduction<'_>) {
        let (mapping, size) = (r.team.mapping(), r.of.size);
        let (nodes, node) = (mapping.n_nodes(), mapping.node());
        let plan = Plan::new(r.n, nodes, r.of);
        let leaders = self.begin_rounds(r.team);
        let room = |piece: usize| r.team.slot(STAGING) + piece % plan.rooms * plan.room;
        let completion = links::completion(r.bytes());

        // Of each round the pieces before it, and at its end.
        let mut pieces = [(0, 0); MAX_CHILDREN];
        let mut total = 0;
        for round in (0..rounds(nodes)).rev() {
            let before = total;
            total += plan.pieces(node, round);
            pieces[round] = (before, total);
        }
        for (round, &(before, end)) in pieces[..rounds(nodes)].iter().enumerate() {
            let allowed = plan.rooms.min(end).saturating_sub(before);
            if allowed > 0 {
                leaders.allow(round, allowed);
            }
        }
        // When so many are taken, one more may come.
        let allow_after = |taken: usize| {
            let allowed = taken + plan.rooms;
            let of_round =
                |(before, end): &(usize, usize)| (before + 1..end + 1).contains(&allowed);
            if let Some(round) = pieces[..rounds(nodes)].iter().position(of_round) {
                leaders.allow(round, allowed - pieces[round].0);
            }
        };

        let mut block = Block::new(PIECE.max(size));
        let come = block.as_mut_ptr();
        for round in (0..rounds(nodes)).rev() {
            let right = (node + (1 << round)) % nodes;
            let (goes, comes) = (plan.come(right, round), plan.come(node, round));
            let (outward, inward) = (plan.pieces(right, round), plan.pieces(node, round));
            let before_out = plan.pieces_before(right, round);
            let before_in = pieces[round].0;
            let (mut sent, mut taken) = (0, 0);
            while sent < outward || taken < inward {
                let may_send = || sent < outward && leaders.is_allowed(round, sent + 1);
                let may_take = || taken < inward && leaders.has_arrived(round, taken + 1);
                self.wait_for(|| self.in_collective(r.team), || may_send() || may_take());
                if may_send() {
                    let piece = plan.piece(goes, sent);
                    let to = (leaders.right(round), room(before_out + sent));
                    self.send_piece(r, plan.room, piece, to);
                    sent += 1;
                    leaders.tell(round, sent);
                }
                if may_take() {
                    let Piece { batch, number } = plan.piece(comes, taken);
                    let bytes = (batch[0].len() + batch[1].len()) * size;
                    let skip = bytes.min(number * plan.room);
                    let len = plan.room.min(bytes - skip);
                    let staged = self.own(room(before_in + taken));
                    // SAFETY: the piece has arrived; the block has room for all of a batch.
                    unsafe { access::copy(staged, come.add(skip), len) };
                    taken += 1;
                    allow_after(before_in + taken);
                    if taken % plan.per_batch == 0 {
                        // SAFETY: the block holds the elements of the batch.
                        unsafe { self.add_batch(r, batch, come) };
                    }
                }
            }
        }

        // A block that was passed on is overwritten when it has long gone into the result.
        let send = |pe, blocks: Range<usize>| {
            let first = part(r.n, nodes, blocks.start).start;
            let end = part(r.n, nodes, blocks.end - 1).end;
            let at = r.dest + first * size;
            self.write(pe, at, self.own(at), (end - first) * size, completion);
        };
        let message = |node, round| plan.pieces(node, round) + 1;
        leaders.allgather(
            |round| {
                (
                    message((node + (1 << round)) % nodes, round),
                    message(node, round),
                )
            },
            send,
        );
        // The program may change the array now.
        self.complete(completion);
    }

    /// Sends a piece, which takes a room of so many bytes, to that of another leader.
    fn send_piece(
        &self,
        r: Reduction<'_>,
        room: usize,
        Piece { batch, number }: Piece,
        (pe, to): (usize, usize),
    ) {
        let (skip, end) = (number * room, (number + 1) * room);
        let mut at = 0;
        for elements in batch {
            // What of these bytes belongs to the piece.
            let bytes = at..at + elements.len() * r.of.size;
            let (first, last) = (bytes.start.max(skip), bytes.end.min(end));
            if first < last {
                let from = r.dest + elements.start * r.of.size + (first - bytes.start);
                let (from, to) = (self.own(from), to + (first - skip));
                self.write(pe, to, from, last - first, links::completion(r.bytes()));
            }
            at = bytes.end;
        }
    }

    /// Adds a batch that has come to the elements of this leader.
    ///
    /// # Safety
    /// `come` has the elements of the batch.
    unsafe fn add_batch(&self, r: Reduction<'_>, batch: [Range<usize>; 2], come: *const u8) {
        let first = batch[0].len() * r.of.size;
        for (elements, at) in batch.into_iter().zip([0, first]) {
            let into = self.own(r.dest + elements.start * r.of.size);
            // SAFETY: by the caller.
            unsafe { r.of.add_shared(into, come.add(at), elements.len()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::combine::{Elements, combine};
    use super::super::op::Sum;
    use super::*;

    fn plan(n: usize, nodes: usize, size: usize) -> Plan {
        let combine = combine::<u64, _>(Sum);
        Plan::new(n, nodes, Elements { size, combine })
    }

    /// Every element of a block has been added once for each node when its leader has it.
    #[test]
    fn blocks_come_to_their_leaders_with_all_contributions() {
        for nodes in (2..40).chain([64, 100, 129]) {
            for n in [1, 5, nodes - 1, nodes, 3 * nodes + 2, 4000] {
                let plan = plan(n, nodes, 8);
                let mut sums = vec![vec![1; n]; nodes];
                for round in (0..rounds(nodes)).rev() {
                    let before = sums.clone();
                    for (node, sums) in sums.iter_mut().enumerate() {
                        let left = (node + nodes - (1 << round)) % nodes;
                        let come = plan.come(node, round);
                        let batches = plan.pieces(node, round) / plan.per_batch;
                        let all: Vec<usize> = (0..batches)
                            .flat_map(|batch| plan.batch(come, batch).into_iter().flatten())
                            .collect();
                        assert_eq!(all.len(), come.1);
                        for i in all {
                            sums[i] += before[left][i];
                        }
                    }
                }
                for (node, sums) in sums.iter().enumerate() {
                    let block = part(n, nodes, node);
                    let right = sums[block].iter().all(|&sum| sum == nodes);
                    assert!(right, "{n} elements, {nodes} nodes, {node}");
                }
            }
        }
    }

    /// What comes between allowing a piece and taking it lies in other rooms, and pieces fit.
    #[test]
    fn pieces_fit_into_rooms() {
        for nodes in [2, 3, 5, 16, 64, 1000, 4096] {
            for (n, size) in [
                (1, 8),
                (700, 8),
                (100_000, 8),
                (3, 1),
                (2, 100_000),
                (999, 48),
            ] {
                let plan = plan(n, nodes, size);
                assert!(plan.rooms >= 2 && plan.rooms * plan.room <= STAGED);
                assert!(plan.room <= PIECE);
                assert!(plan.batch * size <= plan.room * plan.per_batch);
                // A piece of a round has one piece of the room only where rounds have rooms of their own.
                if plan.rooms > 2 {
                    assert!((0..rounds(nodes)).all(|round| plan.pieces(1, round) <= 1));
                }
            }
        }
    }
}

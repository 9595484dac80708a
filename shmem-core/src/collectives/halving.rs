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

use super::circulant::{Rounds, around, rounds};
use super::combine::{Block, Elements, Reduction};
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

    /// How many pieces have come to the node before each round, and at its end.
    fn pieces_of_rounds(&self, node: usize) -> [(usize, usize); MAX_CHILDREN] {
        let mut pieces = [(0, 0); MAX_CHILDREN];
        let mut total = 0;
        for round in (0..rounds(self.nodes)).rev() {
            let before = total;
            total += self.pieces(node, round);
            pieces[round] = (before, total);
        }
        pieces
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
        let (nodes, node) = (r.team.mapping().n_nodes(), r.team.mapping().node());
        let plan = Plan::new(r.n, nodes, r.of);
        let halving = Halving {
            rt: self,
            r,
            leaders: self.begin_rounds(r.team),
            node,
            plan,
            pieces: plan.pieces_of_rounds(node),
        };
        halving.allow_first();
        for round in (0..rounds(nodes)).rev() {
            halving.pass_half(round);
        }
        halving.hand_out();
    }
}

/// One reduction at a leader.
struct Halving<'a> {
    rt: &'a Runtime,
    r: Reduction<'a>,
    leaders: Rounds<'a>,
    node: usize,
    plan: Plan,
    /// How many pieces come before each round, and until its end.
    pieces: [(usize, usize); MAX_CHILDREN],
}

impl Halving<'_> {
    /// The node to which this one sends in a round.
    fn right(&self, round: usize) -> usize {
        (self.node + (1 << round)) % self.plan.nodes
    }

    /// The room of a piece, counted over all rounds.
    fn room(&self, piece: usize) -> usize {
        self.r.team.slot(STAGING) + piece % self.plan.rooms * self.plan.room
    }

    /// As many pieces may come as there are rooms.
    fn allow_first(&self) {
        let of_rounds = &self.pieces[..rounds(self.plan.nodes)];
        for (round, &(before, end)) in of_rounds.iter().enumerate() {
            let allowed = self.plan.rooms.min(end).saturating_sub(before);
            if allowed > 0 {
                self.leaders.allow(round, allowed);
            }
        }
    }

    /// When so many are taken, one more may come.
    fn allow_after(&self, taken: usize) {
        let allowed = taken + self.plan.rooms;
        let of_round = |(before, end): &(usize, usize)| (before + 1..end + 1).contains(&allowed);
        let of_rounds = &self.pieces[..rounds(self.plan.nodes)];
        if let Some(round) = of_rounds.iter().position(of_round) {
            self.leaders.allow(round, allowed - of_rounds[round].0);
        }
    }

    /// Passes on the blocks of leaders that are at least as far as the round goes, and adds what comes to the
    /// rest.
    fn pass_half(&self, round: usize) {
        let (plan, leaders) = (&self.plan, &self.leaders);
        let right = self.right(round);
        let (goes, comes) = (plan.come(right, round), plan.come(self.node, round));
        let (outward, inward) = (plan.pieces(right, round), plan.pieces(self.node, round));
        let before_out = plan.pieces_before(right, round);
        let before_in = self.pieces[round].0;
        // For a batch.
        let mut block = Block::new(PIECE.max(self.r.of.size));
        let (mut sent, mut taken) = (0, 0);
        while sent < outward || taken < inward {
            let may_send = || sent < outward && leaders.is_allowed(round, sent + 1);
            let may_take = || taken < inward && leaders.has_arrived(round, taken + 1);
            let calls = || self.rt.in_collective(self.r.team);
            self.rt.wait_for(calls, || may_send() || may_take());
            if may_send() {
                let to = (leaders.right(round), self.room(before_out + sent));
                self.send_piece(&plan.piece(goes, sent), to);
                sent += 1;
                leaders.tell(round, sent);
            }
            if may_take() {
                let piece = plan.piece(comes, taken);
                // SAFETY: the piece has arrived; the block has room for a batch.
                unsafe { self.take_piece(piece, before_in + taken, &mut block) };
                taken += 1;
            }
        }
    }

    /// Sends a piece to the room of another leader.
    fn send_piece(&self, piece: &Piece, (pe, to): (usize, usize)) {
        let (r, room) = (&self.r, self.plan.room);
        let (skip, end) = (piece.number * room, (piece.number + 1) * room);
        let mut at = 0;
        for elements in &piece.batch {
            // What of these bytes belongs to the piece.
            let bytes = at..at + elements.len() * r.of.size;
            let (first, last) = (bytes.start.max(skip), bytes.end.min(end));
            if first < last {
                let from = r.dest + elements.start * r.of.size + (first - bytes.start);
                let (from, to) = (self.rt.own(from), to + (first - skip));
                let completion = links::completion(r.bytes());
                self.rt.write(pe, to, from, last - first, completion);
            }
            at = bytes.end;
        }
    }

    /// Takes piece number `which` of all rounds out of its room, which is free then. With its last piece a batch is added.
    ///
    /// # Safety
    /// The piece has arrived; the block has room for all of a batch, and has the earlier pieces of this one.
    unsafe fn take_piece(&self, Piece { batch, number }: Piece, which: usize, block: &mut Block) {
        let bytes = (batch[0].len() + batch[1].len()) * self.r.of.size;
        let skip = bytes.min(number * self.plan.room);
        let len = self.plan.room.min(bytes - skip);
        let (staged, come) = (self.rt.own(self.room(which)), block.as_mut_ptr());
        // SAFETY: by the caller.
        unsafe { access::copy(staged, come.add(skip), len) };
        self.allow_after(which + 1);
        if number + 1 == self.plan.per_batch {
            // SAFETY: the block holds the elements of the batch.
            unsafe { self.add_batch(batch, come) };
        }
    }

    /// Adds a batch that has come to the elements of this leader.
    ///
    /// # Safety
    /// `come` has the elements of the batch.
    unsafe fn add_batch(&self, batch: [Range<usize>; 2], come: *const u8) {
        let of = self.r.of;
        let first = batch[0].len() * of.size;
        for (elements, at) in batch.into_iter().zip([0, first]) {
            let into = self.rt.own(self.r.dest + elements.start * of.size);
            // SAFETY: by the caller.
            unsafe { of.add_shared(into, come.add(at), elements.len()) };
        }
    }

    /// Gives each leader the sums of all.
    fn hand_out(&self) {
        let (r, plan) = (&self.r, &self.plan);
        let completion = links::completion(r.bytes());
        // A block that was passed on is overwritten when it has long gone into the result.
        let send = |pe, blocks: Range<usize>| {
            let first = part(r.n, plan.nodes, blocks.start).start;
            let end = part(r.n, plan.nodes, blocks.end - 1).end;
            let (at, len) = (r.dest + first * r.of.size, (end - first) * r.of.size);
            self.rt.write(pe, at, self.rt.own(at), len, completion);
        };
        // Behind the pieces of the round.
        let message = |node, round| plan.pieces(node, round) + 1;
        let messages = |round| (message(self.right(round), round), message(self.node, round));
        self.leaders.allgather(messages, send);
        // The program may change the array now.
        self.rt.complete(completion);
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

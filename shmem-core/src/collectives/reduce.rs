//! Reductions to all members.

use std::ops::Range;

use super::combine::{BLOCK, Block, Combine, Elements};
use super::links::Counter;
use super::select::{Between, Here, Layout, Operation, select, shares};
use crate::heap::access;
use crate::heap::address::Sym;
use crate::rma::Completion;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{
    LANDING, LINE_DATA, MAILBOX, PIECE, RING_FLAG, RING_TAKEN, SHOWN, STAGING,
};
use crate::tree;

/// Part `i` of `n` things in `parts` parts of almost equal size.
pub(super) fn part(n: usize, parts: usize, i: usize) -> Range<usize> {
    let (each, rest) = (n / parts, n % parts);
    let start = i * each + i.min(rest);
    start..start + each + usize::from(i < rest)
}

/// Which of `workers` among `members` the member `i` is, if any. They are spread over all, who may be bound to
/// different processors.
pub(super) fn worker(members: usize, workers: usize, i: usize) -> Option<usize> {
    let number = (i * workers).div_ceil(members);
    (number * members / workers == i).then_some(number)
}

/// Which of `n` elements of `elem` bytes the member `i` of `members` works on, perhaps none.
pub(super) fn share(n: usize, elem: usize, members: usize, i: usize) -> Range<usize> {
    let workers = shares(members, n * elem);
    match worker(members, workers, i) {
        Some(i) => part(n, workers, i),
        None => n..n,
    }
}

/// One reduction: its arrays and what to do with them.
#[derive(Clone, Copy)]
struct Reduction<'a> {
    team: &'a Team,
    dest: usize,
    source: usize,
    n: usize,
    of: Elements,
}

impl Reduction<'_> {
    fn bytes(&self) -> usize {
        self.n * self.of.size
    }
}

impl Runtime {
    /// Combines `n` elements of `elem` bytes of all members, element by element. The order is that of
    /// ranks inside a node and then that of the tree or the ring: always the same for a layout.
    ///
    /// # Safety
    /// `combine` is for elements of `elem` bytes; the arrays hold `n` of them, aligned.
    pub(crate) unsafe fn team_reduce(
        &self,
        team: &Team,
        dest: Sym,
        source: Sym,
        n: usize,
        elem: usize,
        combine: Combine,
    ) {
        let bytes = n * elem;
        let r = Reduction {
            team,
            dest: dest.offset(),
            source: source.offset(),
            n,
            of: Elements {
                size: elem,
                combine,
            },
        };
        self.announce(team, Operation::Reduce, bytes, 0);
        if bytes == 0 {
            return;
        }
        if team.n_pes() == 1 {
            // SAFETY: two arrays of the segment.
            return unsafe { access::copy(self.own(r.source), self.own(r.dest), bytes) };
        }
        let algorithm = select(Operation::Reduce, bytes, Layout::of(team));
        match (algorithm.here, algorithm.between) {
            (Here::Lines, _) => self.reduce_by_lines(r),
            (Here::One, _) => self.reduce_by_one(r),
            (Here::Leader, _) | (_, Between::Ring) => self.reduce_at_leaders(r, algorithm.between),
            _ => self.reduce_by_all(r),
        }
    }

    /// Combines the elements `range` of all members of this node, in order of rank, block by block, and
    /// hands every block to `done` with its place in the array. For after they have arrived.
    fn combine_here(
        &self,
        r: Reduction<'_>,
        range: Range<usize>,
        done: impl Fn(*mut u8, usize, usize),
    ) {
        let (mapping, size) = (r.team.mapping(), r.of.size);
        let per = r.of.in_room(BLOCK);
        let mut block: Block = r.of.block();
        let sum = block.as_mut_ptr();
        for start in range.clone().step_by(per) {
            let n = per.min(range.end - start);
            let source = |i| self.neighbour(mapping.local(i), r.source + start * size);
            // SAFETY: the elements lie inside the members' arrays; the block has room for them, and is
            // known here only.
            unsafe {
                access::copy(source(0), sum, n * size);
                for i in 1..mapping.n_here() {
                    r.of.add(sum, source(i), n);
                }
            }
            done(sum, start * size, n * size);
        }
    }

    /// Each member combines for itself what all give.
    fn reduce_by_lines(&self, r: Reduction<'_>) {
        let bytes = r.bytes();
        let lines = self.exchange_lines(r.team, self.own(r.source), bytes);
        let mut block = Block::<LINE_DATA>::new(bytes);
        let sum = block.as_mut_ptr();
        // SAFETY: all have given that many bytes, which fit; the block is known here only.
        unsafe {
            access::copy(lines.of(0), sum, bytes);
            for i in 1..r.team.n_pes() {
                r.of.add(sum, lines.of(i), r.n);
            }
            access::copy(sum, self.own(r.dest), bytes);
        }
    }

    /// One member of each node combines; all copy what it shows.
    fn reduce_by_one(&self, r: Reduction<'_>) {
        let shown = self.leader_slot(r.team, SHOWN);
        self.meet(r.team, || {
            self.combine_here(r, 0..r.n, |block, at, len| {
                // SAFETY: the box has room for all of it. All have arrived, so nobody reads what was
                // shown before.
                unsafe { access::copy(block, shown.add(at), len) };
            });
            if r.team.mapping().n_nodes() > 1 {
                self.reduce_along_tree(r);
            }
        });
        // SAFETY: what is shown stays until this PE arrives again.
        unsafe { access::copy(shown, self.own(r.dest), r.bytes()) };
    }

    /// Combines what the leaders show; all of them show the result. For leaders.
    fn reduce_along_tree(&self, r: Reduction<'_>) {
        let (team, landing, bytes) = (r.team, r.team.slot(LANDING), r.bytes());
        let shown = self.own(team.slot(SHOWN));
        let round = self.next_round(team);
        for (k, _) in self.children(team) {
            self.await_child(team, k, round);
            // SAFETY: a child's mailbox has room for what it sent.
            unsafe { r.of.add_shared(shown, self.own(landing + k * MAILBOX), r.n) };
        }
        if let Some(parent) = self.parent(team) {
            let k = tree::child_index(team.mapping().node());
            self.write(
                parent,
                landing + k * MAILBOX,
                shown,
                bytes,
                Completion::AtQuiet,
            );
            self.tell_parent(team, round);
            self.await_parent(team, round);
            // SAFETY: two boxes of the own slot.
            unsafe { access::copy(self.own(landing), shown, bytes) };
        }
        for (_, child) in self.children(team).rev() {
            self.write(
                team.mapping().leader(child),
                landing,
                shown,
                bytes,
                Completion::OnReturn,
            );
            self.tell_child(team, child, round);
        }
    }

    /// Each member of the node combines a part of the elements, and hands every block to `done` with its
    /// place in the array. Begins with a meeting.
    fn combine_my_part(&self, r: Reduction<'_>, done: impl Fn(*mut u8, usize, usize)) {
        let mapping = r.team.mapping();
        self.meet_here(r.team);
        let mine = share(r.n, r.of.size, mapping.n_here(), mapping.index());
        self.combine_here(r, mine, done);
    }

    /// Each member combines a part and writes it to all.
    fn reduce_by_all(&self, r: Reduction<'_>) {
        let mapping = r.team.mapping();
        self.combine_my_part(r, |block, at, len| {
            for i in 0..mapping.n_here() {
                // SAFETY: inside the members' arrays, in a part that is this PE's alone.
                unsafe { access::copy(block, self.neighbour(mapping.local(i), r.dest + at), len) };
            }
        });
        self.meet_here(r.team);
    }

    /// The members of a node combine into their leader's array, the leaders of several nodes around the
    /// ring, and all copy the leader's result.
    fn reduce_at_leaders(&self, r: Reduction<'_>, between: Between) {
        let mapping = r.team.mapping();
        let leaders = |at| self.neighbour(mapping.local(0), r.dest + at);
        self.combine_my_part(r, |block, at, len| {
            // SAFETY: as in `reduce_by_all`.
            unsafe { access::copy(block, leaders(at), len) };
        });
        self.meet(r.team, || {
            if between == Between::Ring {
                self.reduce_around_ring(r);
            }
        });
        if !mapping.leads() {
            // SAFETY: two arrays; the leader leaves its own alone until all have read it.
            unsafe { access::copy(leaders(0), self.own(r.dest), r.bytes()) };
        }
        self.finish_reading(r.team, 0);
    }

    /// Combines the leaders' destination arrays in place: each part goes around the ring once to be
    /// combined, and once more to be handed out. For leaders.
    fn reduce_around_ring(&self, r: Reduction<'_>) {
        let (team, mapping) = (r.team, r.team.mapping());
        let (nodes, node) = (mapping.n_nodes(), mapping.node());
        let right = mapping.leader((node + 1) % nodes);
        let left = mapping.leader((node + nodes - 1) % nodes);
        let (flag, taken) = (team.slot(RING_FLAG), team.slot(RING_TAKEN));
        let segment = |i: usize| part(r.n, nodes, i % nodes);

        // What is combined at a time: as many elements as a piece has room for, or one, which goes in
        // several pieces.
        let size = r.of.size;
        let batch = r.of.in_room(PIECE);
        // As many on all leaders, though parts differ by an element.
        let batches = segment(0).len().div_ceil(batch);
        let per_batch = (batch * size).div_ceil(PIECE);
        let pieces = batches * per_batch;
        let mut message = self.count(team, Counter::Messages, (nodes - 1) * (pieces + 1));
        let mut piece = self.count(team, Counter::Pieces, (nodes - 1) * pieces);
        let mut block = r.of.block::<PIECE>();
        let come = block.as_mut_ptr();
        for step in 0..nodes - 1 {
            let (out, inward) = (
                segment(node + nodes - step),
                segment(node + 2 * nodes - step - 1),
            );
            for b in 0..batches {
                let cut = |part: &Range<usize>| {
                    let start = part.end.min(part.start + b * batch);
                    start..part.end.min(start + batch)
                };
                let (out, inward) = (cut(&out), cut(&inward));
                for p in 0..per_batch {
                    let of = |part: &Range<usize>| {
                        let bytes = part.len() * size;
                        bytes.min(p * PIECE)..bytes.min((p + 1) * PIECE)
                    };
                    (message, piece) = (message + 1, piece + 1);
                    let room = team.slot(STAGING) + (piece % 2) as usize * PIECE;
                    // The neighbour has room for two.
                    self.await_flag(team, taken, piece.saturating_sub(2));
                    let (send, take) = (of(&out), of(&inward));
                    let from = self.own(r.dest + out.start * size + send.start);
                    self.write(right, room, from, send.len(), Completion::AtQuiet);
                    self.tell(right, flag, message);
                    self.await_flag(team, flag, message);
                    // SAFETY: the piece has arrived; the block has room for all of a batch.
                    unsafe { access::copy(self.own(room), come.add(take.start), take.len()) };
                    self.tell(left, taken, piece);
                }
                let into = self.own(r.dest + inward.start * size);
                // SAFETY: both hold the elements of the batch.
                unsafe { r.of.add_shared(into, come, inward.len()) };
            }
        }
        for step in 0..nodes - 1 {
            // A neighbour's part is overwritten when its contribution has long gone into the result.
            let out = segment(node + 1 + nodes - step);
            let at = r.dest + out.start * size;
            message += 1;
            self.write(
                right,
                at,
                self.own(at),
                out.len() * size,
                Completion::AtQuiet,
            );
            self.tell(right, flag, message);
            self.await_flag(team, flag, message);
        }
        // The program may change the array now.
        self.quiet_raw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_and_differ_by_at_most_one() {
        for n in [0, 1, 2, 7, 100, 101] {
            for parts in 1..12 {
                let all: Vec<_> = (0..parts).map(|i| part(n, parts, i)).collect();
                assert!(all.windows(2).all(|w| w[0].end == w[1].start));
                assert_eq!((all[0].start, all[parts - 1].end), (0, n));
                assert!(
                    all.iter()
                        .all(|p| p.len() <= all[0].len() && p.len() + 1 >= all[0].len())
                );
            }
        }
    }

    #[test]
    fn workers_are_numbered_among_members() {
        for members in 1..100 {
            for workers in 1..=members {
                let numbers = (0..members).filter_map(|i| worker(members, workers, i));
                assert!(numbers.eq(0..workers), "{workers} of {members}");
            }
        }
    }

    #[test]
    fn shares_cover_and_are_pages_or_more() {
        for (n, elem, members) in [
            (0, 8, 4),
            (1, 8, 4),
            (4096, 8, 64),
            (1 << 20, 8, 500),
            (1000, 16, 2),
            (9, 4096, 3),
        ] {
            let all: Vec<_> = (0..members).map(|i| share(n, elem, members, i)).collect();
            let covered: Vec<usize> = all.iter().cloned().flatten().collect();
            assert_eq!(covered, (0..n).collect::<Vec<_>>());
            let working = all.iter().filter(|share| !share.is_empty());
            assert!(
                working.clone().count() <= 1
                    || working.map(|s| s.len() * elem).all(|b| b > 2 << 10)
            );
        }
    }
}

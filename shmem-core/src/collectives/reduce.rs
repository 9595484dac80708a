//! Reductions to all members.

use std::ops::Range;

use super::announce::Call;
use super::combine::Combine;
use super::links::Counter;
use super::trade::{CARGO, Cargo};
use super::tree;
use crate::heap::access;
use crate::heap::address::Sym;
use crate::rma::Source;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{BOX, LANDING, MAILBOX, PIECE, RING_FLAG, RING_TAKEN, SHOWN, STAGING};

/// Bytes of all of a node's members together up to which one of them combines for all: less than
/// what a second meeting costs.
const ALONE: usize = 64 << 10;

/// What is combined at a time in a large reduction: it stays in the first cache.
pub(super) const BLOCK: usize = 8 << 10;

/// Room for a block, aligned for every type.
#[repr(C, align(128))]
pub(super) struct Block([u8; BLOCK]);

impl Block {
    pub(super) fn new() -> Self {
        Self([0; BLOCK])
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }
}

/// Part `i` of `n` elements in `parts` parts of almost equal size.
fn part(n: usize, parts: usize, i: usize) -> Range<usize> {
    let (each, rest) = (n / parts, n % parts);
    let start = i * each + i.min(rest);
    start..start + each + usize::from(i < rest)
}

/// Bytes that a member works on at least: in less than a page it would touch as many pages for less.
const SHARE: usize = 4 << 10;

/// Which of `n` elements of `elem` bytes the member `i` of `members` works on, perhaps none.
pub(super) fn share(n: usize, elem: usize, members: usize, i: usize) -> Range<usize> {
    let workers = members.min((n * elem).div_ceil(SHARE)).max(1);
    if i < workers {
        part(n, workers, i)
    } else {
        n..n
    }
}

/// One reduction: its arrays and what to do with them.
#[derive(Clone, Copy)]
struct Reduction<'a> {
    team: &'a Team,
    dest: usize,
    source: usize,
    n: usize,
    elem: usize,
    combine: Combine,
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
        let place = team.place();
        let bytes = n * elem;
        let r = Reduction {
            team,
            dest: dest.offset(),
            source: source.offset(),
            n,
            elem,
            combine,
        };
        self.announce(team, Call::Reduce, bytes, 0);
        if n == 0 {
        } else if team.n_pes() == 1 {
            // SAFETY: two arrays of the segment.
            unsafe { access::copy(self.own(r.source), self.own(r.dest), bytes) };
        } else if place.n_nodes() > 1 {
            if bytes <= MAILBOX {
                self.reduce_by_one(r);
            } else {
                self.reduce_by_ring(r);
            }
        } else if team.trades() && bytes <= CARGO {
            self.reduce_by_trade(r, bytes);
        } else if bytes <= BOX && bytes * place.n_here() <= ALONE {
            self.reduce_by_one(r);
        } else {
            self.reduce_by_all(r);
        }
    }

    /// Combines the elements `range` of all members of this node, in order of rank.
    ///
    /// # Safety
    /// They have arrived; `into` has room, aligned, apart from all sources or the same as the first.
    unsafe fn combine_here(&self, r: Reduction<'_>, range: Range<usize>, into: *mut u8) {
        let place = r.team.place();
        let at = r.source + range.start * r.elem;
        // SAFETY: the range lies inside the members' arrays; the rest by the caller.
        unsafe {
            access::copy(
                self.neighbour(place.local(0), at),
                into,
                range.len() * r.elem,
            );
            for i in 1..place.n_here() {
                (r.combine)(into, self.neighbour(place.local(i), at), range.len());
            }
        }
    }

    /// Each member combines for itself what all give.
    fn reduce_by_trade(&self, r: Reduction<'_>, bytes: usize) {
        let trade = self.trade(r.team, self.own(r.source), bytes);
        let mut sum = Cargo::new();
        // SAFETY: all have given that many bytes, which lie aligned and fit.
        unsafe {
            access::copy(trade.of(0), sum.as_mut_ptr(), bytes);
            for i in 1..r.team.n_pes() {
                (r.combine)(sum.as_mut_ptr(), trade.of(i), r.n);
            }
            access::copy(sum.as_mut_ptr(), self.own(r.dest), bytes);
        }
    }

    /// One member of each node combines; all copy what it shows.
    fn reduce_by_one(&self, r: Reduction<'_>) {
        let shown = self.leader_slot(r.team, SHOWN);
        let bytes = r.n * r.elem;
        self.meet(r.team, || {
            // SAFETY: all have arrived, so nobody reads what was shown before.
            unsafe { self.combine_here(r, 0..r.n, shown) };
            if r.team.place().n_nodes() > 1 {
                self.reduce_along_tree(r, bytes);
            }
        });
        // SAFETY: what is shown stays until this PE arrives again.
        unsafe { access::copy(shown, self.own(r.dest), bytes) };
    }

    /// Combines what the leaders show; all of them show the result. For leaders.
    fn reduce_along_tree(&self, r: Reduction<'_>, bytes: usize) {
        let (team, landing) = (r.team, r.team.slot(LANDING));
        let shown = self.own(team.slot(SHOWN));
        let round = self.next_round(team);
        for (k, _) in self.children(team) {
            self.await_child(team, k, round);
            // SAFETY: a child's mailbox has room for what it sent, and is aligned to a cache line.
            unsafe { (r.combine)(shown, self.own(landing + k * MAILBOX), r.n) };
        }
        if let Some(parent) = self.parent(team) {
            let k = tree::child_index(team.place().node());
            self.write(parent, landing + k * MAILBOX, shown, bytes, Source::Stays);
            self.tell_parent(team, round);
            self.await_parent(team, round);
            // SAFETY: two boxes of the own slot.
            unsafe { access::copy(self.own(landing), shown, bytes) };
        }
        for (_, child) in self.children(team).rev() {
            self.write(
                team.place().leader(child),
                landing,
                shown,
                bytes,
                Source::Reusable,
            );
            self.tell_child(team, child, round);
        }
    }

    /// Each member of the node combines a part of the elements, block by block, and hands every
    /// block to `done` with its place in the array. Begins with a meeting.
    fn combine_my_part(&self, r: Reduction<'_>, done: impl Fn(*const u8, usize, usize)) {
        let place = r.team.place();
        self.meet_here(r.team);
        let mine = share(r.n, r.elem, place.n_here(), place.index());
        let mut block = Block::new();
        let per_block = BLOCK / r.elem;
        for start in mine.clone().step_by(per_block) {
            let end = mine.end.min(start + per_block);
            // SAFETY: all have arrived, and nobody else writes these elements; the block has room.
            unsafe { self.combine_here(r, start..end, block.as_mut_ptr()) };
            done(block.as_mut_ptr(), start * r.elem, (end - start) * r.elem);
        }
    }

    /// Each member combines a part and writes it to all.
    fn reduce_by_all(&self, r: Reduction<'_>) {
        let place = r.team.place();
        self.combine_my_part(r, |block, at, len| {
            for i in 0..place.n_here() {
                // SAFETY: inside the members' arrays, in a part that is this PE's alone.
                unsafe { access::copy(block, self.neighbour(place.local(i), r.dest + at), len) };
            }
        });
        self.meet_here(r.team);
    }

    /// The members of a node combine into their leader's array, the leaders around the ring, and all
    /// copy the leader's result.
    fn reduce_by_ring(&self, r: Reduction<'_>) {
        let place = r.team.place();
        let leaders = |at| self.neighbour(place.local(0), r.dest + at);
        self.combine_my_part(r, |block, at, len| {
            // SAFETY: as in `reduce_by_all`.
            unsafe { access::copy(block, leaders(at), len) };
        });
        self.meet(r.team, || self.reduce_around_ring(r));
        if !place.leads() {
            // SAFETY: two arrays; the leader leaves its own alone until all have departed.
            unsafe { access::copy(leaders(0), self.own(r.dest), r.n * r.elem) };
        }
        self.depart(r.team, 0);
    }

    /// Combines the leaders' destination arrays in place: each part goes around the ring once to be
    /// combined, and once more to be handed out. For leaders.
    fn reduce_around_ring(&self, r: Reduction<'_>) {
        let (team, place) = (r.team, r.team.place());
        let (nodes, node) = (place.n_nodes(), place.node());
        let right = place.leader((node + 1) % nodes);
        let left = place.leader((node + nodes - 1) % nodes);
        let (flag, taken) = (team.slot(RING_FLAG), team.slot(RING_TAKEN));
        let segment = |i: usize| part(r.n, nodes, i % nodes);

        let per_piece = PIECE / r.elem;
        // As many on all leaders, though parts differ by an element.
        let pieces = segment(0).len().div_ceil(per_piece);
        let mut message = self.count(team, Counter::Messages, (nodes - 1) * (pieces + 1));
        let mut piece = self.count(team, Counter::Pieces, (nodes - 1) * pieces);
        for step in 0..nodes - 1 {
            let (out, inward) = (
                segment(node + nodes - step),
                segment(node + 2 * nodes - step - 1),
            );
            for p in 0..pieces {
                let cut = |part: &Range<usize>| {
                    let start = part.end.min(part.start + p * per_piece);
                    start..part.end.min(start + per_piece)
                };
                (message, piece) = (message + 1, piece + 1);
                let room = team.slot(STAGING) + (piece % 2) as usize * PIECE;
                let (out, inward) = (cut(&out), cut(&inward));
                // The neighbour has room for two.
                self.await_flag(taken, piece.saturating_sub(2));
                let from = self.own(r.dest + out.start * r.elem);
                self.write(right, room, from, out.len() * r.elem, Source::Stays);
                self.tell(right, flag, message);
                self.await_flag(flag, message);
                let into = self.own(r.dest + inward.start * r.elem);
                // SAFETY: the array is this leader's while its node waits; the piece has arrived.
                unsafe { (r.combine)(into, self.own(room), inward.len()) };
                self.tell(left, taken, piece);
            }
        }
        for step in 0..nodes - 1 {
            // A neighbour's part is overwritten when its contribution has long gone into the result.
            let out = segment(node + 1 + nodes - step);
            let at = r.dest + out.start * r.elem;
            message += 1;
            self.write(right, at, self.own(at), out.len() * r.elem, Source::Stays);
            self.tell(right, flag, message);
            self.await_flag(flag, message);
        }
        // The program may change the array now.
        self.quiet();
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
    fn shares_cover_and_are_pages_or_more() {
        for (n, elem, members) in [
            (0, 8, 4),
            (1, 8, 4),
            (4096, 8, 64),
            (1000, 16, 2),
            (9, 4096, 3),
        ] {
            let all: Vec<_> = (0..members).map(|i| share(n, elem, members, i)).collect();
            let covered: Vec<usize> = all.iter().cloned().flatten().collect();
            assert_eq!(covered, (0..n).collect::<Vec<_>>());
            let working = all.iter().filter(|share| !share.is_empty());
            assert!(
                working.clone().count() <= 1
                    || working.map(|s| s.len() * elem).all(|b| b > SHARE / 2)
            );
        }
    }
}

//! Reductions to all members.

use std::ops::Range;

use super::combine::{BLOCK, Block, Combine, Elements, Reduction};
use super::select::{Between, Here, Layout, Operation, select};
use super::shares::share;
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::SHOWN;

impl Runtime {
    /// Combines `n` elements of `elem` bytes of all members, element by element. The order is that of
    /// ranks inside a node and then that in which leaders hear from each other: always the same for a layout.
    ///
    /// # Safety
    /// `combine` is for elements of `elem` bytes; the arrays hold `n` of them, aligned.
    pub(crate) unsafe fn team_reduce(
        &self,
        team: &Team,
        dest: SymAddr,
        source: SymAddr,
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
            (Here::One, between) => self.reduce_by_one(r, between),
            (Here::Each, Between::Nothing) => self.reduce_by_all(r),
            (_, between) => self.reduce_at_leaders(r, between),
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
        let mut block = r.of.block(range.len(), BLOCK);
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
        let mut block = Block::new(bytes);
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
    fn reduce_by_one(&self, r: Reduction<'_>, between: Between) {
        let shown = self.leader_slot(r.team, SHOWN);
        self.meet(r.team, || {
            self.combine_here(r, 0..r.n, |block, at, len| {
                // SAFETY: the box has room for all of it. All have arrived, so nobody reads what was
                // shown before.
                unsafe { access::copy(block, shown.add(at), len) };
            });
            if between != Between::Nothing {
                self.reduce_by_doubling(r);
            }
        });
        // SAFETY: what is shown stays until this PE arrives again.
        unsafe { access::copy(shown, self.own(r.dest), r.bytes()) };
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

    /// The members of a node combine into their leader's array, then the leaders of several nodes, and all copy
    /// the leader's result.
    fn reduce_at_leaders(&self, r: Reduction<'_>, between: Between) {
        let mapping = r.team.mapping();
        let leaders = |at| self.neighbour(mapping.local(0), r.dest + at);
        self.combine_my_part(r, |block, at, len| {
            // SAFETY: as in `reduce_by_all`.
            unsafe { access::copy(block, leaders(at), len) };
        });
        self.meet(r.team, || {
            if between != Between::Nothing {
                self.reduce_by_halving(r);
            }
        });
        if !mapping.leads() {
            // SAFETY: two arrays; the leader leaves its own alone until all have read it.
            unsafe { access::copy(leaders(0), self.own(r.dest), r.bytes()) };
        }
        self.finish_reading(r.team, 0);
    }
}

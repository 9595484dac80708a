//! Concatenation of blocks of all members: fcollect and collect.
//!
//! Blocks go straight to their final places. On one node of few PEs every one writes its block into all
//! arrays; of many, into the leader's, and all copy the whole. So they do on several nodes, where leaders
//! pass on what they have, in few rounds.

use std::ops::Range;

use super::links;
use super::select::{Algorithm, Between, Here, Layout, Operation, select};
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::rma::Completion;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{ARGUMENT, BOX, LANDING, SHOWN};
use crate::tree;

/// What leaders exchange: items in an array, each of which a node has in the beginning, and all in
/// the end.
pub(super) struct Items<R, N> {
    pub(super) count: usize,
    /// Bytes of an item, in order and without gaps.
    pub(super) range: R,
    /// Index of the node that has it.
    pub(super) node: N,
}

impl<R: Fn(usize) -> Range<usize>, N: Fn(usize) -> usize> Items<R, N> {
    /// Bytes of all items.
    fn total(&self) -> usize {
        self.count
            .checked_sub(1)
            .map_or(0, |last| (self.range)(last).end)
    }

    /// The bytes of the items of some nodes.
    fn of(&self, nodes: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let inside = move |item: &usize| nodes.contains(&(self.node)(*item));
        runs((0..self.count).filter(inside).map(&self.range))
    }

    /// The bytes of the items of each node: for callers that ask for one node after the other, which with
    /// [`of`](Self::of) would look at all items every time.
    fn by_node(&self) -> ByNode {
        let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
        for item in 0..self.count {
            let (range, node) = ((self.range)(item), (self.node)(item));
            match runs.last_mut() {
                _ if range.is_empty() => {}
                Some((of, run)) if *of == node && run.end == range.start => run.end = range.end,
                _ => runs.push((node, range)),
            }
        }
        runs.sort_by_key(|(node, _)| *node);
        ByNode(runs)
    }
}

/// Runs of bytes, in order of the node that has them.
struct ByNode(Vec<(usize, Range<usize>)>);

impl ByNode {
    /// Those of nodes, in order of these; what follows each other is one.
    fn of(&self, nodes: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let first = self.0.partition_point(|(of, _)| *of < nodes.start);
        let theirs = self.0[first..].iter();
        let theirs = theirs.take_while(move |(of, _)| nodes.contains(of));
        runs(theirs.map(|(_, range)| range.clone()))
    }
}

/// Joins ranges that follow each other; leaves out empty ones.
fn runs(ranges: impl Iterator<Item = Range<usize>>) -> impl Iterator<Item = Range<usize>> {
    let mut ranges = ranges.filter(|r| !r.is_empty()).peekable();
    std::iter::from_fn(move || {
        let mut run = ranges.next()?;
        while let Some(next) = ranges.next_if(|r| r.start == run.end) {
            run.end = next.end;
        }
        Some(run)
    })
}

/// One concatenation of blocks.
struct Concatenation<'a> {
    team: &'a Team,
    dest: usize,
    source: usize,
    /// Where this member's block belongs.
    own: Range<usize>,
    /// Bytes of all blocks.
    total: usize,
    algorithm: Algorithm,
}

/// Makes sure that a PE that has nothing to give, and so may name no destination in C, has one if there
/// is something to receive.
#[track_caller]
pub(super) fn check_dest(dest: SymAddr, total: usize) {
    assert!(
        total == 0 || dest != SymAddr::new(0),
        "collect: dest is NULL on this PE, but other PEs give {total} bytes"
    );
}

impl Runtime {
    /// Concatenates `bytes` bytes of every member, in order of rank.
    pub(crate) fn team_fcollect(&self, team: &Team, dest: SymAddr, source: SymAddr, bytes: usize) {
        let (mapping, n) = (team.mapping(), team.n_pes());
        if bytes == 0 {
            return;
        }
        let (dest, source) = (dest.offset(), source.offset());
        let algorithm = select(Operation::Fcollect, bytes, Layout::of(team));
        match algorithm.here {
            Here::Lines => {
                let lines = self.exchange_lines(team, self.own(source), bytes);
                for i in 0..n {
                    // SAFETY: all have given that many bytes; the array has room for them.
                    unsafe { access::copy(lines.of(i), self.own(dest + i * bytes), bytes) };
                }
            }
            Here::One => {
                let shown = self.leader_slot(team, SHOWN);
                self.meet(team, || {
                    for i in 0..n {
                        let from = self.neighbour(mapping.local(i), source);
                        // SAFETY: all have arrived, so nobody reads what was shown before.
                        unsafe { access::copy(from, shown.add(i * bytes), bytes) };
                    }
                });
                // SAFETY: what is shown stays until this PE arrives again.
                unsafe { access::copy(shown, self.own(dest), n * bytes) };
            }
            _ => {
                let range = |pe| pe * bytes..(pe + 1) * bytes;
                let all = Concatenation {
                    team,
                    dest,
                    source,
                    own: range(team.my_pe()),
                    total: n * bytes,
                    algorithm,
                };
                self.concatenate(&all, range);
            }
        }
    }

    /// Concatenates `bytes` bytes of this member, and of the others as many as they say, in order of
    /// rank, if all of it is at most `room` bytes. Gives the sum.
    pub(crate) fn team_collect(
        &self,
        team: &Team,
        dest: SymAddr,
        source: SymAddr,
        bytes: usize,
        room: usize,
    ) -> usize {
        // The sums up to each member: only for the PE that acts for this node, so that not everybody has a list of
        // everybody.
        let mut ends = Vec::new();
        self.set_word(team.slot(ARGUMENT), bytes as u64);
        self.meet(team, || {
            ends = self.sums_of_lengths(team);
            let total = ends[team.n_pes() - 1];
            for i in 0..team.mapping().n_here() {
                let end = ends[self.rank_here(team, i)];
                let told = self.neighbour(team.mapping().local(i), team.slot(ARGUMENT) + 8);
                let words = [end as u64, total as u64];
                // SAFETY: words of a segment of this node, for a member that waits for them.
                unsafe { access::copy(words.as_ptr().cast(), told, size_of_val(&words)) };
            }
        });
        let [end, total] = [8, 16].map(|at| self.word(team.slot(ARGUMENT) + at) as usize);
        check_dest(dest, total);
        if total > 0 && total <= room {
            let all = Concatenation {
                team,
                dest: dest.offset(),
                source: source.offset(),
                own: end - bytes..end,
                total,
                algorithm: select(Operation::Collect, total, Layout::of(team)),
            };
            let block = |pe: usize| pe.checked_sub(1).map_or(0, |before| ends[before])..ends[pe];
            self.concatenate(&all, block);
        }
        total
    }

    /// The sums of the lengths up to each member, where those here have given theirs. For the PE that
    /// acts for this node.
    fn sums_of_lengths(&self, team: &Team) -> Vec<usize> {
        let (mapping, n) = (team.mapping(), team.n_pes());
        let mut lengths = vec![0; n];
        for i in 0..mapping.n_here() {
            let told = self.neighbour(mapping.local(i), team.slot(ARGUMENT));
            // SAFETY: an aligned word of a segment of this node.
            lengths[self.rank_here(team, i)] = unsafe { access::load(told) } as usize;
        }
        if mapping.n_nodes() > 1 {
            let shown = self.own(team.slot(SHOWN));
            for (window, lengths) in lengths.chunks_mut(BOX / 8).enumerate() {
                let (bytes, words) = (size_of_val(lengths), lengths.as_mut_ptr().cast::<u8>());
                // SAFETY: the box has room for the window. The node has arrived, so nobody reads what was
                // shown before.
                unsafe { access::copy(words, shown, bytes) };
                let items = Items {
                    count: lengths.len(),
                    range: |i| 8 * i..8 * (i + 1),
                    node: |i| mapping.node_of(window * (BOX / 8) + i),
                };
                self.exchange_boxes(team, &items);
                // SAFETY: as above.
                unsafe { access::copy(shown, words, bytes) };
            }
        }
        let mut end = 0;
        for length in &mut lengths {
            end += *length;
            *length = end;
        }
        lengths
    }

    /// Rank of the `i`th member of this node.
    pub(super) fn rank_here(&self, team: &Team, i: usize) -> usize {
        let pe = self.node.ranks()[team.mapping().local(i)] as usize;
        team.members().rank_of(pe).expect("members have ranks")
    }

    /// Concatenates blocks whose places are known: those of others to leaders of several nodes.
    fn concatenate(&self, all: &Concatenation<'_>, block: impl Fn(usize) -> Range<usize>) {
        let (team, dest, between) = (all.team, all.dest, all.algorithm.between);
        let mapping = team.mapping();
        // The others' arrays are ready, whether they have arrived or not.
        let give = |i| {
            let to = self.neighbour(mapping.local(i), dest + all.own.start);
            // SAFETY: the block lies inside the array and is nobody else's.
            unsafe { access::copy(self.own(all.source), to, all.own.len()) };
        };
        if between == Between::Nothing && all.algorithm.here == Here::Each {
            // Starting with the own one spreads the load.
            let n = mapping.n_here();
            (0..n).for_each(|step| give((mapping.index() + step) % n));
            return self.meet_here(team);
        }
        give(0);
        let items = Items {
            count: team.n_pes(),
            range: block,
            node: |rank| mapping.node_of(rank),
        };
        let total = all.total;
        self.meet(team, || {
            if between != Between::Nothing {
                let completion = links::completion(total);
                self.exchange_in_rounds(team, (dest, completion), &items);
                self.complete(completion);
            }
        });
        if !mapping.leads() {
            // SAFETY: arrays of `total` bytes in two segments; the leader leaves its own alone
            // until all have read it.
            unsafe {
                access::copy(
                    self.neighbour(mapping.local(0), dest),
                    self.own(dest),
                    total,
                )
            };
        }
        self.finish_reading(team, 0);
    }

    /// Gives all leaders all items, along the tree: what comes from other leaders lands in the *landing* box of the slot,
    /// and all of it is to be in the *shown* one. For leaders.
    pub(super) fn exchange_boxes(
        &self,
        team: &Team,
        items: &Items<impl Fn(usize) -> Range<usize>, impl Fn(usize) -> usize>,
    ) {
        let (landing, shown) = (team.slot(LANDING), team.slot(SHOWN));
        let (mapping, total) = (team.mapping(), items.total());
        let (node, nodes) = (mapping.node(), mapping.n_nodes());
        let take = |range: Range<usize>| {
            let (from, to) = (
                self.own(landing + range.start),
                self.own(shown + range.start),
            );
            // SAFETY: two boxes of the own slot, which have room for all items.
            unsafe { access::copy(from, to, range.len()) };
        };
        let send = |pe: usize, range: Range<usize>| {
            let (to, from) = (landing + range.start, self.own(shown + range.start));
            self.write(pe, to, from, range.len(), Completion::OnReturn);
        };
        let round = self.next_round(team);
        for (k, child) in self.children(team) {
            self.await_child(team, k, round);
            items.of(tree::subtree(child, nodes)).for_each(take);
        }
        if let Some(parent) = self.parent(team) {
            items
                .of(tree::subtree(node, nodes))
                .for_each(|range| send(parent, range));
            self.tell_parent(team, round);
            self.await_parent(team, round);
            take(0..total);
        }
        for (_, child) in self.children(team).rev() {
            send(mapping.leader(child), 0..total);
            self.tell_child(team, child, round);
        }
    }

    /// Gives all leaders all items in `array`, in few rounds. For leaders.
    fn exchange_in_rounds(
        &self,
        team: &Team,
        (array, completion): (usize, Completion),
        items: &Items<impl Fn(usize) -> Range<usize>, impl Fn(usize) -> usize>,
    ) {
        let by_node = items.by_node();
        let send = |pe, nodes| {
            for range in by_node.of(nodes) {
                let at = array + range.start;
                self.write(pe, at, self.own(at), range.len(), completion);
            }
        };
        self.begin_rounds(team).allgather(|_| (1, 1), send);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_neighbours() {
        let all: Vec<_> = runs([0..2, 2..2, 2..5, 7..8, 8..9].into_iter()).collect();
        assert_eq!(all, [0..5, 7..9]);
        assert_eq!(runs(std::iter::empty()).count(), 0);
    }

    #[test]
    fn every_item_is_looked_at_once() {
        let lens = [3usize, 0, 4, 0, 2, 5, 1, 0];
        let nodes = [0, 1, 0, 0, 2, 0, 2, 3];
        let looks = std::cell::Cell::new(0);
        let items = Items {
            count: lens.len(),
            range: |i| {
                looks.set(looks.get() + 1);
                let start: usize = lens[..i].iter().sum();
                start..start + lens[i]
            },
            node: |i: usize| nodes[i],
        };
        let by_node = items.by_node();
        assert_eq!(looks.get(), lens.len());
        for node in 0..5 {
            let one_by_one: Vec<_> = items.of(node..node + 1).collect();
            let found: Vec<_> = by_node.of(node..node + 1).collect();
            assert_eq!(found, one_by_one, "{node}");
        }
        assert_eq!(by_node.of(2..4).collect::<Vec<_>>(), [7..9, 14..15]);
    }

    #[test]
    fn items_of_nodes_are_found() {
        let range = |i| 10 * i..10 * (i + 1);
        let found = |node: fn(usize) -> usize, nodes| {
            let items = Items {
                count: 6,
                range,
                node,
            };
            assert_eq!(items.total(), 60);
            items.of(nodes).collect::<Vec<_>>()
        };
        assert!(found(|i| i / 2, 1..3).iter().eq([&(20..60)]));
        assert_eq!(found(|i| i % 3, 1..2), [10..20, 40..50]);
    }
}

//! Prefix reductions: each member gets what those up to it, or before it, make together.
//!
//! On one node a PE runs through the members with a part of the elements, writing each one's result
//! as it goes. Between nodes, ranks are looked at in *runs*, members of one node that follow each
//! other: leaders exchange what each run makes together, and then know where theirs begin.

use super::combine::{BLOCK, Block, Combine, Elements};
use super::gather::Items;
use super::select::{Here, Layout, Operation, select};
use super::shares::share;
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{BOX, SHOWN};

/// One scan.
#[derive(Clone, Copy)]
struct Scan<'a> {
    team: &'a Team,
    dest: usize,
    source: usize,
    of: Elements,
    /// Whether a member's own elements are left out of its result.
    exclusive: bool,
}

/// Members of one node whose ranks follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: usize,
    len: usize,
    node: usize,
}

/// The runs of `n` ranks whose nodes `node_of` gives.
fn runs_of(n: usize, node_of: impl Fn(usize) -> usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for rank in 0..n {
        let node = node_of(rank);
        match runs.last_mut() {
            Some(run) if run.node == node => run.len += 1,
            _ => runs.push(Run {
                first: rank,
                len: 1,
                node,
            }),
        }
    }
    runs
}

/// What the ranks so far make together, of at most a block of elements.
struct Prefix {
    sum: Block,
    /// Whether there were any.
    begun: bool,
}

impl Prefix {
    /// For `n` elements, at most a block.
    fn new(scan: Scan<'_>, n: usize) -> Self {
        Self {
            sum: scan.of.block(n, BLOCK),
            begun: false,
        }
    }

    /// Adds `n` elements of the next rank.
    ///
    /// # Safety
    /// They are mapped, and fit into a block.
    unsafe fn add(&mut self, from: *const u8, n: usize, scan: Scan<'_>) {
        let sum = self.sum.as_mut_ptr();
        // SAFETY: by the caller; the block is known here only.
        unsafe {
            match self.begun {
                true => scan.of.add(sum, from, n),
                false => access::copy(from, sum, n * scan.of.size),
            }
        }
        self.begun = true;
    }

    /// Writes it to `to`: zeros, if there were no ranks.
    ///
    /// # Safety
    /// `to` has room for `bytes`, as many as were added.
    unsafe fn show(&mut self, to: *mut u8, bytes: usize) {
        // SAFETY: by the caller.
        unsafe {
            match self.begun {
                true => access::copy(self.sum.as_mut_ptr(), to, bytes),
                false => access::zero(to, bytes),
            }
        }
    }
}

impl Runtime {
    /// Gives each member the combination of the `n` elements of all members up to it, or of those
    /// before it: of these the first gets elements whose bytes are all zero.
    ///
    /// # Safety
    /// `combine` is for elements of `elem` bytes; the arrays hold `n` of them, aligned.
    #[allow(clippy::too_many_arguments)]
    pub(crate) unsafe fn team_scan(
        &self,
        team: &Team,
        dest: SymAddr,
        source: SymAddr,
        n: usize,
        elem: usize,
        combine: Combine,
        exclusive: bool,
    ) {
        let mapping = team.mapping();
        let bytes = n * elem;
        let scan = Scan {
            team,
            dest: dest.offset(),
            source: source.offset(),
            of: Elements {
                size: elem,
                combine,
            },
            exclusive,
        };
        if bytes == 0 {
            return;
        }
        match select(Operation::Scan, bytes, Layout::of(team)).here {
            Here::One if mapping.n_nodes() > 1 => self.meet(team, || self.scan_runs(scan, n)),
            Here::One => self.meet(team, || self.scan_here(scan, 0..n)),
            _ => {
                self.meet_here(team);
                self.scan_here(scan, share(n, elem, mapping.n_here(), mapping.index()));
                self.meet_here(team);
            }
        }
    }

    /// Runs through the members of a team on one node with some of the elements, block by block.
    fn scan_here(&self, scan: Scan<'_>, elements: std::ops::Range<usize>) {
        let per_block = scan.of.in_room(BLOCK);
        for start in elements.clone().step_by(per_block) {
            let n = per_block.min(elements.end - start);
            let mut prefix = Prefix::new(scan, n);
            self.scan_run(scan, 0..scan.team.mapping().n_here(), start, n, &mut prefix);
        }
    }

    /// Runs through members of this node with the `n` elements from `start` on, at most a block,
    /// beginning with what those before make.
    fn scan_run(
        &self,
        scan: Scan<'_>,
        members: std::ops::Range<usize>,
        start: usize,
        n: usize,
        prefix: &mut Prefix,
    ) {
        let mapping = scan.team.mapping();
        let (at, bytes) = (start * scan.of.size, n * scan.of.size);
        let mut own = scan.of.block(n, BLOCK);
        for i in members {
            let from = self.neighbour(mapping.local(i), scan.source + at);
            let to = self.neighbour(mapping.local(i), scan.dest + at);
            // SAFETY: all members have arrived, and nobody else touches these elements. Those of the
            // source are read before the result is written, which may be in their place.
            unsafe {
                if scan.exclusive {
                    access::copy(from, own.as_mut_ptr(), bytes);
                    prefix.show(to, bytes);
                    prefix.add(own.as_mut_ptr(), n, scan);
                } else {
                    prefix.add(from, n, scan);
                    prefix.show(to, bytes);
                }
            }
        }
    }

    /// The scan of a team on several nodes, for leaders.
    fn scan_runs(&self, scan: Scan<'_>, n: usize) {
        let (team, mapping) = (scan.team, scan.team.mapping());
        let runs = runs_of(team.n_pes(), |rank| mapping.node_of(rank));
        let size = scan.of.size;
        let chunk = (BOX / (runs.len() * size)).clamp(1, scan.of.in_room(BLOCK));
        for start in (0..n).step_by(chunk) {
            let n = chunk.min(n - start);
            let bytes = n * size;
            // A box has room for what several runs make, or for a part of what one does.
            let slice = bytes.min(BOX);
            let mut made = Block::new(runs.len().min(BOX / slice) * bytes);
            let made = made.as_mut_ptr();
            let mut prefix = Prefix::new(scan, n);
            // Index on this node of the first member of its next run.
            let mut next = 0;
            for window in runs.chunks(BOX / slice) {
                let mine = |run: &Run| run.node == mapping.node();
                let of_run = |i: usize| {
                    // SAFETY: there is room for what all runs of the window make.
                    unsafe { made.add(i * bytes) }
                };
                let mut member = next;
                for (i, run) in window.iter().enumerate().filter(|(_, run)| mine(run)) {
                    self.sum_run(scan, member..member + run.len, start, n, of_run(i));
                    member += run.len;
                }
                for at in (0..bytes).step_by(slice) {
                    let len = slice.min(bytes - at);
                    let copy_where = |own: bool, copy: &dyn Fn(*mut u8, *mut u8)| {
                        for (i, run) in window.iter().enumerate() {
                            if mine(run) == own {
                                let shown = self.own(team.slot(SHOWN) + i * len);
                                copy(of_run(i).wrapping_add(at), shown);
                            }
                        }
                    };
                    // SAFETY: the part lies inside what the run makes, and the box has room for it.
                    copy_where(true, &|made, shown| unsafe {
                        access::copy(made, shown, len)
                    });
                    let items = Items {
                        count: window.len(),
                        range: |i| i * len..(i + 1) * len,
                        node: |i: usize| window[i].node,
                    };
                    self.exchange_boxes(team, &items);
                    // SAFETY: as above.
                    copy_where(false, &|made, shown| unsafe {
                        access::copy(shown, made, len)
                    });
                }
                for (i, run) in window.iter().enumerate() {
                    if mine(run) {
                        self.scan_run(scan, next..next + run.len, start, n, &mut prefix);
                        next += run.len;
                    } else {
                        // SAFETY: what a run makes are `n` elements.
                        unsafe { prefix.add(of_run(i), n, scan) };
                    }
                }
            }
        }
    }

    /// What members of this node make together.
    fn sum_run(
        &self,
        scan: Scan<'_>,
        members: std::ops::Range<usize>,
        start: usize,
        n: usize,
        to: *mut u8,
    ) {
        let mut sum = Prefix::new(scan, n);
        for i in members {
            let local = scan.team.mapping().local(i);
            let from = self.neighbour(local, scan.source + start * scan.of.size);
            // SAFETY: all members have arrived; the elements fit into a block.
            unsafe { sum.add(from, n, scan) };
        }
        // SAFETY: there is room for the elements.
        unsafe { sum.show(to, n * scan.of.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_members_of_a_node_in_a_row() {
        let nodes = [0, 0, 1, 2, 2, 2, 0];
        let runs = runs_of(nodes.len(), |rank| nodes[rank]);
        let all: Vec<_> = runs.iter().map(|r| (r.first, r.len, r.node)).collect();
        assert_eq!(all, [(0, 2, 0), (2, 1, 1), (3, 3, 2), (6, 1, 0)]);
        assert!(runs_of(0, |_| 0).is_empty());
    }
}

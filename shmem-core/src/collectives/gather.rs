//! Concatenation of blocks from all PEs: fcollect and collect.
//!
//! Every PE copies its block into its leader's destination array. Leaders then put the blocks of
//! their subtree straight into the parent's destination array, at their final places, and the
//! whole comes down the same way: no staging and no chunks.

use std::ops::Range;

use super::links::COUNTS;
use super::tree;
use crate::datum::Datum;
use crate::heap::access;
use crate::heap::sym::SymSlice;
use crate::rma::Source;
use crate::runtime::{Runtime, collective};

impl Runtime {
    /// Collects `own_len` bytes from `source` of each PE into `dest` of all; `block(pe)` says where
    /// a PE's bytes belong, in bytes from the start of `dest`, in order of rank without gaps.
    fn gather(&self, dest: usize, source: usize, block: impl Fn(usize) -> Range<usize>) {
        let own = block(self.me);
        let total = block(self.n_pes - 1).end;
        // SAFETY: the block lies inside the leader's array and is nobody else's.
        unsafe {
            access::copy(
                self.own(source),
                self.neighbour(0, dest + own.start),
                own.len(),
            )
        };
        self.meet_node(|| {
            if self.node.n_nodes() > 1 {
                self.gather_nodes(dest, total, &block);
            }
        });
        if !self.is_leader() {
            // SAFETY: arrays of `total` bytes in two segments; the leader leaves its own alone
            // until the barrier below.
            unsafe { access::copy(self.neighbour(0, dest), self.own(dest), total) };
        }
        self.node_barrier();
    }

    /// The part between leaders.
    fn gather_nodes(&self, dest: usize, total: usize, block: impl Fn(usize) -> Range<usize>) {
        let (node, nodes) = (self.node.node(), self.node.n_nodes());
        let round = self.next_round();
        for (k, _) in self.tree_children() {
            self.await_child(k, round);
        }
        let put = |to_node: usize, range: Range<usize>| {
            let pe = self.node.leader_of()[to_node] as usize;
            let from = self.own(dest + range.start);
            // SAFETY: the range lies inside the array, which is the same on every PE.
            unsafe { self.put_raw(pe, dest + range.start, from, range.len(), Source::Reusable) };
        };
        if let Some(parent) = tree::parent(node) {
            let mine = tree::subtree(node, nodes);
            let in_subtree = |pe: &usize| mine.contains(&(self.node_of[*pe] as usize));
            for run in runs((0..self.n_pes).filter(in_subtree).map(&block)) {
                put(parent, run);
            }
            self.flag_parent(round);
            self.await_parent(round);
        }
        for (_, child) in self.tree_children().rev() {
            if total > 0 {
                put(child, 0..total);
            }
            self.flag_child(child, round);
        }
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

/// Concatenates `source` of all PEs, in order of rank, into `dest` on every PE. `source` has the
/// same length on every PE.
///
/// **Collective**; `dest` may be used and `source` changed on return.
///
/// # Panics
/// If `dest` is shorter than `source` times the number of PEs.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_fcollect`.
#[track_caller]
pub fn fcollect<T: Datum>(dest: SymSlice<T>, source: SymSlice<T>) {
    let rt = collective();
    let bytes = source.bytes();
    let all = source.len().saturating_mul(rt.n_pes);
    assert!(
        all <= dest.len(),
        "fcollect: dest has {} elements, but {} PEs contribute {} each",
        dest.len(),
        rt.n_pes,
        source.len()
    );
    rt.gather(dest.offset(), source.offset(), |pe| {
        pe * bytes..(pe + 1) * bytes
    });
}

/// Concatenates `source` of all PEs, in order of rank, into `dest` on every PE. The length of
/// `source` may differ between PEs (take [`SymSlice::at`] of a symmetric array). Gives the number
/// of elements collected.
///
/// **Collective**; `dest` may be used and `source` changed on return.
///
/// # Panics
/// If `dest` is too short, on all PEs alike.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_collect`.
#[track_caller]
pub fn collect<T: Datum>(dest: SymSlice<T>, source: SymSlice<T>) -> usize {
    let rt = collective();
    let counts = SymSlice::<u64>::from_raw(COUNTS, rt.n_pes);
    // The own count stands in the own slot already; gathering copies it onto itself.
    counts.write(rt.me, source.len() as u64);
    rt.gather(COUNTS, COUNTS + 8 * rt.me, |pe| 8 * pe..8 * (pe + 1));
    let mut ends = counts.to_vec();
    for pe in 1..rt.n_pes {
        ends[pe] += ends[pe - 1];
    }
    let total = ends[rt.n_pes - 1] as usize;
    assert!(
        total <= dest.len(),
        "collect: dest has {} elements, but the PEs together contribute {total}",
        dest.len()
    );
    rt.gather(dest.offset(), source.offset(), |pe| {
        let start = pe.checked_sub(1).map_or(0, |before| ends[before] as usize);
        start * size_of::<T>()..ends[pe] as usize * size_of::<T>()
    });
    total
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
}

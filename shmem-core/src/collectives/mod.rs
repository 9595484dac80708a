//! Collective operations over all PEs.
//!
//! All are built alike. The PEs of a node *arrive* at the node barrier; their leader, the PE with
//! the lowest rank there, acts for the node; then it *releases* them. Inside a node data moves by
//! shared memory, straight from and to the symmetric arrays. Between nodes only leaders talk, along
//! one binomial tree ([`tree`], [`links`]). `alltoall` alone talks between all pairs of PEs, as it
//! must.
//!
//! | operation | rounds on the tree | connections it can cause |
//! |---|---|---|
//! | barrier, sync | 1 | tree edges |
//! | broadcast, reduce | 1 per 64 KiB | tree edges |
//! | fcollect | 1 | tree edges |
//! | collect | 2 | tree edges |
//! | alltoall | 1 | all pairs of PEs |
//!
//! # Rules for callers (OpenSHMEM 1.6 section 9.9)
//! All PEs call the same collectives in the same order with matching arguments, one thread at a
//! time (a second one panics). Before any PE enters, the destination arrays of all PEs must be ready to be overwritten:
//! have a barrier or another synchronisation after their last use. Source and destination are the
//! same array or do not overlap.

mod exchange;
mod gather;
mod links;
mod tree;

pub(crate) use links::{Links, MAX_PES};

pub use exchange::{Op, alltoall, broadcast, reduce, reduce_bits};
pub use gather::{collect, fcollect};

use crate::runtime::{Runtime, collective};

impl Runtime {
    /// Meets the PEs of this node. The leader runs `lead` when all are there; everybody leaves
    /// after that.
    fn meet_node(&self, lead: impl FnOnce()) {
        let (barrier, n) = (self.node.barrier(), self.n_local());
        if self.is_leader() {
            if !self.spin_until(|| barrier.complete(n)) {
                barrier.wait_complete(n);
            }
            lead();
            barrier.release(n);
        } else {
            let arrival = barrier.arrive(n);
            if !self.spin_until(|| barrier.released(arrival)) {
                barrier.wait_release(arrival);
            }
        }
    }

    /// Meets the PEs of this node and nobody else.
    pub(crate) fn node_barrier(&self) {
        self.meet_node(|| {});
    }

    pub(crate) fn sync_all(&self) {
        if self.n_pes > 1 {
            self.meet_node(|| {
                if self.node.n_nodes() > 1 {
                    self.meet_leaders();
                }
            });
        }
    }

    pub(crate) fn barrier_all(&self) {
        self.quiet();
        self.sync_all();
    }
}

/// Waits until all PEs have called it, and all operations that they started before are complete:
/// puts and atomics are delivered, non-blocking gets have their data.
///
/// **Collective**.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_barrier_all`.
#[track_caller]
pub fn barrier_all() {
    collective().barrier_all();
}

/// Waits until all PEs have called it. Says nothing about outstanding operations, except that
/// stores to one's own memory made before are visible to all PEs after.
///
/// **Collective**.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_sync_all`.
#[track_caller]
pub fn sync_all() {
    collective().sync_all();
}

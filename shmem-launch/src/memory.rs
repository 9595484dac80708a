//! Does the job fit into this machine's memory? Asked before anything is started.
//!
//! Memory that a job takes for certain is counted: what a PE needs for itself, the tables that each
//! node's agent fills, and the heaps if they are reserved (`SHMEM_HEAP_COMMIT=reserve`). Lazy heaps
//! get memory when touched, so they are only checked one by one: a heap larger than the machine can
//! never be used. Emulated nodes share this machine, so their needs add up.

use shmem_node::layout::INTERNAL_SIZE;
pub use shmem_node::machine::Machine;
use shmem_node::machine::Size;
use shmem_node::settings::{HeapCommit, HeapPages};

/// Private memory of an idle PE in bytes: stack, heap of the runtime, page tables.
pub const PER_PE: u64 = 512 << 10;
/// Memory of an agent with its guard and template in bytes.
pub const PER_NODE: u64 = 2 << 20;
/// Bytes of an agent's tables per PE of the job that are written in every job: places of ranks and
/// one allgather.
const TABLES_PER_PE: u64 = 12 + 64;

/// What a job takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// PEs that run on this machine.
    pub pes: u64,
    /// Nodes that run on this machine.
    pub nodes: u64,
    /// Bytes of each heap.
    pub heap_size: u64,
    /// Bytes of room for each PE's static data.
    pub statics: u64,
    /// When heaps get memory.
    pub heap_commit: HeapCommit,
    /// What pages they have.
    pub heap_pages: HeapPages,
}

/// A job that cannot fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// One heap is larger than the machine.
    #[error(
        "a symmetric heap of {} (SHMEM_SYMMETRIC_SIZE) is more than this machine has ({} of memory \
         and swap{}); lower SHMEM_SYMMETRIC_SIZE",
        Size(*heap), Size(*have), Group(*limit)
    )]
    Heap {
        /// Bytes of the heap.
        heap: u64,
        /// Memory and swap in bytes.
        have: u64,
        /// The control group's limit.
        limit: Option<u64>,
    },
    /// All of it together is too much.
    #[error(transparent)]
    Job(Box<Shortage>),
}

/// All that a job needs together, and less that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the job needs {} of memory: {} PEs with {} each, {} for {} nodes, {} for reserved heaps; only {} \
     can be had ({} of memory and {} of swap are free{}). {}",
    Size(*total), need.pes, Size(PER_PE), Size(*nodes), need.nodes, Size(*heaps), Size(*have),
    Size(machine.available), Size(machine.swap_free), Group(machine.group_left),
    if *heaps > 0 {
        "Use fewer PEs, a smaller SHMEM_SYMMETRIC_SIZE, or SHMEM_HEAP_COMMIT=lazy"
    } else {
        "Use fewer PEs"
    }
)]
pub struct Shortage {
    /// What was asked for.
    pub need: Need,
    /// Bytes in all.
    pub total: u64,
    /// Bytes for nodes.
    pub nodes: u64,
    /// Bytes for heaps.
    pub heaps: u64,
    /// Bytes that can be had.
    pub have: u64,
    /// The machine.
    pub machine: Machine,
}

/// A control group's limit, where there is one.
struct Group(Option<u64>);

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(n) => write!(f, "; the control group allows {}", Size(n)),
        }
    }
}

/// Compares need and machine.
///
/// # Errors
/// When the job cannot fit, with all numbers and what to change.
pub fn check(need: Need, machine: Machine) -> Result<(), MemoryError> {
    let cap = |have: u64, limit: Option<u64>| limit.map_or(have, |l| have.min(l));
    let have = machine.total.saturating_add(machine.swap_total);
    if need.heap_size > cap(have, machine.group_limit) {
        let limit = machine.group_limit;
        return Err(MemoryError::Heap {
            heap: need.heap_size,
            have,
            limit,
        });
    }
    let heaps = match (need.heap_commit, need.heap_pages) {
        // Pages that were set aside are not among the free ones, and the agent takes them.
        (HeapCommit::Lazy, _) | (_, HeapPages::Huge) => 0,
        (HeapCommit::Reserve, _) => need
            .heap_size
            .saturating_add(INTERNAL_SIZE as u64)
            .saturating_add(need.statics)
            .saturating_mul(need.pes),
    };
    let tables = TABLES_PER_PE
        .saturating_mul(need.pes)
        .saturating_add(PER_NODE);
    let nodes = tables.saturating_mul(need.nodes);
    let total = PER_PE
        .saturating_mul(need.pes)
        .saturating_add(nodes)
        .saturating_add(heaps);
    let have = cap(
        machine.available.saturating_add(machine.swap_free),
        machine.group_left,
    );
    if total > have {
        return Err(MemoryError::Job(Box::new(Shortage {
            need,
            total,
            nodes,
            heaps,
            have,
            machine,
        })));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn machine() -> Machine {
        Machine {
            total: 16 * GIB,
            available: 8 * GIB,
            swap_total: 2 * GIB,
            swap_free: GIB,
            group_left: None,
            group_limit: None,
        }
    }

    fn need(pes: u64, heap_size: u64, heap_commit: HeapCommit) -> Need {
        Need {
            pes,
            nodes: 1,
            heap_size,
            statics: 0,
            heap_commit,
            heap_pages: HeapPages::Default,
        }
    }

    #[test]
    fn lazy_heaps_do_not_count_but_huge_ones_are_refused() {
        assert_eq!(
            check(need(8192, 4 * GIB, HeapCommit::Lazy), machine()),
            Ok(())
        );
        let e = check(need(1, 19 * GIB, HeapCommit::Lazy), machine())
            .unwrap_err()
            .to_string();
        assert!(e.contains("19.0 GiB") && e.contains("18.0 GiB"), "{e}");
    }

    #[test]
    fn reserved_heaps_add_up() {
        assert_eq!(check(need(8, GIB, HeapCommit::Reserve), machine()), Ok(()));
        let nine = need(9, GIB, HeapCommit::Reserve);
        let heap_pages = HeapPages::Huge;
        assert_eq!(check(Need { heap_pages, ..nine }, machine()), Ok(()));
        let e = check(nine, machine()).unwrap_err().to_string();
        for part in [
            "9 PEs",
            "512.0 KiB",
            "only 9.0 GiB",
            "8.0 GiB of memory",
            "SHMEM_HEAP_COMMIT=lazy",
        ] {
            assert!(e.contains(part), "{part} in {e}");
        }
    }

    #[test]
    fn static_data_is_reserved_with_the_heaps() {
        let eight = need(8, GIB, HeapCommit::Reserve);
        let with = |statics| Need { statics, ..eight };
        assert_eq!(check(with(1 << 20), machine()), Ok(()));
        let e = check(with(GIB / 4), machine()).unwrap_err().to_string();
        assert!(e.contains("for reserved heaps"), "{e}");
        let lazy = need(8192, GIB, HeapCommit::Lazy);
        let statics = 1 << 40;
        assert_eq!(check(Need { statics, ..lazy }, machine()), Ok(()));
    }

    #[test]
    fn many_pes_do_not_fit_whatever_their_heaps() {
        let e = check(need(20_000, 1, HeapCommit::Lazy), machine())
            .unwrap_err()
            .to_string();
        assert!(e.contains("fewer PEs") && !e.contains("HEAP_COMMIT"), "{e}");
    }

    #[test]
    fn every_node_has_its_tables() {
        let n = |nodes| Need {
            nodes,
            ..need(8192, 1, HeapCommit::Lazy)
        };
        assert_eq!(check(n(512), machine()), Ok(()));
        assert!(check(n(8192), machine()).is_err());
    }

    #[test]
    fn control_groups_bound_both() {
        let m = Machine {
            group_left: Some(GIB),
            group_limit: Some(2 * GIB),
            ..machine()
        };
        assert!(
            check(need(1, 3 * GIB, HeapCommit::Lazy), m)
                .unwrap_err()
                .to_string()
                .contains("2.0 GiB")
        );
        let e = check(need(4096, 1, HeapCommit::Lazy), m)
            .unwrap_err()
            .to_string();
        assert!(e.contains("control group allows 1.0 GiB"), "{e}");
    }

    #[test]
    fn overflow_is_a_refusal() {
        let n = need(u64::MAX, 18 * GIB, HeapCommit::Reserve);
        assert!(matches!(check(n, machine()), Err(MemoryError::Job(_))));
    }
}

//! Whether the graph fits, asked before any of it is made.
//!
//! A heap that is too small, and a machine that is, show otherwise in the middle of the construction, after minutes.

use crate::error::Error;
use crate::mailbox::Mailbox;
use crate::node::Nodes;
use crate::partition::Partition;
use crate::search::Searches;
use crate::validation::Validation;
use shmem::Team;
use shmem_node::machine::Machine;

/// Of what size the graph is, and what is done with it.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// The scale.
    pub scale: u32,
    /// Edges for each vertex.
    pub edge_factor: u64,
    /// Whether results are validated.
    pub validation: bool,
}

/// Bytes that a PE needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes {
    /// Of its symmetric heap, in addresses.
    heap: usize,
    /// Of memory: of the heap what is used, and its own.
    memory: u64,
}

impl Needs {
    /// Of this PE with `far` PEs on other nodes and `near` on its own.
    fn bytes(&self, partition: &Partition, near: usize, far: usize) -> Bytes {
        let n_pes = partition.n_pes() as u64;
        let edges = self.edge_factor << self.scale;
        // Half-edges that come from others: those of large degree make one PE's share larger than the mean.
        let halves = 2 * edges / n_pes;
        let coming = halves / n_pes * (n_pes - 1) / 4 * 5;
        let coming = if n_pes > 1 {
            8 * coming + (64 << 10)
        } else {
            0
        };
        let classes = partition.room();
        let searches = Searches::bytes(partition);
        let validation = if self.validation {
            Validation::bytes(partition)
        } else {
            0
        };
        let mailbox = Mailbox::bytes(partition.n_pes(), far);
        let heap = mailbox + classes + (searches + validation).max(coming as usize);
        // Edges, lists, and numbers of each vertex; what a node has once is shared by its PEs.
        let private = 8 * edges / n_pes + 4 * halves + 24 * partition.stride() as u64;
        let used = classes + searches + validation;
        Bytes {
            heap: heap + (16 << 10),
            memory: private + coming + (used / near) as u64,
        }
    }
}

/// Fails, on all PEs alike, if the symmetric heap or the memory of a machine is too small. Collective.
///
/// Where the system does not tell how much memory is left, only the heap is looked at.
///
/// # Errors
/// [`Error::Heap`] or [`Error::Memory`].
pub fn check(needs: Needs, partition: &Partition, nodes: &Nodes) -> Result<(), Error> {
    let (near, far) = (nodes.near().count(), nodes.far().count());
    let bytes = needs.bytes(partition, near, far);
    let world = Team::world();
    let heap = world.max(bytes.heap);
    // Whether there is room is known by asking for it. Pages that nobody touches take no memory.
    match shmem::alloc_uninit::<u8>(heap) {
        Ok(room) => shmem::free(room)?,
        Err(shmem::Error::HeapExhausted { size, used, .. }) => {
            return Err(Error::Heap {
                scale: needs.scale,
                n_pes: partition.n_pes(),
                size,
                needed: heap + used,
                with_validation: needs.validation,
            });
        }
        Err(other) => return Err(other.into()),
    }
    let available = Machine::read().map_or(u64::MAX, left);
    let all = world.all_gather([machine(), bytes.memory, available]);
    match shortfall(&all) {
        None => Ok(()),
        Some((pes, needed, available)) => Err(Error::Memory {
            scale: needs.scale,
            pes,
            needed,
            available,
        }),
    }
}

/// The machine that lacks most, of `[machine, needed, available]` of every PE: its PEs, what they need, what there is.
fn shortfall(all: &[[u64; 3]]) -> Option<(usize, u64, u64)> {
    let of_machine = |&[machine, _, available]: &[u64; 3]| {
        let pes = all.iter().filter(|[other, ..]| *other == machine);
        let needed = pes.clone().map(|[_, needed, _]| needed).sum::<u64>();
        (pes.count(), needed, available)
    };
    let machines = all.iter().map(of_machine);
    let lacking = machines.filter(|(_, needed, available)| needed > available);
    lacking.max_by_key(|(_, needed, available)| needed - available)
}

/// Bytes that processes of this machine can still have.
fn left(machine: Machine) -> u64 {
    machine
        .group_left
        .map_or(machine.available, |group| group.min(machine.available))
}

/// A number that no other machine is likely to have: what its kernel drew when it started. Nodes that are emulated on
/// one machine have the same.
fn machine() -> u64 {
    let drawn = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = drawn
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(16)
        .collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_machines() {
        assert_eq!(shortfall(&[[1, 50, 100], [1, 50, 100]]), None);
        assert_eq!(
            shortfall(&[[1, 60, 100], [2, 300, 310], [1, 50, 100]]),
            Some((2, 110, 100))
        );
    }

    #[test]
    fn needs_grow_with_the_scale() {
        let of = |scale| {
            let needs = Needs {
                scale,
                edge_factor: 16,
                validation: true,
            };
            needs.bytes(&Partition::new(1 << scale, 4), 4, 0)
        };
        assert!(of(20).heap > 15 * of(16).heap);
        // 64 MiB of half-edges for each of four PEs, a quarter of which are its own.
        assert!((48 << 20..80 << 20).contains(&of(20).heap));
        assert!(of(31).memory > 200 << 30);
    }
}

//! Whether the graph fits, asked before any of it is made.
//!
//! A heap that is too small, and a machine that is, show otherwise in the middle of the construction, after minutes.

use crate::error::Error;
use crate::mailbox::{Mailbox, PACKET};
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
    /// Whether MPI distributes the edges, from and into memory of its own.
    pub hybrid: bool,
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
    /// Half-edges that a PE may have: as many as its vertices have on average, and those of the vertex with the most, beside
    /// which the mean is nothing where there are many PEs.
    fn halves(&self, partition: &Partition) -> u64 {
        let all = (2 * self.edge_factor) << self.scale;
        let vertices = partition.stride().min(partition.vertices());
        let mean = u128::from(all) * vertices as u128 / partition.vertices() as u128;
        // One end of each edge falls into a half of the vertices with this chance, into one of its halves again, and so on.
        let most = all as f64 * 0.76f64.powi(self.scale as i32);
        (mean as u64 + most as u64) / 8 * 9 + (8 << 10)
    }

    /// Of this PE with `far` PEs on other nodes and `near` on its own.
    fn bytes(&self, partition: &Partition, near: usize, far: usize) -> Bytes {
        let n_pes = partition.n_pes();
        let edges = self.edge_factor << self.scale;
        let halves = self.halves(partition);
        let coming = 8 * halves / n_pes as u64 * (n_pes as u64 - 1);
        let (in_heap, leaving) = if self.hybrid {
            (0, coming)
        } else {
            (coming, 0)
        };
        let classes = partition.room();
        let searches = Searches::bytes(partition);
        let validation = if self.validation {
            Validation::bytes(partition)
        } else {
            0
        };
        let mailbox = Mailbox::bytes(n_pes, far);
        let heap = mailbox + classes + (searches + validation).max(in_heap as usize);
        // Edges, lists, numbers of each vertex, packets; what a node has once is shared by its PEs.
        let edges = 8 * edges / n_pes as u64;
        let private = edges + 4 * halves + 28 * partition.stride() as u64;
        let packets = mailbox + 2 * 8 * PACKET * n_pes;
        let once = classes + searches + validation;
        Bytes {
            heap: heap + (16 << 10),
            memory: private + coming + leaving + (packets + once / near) as u64,
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
    use crate::coordination::ends;
    use crate::generator::Generator;

    #[test]
    fn memory_is_that_of_machines() {
        assert_eq!(shortfall(&[[1, 50, 100], [1, 50, 100]]), None);
        assert_eq!(
            shortfall(&[[1, 60, 100], [2, 300, 310], [1, 50, 100]]),
            Some((2, 110, 100))
        );
    }

    const NEEDS: Needs = Needs {
        scale: 20,
        edge_factor: 16,
        validation: true,
        hybrid: false,
    };

    #[test]
    fn needs_grow_with_the_scale() {
        let of = |scale| Needs { scale, ..NEEDS }.bytes(&Partition::new(1 << scale, 4), 4, 0);
        assert!(of(20).heap > 15 * of(16).heap);
        // 64 MiB of half-edges for each of four PEs, a quarter of which are its own.
        assert!((48 << 20..80 << 20).contains(&of(20).heap));
        assert!(of(31).memory > 200 << 30);
    }

    #[test]
    fn half_edges_come_by_mpi_without_the_heap() {
        let partition = Partition::new(1 << 20, 4);
        let [alone, hybrid] =
            [false, true].map(|hybrid| Needs { hybrid, ..NEEDS }.bytes(&partition, 4, 0));
        assert!(hybrid.heap < alone.heap / 2);
        assert!(hybrid.memory > alone.memory);
    }

    #[test]
    fn mailboxes_take_memory() {
        let of = |n_pes| NEEDS.bytes(&Partition::new(1 << 20, n_pes), 1, n_pes - 1);
        assert!(of(4096).memory > Mailbox::bytes(4096, 4095) as u64);
    }

    #[test]
    fn half_edges_of_every_pe_have_room() {
        for scale in [10, 14, 16] {
            let mut edges = vec![[0; 2]; 16 << scale];
            Generator::new(scale).fill(0, &mut edges);
            for n_pes in [1, 2, 3, 7, 16, 64, 100, 256, 1000] {
                let partition = Partition::new(1 << scale, n_pes);
                let mut of = vec![0; n_pes];
                ends(&edges, &partition, |owner, _, _| of[owner] += 1);
                let most = of.into_iter().max().unwrap_or(0);
                let room = Needs { scale, ..NEEDS }.halves(&partition);
                assert!(most <= room, "scale {scale}, {n_pes} PEs: {most} of {room}");
                assert!(
                    room <= 2 * most + (8 << 10),
                    "scale {scale}, {n_pes} PEs: {most} of {room}"
                );
            }
        }
    }
}

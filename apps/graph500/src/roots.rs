//! Where searches start: at vertices that the random sequence gives, none twice, none without edges.

use crate::construction::Graph;
use crate::generator::SEEDS;
use crate::partition::WORD;
use crate::random::{Jumps, Mrg};
use shmem::Team;

/// Searches of the official benchmark.
pub const NUMBER: usize = 64;

/// Vertices in the order in which the benchmark draws them: as many as the graph has, some more than once.
fn candidates(vertices: usize) -> impl Iterator<Item = u32> {
    let (jumps, start) = (Jumps::new(), Mrg::new(SEEDS[0], SEEDS[1]));
    // Each draw takes two reals of two numbers, from the place (0, 2, 0) of the sequence on.
    let mut place = jumps.skip(start, [0, 0, 2]);
    (0..vertices).map(move |_| {
        let sum = place.real() + place.real();
        ((sum * vertices as f64) as u64 % vertices as u64) as u32
    })
}

/// The first `number` roots; fewer if the sequence does not give as many. The same on all PEs. Collective.
#[must_use]
pub fn choose(graph: &Graph, number: usize) -> Vec<u32> {
    let partition = graph.partition();
    let me = shmem::my_pe();
    let mut candidates = candidates(partition.vertices()).peekable();
    let mut roots = Vec::with_capacity(number);
    while roots.len() < number && candidates.peek().is_some() {
        // 64 at a time: owners say which have edges, each bit by one PE.
        let some: Vec<u32> = candidates.by_ref().take(64).collect();
        let mine = some.iter().enumerate().filter(|&(_, &vertex)| {
            partition.owner(vertex) == me && {
                let local = partition.local(vertex, me);
                graph.connected()[local / WORD] >> (local % WORD) & 1 == 1
            }
        });
        let mask = Team::world().sum(mine.map(|(i, _)| 1u64 << i).sum::<u64>());
        for (i, vertex) in some.into_iter().enumerate() {
            if roots.len() < number && mask >> i & 1 == 1 && !roots.contains(&vertex) {
                roots.push(vertex);
            }
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    #[test]
    fn roots_of_the_reference_are_among_the_first() {
        for golden in golden::ALL {
            let drawn: Vec<u32> = candidates(1 << golden.scale).take(200).collect();
            let mut places = golden.searches.iter().map(|search| {
                let place = drawn.iter().position(|&root| root == search.root);
                place.unwrap_or_else(|| panic!("{} is not drawn", search.root))
            });
            assert!(places.by_ref().is_sorted(), "scale {}", golden.scale);
        }
    }
}

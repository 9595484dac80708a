//! Kernel 1: from edges to the adjacency lists of the vertices that a PE owns.
//!
//! Lists are sorted by the degree of the neighbour, the largest first, and have no duplicates. Searched from below, a
//! vertex asks its neighbours one after the other whether they have been reached, and those of large degree have been
//! reached most likely: the first one answers yes for most vertices, so that it is kept apart, one number for each vertex
//! in sequence. How many edges a vertex has with duplicates is kept, too: the benchmark counts them.

use crate::coordination::{Coordination, ends};
use crate::error::Error;
use crate::generator::Edge;
use crate::node::{Nodes, OncePerNode};
use crate::partition::{Partition, WORD};
use std::sync::atomic::Ordering::Relaxed;

/// The vertices of a PE, with their neighbours.
#[derive(Debug)]
pub struct Graph {
    partition: Partition,
    /// The first vertex.
    base: usize,
    /// Edges of each vertex, with duplicates, without loops.
    degrees: Vec<u32>,
    /// Where the list of each vertex begins, and the end.
    starts: Vec<usize>,
    neighbours: Vec<u32>,
    /// The first of each list, or any vertex.
    first: Vec<u32>,
    /// Which vertices have neighbours.
    connected: Vec<u64>,
    /// The [class](class_of) of each vertex of the graph.
    classes: OncePerNode<u8>,
    /// What all lists together weigh, of all PEs.
    weight: u64,
}

impl Graph {
    /// Of edges that PEs hold any of. Collective.
    ///
    /// # Errors
    /// If the symmetric heap has no room, or the communication fails.
    pub fn build(
        edges: &[Edge],
        partition: Partition,
        nodes: &Nodes,
        coordination: &mut impl Coordination,
    ) -> Result<Self, Error> {
        let (me, base) = (nodes.me(), nodes.me() * partition.stride());
        let others = coordination.distribute(edges, &partition)?;
        let mut degrees = vec![0u32; partition.stride()];
        ends(edges, &partition, |owner, local, _| {
            if owner == me {
                degrees[local] += 1;
            }
        });
        others.for_each(|local, _| degrees[local as usize] += 1);

        let classes: Vec<u8> = degrees.iter().map(|&degree| class_of(degree)).collect();
        let all_classes = OncePerNode::new(&partition, partition.stride())?;
        all_classes.publish(nodes, &classes);

        // Counting sort: where lists end is counted down to where they begin.
        let mut starts = Vec::with_capacity(degrees.len() + 1);
        let mut end = 0;
        for &degree in &degrees {
            end += degree as usize;
            starts.push(end);
        }
        starts.push(end);
        let mut neighbours = vec![0u32; end];
        let mut place = |local: usize, other: u32| {
            starts[local] -= 1;
            neighbours[starts[local]] = other;
        };
        ends(edges, &partition, |owner, local, other| {
            if owner == me {
                place(local, other);
            }
        });
        others.for_each(|local, other| place(local as usize, other));
        others.free()?;

        let weight: u64 = classes.iter().map(|&class| weight_of(class)).sum();
        let [weight, _] = coordination.sums([weight, 0])?;
        let mut graph = Self {
            partition,
            base,
            degrees,
            starts,
            neighbours,
            first: vec![0; partition.stride()],
            connected: vec![0; partition.words()],
            classes: all_classes,
            weight,
        };
        graph.sort(nodes);
        Ok(graph)
    }

    /// Sorts lists, and takes duplicates out.
    fn sort(&mut self, nodes: &Nodes) {
        let classes = self.classes.here(nodes);
        let mut kept = 0;
        let mut keys: Vec<u64> = Vec::new();
        for local in 0..self.partition.stride() {
            let list = self.starts[local]..self.starts[local + 1];
            keys.clear();
            keys.extend(self.neighbours[list].iter().map(|&other| {
                let class = classes[other as usize].load(Relaxed);
                u64::from(!class) << 32 | u64::from(other)
            }));
            keys.sort_unstable();
            keys.dedup();
            self.starts[local] = kept;
            for &key in &keys {
                self.neighbours[kept] = key as u32;
                kept += 1;
            }
            if let Some(&key) = keys.first() {
                self.first[local] = key as u32;
                self.connected[local / WORD] |= 1 << (local % WORD);
            }
        }
        let end = self.partition.stride();
        self.starts[end] = kept;
        self.neighbours.truncate(kept);
        self.neighbours.shrink_to_fit();
    }

    /// How vertices are divided among PEs.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The first vertex of this PE.
    #[must_use]
    pub fn base(&self) -> usize {
        self.base
    }

    /// Edges of each vertex of this PE, with duplicates, without loops.
    #[must_use]
    pub fn degrees(&self) -> &[u32] {
        &self.degrees
    }

    /// The neighbours of a vertex of this PE.
    #[inline(always)]
    #[must_use]
    pub fn neighbours(&self, local: usize) -> &[u32] {
        &self.neighbours[self.starts[local]..self.starts[local + 1]]
    }

    /// The first neighbour of each vertex of this PE; any vertex for one that has none.
    #[must_use]
    pub fn first(&self) -> &[u32] {
        &self.first
    }

    /// Which vertices of this PE have neighbours.
    #[must_use]
    pub fn connected(&self) -> &[u64] {
        &self.connected
    }

    /// The class of each vertex of the graph.
    #[must_use]
    pub fn classes(&self) -> OncePerNode<u8> {
        self.classes
    }

    /// The sum of [`weight_of`] all vertices of the graph.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Gives symmetric memory back. Collective.
    ///
    /// # Errors
    /// If the runtime finds its heap damaged.
    pub fn free(self) -> Result<(), shmem::Error> {
        self.classes.free()
    }
}

/// A degree to three binary digits, as a number of 8 bits that grows with it. 0 is that of a vertex without edges.
#[must_use]
pub fn class_of(degree: u32) -> u8 {
    if degree == 0 {
        return 0;
    }
    let exponent = degree.ilog2();
    let digits = (u64::from(degree) << 3 >> exponent) & 7;
    u8::try_from(1 + 8 * exponent + digits as u32).unwrap_or(u8::MAX)
}

/// The least degree of a class: what a vertex counts for where only its class is known.
#[inline]
#[must_use]
pub fn weight_of(class: u8) -> u64 {
    match class {
        0 => 0,
        class => (8 + u64::from(class - 1) % 8) << ((class - 1) / 8) >> 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_with_degrees() {
        assert_eq!((class_of(0), weight_of(0)), (0, 0));
        let mut last = 0;
        for degree in (1..5000).chain([1 << 20, u32::MAX / 2, u32::MAX]) {
            let class = class_of(degree);
            assert!(class >= last, "{degree}");
            last = class;
            let weight = weight_of(class);
            assert!(weight <= u64::from(degree), "{degree} {weight}");
            assert!(
                u64::from(degree) <= weight + weight / 8 + 1 || class == u8::MAX,
                "{degree} {weight}"
            );
        }
        for degree in [1, 2, 3, 4, 8, 12, 1 << 30] {
            assert_eq!(weight_of(class_of(degree)), u64::from(degree));
        }
    }
}

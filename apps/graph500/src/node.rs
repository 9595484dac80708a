//! Who is where: which PEs share memory with this one, and who speaks for each node.

use crate::partition::Partition;
use crate::shared::{self, Word};
use shmem::SymSlice;

/// The nodes of the job, seen from this PE.
#[derive(Clone, Debug)]
pub struct Nodes {
    me: usize,
    node_of: Vec<usize>,
    /// The first PE of each node, in whose memory lies what a node has once.
    leaders: Vec<usize>,
}

impl Nodes {
    /// Of the job that has been joined.
    #[must_use]
    pub fn of_job() -> Self {
        let node_of = (0..shmem::n_pes()).map(shmem::node_of).collect();
        Self::new(shmem::my_pe(), node_of)
    }

    fn new(me: usize, node_of: Vec<usize>) -> Self {
        let first_on = |node: usize| node_of.iter().position(|&other| other == node);
        let leaders = (0..node_of.len())
            .filter(|&pe| first_on(node_of[pe]) == Some(pe))
            .collect();
        Self {
            me,
            node_of,
            leaders,
        }
    }

    /// Number of this PE.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// The first PE of each node.
    #[must_use]
    pub fn leaders(&self) -> &[usize] {
        &self.leaders
    }

    /// The first PE of this node.
    ///
    /// # Panics
    /// Never: a node has a first PE.
    #[must_use]
    pub fn leader(&self) -> usize {
        let of_mine = |pe: &&usize| self.is_near(**pe);
        *self.leaders.iter().find(of_mine).expect("a first PE")
    }

    /// Whether a PE is on this node.
    #[must_use]
    pub fn is_near(&self, pe: usize) -> bool {
        self.node_of[pe] == self.node_of[self.me]
    }

    /// The PEs of this node.
    pub fn near(&self) -> impl Iterator<Item = usize> {
        (0..self.node_of.len()).filter(|&pe| self.is_near(pe))
    }

    /// The PEs of other nodes.
    pub fn far(&self) -> impl Iterator<Item = usize> {
        (0..self.node_of.len()).filter(|&pe| !self.is_near(pe))
    }

    /// Which of `parts` equal parts of something this PE takes care of for its node, and of how many parts.
    #[must_use]
    pub fn share(&self) -> (usize, usize) {
        let before = self.near().filter(|&pe| pe < self.me).count();
        (before, self.near().count())
    }
}

/// An array with a place for every vertex of the graph, which each node has once.
#[derive(Clone, Copy, Debug)]
pub struct OncePerNode<T: Word> {
    array: SymSlice<T>,
    /// Elements for the vertices of a PE.
    part: usize,
}

impl<T: Word> OncePerNode<T> {
    /// Makes room, zeroed: `part` elements for each PE. Collective.
    ///
    /// Every PE has the addresses, but only those of a node's first PE are ever used, and pages that are not used
    /// take no memory.
    ///
    /// # Errors
    /// If the symmetric heap has no room.
    pub fn new(partition: &Partition, part: usize) -> Result<Self, shmem::Error> {
        let array = shmem::alloc(part * partition.n_pes())?;
        Ok(Self { array, part })
    }

    /// This node's array.
    ///
    /// # Panics
    /// Never: memory of the own node can be reached.
    #[must_use]
    pub fn here(&self, nodes: &Nodes) -> &'static [T::Atomic] {
        shared::atomics(self.array, nodes.leader()).expect("memory of the own node")
    }

    /// Gives all nodes this PE's part. It has arrived when this returns; others know after a collective.
    ///
    /// # Panics
    /// If `part` is longer than what there is room for.
    pub fn publish(&self, nodes: &Nodes, part: &[T]) {
        let start = nodes.me() * self.part;
        let place = self.array.at(start..start + self.part);
        shmem::nbi(|puts| {
            for &leader in nodes.leaders() {
                puts.put(place, part, leader);
            }
        });
    }

    /// What each other node has for this PE's vertices.
    pub fn others(&self, nodes: &Nodes) -> Vec<Vec<T>> {
        let start = nodes.me() * self.part;
        let place = self.array.at(start..start + self.part);
        let others = nodes.leaders().iter().filter(|&&pe| !nodes.is_near(pe));
        let coming: Vec<_> = others.map(|&pe| shmem::start().get(place, pe)).collect();
        coming.into_iter().map(shmem::Request::wait).collect()
    }

    /// Gives the room back. Collective.
    ///
    /// # Errors
    /// If the runtime finds its heap damaged.
    pub fn free(self) -> Result<(), shmem::Error> {
        shmem::free(self.array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_leaders_in_any_layout() {
        let nodes = Nodes::new(4, vec![0, 1, 0, 2, 1, 0]);
        assert_eq!(nodes.leaders(), [0, 1, 3]);
        assert_eq!(nodes.leader(), 1);
        assert_eq!(nodes.near().collect::<Vec<_>>(), [1, 4]);
        assert_eq!(nodes.far().collect::<Vec<_>>(), [0, 2, 3, 5]);
        assert_eq!(nodes.share(), (1, 2));
    }
}

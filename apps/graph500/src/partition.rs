//! Which PE owns a vertex: each has a range of them.
//!
//! The numbers of vertices are scrambled, so that ranges have as many edges as what a cyclic distribution gives, and
//! they need no arithmetic: a vertex's number is its place in a bitmap of all, and a PE's part of such a bitmap is a
//! range of whole words.

use std::ops::Range;

/// No vertex: more than the largest number.
pub const NONE: u32 = u32::MAX;

/// Bits of a word of a bitmap.
pub const WORD: usize = 64;

/// How vertices are divided among PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    vertices: usize,
    n_pes: usize,
    stride: usize,
    /// 2^64 / stride, rounded up: multiplying by it divides.
    reciprocal: u64,
}

impl Partition {
    /// Of `vertices` among `n_pes` PEs.
    ///
    /// # Panics
    /// If there are no PEs or no vertices, or more than 2^31 of these.
    #[must_use]
    pub fn new(vertices: usize, n_pes: usize) -> Self {
        assert!(
            n_pes > 0 && (1..=1 << 31).contains(&vertices),
            "{vertices} vertices of {n_pes} PEs"
        );
        let stride = vertices.div_ceil(n_pes).next_multiple_of(WORD);
        Self {
            vertices,
            n_pes,
            stride,
            reciprocal: u64::MAX / stride as u64 + 1,
        }
    }

    /// Vertices in all.
    #[must_use]
    pub fn vertices(&self) -> usize {
        self.vertices
    }

    /// PEs.
    #[must_use]
    pub fn n_pes(&self) -> usize {
        self.n_pes
    }

    /// How many vertices a PE has room for: a multiple of [`WORD`]. The last PEs may have fewer, or none.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Words of a bitmap of a PE's vertices.
    #[must_use]
    pub fn words(&self) -> usize {
        self.stride / WORD
    }

    /// Room for the vertices of all PEs.
    #[must_use]
    pub fn room(&self) -> usize {
        self.stride * self.n_pes
    }

    /// Who owns a vertex.
    #[inline(always)]
    #[must_use]
    pub fn owner(&self, vertex: u32) -> usize {
        // Exact, as both the vertex and the stride have at most 32 bits (Lemire and others, "Faster remainder by
        // direct computation", 2019).
        ((u128::from(vertex) * u128::from(self.reciprocal)) >> 64) as usize
    }

    /// Its place among the vertices of `owner`.
    #[inline(always)]
    #[must_use]
    pub fn local(&self, vertex: u32, owner: usize) -> usize {
        vertex as usize - owner * self.stride
    }

    /// The vertices of a PE.
    #[must_use]
    pub fn range(&self, pe: usize) -> Range<usize> {
        let at = |pe: usize| (pe * self.stride).min(self.vertices);
        at(pe)..at(pe + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vertex_has_one_owner() {
        for (vertices, n_pes) in [(2, 1), (64, 2), (1024, 7), (1 << 14, 3), (1 << 14, 16)] {
            let partition = Partition::new(vertices, n_pes);
            assert_eq!(partition.stride() % WORD, 0);
            let mut next = 0;
            for pe in 0..n_pes {
                for vertex in partition.range(pe) {
                    assert_eq!(vertex, next);
                    assert_eq!(partition.owner(vertex as u32), pe);
                    assert!(partition.local(vertex as u32, pe) < partition.stride());
                    next += 1;
                }
            }
            assert_eq!(next, vertices);
        }
    }

    #[test]
    fn division_is_exact_at_the_edges_of_ranges() {
        for n_pes in [1, 2, 3, 5, 7, 1000, 4096, 65536] {
            let partition = Partition::new(1 << 31, n_pes);
            for pe in 0..n_pes {
                let range = partition.range(pe);
                if let Some(last) = range.clone().next_back() {
                    assert_eq!(partition.owner(range.start as u32), pe);
                    assert_eq!(partition.owner(last as u32), pe);
                }
            }
        }
    }
}

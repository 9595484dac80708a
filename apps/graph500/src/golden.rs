//! What the reference implementation makes of a few scales with edge factor 16: what every change is checked against.

use crate::generator::Edge;
use std::fmt::Debug;

/// Values of one scale. Degrees count duplicate edges and no loops. From all roots that are listed the same part of
/// the graph is reached.
#[derive(Debug)]
pub struct Golden {
    /// The scale.
    pub scale: u32,
    /// The first edges.
    pub first: [Edge; 4],
    /// The last one.
    pub last: Edge,
    /// Edges from a vertex to itself.
    pub loops: u64,
    /// FNV-1a, 64 bits, of both ends of all edges as little-endian numbers of 64 bits.
    pub fnv: u64,
    /// Vertices with no edge but loops.
    pub isolated: u64,
    /// The largest degree.
    pub max_degree: u64,
    /// Vertices that are reached.
    pub visited: u64,
    /// Edges between them.
    pub nedge: u64,
    /// Some of the 64 roots.
    pub searches: &'static [Search],
}

/// A search: which of the roots it starts at, and how many vertices each level has.
#[derive(Debug)]
pub struct Search {
    /// Number of the root among the benchmark's.
    pub index: usize,
    /// The root.
    pub root: u32,
    /// Vertices of every level from 0 on; empty where they are not known.
    pub levels: &'static [u64],
}

const fn search(index: usize, root: u32, levels: &'static [u64]) -> Search {
    Search {
        index,
        root,
        levels,
    }
}

/// The scales that are known.
pub static ALL: &[Golden] = &[
    Golden {
        scale: 10,
        first: [[299, 797], [684, 861], [185, 385], [428, 328]],
        last: [206, 55],
        loops: 144,
        fnv: 0xb43b_86c9_80db_5ae1,
        isolated: 125,
        max_degree: 1977,
        visited: 897,
        nedge: 16239,
        searches: &[
            search(0, 458, &[1, 8, 500, 380, 8]),
            search(1, 214, &[1, 1, 463, 427, 5]),
            search(2, 220, &[1, 21, 660, 214, 1]),
            search(3, 966, &[1, 13, 634, 249]),
            search(63, 149, &[]),
        ],
    },
    Golden {
        scale: 14,
        first: [[14207, 9077], [5452, 10379], [16229, 1854], [2400, 14842]],
        last: [12099, 9415],
        loops: 326,
        fnv: 0x7e30_3268_181e_3065,
        isolated: 3834,
        max_degree: 10921,
        visited: 12550,
        nedge: 261_818,
        searches: &[
            search(0, 7337, &[1, 282, 9574, 2675, 18]),
            search(1, 3434, &[1, 9, 3047, 9118, 375]),
            search(2, 3526, &[1, 786, 10297, 1458, 8]),
            search(3, 2016, &[1, 10, 4032, 8261, 246]),
            search(63, 2389, &[1, 8, 1841, 10052, 646, 2]),
        ],
    },
    Golden {
        scale: 16,
        first: [
            [53430, 37000],
            [16463, 33235],
            [57163, 11309],
            [15642, 60592],
        ],
        last: [47449, 59083],
        loops: 491,
        fnv: 0x0b73_eebc_b307_738b,
        isolated: 18721,
        max_degree: 25485,
        visited: 46803,
        nedge: 1_048_079,
        searches: &[
            search(0, 29348, &[1, 27, 8336, 36624, 1805, 10]),
            search(1, 8064, &[1, 25, 6931, 37625, 2209, 12]),
            search(2, 61854, &[1, 1, 727, 34127, 11860, 87]),
            search(3, 29808, &[1, 13, 4875, 38764, 3133, 17]),
            search(63, 43174, &[]),
        ],
    },
    Golden {
        scale: 18,
        first: [
            [124_678, 60600],
            [246_228, 41283],
            [119_874, 131_147],
            [152_988, 68199],
        ],
        last: [104_822, 42090],
        loops: 778,
        fnv: 0x8acb_d18e_8d5a_1c6e,
        isolated: 88452,
        max_degree: 59225,
        visited: 173_585,
        nedge: 4_193_472,
        searches: &[
            search(0, 117_395, &[1, 2, 13643, 145_566, 14315, 58]),
            search(1, 54946, &[1, 1, 2, 4455, 139_043, 29919, 164]),
            search(2, 56428, &[1, 1, 63, 46766, 123_172, 3568, 14]),
            search(3, 32257, &[1, 3, 4577, 138_609, 30241, 154]),
            search(63, 227_897, &[1, 1, 1609, 119_494, 52102, 377, 1]),
        ],
    },
];

/// The edge factor of all.
pub const EDGE_FACTOR: u64 = 16;

/// The values of a scale and an edge factor, if they are known.
#[must_use]
pub fn of(scale: u32, edge_factor: u64) -> Option<&'static Golden> {
    let known = ALL.iter().find(|golden| golden.scale == scale);
    known.filter(|_| edge_factor == EDGE_FACTOR)
}

impl Golden {
    /// Compares the whole list of edges.
    ///
    /// # Errors
    /// What differs.
    pub fn check_edges(&self, edges: &[Edge]) -> Result<(), Difference> {
        same("the first edges", &edges.get(..4), &Some(&self.first[..]))?;
        same("the last edge", &edges.last(), &Some(&self.last))?;
        same("loops", &loops(edges), &self.loops)?;
        same("the hash of the edges", &hash(HASH, edges), &self.fnv)
    }
}

/// Something is not what the reference makes of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {found}, where the reference has {known}")]
pub struct Difference {
    /// What differs.
    pub what: String,
    /// What was found.
    pub found: String,
    /// What the reference has.
    pub known: String,
}

/// Compares one value.
///
/// # Errors
/// If they differ.
pub fn same<T: PartialEq + Debug>(what: &str, found: &T, known: &T) -> Result<(), Difference> {
    if found == known {
        return Ok(());
    }
    Err(Difference {
        what: what.to_owned(),
        found: format!("{found:?}"),
        known: format!("{known:?}"),
    })
}

/// The hash of no edges.
pub const HASH: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of the edges before with these behind them.
#[must_use]
pub fn hash(before: u64, edges: &[Edge]) -> u64 {
    let bytes = edges
        .iter()
        .flatten()
        .flat_map(|&vertex| u64::from(vertex).to_le_bytes());
    bytes.fold(before, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Edges from a vertex to itself.
#[must_use]
pub fn loops(edges: &[Edge]) -> u64 {
    edges.iter().filter(|[a, b]| a == b).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_add_up() {
        for golden in ALL {
            for Search { levels, index, .. } in golden.searches {
                let sum: u64 = levels.iter().sum();
                let known = levels.is_empty() || sum == golden.visited;
                assert!(known, "search {index} of scale {}", golden.scale);
            }
        }
    }
}

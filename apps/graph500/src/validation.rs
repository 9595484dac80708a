//! Whether the predecessors that a search gives are right, by the rules of the benchmark and from the input alone.
//!
//! Nothing is taken over from the search or from the adjacency lists: levels are computed from the predecessors, and every
//! edge of the input is looked at. Each node gets all predecessors once, so that its PEs can look up both ends of their
//! edges; what they confirm comes back to the owners.

use crate::generator::Edge;
use crate::node::{Nodes, OncePerNode};
use crate::partition::{NONE, Partition, WORD};
use crate::shared::{has, set_bits};
use shmem::{SymSlice, Team};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A rule of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The root is its own predecessor.
    Root,
    /// Predecessors are vertices.
    Range,
    /// Predecessors lead to the root: none of them lacks one, and they make no circle.
    Tree,
    /// An edge has both ends in the tree, or none.
    Reach,
    /// An edge joins vertices of the same level or of neighbouring ones.
    Level,
    /// A vertex and its predecessor are joined by an edge of the input.
    Edge,
    /// The search counts as many edges as there are.
    Count,
}

/// All rules.
const RULES: [Rule; 7] = [
    Rule::Root,
    Rule::Range,
    Rule::Tree,
    Rule::Reach,
    Rule::Level,
    Rule::Edge,
    Rule::Count,
];

/// A result that breaks rules: the first of them in the order of [`Rule`], how often, and the vertex of the lowest number
/// of which that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule.
    pub rule: Rule,
    /// How often it is broken: by vertices, by edges, or, of [`Rule::Count`], by how many edges.
    pub times: u64,
    /// A vertex.
    pub vertex: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { times, vertex, .. } = self;
        match self.rule {
            Rule::Root => write!(f, "root {vertex} is not its own predecessor"),
            Rule::Range => write!(
                f,
                "{times} predecessors are no vertices, such as that of {vertex}"
            ),
            Rule::Tree => write!(
                f,
                "the predecessors of {times} vertices do not lead to the root, such as those of {vertex}"
            ),
            Rule::Reach => write!(
                f,
                "{times} edges have one end that was reached and one that was not, such as one of vertex {vertex}"
            ),
            Rule::Level => write!(
                f,
                "{times} edges join levels that are more than one apart, such as one of vertex {vertex}"
            ),
            Rule::Edge => write!(
                f,
                "{times} predecessors are not joined to their vertices by an edge, such as that of {vertex}"
            ),
            Rule::Count => write!(f, "the number of edges is wrong by {times}"),
        }
    }
}

/// What was found wrong, by this PE and then by all.
#[derive(Clone, Copy, Debug)]
struct Faults {
    times: [u64; RULES.len()],
    vertex: [u64; RULES.len()],
}

impl Faults {
    const NONE: Self = Self {
        times: [0; RULES.len()],
        vertex: [u64::MAX; RULES.len()],
    };

    #[cold]
    fn add(&mut self, rule: Rule, vertex: u64) {
        self.times[rule as usize] += 1;
        self.vertex[rule as usize] = self.vertex[rule as usize].min(vertex);
    }

    /// The first rule that any PE found broken. Collective.
    fn of_all(self) -> Result<(), Refusal> {
        let world = Team::world();
        let (times, vertex) = (
            world.sum(self.times),
            world.reduce_value(self.vertex, least),
        );
        let broken = RULES.into_iter().find(|&rule| times[rule as usize] > 0);
        broken.map_or(Ok(()), |rule| {
            Err(Refusal {
                rule,
                times: times[rule as usize],
                vertex: vertex[rule as usize],
            })
        })
    }
}

fn least(a: [u64; RULES.len()], b: [u64; RULES.len()]) -> [u64; RULES.len()] {
    std::array::from_fn(|i| a[i].min(b[i]))
}

/// A level is kept as one more than it is, and 0 is none.
const ROOT_LEVEL: u32 = 1;

/// What validations need, made once for all.
#[derive(Debug)]
pub struct Validation<'a> {
    partition: Partition,
    nodes: &'a Nodes,
    predecessors: OncePerNode<u32>,
    levels: OncePerNode<u32>,
    /// Of which vertices an edge to the predecessor was met.
    confirmed: OncePerNode<u64>,
}

impl<'a> Validation<'a> {
    /// Bytes of the symmetric heap that it takes.
    #[must_use]
    pub fn bytes(partition: &Partition) -> usize {
        8 * partition.room() + partition.room() / 8
    }

    /// Makes room. Collective.
    ///
    /// # Errors
    /// If the symmetric heap has none.
    pub fn new(partition: &Partition, nodes: &'a Nodes) -> Result<Self, shmem::Error> {
        Ok(Self {
            partition: *partition,
            nodes,
            predecessors: OncePerNode::new(partition, partition.stride())?,
            levels: OncePerNode::new(partition, partition.stride())?,
            confirmed: OncePerNode::new(partition, partition.words())?,
        })
    }

    /// Checks the predecessors that PEs have of their vertices, after a search from `root` that claims to have met so many
    /// edges; `edges` are those that this PE holds of the input. All PEs get the same answer. Collective.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(
        &self,
        edges: &[Edge],
        predecessors: SymSlice<u32>,
        root: u32,
        claimed: u64,
    ) -> Result<(), Refusal> {
        let mine = predecessors.to_vec();
        self.check_range(&mine, root)?;
        self.prepare(&mine, root);
        let tree = Tree {
            predecessors: self.predecessors.here(self.nodes),
            levels: self.levels.here(self.nodes),
            confirmed: self.confirmed.here(self.nodes),
        };
        // PEs of a node take equal parts of the vertices; all nodes do the same.
        let (part, parts) = self.nodes.share();
        let at = |part: usize| self.partition.room() * part / parts;
        let mut faults = Faults::NONE;
        tree.find_levels(at(part)..at(part + 1), &mut faults);
        faults.of_all()?;

        let mut faults = Faults::NONE;
        let met = tree.check_edges(edges, &mut faults);
        // Edges of all PEs have been looked at when this returns.
        let met = Team::world().sum(met);
        self.check_confirmed(&mine, root, &tree, &mut faults);
        if self.nodes.me() == 0 && met != claimed {
            faults.add(Rule::Count, 0);
            faults.times[Rule::Count as usize] = met.abs_diff(claimed);
        }
        // Nobody begins to prepare another validation before all have looked at this one's confirmations.
        faults.of_all()
    }

    fn check_range(&self, mine: &[u32], root: u32) -> Result<(), Refusal> {
        let mut faults = Faults::NONE;
        let range = self.partition.range(self.nodes.me());
        for (vertex, &predecessor) in range.clone().zip(mine) {
            if predecessor != NONE && predecessor as usize >= self.partition.vertices() {
                faults.add(Rule::Range, vertex as u64);
            }
        }
        if range.contains(&(root as usize)) && mine[root as usize - range.start] != root {
            faults.add(Rule::Root, u64::from(root));
        }
        faults.of_all()
    }

    /// Gives all nodes all predecessors, and forgets levels and confirmations of before.
    fn prepare(&self, mine: &[u32], root: u32) {
        self.predecessors.publish(self.nodes, mine);
        let (part, parts) = self.nodes.share();
        let levels = self.levels.here(self.nodes);
        let at = |len: usize, part: usize| len * part / parts;
        let share = at(levels.len(), part)..at(levels.len(), part + 1);
        for level in &levels[share.clone()] {
            level.store(0, Relaxed);
        }
        if share.contains(&(root as usize)) {
            levels[root as usize].store(ROOT_LEVEL, Relaxed);
        }
        let confirmed = self.confirmed.here(self.nodes);
        for word in &confirmed[at(confirmed.len(), part)..at(confirmed.len(), part + 1)] {
            word.store(0, Relaxed);
        }
        shmem::barrier_all();
    }

    /// Every vertex of this PE that was reached has an edge to its predecessor, which some node has met.
    fn check_confirmed(&self, mine: &[u32], root: u32, tree: &Tree, faults: &mut Faults) {
        let base = self.nodes.me() * self.partition.stride();
        let words = &tree.confirmed[base / WORD..][..self.partition.words()];
        let mut confirmed: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
        for other in self.confirmed.others(self.nodes) {
            confirmed.iter_mut().zip(other).for_each(|(a, b)| *a |= b);
        }
        for (local, &predecessor) in mine.iter().enumerate() {
            let vertex = base + local;
            let reached = predecessor != NONE && vertex != root as usize;
            if reached && confirmed[local / WORD] >> (local % WORD) & 1 == 0 {
                faults.add(Rule::Edge, vertex as u64);
            }
        }
    }

    /// Gives the room back. Collective.
    ///
    /// # Errors
    /// If the runtime finds its heap damaged.
    pub fn free(self) -> Result<(), shmem::Error> {
        self.confirmed.free()?;
        self.levels.free()?;
        self.predecessors.free()
    }
}

/// What a node knows of the tree.
struct Tree {
    predecessors: &'static [AtomicU32],
    levels: &'static [AtomicU32],
    confirmed: &'static [AtomicU64],
}

impl Tree {
    fn predecessor(&self, vertex: u32) -> u32 {
        self.predecessors[vertex as usize].load(Relaxed)
    }

    fn level(&self, vertex: u32) -> u32 {
        self.levels[vertex as usize].load(Relaxed)
    }

    /// Computes the levels of some vertices that were reached. Other PEs compute those of others, and come to the same
    /// where ways to the root meet.
    fn find_levels(&self, vertices: std::ops::Range<usize>, faults: &mut Faults) {
        let mut way = Vec::new();
        for vertex in vertices {
            let mut at = vertex as u32;
            if self.predecessor(at) == NONE {
                continue;
            }
            way.clear();
            while self.level(at) == 0 {
                way.push(at);
                let before = self.predecessor(at);
                // A way with more vertices than there are goes in circles.
                if before == NONE || way.len() > self.levels.len() {
                    faults.add(Rule::Tree, vertex as u64);
                    // Others would be followed as far again.
                    return;
                }
                at = before;
            }
            let mut level = self.level(at);
            for &on_way in way.iter().rev() {
                level += 1;
                self.levels[on_way as usize].store(level, Relaxed);
            }
        }
    }

    /// Looks at edges of the input; gives how many have both ends in the tree, without loops.
    fn check_edges(&self, edges: &[Edge], faults: &mut Faults) -> u64 {
        let mut met = 0;
        for &[a, b] in edges {
            if a == b {
                continue;
            }
            let (level_a, level_b) = (self.level(a), self.level(b));
            if (level_a == 0) != (level_b == 0) {
                faults.add(Rule::Reach, u64::from(if level_a == 0 { b } else { a }));
            } else if level_a != 0 {
                met += 1;
                match level_a.abs_diff(level_b) {
                    0 => {}
                    1 => {
                        let (above, below) = if level_a < level_b { (a, b) } else { (b, a) };
                        if self.predecessor(below) == above && !has(self.confirmed, below) {
                            let word = &self.confirmed[below as usize / WORD];
                            set_bits(word, 1 << (below as usize % WORD), false);
                        }
                    }
                    _ => faults.add(Rule::Level, u64::from(a.min(b))),
                }
            }
        }
        met
    }
}

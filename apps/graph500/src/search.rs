//! Kernel 2: breadth-first search, level by level, from above or from below.
//!
//! * **From above** each vertex of the frontier goes through its neighbours and claims those that nobody has reached, by
//!   setting their bit in a bitmap that a node has once. On its own node it writes the predecessor and the bit of the next
//!   frontier straight into the owner's memory. For vertices of other nodes the bit says that this node has told the owner,
//!   so that a node sends one message for a vertex and search, however many edges lead there; owners claim what they are told.
//! * **From below** each vertex that has not been reached goes through its neighbours until it finds one that has (Beamer,
//!   Asanović and Patterson, "Direction-optimizing breadth-first search", 2012). All vertices that had been reached
//!   before the step are as good as its frontier: a neighbour of an earlier level would have been the predecessor before.
//!   So PEs publish which of their vertices have been reached, once for each node.
//!
//! Both use the same bitmap, of which there are two: one is read, while PEs that are ahead write the other.
//!
//! A level ends with one sum over all PEs: of what the next frontier has. If messages are under way, a barrier that does
//! not wait comes before it, during which mailboxes are emptied.

use crate::construction::{Graph, weight_of};
use crate::coordination::Coordination;
use crate::error::Error;
use crate::mailbox::{Mailbox, Message};
use crate::node::{Nodes, OncePerNode};
use crate::partition::{NONE, Partition, WORD};
use crate::shared::{self, has, set_bits};
use shmem::SymSlice;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// How a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Algorithm {
    /// Every level from above, as in the reference.
    TopDown,
    /// Levels with many edges from below.
    DirectionOptimising,
}

/// A level is searched from below when its frontier has more than one of so many edges that lead from vertices
/// that have not been reached.
const DOWN: u64 = 8;

/// And from above again when the frontier has fewer than one of so many vertices.
const UP: u64 = 64;

/// How far a search is: frontiers grow, are large, and shrink, once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// From above.
    Growing,
    /// From below.
    Below,
    /// From above for what is left.
    Shrinking,
}

/// From below, the vertices of a word are looked at one by one if they are fewer.
const MANY: u32 = 20;

/// What a search found, the same on every PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Vertices of each level.
    pub levels: Vec<u64>,
    /// How many levels were searched from below.
    pub from_below: usize,
}

/// Memory of a PE of this node.
#[derive(Clone, Copy, Debug)]
struct Near {
    predecessors: &'static [AtomicU32],
    next: [&'static [AtomicU64]; 2],
}

/// What a search needs, made once for all.
#[derive(Debug)]
pub struct Searches<'g> {
    graph: &'g Graph,
    nodes: &'g Nodes,
    predecessors: SymSlice<u32>,
    next: [SymSlice<u64>; 2],
    reached: [OncePerNode<u64>; 2],
    /// By PE; none for those of other nodes.
    near: Vec<Option<Near>>,
    /// Vertices whose neighbours are to be looked at, and those that have neighbours and have not been reached.
    frontier: Vec<u64>,
    left: Vec<u64>,
}

impl<'g> Searches<'g> {
    /// Bytes of the symmetric heap that it takes.
    #[must_use]
    pub fn bytes(partition: &Partition) -> usize {
        4 * partition.stride() + 2 * 8 * partition.words() * (1 + partition.n_pes())
    }

    /// Makes room. Collective.
    ///
    /// # Errors
    /// If the symmetric heap has none.
    pub fn new(graph: &'g Graph, nodes: &'g Nodes) -> Result<Self, Error> {
        let partition = graph.partition();
        let (stride, words) = (partition.stride(), partition.words());
        let predecessors = shmem::alloc(stride)?;
        let next = [shmem::alloc(words)?, shmem::alloc(words)?];
        let reached = [
            OncePerNode::new(partition, words)?,
            OncePerNode::new(partition, words)?,
        ];
        let near = (0..partition.n_pes())
            .map(|pe| {
                Some(Near {
                    predecessors: shared::atomics(predecessors, pe)?,
                    next: [shared::atomics(next[0], pe)?, shared::atomics(next[1], pe)?],
                })
            })
            .collect();
        Ok(Self {
            graph,
            nodes,
            predecessors,
            next,
            reached,
            near,
            frontier: vec![0; words],
            left: vec![0; words],
        })
    }

    /// The predecessors of this PE's vertices; [`NONE`] for those that were not reached.
    #[must_use]
    pub fn predecessors(&self) -> SymSlice<u32> {
        self.predecessors
    }

    /// Forgets all predecessors, before a search. Collective, because PEs of a node write each other's.
    pub fn clear(&self) {
        for predecessor in shared::own(self.predecessors) {
            predecessor.store(NONE, Relaxed);
        }
        shmem::sync_all();
    }

    /// Searches the graph from `root`. Collective, after [`clear`](Self::clear).
    ///
    /// # Errors
    /// If the communication fails.
    pub fn run(
        &mut self,
        root: u32,
        algorithm: Algorithm,
        mailbox: &mut Mailbox,
        coordination: &mut impl Coordination,
    ) -> Result<Found, Error> {
        let mut current = 0;
        self.begin(root);
        coordination.sums([0; 2])?;
        let classes = self.graph.classes().here(self.nodes);
        let mut edges = weight_of(classes[root as usize].load(Relaxed));
        let mut unexplored = self.graph.weight() - edges;
        let mut found = Found {
            levels: vec![1],
            from_below: 0,
        };
        let (mut vertices, mut turn) = (1, 0);
        let mut phase = Phase::Growing;
        loop {
            phase = match phase {
                Phase::Growing
                    if algorithm == Algorithm::DirectionOptimising && edges > unexplored / DOWN =>
                {
                    // From above a node knows of others' vertices only what it has claimed itself.
                    self.publish(1 - current);
                    coordination.sums([0; 2])?;
                    current = 1 - current;
                    Phase::Below
                }
                Phase::Below if vertices < self.graph.partition().vertices() as u64 / UP => {
                    Phase::Shrinking
                }
                other => other,
            };
            let reached = self.reached[current].here(self.nodes);
            let next = if phase == Phase::Below {
                found.from_below += 1;
                let vertices = self.search_from_below(reached);
                self.publish(1 - current);
                current = 1 - current;
                [vertices, 0]
            } else {
                self.search_from_above(reached, classes, turn, mailbox, coordination)?
            };
            [vertices, edges] = coordination.sums(next)?;
            if vertices == 0 {
                return Ok(found);
            }
            unexplored = unexplored.saturating_sub(edges);
            found.levels.push(vertices);
            if phase != Phase::Below {
                self.take_next(turn);
                turn = 1 - turn;
            }
        }
    }

    /// Nothing has been reached but the root.
    fn begin(&mut self, root: u32) {
        let reached = self.reached[0].here(self.nodes);
        let (part, parts) = self.nodes.share();
        let at = |part: usize| reached.len() * part / parts;
        let (word, bit) = (root as usize / WORD, 1 << (root as usize % WORD));
        for (i, reached) in reached.iter().enumerate().take(at(part + 1)).skip(at(part)) {
            reached.store(if i == word { bit } else { 0 }, Relaxed);
        }
        self.left.copy_from_slice(self.graph.connected());
        self.frontier.fill(0);
        let partition = self.graph.partition();
        if partition.owner(root) == self.nodes.me() {
            let local = partition.local(root, self.nodes.me());
            self.frontier[local / WORD] = bit;
            self.left[local / WORD] &= !bit;
            shared::own(self.predecessors)[local].store(root, Relaxed);
        }
    }

    /// Tells all nodes which of this PE's vertices have been reached.
    fn publish(&self, turn: usize) {
        let connected = self.graph.connected().iter();
        let mine: Vec<u64> = connected
            .zip(&self.left)
            .map(|(connected, left)| connected & !left)
            .collect();
        self.reached[turn].publish(self.nodes, &mine);
    }

    /// The next frontier, as neighbours and this PE have noted it down.
    fn take_next(&mut self, turn: usize) {
        let next = shared::own(self.next[turn]);
        for ((next, frontier), left) in next.iter().zip(&mut self.frontier).zip(&mut self.left) {
            let bits = next.load(Relaxed);
            *frontier = bits;
            if bits != 0 {
                *left &= !bits;
                next.store(0, Relaxed);
            }
        }
    }

    fn search_from_above(
        &self,
        reached: &'static [AtomicU64],
        classes: &'static [AtomicU8],
        turn: usize,
        mailbox: &mut Mailbox,
        coordination: &mut impl Coordination,
    ) -> Result<[u64; 2], Error> {
        let partition = self.graph.partition();
        let mut claims = Claims {
            reached,
            classes,
            near: &self.near,
            me: self.nodes.me(),
            base: self.graph.base() as u32,
            partition,
            turn,
            alone: self.nodes.near().count() == 1,
            found: [0; 2],
        };
        for (i, &word) in self.frontier.iter().enumerate() {
            for bit in ones(word) {
                let local = i * WORD + bit;
                let from = claims.base + local as u32;
                for &to in self.graph.neighbours(local) {
                    if !has(reached, to)
                        && let Some((owner, message)) = claims.claim(to, from)
                    {
                        mailbox.send(message, owner, |message| claims.receive(message));
                    }
                }
            }
        }
        if self.nodes.leaders().len() > 1 {
            mailbox.flush_all(|message| claims.receive(message));
            coordination.enter()?;
            loop {
                mailbox.drain(|message| claims.receive(message));
                if coordination.test()? {
                    break;
                }
                coordination.wait(mailbox);
            }
            mailbox.drain(|message| claims.receive(message));
            while mailbox.expects_more() {
                mailbox.wait(None);
                mailbox.drain(|message| claims.receive(message));
            }
        }
        Ok(claims.found)
    }

    /// Gives how many vertices were reached.
    ///
    /// Word by word in two passes, because branches that go either way cost more than what they save: the first
    /// neighbours of all vertices of a word are looked up without any, and then the others of those vertices that are left.
    fn search_from_below(&mut self, reached: &'static [AtomicU64]) -> u64 {
        let graph = self.graph;
        let predecessors = shared::own(self.predecessors);
        let firsts = graph.first().chunks_exact(WORD);
        let chunks = predecessors.chunks_exact(WORD).zip(firsts);
        let words = self.left.iter_mut().zip(&mut self.frontier);
        let mut found = 0;
        for (i, ((left, frontier), (predecessors, firsts))) in words.zip(chunks).enumerate() {
            *frontier = 0;
            if *left == 0 {
                continue;
            }
            let mut new = 0;
            if left.count_ones() >= MANY {
                for (bit, &first) in firsts.iter().enumerate() {
                    new |= u64::from(has(reached, first)) << bit;
                }
                new &= *left;
            } else {
                for bit in ones(*left) {
                    new |= u64::from(has(reached, firsts[bit])) << bit;
                }
            }
            for bit in ones(new) {
                predecessors[bit].store(firsts[bit], Relaxed);
            }
            for bit in ones(*left & !new) {
                let others = &graph.neighbours(i * WORD + bit)[1..];
                if let Some(&other) = others.iter().find(|&&other| has(reached, other)) {
                    predecessors[bit].store(other, Relaxed);
                    new |= 1 << bit;
                }
            }
            found += u64::from(new.count_ones());
            *frontier = new;
            *left &= !new;
        }
        found
    }

    /// Input edges in the part of the graph that the last search has reached, without loops, with duplicates. Collective.
    ///
    /// # Errors
    /// If the communication fails.
    pub fn count_edges(&self, coordination: &mut impl Coordination) -> Result<u64, Error> {
        let predecessors = shared::own(self.predecessors).iter();
        let ends = predecessors
            .zip(self.graph.degrees())
            .filter(|(predecessor, _)| predecessor.load(Relaxed) != NONE)
            .map(|(_, &degree)| u64::from(degree))
            .sum();
        let [ends, _] = coordination.sums([ends, 0])?;
        Ok(ends / 2)
    }

    /// Gives the room back. Collective.
    ///
    /// # Errors
    /// If the runtime finds its heap damaged.
    pub fn free(self) -> Result<(), shmem::Error> {
        for reached in self.reached {
            reached.free()?;
        }
        for next in self.next {
            shmem::free(next)?;
        }
        shmem::free(self.predecessors)
    }
}

/// The numbers of the bits that are set.
#[inline(always)]
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros() as usize;
        (bits != 0).then(|| {
            bits &= bits - 1;
            bit
        })
    })
}

/// Claims vertices for the next level, and counts what this PE has claimed.
struct Claims<'a> {
    reached: &'static [AtomicU64],
    classes: &'static [AtomicU8],
    near: &'a [Option<Near>],
    partition: &'a Partition,
    me: usize,
    base: u32,
    turn: usize,
    /// Whether this PE has a node for itself.
    alone: bool,
    /// Vertices, and about as many edges as they have.
    found: [u64; 2],
}

impl Claims<'_> {
    /// Claims a vertex that `from` has an edge to, unless somebody has. For one of another node this gives the message for
    /// its owner.
    #[inline(always)]
    fn claim(&mut self, to: u32, from: u32) -> Option<(usize, Message)> {
        let (word, bit) = (to as usize / WORD, 1 << (to as usize % WORD));
        if set_bits(&self.reached[word], bit, self.alone) & bit != 0 {
            return None;
        }
        let owner = self.partition.owner(to);
        let local = self.partition.local(to, owner);
        let Some(near) = &self.near[owner] else {
            let local = local as u32;
            return Some((owner, Message { local, from }));
        };
        near.predecessors[local].store(from, Relaxed);
        set_bits(&near.next[self.turn][local / WORD], bit, self.alone);
        self.found[0] += 1;
        self.found[1] += weight_of(self.classes[to as usize].load(Relaxed));
        None
    }

    /// A message of another node.
    #[inline]
    fn receive(&mut self, Message { local, from }: Message) {
        debug_assert_eq!(self.partition.owner(self.base + local), self.me);
        let message = self.claim(self.base + local, from);
        debug_assert!(message.is_none(), "messages go to the owner");
    }
}

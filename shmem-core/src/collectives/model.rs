//! What goes on between nodes, reckoned: how many messages go one after the other, of how many bytes, and how
//! many connections come to be. The plans are those that the algorithms follow. Tests hold
//! the table of [`select`] against it, for up to thousands of nodes.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::sync::Mutex;

use super::circulant::{passed_on, rounds};
use super::doubling::{Step, steps};
use super::halving;
use super::plans;
use super::select::{Between, HOP, Layout, Operation, select};
use crate::team::slots::{BOX, PIECE};
use crate::tree;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    /// Messages one after the other.
    rounds: usize,
    /// Bytes of these: what the busiest leader sends, but where one only passes on what comes to it.
    bytes: usize,
    connections: usize,
}

impl Cost {
    const NOTHING: Self = Self {
        rounds: 0,
        bytes: 0,
        connections: 0,
    };

    /// By the model in which each message takes as long as so many bytes, and all leaders send at the same time.
    fn time(self) -> usize {
        self.rounds * HOP + self.bytes
    }

    fn and(self, other: Self) -> Self {
        Self {
            rounds: self.rounds + other.rounds,
            bytes: self.bytes + other.bytes,
            // Edges of the tree are edges of the others.
            connections: self.connections.max(other.connections),
        }
    }

    fn times(self, n: usize) -> Self {
        Self {
            rounds: self.rounds * n,
            bytes: self.bytes * n,
            ..self
        }
    }
}

/// Edges between leaders, each once.
fn edges(all: impl Iterator<Item = (usize, usize)>) -> usize {
    all.map(|(a, b)| (a.min(b), a.max(b)))
        .collect::<HashSet<_>>()
        .len()
}

fn circulant_edges(nodes: usize) -> usize {
    static KNOWN: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().expect("no test panics in here");
    let of = |node| plans::around(node, nodes).map(move |with| (node, with));
    let count = || edges((0..nodes).flat_map(of));
    *known.entry(nodes).or_insert_with(count)
}

/// Down the tree, or up.
fn tree_once(bytes: usize, nodes: usize) -> Cost {
    Cost {
        rounds: rounds(nodes),
        bytes: tree::children(0, nodes).count() * bytes,
        connections: nodes - 1,
    }
}

/// An allgather of `total` bytes in rounds.
fn circulant(total: usize, nodes: usize) -> Cost {
    let blocks: usize = (0..rounds(nodes))
        .flat_map(|round| passed_on(0, nodes, round))
        .map(|blocks| blocks.len())
        .sum();
    Cost {
        rounds: rounds(nodes),
        bytes: blocks * total.div_ceil(nodes),
        connections: circulant_edges(nodes),
    }
}

fn doubling(bytes: usize, nodes: usize) -> Cost {
    let sends = |node| {
        let sends = |step: &Step| matches!(step, Step::Trade { .. } | Step::Give { .. });
        steps(node, nodes).filter(sends).count()
    };
    let partners = |node| plans::doubling(node, nodes).map(move |with| (node, with));
    Cost {
        rounds: steps(0, nodes).count(),
        bytes: sends(0) * bytes,
        connections: match nodes.is_power_of_two() {
            true => nodes / 2 * rounds(nodes),
            false => edges((0..nodes).flat_map(partners)),
        },
    }
}

fn halving(bytes: usize, nodes: usize) -> Cost {
    let pieces = halving::pieces(bytes, nodes);
    let scattered = Cost {
        rounds: pieces,
        bytes: (nodes - 1) * bytes.div_ceil(nodes),
        connections: 0,
    };
    scattered.and(circulant(bytes, nodes))
}

fn cost(between: Between, operation: Operation, bytes: usize, layout: Layout) -> Cost {
    let Layout { members, nodes, .. } = layout;
    let there_and_back = |bytes| tree_once(bytes, nodes).times(2);
    match (operation, between) {
        (_, Between::Nothing) => Cost::NOTHING,
        (Operation::Broadcast, Between::Tree) => tree_once(bytes, nodes),
        (Operation::Broadcast, Between::Circulant) => {
            let scattered = Cost {
                bytes: (nodes - 1) * bytes.div_ceil(nodes),
                ..tree_once(0, nodes)
            };
            scattered.and(circulant(bytes, nodes))
        }
        (Operation::Scan, _) => there_and_back(bytes).times((bytes * nodes).div_ceil(BOX).max(1)),
        (Operation::Fcollect, Between::Circulant) => circulant(bytes * members, nodes),
        // First the lengths.
        (Operation::Collect, Between::Circulant) => there_and_back(8 * members.min(BOX / 8))
            .times(members.div_ceil(BOX / 8))
            .and(circulant(bytes, nodes)),
        (_, Between::Doubling) => doubling(bytes, nodes),
        (_, Between::Halving) => halving(bytes, nodes),
        (_, Between::Exchange) => {
            let item = layout.here * layout.here * bytes;
            let pieces = (item * nodes.div_ceil(2)).div_ceil(PIECE);
            let exchanged = circulant(item * nodes, nodes);
            // Each piece has to be allowed.
            exchanged.times(2 * pieces.max(1)).and(there_and_back(0))
        }
        (_, Between::Pairs) => Cost {
            rounds: members - layout.here,
            bytes: (members - layout.here) * layout.here * bytes,
            connections: members * (members - layout.here) / 2,
        },
        (_, Between::Tree | Between::Circulant) => there_and_back(bytes),
    }
}

/// What other libraries do, too, and this one does not: partial results up and down the tree, and pieces around
/// a ring.
fn others(operation: Operation, bytes: usize, layout: Layout) -> Vec<Cost> {
    let Layout { members, nodes, .. } = layout;
    let ring = |total: usize, steps: usize, each: usize| Cost {
        rounds: steps,
        bytes: steps * each,
        connections: if total > 0 && nodes > 2 {
            nodes
        } else {
            nodes - 1
        },
    };
    let tree = tree_once(bytes, nodes);
    match operation {
        Operation::Reduce => {
            let block = bytes.div_ceil(nodes);
            let pieces = block.div_ceil(PIECE);
            let handed_out = ring(bytes, nodes - 1, block);
            let added = ring(bytes, (nodes - 1) * pieces, block.div_ceil(pieces.max(1)));
            vec![tree.times(2), added.and(handed_out)]
        }
        Operation::Fcollect => {
            let all = bytes * members;
            let up = Cost {
                bytes: all,
                ..tree_once(0, nodes)
            };
            vec![
                up.and(tree_once(all, nodes)),
                ring(all, nodes - 1, all.div_ceil(nodes)),
            ]
        }
        Operation::Broadcast => {
            let slabs = bytes.div_ceil(32 << 10).max(1);
            vec![tree, ring(bytes, nodes - 2 + slabs, bytes.div_ceil(slabs))]
        }
        _ => Vec::new(),
    }
}

fn layout(here: usize, nodes: usize) -> Layout {
    Layout {
        members: here * nodes,
        here,
        nodes,
        polls: false,
    }
}

fn selected(operation: Operation, bytes: usize, layout: Layout) -> Cost {
    let between = select(operation, bytes, layout).between;
    cost(between, operation, bytes, layout)
}

/// Short collectives take messages and connections by the logarithm of the nodes, up to thousands of them.
#[test]
fn short_collectives_scale() {
    for digits in 1..=12 {
        for nodes in [1 << digits, (1 << digits) - 1, (1 << digits) + 1] {
            for here in [1, 2, 4, 16] {
                for bytes in [0, 8, 64] {
                    for &operation in Operation::ALL {
                        let layout = layout(here, nodes);
                        let Cost {
                            rounds,
                            connections,
                            ..
                        } = selected(operation, bytes, layout);
                        let digits = digits + 1;
                        // Rooms are filled several times where there are thousands of members: a scan's and a
                        // collect's hold 18 KiB, and the items of an exchange go in pieces of 12.
                        let fills =
                            1 + 2 * here * here * nodes * bytes / PIECE + layout.members / 1024;
                        let case =
                            format!("{operation:?} of {bytes} bytes, {nodes} nodes of {here}");
                        assert!(
                            rounds <= 6 * digits * fills.max(1),
                            "{case}: {rounds} messages"
                        );
                        // The few members of a small team all have each other.
                        let few = (nodes * digits).max(81);
                        assert!(connections <= few, "{case}: {connections} connections");
                    }
                }
            }
        }
    }
}

/// What is selected takes little longer than whatever else there is, and no leader sends much more than it must.
#[test]
fn nothing_else_is_much_quicker() {
    for digits in 1..=12 {
        for nodes in [1 << digits, (1 << digits) - 1, (1 << digits) + 1] {
            if nodes < 2 {
                continue;
            }
            for here in [1, 16] {
                for bytes in (3..=24).flat_map(|k| [1 << k, (1 << k) + (1 << (k - 1))]) {
                    use Operation::*;
                    for operation in [Broadcast, Reduce, Fcollect] {
                        if operation == Fcollect && bytes > 1 << 18 {
                            continue;
                        }
                        let layout = layout(here, nodes);
                        let ours = selected(operation, bytes, layout);
                        let mut all = others(operation, bytes, layout);
                        if operation == Broadcast {
                            all.push(cost(Between::Circulant, operation, bytes, layout));
                        }
                        let best = all
                            .into_iter()
                            .min_by_key(|cost| cost.time())
                            .expect("some");
                        let case =
                            format!("{operation:?} of {bytes} bytes, {nodes} nodes of {here}");
                        assert!(
                            ours.time() * 2 <= best.time() * 3,
                            "{case}: {ours:?}, but {best:?}"
                        );
                    }
                }
            }
        }
    }
}

/// Leaders pass on each block once, and what is reduced or broadcast twice, whatever the number of nodes.
#[test]
fn long_collectives_send_no_more_than_they_must() {
    for nodes in (2..=70).chain([100, 128, 1000, 4096]) {
        let layout = layout(4, nodes);
        for bytes in [1 << 20, 16 << 20] {
            let slack = 2 * nodes;
            for operation in [Operation::Reduce, Operation::Broadcast] {
                let sent = selected(operation, bytes, layout).bytes;
                assert!(
                    sent <= 2 * bytes + slack,
                    "{operation:?}, {nodes} nodes: {sent}"
                );
            }
            let all = 4 * nodes * bytes;
            assert!(selected(Operation::Fcollect, bytes, layout).bytes <= all);
        }
    }
}

/// The table of `model.md`.
fn page() -> String {
    let mut page =
        "| | nodes | messages in a row | bytes of these | connections of a leader |".to_owned();
    page += " along the tree | around a ring |\n|---|---:|---:|---:|---:|---:|---:|\n";
    let rows = [
        (Operation::Reduce, "8 B", 8),
        (Operation::Reduce, "16 KiB", 16 << 10),
        (Operation::Reduce, "1 MiB", 1 << 20),
        (Operation::Fcollect, "8 B of each of 16 PEs", 8),
        (Operation::Fcollect, "1 KiB of each of 16 PEs", 1 << 10),
        (Operation::Broadcast, "32 KiB", 32 << 10),
        (Operation::Broadcast, "1 MiB", 1 << 20),
    ];
    for (operation, name, bytes) in rows {
        for nodes in [64, 512, 4096] {
            let layout = layout(16, nodes);
            let Cost {
                rounds,
                bytes: sent,
                connections,
                ..
            } = selected(operation, bytes, layout);
            let other = |cost: &Cost| format!("{}, {}", cost.rounds, size(cost.bytes));
            let others = others(operation, bytes, layout);
            let each = (2 * connections).div_ceil(nodes);
            let (tree, ring) = (other(&others[0]), other(&others[1]));
            let sent = size(sent);
            let operation = format!("{operation:?}").to_lowercase();
            writeln!(
                page,
                "| {operation} of {name} | {nodes} | {rounds} | {sent} | {each} | {tree} | {ring} |"
            )
            .expect("a String takes it");
        }
    }
    page
}

fn size(bytes: usize) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[test]
fn the_page_has_what_the_model_gives() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/collectives/model.md");
    shmem_testkit::generated::is_current(path, &page());
}

//! Reductions of short vectors by recursive doubling: leaders whose numbers differ in one binary digit exchange
//! what they have, digit by digit, and both add the two in the same order. So all come to have the same bits, after as
//! many rounds as the number of nodes has digits.
//!
//! Where that is no power of two, the nodes from the largest one on give what they have to those so far below
//! them, and get the result.
//!
//! What comes lands in the staging room of the slot, in a place of its own for each round, and nobody has to allow
//! it: in the next reduction it goes to other places, and a leader that begins the one after that has had something of the next
//! from the same partner in the same round. Other operations that use the room begin with a leader's word that
//! it has entered, and end when all are done with it.

use super::circulant;
use super::combine::Reduction;
use super::links::Counter;
use crate::heap::access;
use crate::rma::Completion;
use crate::runtime::Runtime;
use crate::team::slots::{DOUBLED, LINE, PIECE, SHOWN, STAGING};

/// Bytes that have room among so many nodes.
pub(super) const fn room(nodes: usize) -> usize {
    match circulant::rounds(nodes) {
        0 => 0,
        rounds => PIECE / rounds / LINE * LINE,
    }
}

/// The largest power of two that is no more than `nodes`.
fn core(nodes: usize) -> usize {
    1 << nodes.ilog2()
}

/// What a leader does in a reduction, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Adds what the node gives that is too much for a power of two.
    Take { from: usize, round: usize },
    /// Exchanges sums with a node.
    Trade { with: usize, round: usize },
    /// Sends its sums to a node, as those of a round there.
    Give { to: usize, round: usize },
    /// Has the result from a node.
    Get { round: usize },
}

/// The steps of a node.
pub(super) fn steps(node: usize, nodes: usize) -> impl Iterator<Item = Step> {
    let (core, digits) = (core(nodes), nodes.ilog2() as usize);
    let extra = (node + core < nodes).then_some(node + core);
    let inside = node < core;
    let base = node.wrapping_sub(core);
    let first = match extra {
        Some(from) => Some(Step::Take {
            from,
            round: digits,
        }),
        None => (!inside).then_some(Step::Give {
            to: base,
            round: digits,
        }),
    };
    let trades = (0..digits)
        .filter(move |_| inside)
        .map(move |round| Step::Trade {
            with: node ^ (1 << round),
            round,
        });
    let last = match extra {
        Some(to) => Some(Step::Give { to, round: 0 }),
        None => (!inside).then_some(Step::Get { round: 0 }),
    };
    first.into_iter().chain(trades).chain(last)
}

impl Runtime {
    /// Combines what the leaders show; all of them show the result. For leaders.
    pub(super) fn reduce_by_doubling(&self, r: Reduction<'_>) {
        let (team, mapping, bytes) = (r.team, r.team.mapping(), r.bytes());
        let (nodes, node) = (mapping.n_nodes(), mapping.node());
        let shown = self.own(team.slot(SHOWN));
        let before = self.count(team, Counter::Doublings, 1);
        if before == 0 {
            let partners = steps(node, nodes).filter_map(|step| match step {
                Step::Take { from, .. } => Some(from),
                Step::Trade { with, .. } => Some(with),
                Step::Give { .. } | Step::Get { .. } => None,
            });
            self.connect_ahead(partners.map(|node| mapping.leader(node)));
        }
        let number = before + 1;
        let half = team.slot(STAGING) + (number % 2) as usize * PIECE;
        let place = |round: usize| half + round * room(nodes);
        let flag = |round: usize| team.slot(DOUBLED) + round * LINE;
        let send = |node: usize, round: usize| {
            let pe = mapping.leader(node);
            self.write(pe, place(round), shown, bytes, Completion::OnReturn);
            self.tell(pe, flag(round), number);
        };
        let arrived = |round: usize| {
            self.await_flag(team, flag(round), number);
            self.own(place(round)).cast_const()
        };
        for step in steps(node, nodes) {
            // SAFETY: what has arrived, and what is shown, are as many elements; nobody else writes to either now.
            unsafe {
                match step {
                    Step::Take { round, .. } => r.of.add_shared(shown, arrived(round), r.n),
                    Step::Trade { with, round } => {
                        send(with, round);
                        let theirs = arrived(round);
                        match node < with {
                            true => r.of.add_shared(shown, theirs, r.n),
                            false => r.of.add_shared_before(shown, theirs, r.n),
                        }
                    }
                    Step::Give { to, round } => send(to, round),
                    Step::Get { round } => access::copy(arrived(round), shown, bytes),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All nodes come to have the sum of all, added in the same order, and every message is taken.
    #[test]
    fn all_add_in_one_order() {
        for nodes in (2..70).chain([127, 128, 129, 1000]) {
            let mut steps: Vec<_> = (0..nodes)
                .map(|node| steps(node, nodes).peekable())
                .collect();
            let mut has: Vec<String> = (0..nodes).map(|node| format!("{node}")).collect();
            let mut sent = std::collections::HashMap::new();
            let mut given = vec![None; nodes];
            loop {
                let mut moved = false;
                for node in 0..nodes {
                    let Some(&step) = steps[node].peek() else {
                        continue;
                    };
                    match step {
                        Step::Give { to, round } => {
                            let before = sent.insert((to, round), has[node].clone());
                            assert_eq!(before, None);
                        }
                        Step::Trade { with, round } => {
                            if given[node] != Some(round) {
                                given[node] = Some(round);
                                sent.insert((with, round), has[node].clone());
                            }
                            let Some(theirs) = sent.remove(&(node, round)) else {
                                continue;
                            };
                            let mine = std::mem::take(&mut has[node]);
                            has[node] = match node < with {
                                true => format!("({mine}+{theirs})"),
                                false => format!("({theirs}+{mine})"),
                            };
                        }
                        Step::Take { round, .. } => {
                            let Some(theirs) = sent.remove(&(node, round)) else {
                                continue;
                            };
                            has[node] = format!("({}+{theirs})", has[node]);
                        }
                        Step::Get { round } => {
                            let Some(theirs) = sent.remove(&(node, round)) else {
                                continue;
                            };
                            has[node] = theirs;
                        }
                    }
                    steps[node].next();
                    moved = true;
                }
                if !moved {
                    break;
                }
            }
            assert!(steps.iter_mut().all(|steps| steps.peek().is_none()));
            assert!(sent.is_empty() && has.iter().all(|all| *all == has[0]));
            let mut numbers: Vec<usize> = has[0]
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|n| n.parse().ok())
                .collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..nodes));
        }
    }

    #[test]
    fn rounds_have_room() {
        for nodes in [2, 3, 4, 5, 64, 100, 4096, 1 << crate::tree::MAX_CHILDREN] {
            let rounds = circulant::rounds(nodes);
            assert!(rounds * room(nodes) <= PIECE);
            let of = |step| match step {
                Step::Take { round, .. } | Step::Trade { round, .. } | Step::Get { round } => round,
                Step::Give { .. } => 0,
            };
            assert!(steps(0, nodes).map(of).all(|round| round < rounds));
        }
    }
}

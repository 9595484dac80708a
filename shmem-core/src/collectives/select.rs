//! Which algorithm a collective takes: every threshold stands here.
//!
//! What goes on between nodes has to be the same on all of them, so it depends only on numbers that all
//! members know alike, never on how many are here. The data has to fit where an algorithm puts it: tests
//! below say so. `algorithms.md`, which the documentation of this folder includes, is made by the tests.

use std::ops::RangeInclusive;

use super::{circulant, doubling};
use crate::team::Team;

use crate::team::slots::{BOX, LINE_DATA};

/// Members of one node that exchange lines, if they poll: everybody looks at everybody.
const FEW: RangeInclusive<usize> = 2..=8;

/// Bytes that one PE writes into others' arrays by itself: less work than a wait for their reading.
const PUSH: usize = 32 << 10;

/// Bytes of all of a node's members together up to which one of them combines for all: less than
/// what a second meeting costs.
const ALONE: usize = 64 << 10;

/// Members of one node up to which each reaches into the arrays of every other. That takes a page of page
/// tables for each pair, 4 KiB, and time for faults at first; in a *crowd*, of more members, only leaders and
/// a few who work for all do so.
const ACQUAINTED: usize = 32;

/// Workers in a crowd, if they have little to do for each member.
const WORKERS: usize = 16;

/// Bytes that a worker has to do at least: in less than a page it would touch as many pages for less.
const SHARE: usize = 4 << 10;

/// Members from which on the small blocks of all pairs go together from node to node, and how small: larger
/// ones are quicker sent straight, once there are connections.
const MANY_PAIRS: usize = 9;
const AGGREGATED: usize = 512;

/// From this many bytes for each pair on, the cost of its page table does not matter.
const WORTH_A_TABLE: usize = 64 << 10;

/// Members from which on one gathers small blocks for all, rather than each writing to all.
const MANY: usize = 4;

/// Bytes that take as long as a message between nodes takes at least, about. The model that `model.rs`
/// holds this table against reckons with it, too.
pub(super) const HOP: usize = 32 << 10;

macro_rules! operations {
    ($($operation:ident;)*) => {
        /// A collective, as far as there is something to select.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Operation {
            $($operation),*
        }

        impl Operation {
            /// All of them.
            #[cfg(test)]
            pub(super) const ALL: &[Self] = &[$(Self::$operation),*];
        }
    };
}
operations! {
    Sync;
    Broadcast;
    Reduce;
    Scan;
    Fcollect;
    Collect;
    Alltoall;
}

/// What the members of a node do among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Here {
    /// They show each other a cache line, with the data in it ([`lines`](super::lines)).
    Lines,
    /// They meet; one of them does the work, and the others copy what it shows.
    One,
    /// The member that has the data writes it to all.
    Push,
    /// All read the data from the member that has it, and it waits for them.
    Pull,
    /// Each does a part, and writes it to all; in a team on several nodes to the leader, from whose array
    /// all copy the result.
    Each,
    /// The result is put together in the leader's array, from which all copy it.
    Leader,
    /// A few write to all.
    Few,
}

/// What the leaders of nodes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    /// There is one node only.
    Nothing,
    /// Messages along the edges of a binomial tree.
    Tree,
    /// What they have, to all, in few rounds with leaders 1, 2, 4 ... nodes away
    /// ([`circulant`]).
    Circulant,
    /// Sums of whole vectors, in few rounds ([`doubling`]).
    Doubling,
    /// Sums of parts of vectors, in few rounds, and then the results in as many ([`halving`](super::halving)).
    Halving,
    /// Blocks for all other nodes in few rounds, by way of others.
    Exchange,
    /// Not leaders alone: every member puts to every other.
    Pairs,
}

/// How a collective is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Algorithm {
    pub(super) here: Here,
    pub(super) between: Between,
}

/// Where the members of a team are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) members: usize,
    /// Those on this node.
    pub(super) here: usize,
    pub(super) nodes: usize,
    /// Whether the PEs of this node poll while they wait.
    pub(super) polls: bool,
}

impl Layout {
    #[inline]
    pub(super) fn of(team: &Team) -> Self {
        Self {
            members: team.n_pes(),
            here: team.mapping().n_here(),
            nodes: team.mapping().n_nodes(),
            polls: team.polls(),
        }
    }
}

/// Whether so many members of a node are too many for each to reach into the arrays of all others.
#[inline]
pub(super) fn crowd(here: usize) -> bool {
    here > ACQUAINTED
}

/// Into how many shares the work of `members` of a node is cut, which is on `bytes` in all, and on `of_each` of
/// every member.
#[inline]
pub(super) fn shares(members: usize, bytes: usize, of_each: usize) -> usize {
    let most = match crowd(members) {
        true => members.min(WORKERS.max(of_each / WORTH_A_TABLE)),
        false => members,
    };
    most.min(bytes.div_ceil(SHARE)).max(1)
}

/// How an operation is done in which every member gives `bytes`. (In a collect they give different
/// numbers: there it is what all give together.)
#[inline]
pub(super) fn select(operation: Operation, bytes: usize, layout: Layout) -> Algorithm {
    use Operation::*;
    let Layout {
        members,
        here,
        nodes,
        polls,
    } = layout;
    let one_node = nodes == 1;
    let lines = one_node && polls && FEW.contains(&here) && bytes <= LINE_DATA;
    let alone = bytes * here <= ALONE || crowd(here) && shares(here, bytes, bytes) == 1;
    let aggregated = members >= MANY_PAIRS && bytes <= AGGREGATED;
    let whole = bytes <= doubling::room(nodes);
    // Along the tree it is sent in each round; in parts, twice in all, in twice as many rounds.
    let rounds = circulant::rounds(nodes);
    let in_parts = bytes * rounds.saturating_sub(2) > rounds * HOP;
    let here = match operation {
        Sync | Broadcast | Reduce | Fcollect if lines => Here::Lines,
        Sync => Here::One,
        Broadcast if one_node && crowd(here) && bytes <= BOX => Here::One,
        Broadcast if bytes * (here - 1) <= PUSH => Here::Push,
        Broadcast if crowd(here) => Here::Leader,
        Broadcast => Here::Pull,
        Reduce if one_node && bytes <= BOX && alone => Here::One,
        Reduce if !one_node && whole => Here::One,
        Scan if !one_node || alone => Here::One,
        Fcollect if one_node && members >= MANY && bytes * members <= BOX => Here::One,
        Reduce | Fcollect | Collect if one_node && crowd(here) => Here::Leader,
        Alltoall if !one_node && aggregated => Here::One,
        Alltoall if one_node && crowd(here) && bytes < WORTH_A_TABLE => Here::Few,
        Reduce | Scan | Fcollect | Collect | Alltoall => Here::Each,
    };
    let between = match operation {
        _ if one_node => Between::Nothing,
        Alltoall if aggregated => Between::Exchange,
        Alltoall => Between::Pairs,
        Reduce if whole => Between::Doubling,
        Reduce => Between::Halving,
        Fcollect | Collect => Between::Circulant,
        Broadcast if in_parts => Between::Circulant,
        Sync | Broadcast | Scan => Between::Tree,
    };
    Algorithm { here, between }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::slots::PIECE;

    const LAYOUTS: [(&str, Layout); 7] = [
        ("4 PEs that poll", layout(4, 1, true)),
        ("4 PEs", layout(4, 1, false)),
        ("16 PEs", layout(16, 1, false)),
        ("512 PEs", layout(512, 1, false)),
        ("2 nodes of 1", layout(1, 2, false)),
        ("4 nodes of 4", layout(4, 4, true)),
        ("64 nodes of 32", layout(32, 64, false)),
    ];

    /// No threshold of these layouts lies higher.
    const MOST: usize = 512 << 10;

    const fn layout(here: usize, nodes: usize, polls: bool) -> Layout {
        Layout {
            members: here * nodes,
            here,
            nodes,
            polls,
        }
    }

    fn size(bytes: usize) -> String {
        match bytes {
            0 => "0".to_owned(),
            _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
            _ => format!("{bytes} B"),
        }
    }

    fn name(algorithm: Algorithm) -> String {
        let Algorithm { here, between } = algorithm;
        match between {
            Between::Nothing => format!("{here:?}"),
            _ => format!("{here:?}, {between:?}"),
        }
        .to_lowercase()
    }

    /// An operation's algorithms on a layout, each with the bytes that it is for.
    fn cell(operation: Operation, layout: Layout) -> String {
        let at = |bytes| select(operation, bytes, layout);
        let mut parts = Vec::new();
        let mut current = at(0);
        let most = match operation {
            Operation::Sync => 0,
            _ => MOST,
        };
        for bytes in 1..=most {
            if at(bytes) != current {
                parts.push(format!("to {}: {}", size(bytes - 1), name(current)));
                current = at(bytes);
            }
        }
        parts.push(match parts.is_empty() {
            true => name(current),
            false => format!("else {}", name(current)),
        });
        parts.join("; ")
    }

    fn page() -> String {
        let mut page = "| |".to_owned();
        for (name, _) in LAYOUTS {
            page += &format!(" {name} |");
        }
        page += &format!("\n|{}\n", "---|".repeat(1 + LAYOUTS.len()));
        for &operation in Operation::ALL {
            page += &format!("| {} |", format!("{operation:?}").to_lowercase());
            for (_, layout) in LAYOUTS {
                page += &format!(" {} |", cell(operation, layout));
            }
            page.push('\n');
        }
        page
    }

    #[test]
    fn the_table_says_what_is_selected() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/collectives/algorithms.md");
        shmem_testkit::generated::is_current(path, &page());
    }

    fn everywhere(f: impl Fn(Operation, usize, Layout)) {
        for &operation in Operation::ALL {
            for nodes in [1, 2, 3, 64, 1000, 5000] {
                for (here, polls) in [
                    (1, true),
                    (2, true),
                    (3, false),
                    (8, true),
                    (9, true),
                    (128, false),
                ] {
                    for bytes in (0..MOST).step_by(97).chain([1, 8, LINE_DATA, PIECE, BOX]) {
                        f(operation, bytes, layout(here, nodes, polls));
                    }
                }
            }
        }
    }

    #[test]
    fn data_fits_where_it_is_put() {
        everywhere(|operation, bytes, layout| {
            let Algorithm { here, between } = select(operation, bytes, layout);
            let shown = match operation {
                Operation::Fcollect => bytes * layout.members,
                _ => bytes,
            };
            let room = match (operation, here, between) {
                (_, Here::Lines, _) => LINE_DATA,
                (Operation::Reduce, _, Between::Doubling) => doubling::room(layout.nodes),
                (Operation::Reduce | Operation::Fcollect | Operation::Broadcast, Here::One, _) => {
                    BOX
                }
                _ => return,
            };
            let fits = match here {
                Here::Lines => bytes <= room,
                _ => shown <= room,
            };
            assert!(fits, "{operation:?} of {bytes} bytes on {layout:?}");
        });
    }

    /// Between nodes a reduction by one of each is by doubling, and every other by halving (`Runtime::team_reduce`).
    #[test]
    fn who_reduces_here_fits_what_goes_on_between_nodes() {
        everywhere(|operation, bytes, layout| {
            if operation != Operation::Reduce || layout.nodes == 1 {
                return;
            }
            let Algorithm { here, between } = select(operation, bytes, layout);
            let expected = match here {
                Here::One => Between::Doubling,
                _ => Between::Halving,
            };
            assert_eq!(
                between, expected,
                "{here:?} for {bytes} bytes on {layout:?}"
            );
        });
    }

    /// Nodes with different numbers of members agree; where a reduction's parts go, too.
    #[test]
    fn nodes_agree() {
        everywhere(|operation, bytes, layout| {
            if layout.nodes == 1 {
                return;
            }
            let of = |here, polls| {
                let Algorithm { here, between } = select(
                    operation,
                    bytes,
                    Layout {
                        here,
                        polls,
                        ..layout
                    },
                );
                // How a node hands out what it got is its own business.
                (between, here == Here::Each)
            };
            assert_eq!(
                of(1, true),
                of(100, false),
                "{operation:?} of {bytes} bytes on {layout:?}"
            );
        });
    }
}

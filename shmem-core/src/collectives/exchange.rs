//! Exchange of small blocks between all nodes in few rounds, after Bruck, Ho, Kipnis, Upfal and Weathersby
//! (1997).
//!
//! Sent one by one, the blocks of an `alltoall` are as many messages as there are pairs of PEs, and need as many
//! connections. Here the leader of a node puts together what its members have for those of another, an *item*,
//! and items travel in steps of 1, 2, 4 ... nodes to the right: in round `k` a leader passes on all items whose way
//! has a step of 2^k. So there are as many rounds, messages and connections of a leader as the number of nodes
//! has binary digits; in return an item is sent as many times as its distance has digits that are set.
//!
//! What is passed on goes in pieces to the staging room of the slot. The receiver allows them: it may
//! still be in an earlier round, or collective. Nobody leaves before all have what they wait for, so
//! the room is free for the next leader.
//!
//! A leader holds at all times as much as its members give. Where that is much, the exchange is done in several
//! *passes*, each for some receivers of every node.

use std::ops::Range;

use super::circulant::{Rounds, rounds};
use crate::heap::address::SymAddr;
use crate::rma::{Blocks, Completion, copy_blocks};
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{PIECE, STAGING};

/// Bytes that a leader holds in a pass, if those for one receiver are not more.
const HELD: usize = 512 << 10;

/// The receivers of each pass, counted on every node from its first, when a node has `most` at most and
/// each gets `bytes` in all.
fn passes(most: usize, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let several = (HELD / bytes).max(1);
    (0..most)
        .step_by(several)
        .map(move |first| first..first + several)
}

/// The distances of the items that every node passes on in a round, in their order in the message.
fn distances(nodes: usize, round: usize) -> impl Iterator<Item = usize> {
    (1..nodes).filter(move |distance| distance >> round & 1 == 1)
}

/// The nodes from which and for which the item of a distance is that a node holds before a round.
fn held(node: usize, nodes: usize, round: usize, distance: usize) -> (usize, usize) {
    let gone = distance & ((1 << round) - 1);
    let origin = (node + nodes - gone) % nodes;
    (origin, (origin + distance) % nodes)
}

impl Runtime {
    /// Sends block `k` of each member to member `k`. For leaders, when their nodes have arrived.
    pub(super) fn exchange_blocks(
        &self,
        team: &Team,
        dest: SymAddr,
        source: SymAddr,
        blocks: Blocks,
    ) {
        let mapping = team.mapping();
        let mut ranks = vec![Vec::new(); mapping.n_nodes()];
        (0..team.n_pes()).for_each(|rank| ranks[mapping.node_of(rank)].push(rank));
        let most = ranks.iter().map(Vec::len).max().unwrap_or(0);
        for receivers in passes(most, team.n_pes() * blocks.count * blocks.bytes) {
            self.exchange_pass(team, &ranks, receivers, dest, source, blocks);
        }
        self.meet_leaders(team);
    }

    /// Sends to some of the members of every node, whose members' `ranks` are given.
    fn exchange_pass(
        &self,
        team: &Team,
        ranks: &[Vec<usize>],
        receivers: Range<usize>,
        dest: SymAddr,
        source: SymAddr,
        blocks: Blocks,
    ) {
        let mapping = team.mapping();
        let (nodes, node) = (mapping.n_nodes(), mapping.node());
        let bytes = blocks.count * blocks.bytes;
        let of_node = |node: usize| {
            receivers.start.min(ranks[node].len())..receivers.end.min(ranks[node].len())
        };
        let size = |(origin, to): (usize, usize)| ranks[origin].len() * of_node(to).len() * bytes;

        // By distance. Inside, by receiver and then by sender.
        let pack = |distance: usize| {
            let to = (node + distance) % nodes;
            let mut item = vec![0u8; size((node, to))];
            let mut places = item.chunks_exact_mut(bytes);
            for &rank in &ranks[to][of_node(to)] {
                for (i, place) in (0..mapping.n_here()).zip(&mut places) {
                    let at = source.offset() + rank * blocks.count * blocks.source_stride;
                    let packed = Blocks {
                        dest_stride: blocks.bytes,
                        ..blocks
                    };
                    // SAFETY: elements inside the source of a member that has arrived; the place has room.
                    unsafe {
                        let at = self.neighbour(mapping.local(i), at);
                        copy_blocks(at, place.as_mut_ptr(), packed);
                    }
                }
            }
            item
        };
        let mut items: Vec<Vec<u8>> = (0..nodes).map(pack).collect();

        let leaders = self.begin_rounds(team);
        for round in 0..rounds(nodes) {
            let left = (node + nodes - (1 << round)) % nodes;
            let mut out = Vec::new();
            for distance in distances(nodes, round) {
                out.append(&mut items[distance]);
            }
            let size = |distance| size(held(left, nodes, round, distance));
            let mut come = vec![0; distances(nodes, round).map(size).sum()];
            self.trade(leaders, round, &out, &mut come);
            let mut rest = &come[..];
            for distance in distances(nodes, round) {
                let (item, behind) = rest.split_at(size(distance));
                items[distance] = item.to_vec();
                rest = behind;
            }
        }

        for (distance, item) in items.iter().enumerate() {
            let origin = (node + nodes - distance) % nodes;
            let mut places = item.chunks_exact(bytes);
            for i in of_node(node) {
                for (&rank, block) in ranks[origin].iter().zip(&mut places) {
                    let at = dest.offset() + rank * blocks.count * blocks.dest_stride;
                    let unpacked = Blocks {
                        source_stride: blocks.bytes,
                        ..blocks
                    };
                    // SAFETY: elements inside a destination of this node, which is ready.
                    unsafe {
                        let at = self.neighbour(mapping.local(i), at);
                        copy_blocks(block.as_ptr(), at, unpacked);
                    }
                }
            }
        }
    }

    /// Sends `out` to the right, and gets `come` from the left, in a round of an exchange.
    fn trade(&self, leaders: Rounds<'_>, round: usize, out: &[u8], come: &mut [u8]) {
        let team = leaders.team;
        let room = |piece: usize| team.slot(STAGING) + piece % 2 * PIECE;
        let (outward, inward) = (out.len().div_ceil(PIECE), come.len().div_ceil(PIECE));
        // No more than come, so that no number is on its way when the round is over.
        let allow = |taken: usize| {
            let pieces = inward.min(taken + 2);
            if taken == 0 || pieces > taken + 1 {
                leaders.allow(round, pieces);
            }
        };
        if inward > 0 {
            allow(0);
        }
        let (mut sent, mut taken) = (0, 0);
        while sent < outward || taken < inward {
            let may_send = || sent < outward && leaders.is_allowed(round, sent + 1);
            let may_take = || taken < inward && leaders.has_arrived(round, taken + 1);
            self.wait_for(|| self.in_collective(team), || may_send() || may_take());
            if may_take() {
                let piece = &mut come[taken * PIECE..];
                let len = piece.len().min(PIECE);
                let staged = self.own(room(taken));
                // SAFETY: the piece lies in the room of the slot, where nobody writes before it is allowed.
                unsafe { crate::heap::access::copy(staged, piece.as_mut_ptr(), len) };
                taken += 1;
                allow(taken);
            }
            if may_send() {
                let piece = &out[sent * PIECE..];
                let len = piece.len().min(PIECE);
                let (to, piece) = (leaders.right(round), piece.as_ptr());
                self.write(to, room(sent), piece, len, Completion::OnReturn);
                sent += 1;
                leaders.tell(round, sent);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn passes_have_every_receiver_once_and_room_for_it() {
        for most in [1, 2, 16, 33, 128] {
            for bytes in [8, 9 * 512, 64 * 512, HELD, HELD + 1, 8192 * 512] {
                let all: Vec<_> = passes(most, bytes).collect();
                assert_eq!(all[0].start, 0);
                assert!(all.windows(2).all(|two| two[0].end == two[1].start));
                assert!(
                    all.iter()
                        .all(|pass| pass.len() == 1 || pass.len() * bytes <= HELD)
                );
                let last = all.last().expect("a pass");
                assert!(
                    last.contains(&(most - 1)),
                    "{most} receivers, {bytes} bytes"
                );
            }
        }
    }

    /// Every item goes from its origin to where it belongs, and nothing else arrives.
    #[test]
    fn items_arrive() {
        for nodes in (1..70).chain([127, 128, 129, 512]) {
            // The item of each distance that each node has.
            let mut items: Vec<Vec<(usize, usize)>> = (0..nodes)
                .map(|node| (0..nodes).map(|d| (node, (node + d) % nodes)).collect())
                .collect();
            for round in 0..rounds(nodes) {
                let before = items.clone();
                for (node, items) in items.iter_mut().enumerate() {
                    let left = (node + nodes - (1 << round)) % nodes;
                    for distance in distances(nodes, round) {
                        let item = before[left][distance];
                        assert_eq!(item, held(left, nodes, round, distance));
                        items[distance] = item;
                    }
                }
            }
            for (node, items) in items.into_iter().enumerate() {
                for (distance, item) in items.into_iter().enumerate() {
                    assert_eq!(
                        item,
                        ((node + nodes - distance) % nodes, node),
                        "{nodes} nodes"
                    );
                }
            }
        }
    }
}

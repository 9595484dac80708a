//! Exchange of blocks between all pairs.

use std::ops::Range;

use super::combine::Block;
use super::select::{Algorithm, Between, Here, Layout, Operation, select, shares};
use super::shares::{part, worker};
use crate::context::Ctx;
use crate::heap::address::SymAddr;
use crate::rma::{Blocks, Completion, copy_blocks, put_blocks};
use crate::runtime::Runtime;
use crate::team::Team;

/// Private memory for blocks on their way, about as much as the first cache has.
const TILE: usize = 32 << 10;

impl Runtime {
    /// Starts to write this member's blocks to the `n` PEs that `world_pe` gives, as those of member
    /// `me`: to each the elements that `blocks` tells of, which lie behind those of the members before.
    /// Other nodes have them after a quiet.
    pub(super) fn send_blocks(
        &self,
        (me, n): (usize, usize),
        world_pe: impl Fn(usize) -> usize,
        dest: SymAddr,
        source: SymAddr,
        blocks: Blocks,
    ) {
        // One after the other, first contacts would take longer than everything else.
        let others = (1..n).map(|step| world_pe((me + step) % n));
        self.connect_ahead(others.filter(|&pe| self.nodes.node_of[pe] != self.nodes.mine));
        let ctx = Ctx::default_ctx();
        for step in 0..n {
            // Starting with the own rank spreads the load over the targets.
            let to = (me + step) % n;
            let dest = dest.at(me * blocks.count * blocks.dest_stride);
            let source = self.own(source.offset() + to * blocks.count * blocks.source_stride);
            // SAFETY: elements inside the two arrays; the caller's quiet completes puts.
            unsafe { put_blocks(ctx, dest, source, blocks, world_pe(to), Completion::AtQuiet) };
        }
    }

    /// Writes the blocks of all members of this node to some of them, on one node: from each at a time those
    /// for several, to each at a time those from several, because one block alone may be less than a
    /// cache line.
    fn transpose_here(
        &self,
        team: &Team,
        to: Range<usize>,
        dest: SymAddr,
        source: SymAddr,
        blocks: Blocks,
    ) {
        let mapping = team.mapping();
        let bytes = blocks.count * blocks.bytes;
        let side = (TILE / bytes).isqrt().max(1);
        let mut tile = Block::new(side.min(to.len()) * side.min(mapping.n_here()) * bytes);
        let tile = tile.as_mut_ptr();
        let packed_here = |n| Blocks {
            count: n * blocks.count,
            dest_stride: blocks.bytes,
            ..blocks
        };
        let unpacked_there = Blocks {
            source_stride: blocks.bytes,
            ..blocks
        };
        for first_to in to.clone().step_by(side) {
            let to = first_to..to.end.min(first_to + side);
            for first_from in (0..mapping.n_here()).step_by(side) {
                let from = first_from..mapping.n_here().min(first_from + side);
                for (row, i) in from.clone().enumerate() {
                    let at = source.offset() + to.start * blocks.count * blocks.source_stride;
                    let into = tile.wrapping_add(row * to.len() * bytes);
                    // SAFETY: elements inside the source of a member that has arrived; the tile has room
                    // for `side` times `side` blocks.
                    unsafe {
                        let at = self.neighbour(mapping.local(i), at);
                        copy_blocks(at, into, packed_here(to.len()));
                    }
                }
                for (column, j) in to.clone().enumerate() {
                    for (row, i) in from.clone().enumerate() {
                        let at = dest.offset() + i * blocks.count * blocks.dest_stride;
                        let block = tile.wrapping_add((row * to.len() + column) * bytes);
                        // SAFETY: elements inside the destination, which is ready; nobody else writes them.
                        unsafe {
                            let at = self.neighbour(mapping.local(j), at);
                            copy_blocks(block, at, unpacked_there);
                        }
                    }
                }
            }
        }
    }

    /// Sends block `k` of this member to member `k`.
    pub(crate) fn team_alltoall(
        &self,
        team: &Team,
        dest: SymAddr,
        source: SymAddr,
        blocks: Blocks,
    ) {
        let bytes = blocks.count * blocks.bytes;
        if bytes == 0 {
            return;
        }
        let Algorithm { here, between } = select(Operation::Alltoall, bytes, Layout::of(team));
        if between == Between::Exchange {
            return self.meet(team, || self.exchange_blocks(team, dest, source, blocks));
        }
        if here == Here::Few {
            self.meet_here(team);
            let (n, i) = (team.mapping().n_here(), team.mapping().index());
            let workers = shares(n, n * n * bytes, n * bytes);
            if let Some(i) = worker(n, workers, i) {
                self.transpose_here(team, part(n, workers, i), dest, source, blocks);
            }
            return self.meet_here(team);
        }
        let who = (team.my_pe(), team.n_pes());
        self.send_blocks(who, |rank| team.world_pe(rank), dest, source, blocks);
        if team.mapping().n_nodes() > 1 {
            self.quiet();
        }
        self.await_members(team);
    }
}

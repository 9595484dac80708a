//! Exchange of blocks between all pairs.

use super::select::Operation;
use crate::context::Ctx;
use crate::heap::address::Sym;
use crate::rma::{Blocks, Completion, put_blocks};
use crate::runtime::Runtime;
use crate::team::Team;

impl Runtime {
    /// Starts to write this member's blocks to the `n` PEs that `world_pe` gives, as those of member
    /// `me`: to each the elements that `blocks` tells of, which lie behind those of the members before.
    /// Other nodes have them after a quiet.
    pub(super) fn send_blocks(
        &self,
        (me, n): (usize, usize),
        world_pe: impl Fn(usize) -> usize,
        dest: Sym,
        source: Sym,
        blocks: Blocks,
    ) {
        if let Some(network) = &self.network {
            // One after the other, first contacts would take longer than everything else.
            let others = (1..n).map(|step| world_pe((me + step) % n));
            let far = others.filter(|&pe| self.node_of[pe] != self.my_node);
            network.endpoint.connect_ahead(far.map(|pe| pe as u32));
        }
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

    /// Sends block `k` of this member to member `k`.
    pub(crate) fn team_alltoall(&self, team: &Team, dest: Sym, source: Sym, blocks: Blocks) {
        let bytes = blocks.count * blocks.bytes;
        if bytes == 0 {
            return;
        }
        self.announce(team, Operation::Alltoall, bytes, 0);
        let who = (team.my_pe(), team.n_pes());
        self.send_blocks(who, |rank| team.world_pe(rank), dest, source, blocks);
        if team.mapping().n_nodes() > 1 {
            self.quiet();
        }
        self.await_members(team);
    }
}

//! Exchange of blocks between all pairs.

use super::select::Operation;
use crate::heap::access;
use crate::heap::address::Sym;
use crate::rma::Completion;
use crate::runtime::Runtime;
use crate::team::Team;

/// The block of its arrays that a member sends to each other one: block `k` has `n` elements of `elem`
/// bytes, strides apart, and begins at element `k * n * stride`.
#[derive(Clone, Copy)]
pub(crate) struct MemberBlock {
    pub(crate) n: usize,
    pub(crate) elem: usize,
    pub(crate) dest_stride: usize,
    pub(crate) source_stride: usize,
}

impl MemberBlock {
    /// A block of bytes without gaps.
    pub(crate) fn dense(bytes: usize) -> Self {
        Self {
            n: usize::from(bytes > 0),
            elem: bytes,
            dest_stride: 1,
            source_stride: 1,
        }
    }

    /// The same with elements that touch each other made one.
    fn joined(self) -> Self {
        if self.dest_stride == 1 && self.source_stride == 1 {
            Self::dense(self.n * self.elem)
        } else {
            self
        }
    }
}

impl Runtime {
    /// Starts to write this member's blocks to the `n` PEs that `world_pe` gives, as the blocks of
    /// member `me`. Other nodes have them after a quiet.
    pub(super) fn send_blocks(
        &self,
        (me, n): (usize, usize),
        world_pe: impl Fn(usize) -> usize,
        dest: usize,
        source: usize,
        blocks: MemberBlock,
    ) {
        let b = blocks.joined();
        if let Some(network) = &self.network {
            // One after the other, first contacts would take longer than everything else.
            let others = (1..n).map(|step| world_pe((me + step) % n));
            let far = others.filter(|&pe| self.node_of[pe] != self.my_node);
            network.endpoint.connect_ahead(far.map(|pe| pe as u32));
        }
        for step in 0..n {
            // Starting with the own rank spreads the load over the targets.
            let to = (me + step) % n;
            let pe = world_pe(to);
            for i in 0..b.n {
                let at = |block: usize, stride| (block * b.n + i) * stride * b.elem;
                let (from, to) = (
                    source + at(to, b.source_stride),
                    dest + at(me, b.dest_stride),
                );
                let near = self.node_of[pe] == self.my_node;
                // SAFETY: elements inside the two arrays; the caller's quiet completes puts.
                unsafe {
                    if near {
                        let to = self.neighbour(self.local_of[pe] as usize, to);
                        access::copy(self.own(from), to, b.elem);
                    } else {
                        self.put_raw(pe, to, self.own(from), b.elem, Completion::AtQuiet);
                    }
                }
            }
        }
    }

    /// Sends block `k` of this member to member `k`.
    pub(crate) fn team_alltoall(&self, team: &Team, dest: Sym, source: Sym, blocks: MemberBlock) {
        if blocks.n == 0 || blocks.elem == 0 {
            return;
        }
        self.announce(team, Operation::Alltoall, blocks.n * blocks.elem, 0);
        let who = (team.my_pe(), team.n_pes());
        let world_pe = |rank| team.world_pe(rank);
        self.send_blocks(who, world_pe, dest.offset(), source.offset(), blocks);
        if team.mapping().n_nodes() > 1 {
            self.quiet();
        }
        self.await_members(team);
    }
}

//! What the state machine tells code that posts operations, and what that code tells the machine.

use std::collections::BTreeSet;

use super::Nodes;
use super::state::{Initiator, NodeState};
use crate::route::Route;
use shmem_verbs::Qpn;

impl Nodes {
    /// The connection to the node of `pe`, for operations towards `pe`.
    #[must_use]
    #[inline]
    pub fn route(&self, pe: u32) -> Option<Route<'_>> {
        let peer = self.peers.get(&pe)?;
        let memory = peer.memory.as_ref()?;
        let (mine, users, draining) = self.linked(pe)?;
        users.contains(&pe).then_some(Route {
            qpn: mine.qpn,
            srqn: Some(memory.srqn),
            segments: &memory.segments,
            draining,
            left: peer.left,
            broken: mine.broken,
        })
    }

    /// The initiator QP over which `pe` is reached, or was, is in error, and stays so until it is
    /// destroyed. Returns which one that is.
    pub fn broke(&mut self, pe: u32) -> Option<Qpn> {
        let node = self.peers.get(&pe)?.node?;
        match &mut self.nodes.get_mut(&node)?.state {
            NodeState::Open(mine, _) | NodeState::Draining(mine, _) => {
                mine.broken = true;
                Some(mine.qpn)
            }
            _ => None,
        }
    }

    /// That initiator QP, if it is in error.
    #[must_use]
    pub fn in_error(&self, pe: u32) -> Option<Qpn> {
        let (mine, ..) = self.linked(pe)?;
        mine.broken.then_some(mine.qpn)
    }

    /// The peer that has the target of the queue pair over which `pe` is reached.
    #[must_use]
    pub fn direct(&self, pe: u32) -> Option<u32> {
        let (mine, ..) = self.linked(pe)?;
        Some(mine.direct)
    }

    /// The peers of the node of `pe` that were ever wanted.
    pub fn sharers(&self, pe: u32) -> impl Iterator<Item = u32> {
        let node = self.peers.get(&pe).and_then(|peer| peer.node);
        let node = node.and_then(|node| self.nodes.get(&node));
        node.into_iter()
            .flat_map(|node| node.members.iter().copied())
    }

    /// The connection to the node of `pe`, who may use it, and whether it drains.
    fn linked(&self, pe: u32) -> Option<(&Initiator, &BTreeSet<u32>, bool)> {
        let node = self.peers.get(&pe)?.node?;
        match &self.nodes.get(&node)?.state {
            NodeState::Open(mine, users) => Some((mine, users, false)),
            NodeState::Draining(mine, users) => Some((mine, users, true)),
            _ => None,
        }
    }
}

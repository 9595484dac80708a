//! What the machine tells those who post, and is told by them.

use super::Machine;
use super::state::{Linked, NodeState};
use crate::way::Way;
use shmem_verbs::Qpn;

impl Machine {
    /// The connection to the node of `pe`, for operations towards `pe`.
    #[must_use]
    pub fn way(&self, pe: u32) -> Option<Way<'_>> {
        let peer = self.peers.get(&pe)?;
        let memory = peer.memory.as_ref()?;
        let (linked, draining) = self.linked(peer.node?)?;
        Some(Way {
            qpn: linked.mine.qpn,
            srqn: Some(memory.srqn),
            segments: &memory.segments,
            draining,
            left: peer.left.is_some(),
            broken: linked.broken,
        })
    }

    /// The INI QP over which `pe` is reached, or was, is in error, and stays so until it is destroyed.
    /// Returns which one that is.
    pub fn broke(&mut self, pe: u32) -> Option<Qpn> {
        let node = self.peers.get(&pe)?.node?;
        match &mut self.nodes.get_mut(&node)?.state {
            NodeState::Open(linked) | NodeState::Draining(linked) => {
                linked.broken = true;
                Some(linked.mine.qpn)
            }
            _ => None,
        }
    }

    /// That INI QP, if it is in error.
    #[must_use]
    pub fn in_error(&self, pe: u32) -> Option<Qpn> {
        let (linked, _) = self.linked(self.peers.get(&pe)?.node?)?;
        linked.broken.then_some(linked.mine.qpn)
    }

    /// The peer that has the target of the queue pair over which `pe` is reached.
    #[must_use]
    pub fn direct(&self, pe: u32) -> Option<u32> {
        let (linked, _) = self.linked(self.peers.get(&pe)?.node?)?;
        Some(linked.direct)
    }

    /// The node of `pe`, if its connection drains.
    #[must_use]
    pub fn draining(&self, pe: u32) -> Option<u32> {
        let node = self.peers.get(&pe)?.node?;
        self.linked(node).filter(|(_, draining)| *draining)?;
        Some(node)
    }

    /// The peers of `node` that were ever wanted.
    pub fn members(&self, node: u32) -> impl Iterator<Item = u32> {
        let of_it = self.peers.iter().filter(move |(_, p)| p.node == Some(node));
        of_it.map(|(pe, _)| *pe)
    }

    /// The connection to `node`, and whether it drains.
    fn linked(&self, node: u32) -> Option<(&Linked, bool)> {
        match &self.nodes.get(&node)?.state {
            NodeState::Open(linked) => Some((linked, false)),
            NodeState::Draining(linked) => Some((linked, true)),
            _ => None,
        }
    }
}

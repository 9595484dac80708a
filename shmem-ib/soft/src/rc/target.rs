//! What requests of peers may touch: whose memory and receives they are for, and where these are.
//!
//! Requests to an RC queue pair are for this process. Those to an XRC target are for the process that
//! owns the shared receive queue which the packet names, and that may be another one of the domain.

#![forbid(unsafe_code)]

use crate::memory::mr::{Memory, MrTable};
use crate::queues::receive::Received;
use crate::queues::shared::Receives;
use crate::wire::Opcode;
use crate::xrc::{Domain, Reach, SrqOwner};
use shmem_verbs::{Access, Rkey, SrqNum};

/// What a request may touch.
pub(crate) struct Target<'a, M> {
    pub(crate) mrs: &'a MrTable,
    pub(crate) memory: &'a mut M,
    /// Rights of the queue pair.
    pub(crate) access: Access,
    /// The domain of an XRC target.
    pub(crate) domain: Option<&'a dyn Domain>,
    /// The shared receive queue that an XRC packet names, which says whose memory it is for.
    pub(crate) srqn: Option<SrqNum>,
    pub(crate) receives: Receives<'a>,
    /// So many bytes of payload are in their place already, and the packet comes without.
    pub(crate) placed: Option<u32>,
    /// It came by a stream: a run of packets instead of one.
    pub(crate) run: bool,
    /// Set if a receive has ended.
    pub(crate) received: Option<Received>,
}

impl<M: Memory> Target<'_, M> {
    /// Where this process finds what a request wants to touch, if it may.
    pub(crate) fn locate(&self, rkey: Rkey, va: u64, len: u64, need: Access) -> Option<u64> {
        let reach = Reach {
            rkey,
            va,
            len,
            need,
        };
        locate(self.mrs, self.access, self.domain, self.srqn, &reach)
    }

    pub(crate) fn allows(&self, rkey: Rkey, va: u64, len: u64, need: Access) -> bool {
        self.locate(rkey, va, len, need).is_some()
    }

    pub(crate) fn owner(&self) -> SrqOwner {
        owner(self.domain, self.srqn)
    }
}

/// Whose memory and receives a packet is for.
fn owner(domain: Option<&dyn Domain>, srqn: Option<SrqNum>) -> SrqOwner {
    match (domain, srqn) {
        (Some(domain), Some(srqn)) => domain.owner(srqn),
        _ => SrqOwner::Here,
    }
}

/// Where this process finds what a packet wants to touch, if it may.
pub(crate) fn locate(
    mrs: &MrTable,
    rights: Access,
    domain: Option<&dyn Domain>,
    srqn: Option<SrqNum>,
    reach: &Reach,
) -> Option<u64> {
    if !rights.contains(reach.need) {
        return None;
    }
    match owner(domain, srqn) {
        SrqOwner::Here => mrs
            .covers(reach.rkey.0, reach.va, reach.len, reach.need)
            .then_some(reach.va),
        SrqOwner::Elsewhere => domain?.resolve(srqn?, reach),
        SrqOwner::Nobody => None,
    }
}

/// Whether a message with such a packet takes a receive.
pub(crate) const fn takes_receive(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::SendFirst
            | O::SendMiddle
            | O::SendLast
            | O::SendLastImm
            | O::SendOnly
            | O::SendOnlyImm
            | O::WriteLastImm
            | O::WriteOnlyImm
    )
}

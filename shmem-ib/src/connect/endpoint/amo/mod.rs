//! Atomics that the owner of a word executes, for HCAs whose atomics are not atomic with respect to
//! the processor's.
//!
//! PEs of one node use the processor's atomics on each other's words. If an HCA executes those of
//! other nodes behind the processor's back, the two kinds do not exclude each other. Then each
//! request goes to the owner in a SEND, whoever makes progress there executes it with the
//! processor's atomics, and the answer comes back in a SEND over the same connection
//! (active messages; see `message.rs` for their layout, `books.rs` for who waits for what).
//!
//! # Order and completion
//! A request is executed after all that was posted to its connection before. What is posted after
//! it may overtake it: [`Endpoint::fence`] waits for the answers. An operation is complete
//! when its answer is there, so [`Endpoint::quiet`], and a connection that makes room for
//! another, wait for answers, too. That is enough for the owner's side as well: a connection whose
//! requester is idle has no request and no answer under way in that direction.
//!
//! # Silence
//! The HCA acknowledges a request when it is received, not when it is answered. Should the owner die
//! in between, no work request would fail. So a requester whose answers do not come sends a probe
//! now and then, which fails if there is nobody any more.

mod books;
mod message;
mod serve;
#[cfg(test)]
mod tests;

pub(super) use self::books::{ANSWER_MESSAGES, ANSWER_SLOTS, Asked};
pub use self::message::Refusal;
pub(super) use self::serve::{Owner, RECEIVES};

use self::message::{Message, Request};
use super::Endpoint;
use super::error::ConnError;
use super::ops::{Failed, Holds, Op, OpKind};
use super::rma::new_op;
use crate::atomic::{AtomicOp, Width};
use crate::verbs::{Hca, PortInfo};

/// Who executes atomics on the memory of a PE for PEs that do not share it. The same in all PEs
/// of a job: those that differ do not connect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Atomics {
    /// The HCA if its atomics are coherent with the processor's
    /// ([`PortInfo::atomics_coherent`]), else the owner.
    #[default]
    Auto,
    /// The HCA, in any case: only for programs whose words are never target of atomics of PEs
    /// that share memory and of others at a time.
    Hca,
    /// The PE whose memory it is. Not over XRC, whose SENDs do not reach every process.
    Owner,
}

impl Atomics {
    /// Whether the owner executes them, on this port.
    #[must_use]
    pub const fn by_owner(self, port: &PortInfo) -> bool {
        match self {
            Self::Auto => !port.atomics_coherent,
            Self::Hca => false,
            Self::Owner => true,
        }
    }
}

/// For fuzzing: the message that bytes are, encoded anew; `None` if they are none.
#[doc(hidden)]
#[must_use]
pub fn recode_message(bytes: &[u8]) -> Option<Vec<u8>> {
    message::recode(bytes)
}

/// How long answers may be missing, in nanoseconds, before a probe asks whether the owner is there.
const SILENCE: u64 = 1_000_000_000;

impl<H: Hca> Endpoint<H> {
    /// Whether owners execute atomics in this job, rather than HCAs.
    #[must_use]
    pub const fn atomics_by_owner(&self) -> bool {
        self.by_owner
    }

    /// Executes `op` on the word at `offset` of a segment of `pe`; returns its old value. The owner or
    /// the HCA of `pe` does it ([`Atomics`]); what an HCA does not have (all but 64-bit add, fetch
    /// and compare-and-swap) is composed of compare-and-swap on the 64-bit word around the target.
    ///
    /// # Errors
    /// As [`put_in`](Self::put_in); `offset` must be a multiple of the width.
    pub fn atomic_in(
        &self,
        pe: u32,
        segment: u8,
        offset: u64,
        width: Width,
        op: AtomicOp,
    ) -> Result<u64, ConnError> {
        if self.by_owner {
            return self.ask(pe, segment, offset, width, op, true);
        }
        aligned(op, offset, width)?;
        match (op, width) {
            (AtomicOp::Add(n), Width::W8) => self.fetch_add_in(pe, segment, offset, n),
            (AtomicOp::Fetch, Width::W8) => self.fetch_add_in(pe, segment, offset, 0),
            (AtomicOp::CompareSwap { compare, new }, Width::W8) => {
                self.compare_swap_in(pe, segment, offset, compare, new)
            }
            _ => self.composed(pe, segment, offset, width, op),
        }
    }

    /// Executes `op` without need of the old value; done when [`quiet`](Self::quiet) has returned.
    ///
    /// # Errors
    /// As [`atomic_in`](Self::atomic_in).
    pub fn atomic_nbi_in(
        &self,
        pe: u32,
        segment: u8,
        offset: u64,
        width: Width,
        op: AtomicOp,
    ) -> Result<(), ConnError> {
        let done = match (op, width) {
            _ if self.by_owner => self.ask(pe, segment, offset, width, op, false),
            (AtomicOp::Add(n), Width::W8) => return self.add_nbi_in(pe, segment, offset, n),
            _ => self.atomic_in(pe, segment, offset, width, op),
        };
        done.map(drop)
    }

    /// What an HCA does not have.
    fn composed(
        &self,
        pe: u32,
        segment: u8,
        offset: u64,
        width: Width,
        op: AtomicOp,
    ) -> Result<u64, ConnError> {
        // The word of 8 bytes around the target; a 4-byte target is one of its halves.
        let (shift, mask) = match width {
            Width::W4 => {
                let shift = (offset & 4) * 8;
                (shift, 0xffff_ffff << shift)
            }
            Width::W8 => (0, u64::MAX),
        };
        // The first guess costs nothing and is right for memory that was never written.
        let mut seen = 0;
        loop {
            let old = (seen & mask) >> shift;
            let new = (seen & !mask) | (op.apply(old, width) << shift);
            let was = self.compare_swap_in(pe, segment, offset & !7, seen, new)?;
            if was == seen {
                return Ok(old);
            }
            seen = was;
        }
    }

    /// Returns when what is started towards any PE from now on is executed after what was started
    /// towards it before. Connections deliver in order, so this waits for atomics only that owners
    /// have still to execute. Their errors are those of [`quiet`](Self::quiet).
    pub fn fence(&self) {
        if !self.by_owner {
            return;
        }
        let mut locked = self.lock();
        if locked.unanswered > 0 {
            locked.wait_for_peers(
                |peer| peer.asked.unanswered() > 0,
                |peer, mark| peer.asked.answered >= mark.asked,
            );
        }
    }

    /// Has the owner of a word execute an atomic on it.
    pub(super) fn ask(
        &self,
        pe: u32,
        segment: u8,
        offset: u64,
        width: Width,
        op: AtomicOp,
        waited: bool,
    ) -> Result<u64, ConnError> {
        aligned(op, offset, width)?;
        let kind = OpKind::Asked(op.name());
        let mut locked = self.lock();
        let len = width.bytes();
        let mut target = locked.connected(pe, segment, kind, offset, len)?;
        let id = locked.ops.insert(Op {
            waited,
            asks: true,
            ..new_op(kind, pe, offset, len)
        });
        let request = Message::Request(Request {
            token: id.to_bits(),
            segment,
            offset,
            what: Some((op, width)),
        });
        locked.post_message(id, &mut target, &request)?;
        if waited { locked.result(id) } else { Ok(0) }
    }
}

fn aligned(op: AtomicOp, offset: u64, width: Width) -> Result<(), ConnError> {
    let bytes = width.bytes() as u64;
    if offset.is_multiple_of(bytes) {
        return Ok(());
    }
    Err(ConnError::Misaligned {
        op: op.name(),
        offset,
        bytes,
    })
}

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
//! it may overtake it: [`Context::fence`] waits for the answers. An operation is complete
//! when its answer is there, so [`Context::quiet`], and a connection that makes room for
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
use super::atomics::{At, Old};
use super::context::Context;
use super::error::ConnError;
use super::ops::{Failed, Holds, Op, OpKind};
use super::rma::new_op;
use crate::atomic::AtomicOp;
use shmem_verbs::{Hca, PortInfo};

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

impl<H: Hca> Context<'_, H> {
    /// Has the owner of a word execute an atomic on it.
    pub(super) fn ask(self, at: At, op: AtomicOp, old: Old) -> Result<u64, ConnError> {
        let At {
            pe,
            segment,
            offset,
            width,
        } = at;
        let kind = OpKind::Asked(op.name());
        let mut locked = self.endpoint.lock();
        let len = width.bytes();
        let mut target = locked.connected(pe, segment, kind, offset, len)?;
        let id = locked.ops.insert(Op {
            asks: true,
            ..old.mark(new_op(self.id, kind, pe, offset, len))
        });
        let request = Message::Request(Request {
            token: id.to_bits(),
            segment,
            offset,
            what: Some((op, width)),
        });
        locked.post_message(id, &mut target, &request)?;
        match old {
            Old::Returned => locked.result(id),
            Old::Dropped | Old::Stored(_) => Ok(0),
        }
    }
}

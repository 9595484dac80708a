//! What an owner of words has for requests and answers: receives, memory, and the answers that wait.

use super::books::{ANSWER_MESSAGES, Outbox};
use super::message::MAX_LEN;
use crate::endpoint::buffers::Registered;
use crate::endpoint::wr_id::Whose;
use shmem_verbs::{Hca, Qpn, RecvWr, Sge, Srq, SrqInit, SrqKind, VerbsError};

/// Receives that are posted: the windows of four peers. A burst of more waits at the senders, a few
/// hundred microseconds at a time, and costs no memory here.
const RECEIVES: u32 = 256;
/// Bytes per buffer: a multiple of the cache line that holds any message.
pub(super) const BUFFER: usize = 128;
const _: () = assert!(MAX_LEN <= BUFFER);

/// How many completions atomics that owners execute may have besides.
pub(crate) const fn more_completions(by_owner: bool) -> u32 {
    if by_owner {
        RECEIVES + ANSWER_MESSAGES
    } else {
        0
    }
}

/// What a PE has for atomics that owners execute.
#[derive(Debug)]
pub(crate) struct Owner {
    /// Made with the first queue pair.
    pub(super) receiver: Option<Receiver>,
    pub(super) outbox: Outbox,
    /// Atomics executed for peers since the beginning.
    pub(crate) served: u64,
    /// Some of them since [`Owner::has_executed`] was last called.
    pub(super) executed: bool,
    /// When to look for silent owners again.
    pub(super) probe_at: u64,
}

/// Where messages arrive, and, if the device takes no inline data of their length, where answers
/// leave from.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) srq: Srq,
    pub(super) memory: Registered,
}

impl Owner {
    pub(crate) fn new() -> Self {
        Self {
            receiver: None,
            outbox: Outbox::new(),
            served: 0,
            executed: false,
            probe_at: 0,
        }
    }

    /// Whether an atomic was executed since the last call.
    pub(crate) const fn has_executed(&mut self) -> bool {
        std::mem::replace(&mut self.executed, false)
    }

    /// The queue pair towards `pe` is gone.
    pub(crate) fn gone(&mut self, pe: u32, qpn: Qpn) {
        self.outbox.gone(pe, qpn);
    }

    /// Gives everything back. No queue pair is left.
    pub(crate) fn release<H: Hca>(self, hca: &H) {
        if let Some(receiver) = self.receiver
            && hca.destroy_srq(receiver.srq).is_ok()
        {
            receiver.memory.release(hca);
        }
    }
}

impl Receiver {
    pub(super) fn new<H: Hca>(hca: &H, with_answers: bool) -> Result<Self, VerbsError> {
        let answers = if with_answers { ANSWER_MESSAGES } else { 0 };
        let memory = Registered::new(hca, (RECEIVES + answers) as usize * BUFFER)?;
        let srq = hca.create_srq(&SrqInit {
            max_wr: RECEIVES,
            max_sge: 1,
            kind: SrqKind::Basic,
        });
        let srq = match srq {
            Ok(srq) => srq,
            Err(e) => {
                memory.release(hca);
                return Err(e);
            }
        };
        let receiver = Self { srq, memory };
        for slot in 0..RECEIVES {
            if let Err(e) = receiver.post(hca, slot) {
                if hca.destroy_srq(srq).is_ok() {
                    receiver.memory.release(hca);
                }
                return Err(e);
            }
        }
        Ok(receiver)
    }

    pub(super) fn post<H: Hca>(&self, hca: &H, slot: u32) -> Result<(), VerbsError> {
        let sge = self.memory.sge(slot as usize * BUFFER, BUFFER);
        let wr = RecvWr {
            wr_id: Whose::Asked(slot).to_wr_id(),
            sges: std::slice::from_ref(&sge),
        };
        // SAFETY: the buffer is registered until the queue is destroyed, and is looked at only
        // between a completion and the next post.
        unsafe { hca.post_srq_recv(self.srq, &wr) }
    }

    /// The place from which answer `slot` leaves.
    pub(super) fn answer(&self, slot: u16, len: usize) -> (*mut u8, Sge) {
        let at = (RECEIVES as usize + usize::from(slot)) * BUFFER;
        (self.memory.at(at), self.memory.sge(at, len))
    }
}

//! Atomics on peers' words, whoever executes them: the peer's HCA in one step, the owner of the word
//! (`by_owner`), or this PE in several steps (`composed.rs`).

pub(crate) mod by_owner;
mod composed;
pub(crate) mod lines;
mod word;

use self::word::{At, Old};
use super::error::ConnError;
use super::lock::Endpoint;
use super::operations::context::Context;
use super::operations::put_get::Source;
use super::operations::table::{Fetch, Holds, Op, OpKind};
use crate::atomic::{AtomicOp, Width};
use shmem_verbs::{Hca, Rkey, SendOp};

/// What HCAs can do to a word.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u64),
    CompareSwap { compare: u64, swap: u64 },
}

impl Step {
    const fn on(self, raddr: u64, rkey: Rkey) -> SendOp {
        match self {
            Self::Add(add) => SendOp::fetch_add(raddr, rkey, add),
            Self::CompareSwap { compare, swap } => SendOp::CmpSwap {
                raddr,
                rkey,
                compare,
                swap,
            },
        }
    }
}

impl<H: Hca> Endpoint<H> {
    /// Whether owners execute atomics in this job, rather than HCAs.
    #[must_use]
    pub const fn atomics_by_owner(&self) -> bool {
        self.by_owner
    }
}

impl<H: Hca> Context<'_, H> {
    /// Executes `op` on the word at `offset` of a segment of `pe`; returns its old value. The owner or
    /// the HCA of `pe` does it ([`Atomics`](super::Atomics)); what an HCA does not have (all but
    /// 64-bit add, fetch and compare-and-swap) is composed of compare-and-swap on the 64-bit word
    /// around the target.
    ///
    /// # Errors
    /// As [`put`](Self::put); `offset` must be a multiple of the width.
    pub fn atomic(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        width: Width,
        op: AtomicOp,
    ) -> Result<u64, ConnError> {
        let at = At {
            pe,
            segment,
            offset,
            width,
        };
        self.execute(at, op, Old::Returned)
    }

    /// Executes `op` without need of the old value; done when [`quiet`](Self::quiet) has returned.
    ///
    /// # Errors
    /// As [`atomic`](Self::atomic).
    pub fn atomic_plain(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        width: Width,
        op: AtomicOp,
    ) -> Result<(), ConnError> {
        let at = At {
            pe,
            segment,
            offset,
            width,
        };
        self.execute(at, op, Old::Dropped).map(drop)
    }

    /// Executes `op`; the old value lies at `fetch` when [`quiet`](Self::quiet) has returned.
    ///
    /// # Errors
    /// As [`atomic`](Self::atomic).
    ///
    /// # Safety
    /// `fetch` is valid for writing the word's width, and not borrowed, until quiet. It need not be
    /// aligned.
    pub unsafe fn atomic_fetch_into(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        width: Width,
        op: AtomicOp,
        fetch: *mut u8,
    ) -> Result<(), ConnError> {
        let at = At {
            pe,
            segment,
            offset,
            width,
        };
        let to = fetch.expose_provenance();
        self.execute(at, op, Old::Stored(Fetch { to, width }))
            .map(drop)
    }

    fn execute(self, at: At, op: AtomicOp, old: Old) -> Result<u64, ConnError> {
        at.check(op)?;
        if self.endpoint.by_owner {
            return self.ask(at, op, old);
        }
        let one_step = match (op, at.width) {
            (AtomicOp::Add(add), Width::W8) => Some((OpKind::FetchAdd, Step::Add(add))),
            (AtomicOp::Fetch, Width::W8) => Some((OpKind::FetchAdd, Step::Add(0))),
            (AtomicOp::CompareSwap { compare, new: swap }, Width::W8) => {
                Some((OpKind::CompareSwap, Step::CompareSwap { compare, swap }))
            }
            _ => None,
        };
        if let Some((kind, step)) = one_step {
            let kind = match old {
                Old::Dropped if kind == OpKind::FetchAdd => OpKind::Add,
                _ => kind,
            };
            if let Some(done) = self.in_one_step(at, kind, old, step)? {
                return Ok(done);
            }
        } else if let (AtomicOp::Swap(value), Old::Dropped) = (op, old)
            && self.endpoint.coherent
            && !self.endpoint.lock().is_composing(at)
        {
            // Where the HCA's atomics exclude the processor's, they exclude its writes of whole words.
            return self.write_word(at, value);
        }
        self.compose(at, op, old)
    }

    /// An operation that the HCA has. `None` if it has to stand in line behind one of several steps on
    /// the same word: atomics of a PE on a word keep their order.
    fn in_one_step(
        self,
        at: At,
        kind: OpKind,
        old: Old,
        step: Step,
    ) -> Result<Option<u64>, ConnError> {
        let mut locked = self.endpoint.lock();
        let mut target = locked.connected(at.pe, at.segment, kind, at.offset, 8)?;
        let slot = locked.slot(8)?;
        if locked.is_composing(at) {
            locked.pool.give(slot);
            return Ok(None);
        }
        let (_, sge) = locked.pool.place(slot, 8);
        let op = Op {
            holds: match old {
                Old::Dropped => Holds::Slot(slot),
                Old::Returned | Old::Stored(_) => Holds::Result(slot),
            },
            ..old.mark(Op::new(self.id, kind, at.pe, at.offset, 8))
        };
        let what = step.on(target.raddr, target.rkey);
        // SAFETY: the slot is held until the operation completes.
        let id = unsafe { locked.start(op, &mut target, what, sge, None)? };
        match old {
            Old::Returned => locked.result(id).map(Some),
            Old::Dropped | Old::Stored(_) => Ok(Some(0)),
        }
    }

    /// Sets a word with a write, which does not tear it.
    fn write_word(self, at: At, value: u64) -> Result<u64, ConnError> {
        let bytes = value.to_ne_bytes();
        let low = if cfg!(target_endian = "big") {
            8 - at.width.bytes()
        } else {
            0
        };
        let word = &bytes[low..low + at.width.bytes()];
        // SAFETY: the bytes are readable until this returns.
        unsafe {
            self.put(
                at.pe,
                at.segment,
                at.offset,
                word.as_ptr(),
                word.len(),
                Source::UntilReturn,
            )?
        };
        Ok(0)
    }
}

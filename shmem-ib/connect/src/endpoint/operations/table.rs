//! The operations under way: what each was, for whom, and what it holds until it completes.

use super::accounts::ContextId;
use crate::atomic::Width;
use crate::endpoint::atomics::by_owner::message::Refusal;
use crate::endpoint::buffers::Slot;
use shmem_verbs::memory::copy;
use shmem_verbs::{Mr, WcStatus};

/// Kinds of one-sided operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpKind {
    Put,
    Get,
    FetchAdd,
    CompareSwap,
    Add,
    /// A message to the owner, of this name.
    Asked(&'static str),
    /// Several compare-and-swaps that do the work of an atomic of this name.
    Composed(&'static str),
}

impl OpKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::FetchAdd => "fetch-and-add",
            Self::CompareSwap => "compare-and-swap",
            Self::Add => "add",
            Self::Asked(name) | Self::Composed(name) => name,
        }
    }
}

/// What an operation has to give back when it completes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holds {
    Nothing,
    /// A slot that was the source.
    Slot(Slot),
    /// A slot whose content goes to the program: `len` bytes to the address `dst`.
    CopyOut {
        slot: Slot,
        dst: usize,
        len: usize,
    },
    /// A slot whose content is the operation's result.
    Result(Slot),
    /// The registration of the program's buffer.
    Registration(Mr),
}

/// Where the program wants the result of an atomic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    /// An address that whoever started the operation has promised to keep writable.
    pub(crate) to: usize,
    pub(crate) width: Width,
}

impl Fetch {
    /// Stores the result.
    ///
    /// # Safety
    /// The operation that it belongs to has just completed.
    pub(crate) unsafe fn store(self, result: u64) {
        let to = std::ptr::with_exposed_provenance_mut(self.to);
        let low = result as u32;
        // SAFETY: the address is writable for the width until the operation has completed; both
        // sources have that width.
        unsafe {
            match self.width {
                Width::W4 => copy((&raw const low).cast(), to, 4),
                Width::W8 => copy((&raw const result).cast(), to, 8),
            }
        }
    }
}

/// Longest work request: a multiple of every page and MTU.
pub(super) const CHUNK: usize = 16 << 20;

/// One operation; large ones consist of several work requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) ctx: ContextId,
    pub(crate) kind: OpKind,
    pub(crate) pe: u32,
    pub(crate) segment: u8,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Work requests posted and not completed; and 1 for the answer, or for the further steps, if
    /// there are to be any.
    pub(crate) pending: u32,
    /// More work requests may follow.
    pub(crate) posting: bool,
    /// A work request was posted.
    pub(crate) begun: bool,
    pub(crate) holds: Holds,
    /// Its source stays where it is until quiet, and is short: it may be held.
    pub(crate) stays: bool,
    /// Of the silent requests towards the peer, so many are complete when its first request is.
    pub(crate) covers: u64,
    /// Its request is one of them.
    pub(crate) silent: bool,
    /// The peer is to answer it, and has not yet.
    pub(crate) asks: bool,
    /// It takes several steps, and the last is still to come.
    pub(crate) composed: bool,
    /// Where its result goes.
    pub(crate) fetch: Option<Fetch>,
    /// Somebody waits for it and takes the result; otherwise it vanishes when it completes.
    pub(crate) waited: bool,
    /// First error of its work requests.
    pub(crate) failed: Option<Failed>,
    pub(crate) result: u64,
}

impl Op {
    /// An operation of which nothing has been posted.
    pub(crate) const fn new(
        ctx: ContextId,
        kind: OpKind,
        pe: u32,
        offset: u64,
        len: usize,
    ) -> Self {
        Self {
            ctx,
            kind,
            pe,
            segment: 0,
            offset,
            len: len as u64,
            pending: 0,
            posting: true,
            begun: false,
            stays: false,
            covers: 0,
            silent: false,
            asks: false,
            composed: false,
            fetch: None,
            holds: Holds::Nothing,
            waited: false,
            failed: None,
            result: 0,
        }
    }

    /// A part of it as an operation of its own.
    pub(crate) const fn piece(&self, at: usize, len: usize) -> Self {
        Self {
            offset: self.offset + at as u64,
            len: len as u64,
            ..*self
        }
    }

    /// Whether nothing of it is under way any more.
    pub(crate) const fn is_done(&self) -> bool {
        self.pending == 0 && !self.posting
    }
}

/// How an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    /// A completion said so.
    Status(WcStatus),
    /// Its queue pair was destroyed under it.
    Lost,
    /// The owner of the word did not execute it.
    Refused(Refusal),
}

/// Names an operation; fits into a `wr_id` together with 8 more bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpId {
    slot: u32,
    /// How often the slot was used before, modulo 2^24: a late completion does not hit
    /// another operation.
    turn: u32,
}

impl OpId {
    /// How many bits it takes.
    pub(crate) const BITS: u32 = 56;
    const TURN_MASK: u32 = 0x00ff_ffff;

    pub(crate) const fn to_bits(self) -> u64 {
        (self.turn as u64) << 32 | self.slot as u64
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self {
            slot: bits as u32,
            turn: (bits >> 32) as u32 & Self::TURN_MASK,
        }
    }
}

#[derive(Debug)]
struct Entry {
    turn: u32,
    op: Option<Op>,
}

/// All operations under way; slots are reused, so that a steady program allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct OpTable {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl OpTable {
    pub(crate) fn insert(&mut self, op: Op) -> OpId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { turn: 0, op: None });
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[slot as usize];
        entry.op = Some(op);
        OpId {
            slot,
            turn: entry.turn,
        }
    }

    pub(crate) fn get(&self, id: OpId) -> Option<&Op> {
        let entry = self.entries.get(id.slot as usize)?;
        entry.op.as_ref().filter(|_| entry.turn == id.turn)
    }

    pub(crate) fn get_mut(&mut self, id: OpId) -> Option<&mut Op> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        if entry.turn == id.turn {
            entry.op.as_mut()
        } else {
            None
        }
    }

    pub(crate) fn remove(&mut self, id: OpId) -> Option<Op> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        if entry.turn != id.turn {
            return None;
        }
        let op = entry.op.take()?;
        entry.turn = (entry.turn + 1) & OpId::TURN_MASK;
        self.free.push(id.slot);
        Some(op)
    }

    /// The operations that are not done.
    pub(crate) fn unfinished(&self) -> Vec<OpId> {
        self.select(|_| true)
    }

    /// The operations towards `pe` that were posted and are not done. Those which wait for room in
    /// a queue are nobody's yet: they go another way if theirs is closed.
    pub(crate) fn unfinished_towards(&self, pe: u32) -> Vec<OpId> {
        self.select(|op| op.pe == pe && op.begun)
    }

    /// The operations of several steps of a context, towards one peer or all.
    pub(crate) fn composed_of(&self, ctx: ContextId, towards: Option<u32>) -> Vec<OpId> {
        self.select(|op| op.composed && op.ctx == ctx && towards.is_none_or(|pe| pe == op.pe))
    }

    /// Whether an operation towards `pe` is posted in part.
    pub(crate) fn is_being_posted(&self, pe: u32) -> bool {
        let ops = self.entries.iter().filter_map(|e| e.op.as_ref());
        ops.into_iter()
            .any(|op| op.pe == pe && op.posting && op.begun)
    }

    fn select(&self, which: impl Fn(&Op) -> bool) -> Vec<OpId> {
        (0u32..)
            .zip(&self.entries)
            .filter(|(_, e)| e.op.as_ref().is_some_and(|op| !op.is_done() && which(op)))
            .map(|(slot, e)| OpId { slot, turn: e.turn })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(pe: u32) -> Op {
        Op {
            pending: 1,
            posting: false,
            begun: true,
            ..Op::new(ContextId::DEFAULT, OpKind::Put, pe, 0, 8)
        }
    }

    #[test]
    fn a_late_name_does_not_find_the_next_operation_in_its_slot() {
        let mut table = OpTable::default();
        let first = table.insert(op(1));
        assert_eq!(OpId::from_bits(first.to_bits()), first);
        assert!(table.remove(first).is_some());
        let second = table.insert(op(2));
        assert_ne!(first, second);
        assert!(table.get_mut(first).is_none() && table.remove(first).is_none());
        assert_eq!(OpId::from_bits(second.to_bits()), second);
        assert_eq!(table.get_mut(second).map(|op| op.pe), Some(2));
    }

    #[test]
    fn slots_are_reused_and_peers_are_found() {
        let mut table = OpTable::default();
        let ids: Vec<OpId> = (0..10).map(|i| table.insert(op(i % 2))).collect();
        assert_eq!(table.unfinished_towards(1).len(), 5);
        assert_eq!(table.unfinished().len(), 10);
        for id in ids {
            table.remove(id);
        }
        for i in 0..10 {
            table.insert(op(i));
        }
        assert_eq!(table.entries.len(), 10);
    }
}

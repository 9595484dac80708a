//! Atomics that HCAs do not have, made of compare-and-swap on the 64-bit word around the target.
//!
//! Each is a loop: compute the new word from what the word is believed to be, and swap if that was
//! right, else go on from what it is. The steps are driven by completions, so that nobody needs to
//! wait for them. Operations of this PE on one word stand in line: under way at once they would only
//! make each other fail. Atomics that take one step get in line, too, if there is one: so the atomics of
//! a PE on a word take effect in the order in which it has started them. The last content of a few words is remembered as a first guess.
//!
//! A loop counts as an operation under way until its last step, for contexts, for closing, and for
//! connections that make room for others: so its connection stays.

use std::collections::VecDeque;

use super::lines::{Line, Loop, Word, shift};
use super::word::{At, Old};
use crate::atomic::AtomicOp;
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::endpoint::operations::accounts::ContextId;
use crate::endpoint::operations::context::Context;
use crate::endpoint::operations::post::Posted;
use crate::endpoint::operations::table::{Failed, Holds, Op, OpId, OpKind};
use shmem_verbs::memory::load;
use shmem_verbs::{Hca, SendOp, WcStatus};

impl<H: Hca> Context<'_, H> {
    /// Starts a loop, and waits for its end if its value is to be returned.
    pub(crate) fn compose(self, at: At, op: AtomicOp, old: Old) -> Result<u64, ConnError> {
        let kind = OpKind::Composed(op.name());
        let mut locked = self.endpoint.lock();
        let (pe, segment, len) = (at.pe, at.segment, at.width.bytes());
        locked.connected(pe, segment, kind, at.offset, len)?;
        if let Old::Dropped = old
            && locked.merge(self.id, at, op)
        {
            return Ok(0);
        }
        let slot = locked.slot(8)?;
        // Waiting for the slot may have cost the connection. From here on the lock is kept until the
        // loop counts as under way.
        if let Err(error) = locked.connected(pe, segment, kind, at.offset, len) {
            locked.pool.give(slot);
            return Err(error);
        }
        let id = locked.ops.insert(Op {
            segment,
            composed: true,
            begun: true,
            posting: false,
            pending: 1,
            holds: Holds::Slot(slot),
            ..old.mark(Op::new(self.id, kind, pe, at.offset, len))
        });
        locked.accounts.of(self.id).composed += 1;
        locked.composed.up();
        locked.peers.entry(pe).or_default().composed += 1;
        let word = Word::of(at);
        let new = Loop {
            id,
            op,
            shift: shift(at),
            width: at.width,
            slot,
        };
        locked.join(word, new);
        match old {
            Old::Returned => locked.result(id),
            Old::Dropped | Old::Stored(_) => Ok(0),
        }
    }
}

impl<H: Hca> Driver<H> {
    /// Whether a loop is under way on the word of a target.
    pub(crate) fn is_composing(&self, at: At) -> bool {
        self.composed.get() > 0 && self.composer.lines.contains_key(&Word::of(at))
    }

    /// Adds an operation to the last one in line, if that waits, too, and is of the same kind on the same
    /// target and of the same context, and nobody wants to know the value in between. A stream of
    /// operations on one word so costs no more than a few steps.
    fn merge(&mut self, ctx: ContextId, at: At, op: AtomicOp) -> bool {
        let line = self.composer.lines.get_mut(&Word::of(at));
        let Some(last) = line.and_then(|line| line.others.back_mut()) else {
            return false;
        };
        let other = self.ops.get_mut(last.id);
        let anonymous = other.is_some_and(|o| o.ctx == ctx && !o.waited && o.fetch.is_none());
        if !anonymous || (last.shift, last.width) != (shift(at), at.width) {
            return false;
        }
        let merged = match (last.op, op) {
            (AtomicOp::Add(a), AtomicOp::Add(b)) => AtomicOp::Add(a.wrapping_add(b)),
            (AtomicOp::And(a), AtomicOp::And(b)) => AtomicOp::And(a & b),
            (AtomicOp::Or(a), AtomicOp::Or(b)) => AtomicOp::Or(a | b),
            (AtomicOp::Xor(a), AtomicOp::Xor(b)) => AtomicOp::Xor(a ^ b),
            (AtomicOp::Swap(_), AtomicOp::Swap(b)) => AtomicOp::Swap(b),
            _ => return false,
        };
        last.op = merged;
        true
    }

    /// A loop gets in line, and takes its first step if it is alone there.
    fn join(&mut self, word: Word, new: Loop) {
        if let Some(line) = self.composer.lines.get_mut(&word) {
            line.others.push_back(new);
            return;
        }
        let line = Line {
            first: new,
            expected: self.composer.guess(word),
            others: VecDeque::new(),
        };
        self.composer.lines.insert(word, line);
        self.step(word);
    }

    /// The first loop of a line takes a step; those whose step is impossible end with an error.
    fn step(&mut self, word: Word) {
        while let Some(line) = self.composer.lines.get(&word) {
            let (first, expected) = (line.first, line.expected);
            let posted = self.post_step(word, &first, expected);
            match posted {
                Ok(Posted::Yes) => return,
                Ok(Posted::NoRoom) => return self.composer.held_up.push_back(word),
                // Nothing was posted, so nothing tells of the end.
                Ok(Posted::Elsewhere) | Err(_) => {
                    let why = match self.manager.in_error(word.pe) {
                        Some(_) => Failed::Status(WcStatus::WrFlushErr),
                        None => Failed::Lost,
                    };
                    if let Some(op) = self.ops.get_mut(first.id) {
                        op.failed.get_or_insert(why);
                    }
                    self.end_first(word, expected);
                }
            }
        }
    }

    fn post_step(&mut self, word: Word, its: &Loop, expected: u64) -> Result<Posted, ConnError> {
        let Word {
            pe,
            segment,
            offset,
        } = word;
        let target = self.target_anyway(pe, segment, OpKind::CompareSwap, offset, 8)?;
        let Some(target) = target else {
            return Ok(Posted::Elsewhere);
        };
        let what = SendOp::CmpSwap {
            raddr: target.raddr,
            rkey: target.rkey,
            compare: expected,
            swap: its.apply(expected),
        };
        let (_, sge) = self.pool.place(its.slot, 8);
        // SAFETY: the slot is held until the operation has ended, which is after this step.
        unsafe { self.post(its.id, &target, what, sge, None) }
    }

    /// Takes steps that waited for room, as far as there is some.
    pub(crate) fn resume_steps(&mut self) {
        for _ in 0..self.composer.held_up.len() {
            if let Some(word) = self.composer.held_up.pop_front() {
                self.step(word);
            }
        }
    }

    /// A step of a loop has completed.
    pub(crate) fn stepped(&mut self, id: OpId) {
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        let (pe, segment, offset, failed) = (op.pe, op.segment, op.offset & !7, op.failed);
        let word = Word {
            pe,
            segment,
            offset,
        };
        let Some(line) = self.composer.lines.get_mut(&word) else {
            return;
        };
        debug_assert_eq!(line.first.id, id, "only the first of a line takes steps");
        let (first, expected) = (line.first, line.expected);
        if failed.is_some() {
            self.end_first(word, expected);
            return self.step(word);
        }
        let (at, _) = self.pool.place(first.slot, 8);
        // SAFETY: slots are aligned to 64, and the HCA has written this one.
        let was = unsafe { load(at) };
        let new = first.apply(was);
        // What changes nothing is done once the word is known.
        if was != expected && new != was {
            line.expected = was;
            return self.step(word);
        }
        if let Some(op) = self.ops.get_mut(id) {
            op.result = first.field(was);
        }
        self.composer.remember(word, new);
        self.end_first(word, new);
        self.step(word);
    }

    /// The first loop of a line has ended, and left the word as `content`; the next moves up.
    fn end_first(&mut self, word: Word, content: u64) {
        let Some(line) = self.composer.lines.get_mut(&word) else {
            return;
        };
        let id = line.first.id;
        match line.others.pop_front() {
            Some(next) => (line.first, line.expected) = (next, content),
            None => drop(self.composer.lines.remove(&word)),
        }
        if let Some(op) = self.ops.get_mut(id) {
            op.pending -= 1;
        }
        self.uncount_composed(id);
        self.finish_if_done(id);
    }

    /// A loop is not under way any more.
    pub(crate) fn uncount_composed(&mut self, id: OpId) {
        let Some(op) = self.ops.get_mut(id).filter(|op| op.composed) else {
            return;
        };
        op.composed = false;
        self.accounts.of(op.ctx).composed -= 1;
        self.composed.down();
        if let Some(peer) = self.peers.get_mut(&op.pe) {
            peer.composed -= 1;
        }
        // Somebody may wait for just that.
        self.notices.happened = true;
    }
}

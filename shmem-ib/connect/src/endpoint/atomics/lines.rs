//! Which loops are under way on which words, and what each believes of its word.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::word::At;
use crate::atomic::{AtomicOp, Width};
use crate::endpoint::buffers::Slot;
use crate::endpoint::operations::table::OpId;

/// A word of 8 bytes of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Word {
    pub(super) pe: u32,
    pub(super) segment: u8,
    pub(super) offset: u64,
}

impl Word {
    /// That of a target.
    pub(super) const fn of(at: At) -> Self {
        Self {
            pe: at.pe,
            segment: at.segment,
            offset: at.offset & !7,
        }
    }
}

/// Where a target lies in its word, in bits.
pub(super) const fn shift(at: At) -> u32 {
    match at.width {
        Width::W4 if cfg!(target_endian = "big") => (at.offset as u32 & 4 ^ 4) * 8,
        Width::W4 => (at.offset as u32 & 4) * 8,
        Width::W8 => 0,
    }
}

/// A loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loop {
    pub(super) id: OpId,
    pub(super) op: AtomicOp,
    /// Of the target in its word.
    pub(super) shift: u32,
    pub(super) width: Width,
    /// Where the old word arrives.
    pub(super) slot: Slot,
}

impl Loop {
    /// The target's bits of a word.
    pub(super) const fn field(&self, word: u64) -> u64 {
        let mask = match self.width {
            Width::W4 => 0xffff_ffff,
            Width::W8 => u64::MAX,
        };
        word >> self.shift & mask
    }

    /// The word after the operation.
    pub(super) const fn apply(&self, word: u64) -> u64 {
        let old = self.field(word);
        word ^ (old ^ self.op.apply(old, self.width)) << self.shift
    }
}

/// The loops on one word.
#[derive(Debug)]
pub(super) struct Line {
    /// It takes steps.
    pub(super) first: Loop,
    /// What it believes the word to be.
    pub(super) expected: u64,
    /// They wait.
    pub(super) others: VecDeque<Loop>,
}

/// Words whose content is remembered.
const GUESSES: usize = 64;

/// All loops of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Composer {
    pub(super) lines: HashMap<Word, Line>,
    /// Those whose first is to take a step as soon as there is room.
    pub(super) held_up: VecDeque<Word>,
    /// Empty before the first loop.
    guesses: Vec<Option<(Word, u64)>>,
}

impl Composer {
    /// Whether steps wait for room.
    pub(crate) fn is_held_up(&self) -> bool {
        !self.held_up.is_empty()
    }

    /// Nothing towards `pe` takes another step.
    pub(crate) fn forget(&mut self, pe: u32) {
        self.lines.retain(|word, _| word.pe != pe);
        self.held_up.retain(|word| word.pe != pe);
    }

    fn place(word: Word) -> usize {
        let number = word.offset / 8 + u64::from(word.pe) * 31 + u64::from(word.segment);
        number as usize % GUESSES
    }

    pub(super) fn guess(&self, word: Word) -> u64 {
        let known = self.guesses.get(Self::place(word)).copied().flatten();
        // Memory that was never written is zero.
        known
            .filter(|(of, _)| *of == word)
            .map_or(0, |(_, content)| content)
    }

    pub(super) fn remember(&mut self, word: Word, content: u64) {
        if self.guesses.is_empty() {
            self.guesses.resize(GUESSES, None);
        }
        self.guesses[Self::place(word)] = Some((word, content));
    }
}

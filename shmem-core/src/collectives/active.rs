//! Collectives of active sets, which OpenSHMEM has deprecated: any PEs `2^k` apart, who have nothing
//! in common but an array of theirs, `pSync`.
//!
//! The array is all zero when nobody uses it. A PE *gives* another one a number other than zero in a
//! word of its array, and that one *takes* it, which leaves zero: nothing has to be remembered from
//! one call to the next, and the array may serve different sets. All operations go along binomial
//! trees of the members, so nobody gets two numbers in a word before it took the first.
//!
//! The set of all PEs needs none of this: it is the world team.

use super::combine::{BLOCK, Block, Combine, Elements};
use super::gather::check_dest;
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::rma::{Blocks, Completion};
use crate::runtime::Runtime;
use crate::sync::{Ordering, fence};
use crate::tree;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use shmem_node::recording::set_number;
use shmem_node::waiting::{Collective, Place, Team, TeamKind, Wait};

/// Words of `pSync` that a routine on an active set uses at most: the `SHMEM_*_SYNC_SIZE`.
pub const SYNC_SIZE: usize = 64;

// The words. Synchronisations have their own, so that one may follow or precede another operation on
// the same array.
const SYNC_DOWN: usize = 0;
const DATA_DOWN: usize = 1;
const START: usize = 2;
const TOTAL: usize = 3;
// A word for each child.
const SYNC_UP: usize = 4;
const LENGTH_UP: usize = SYNC_UP + tree::MAX_CHILDREN;
const DATA_UP: usize = LENGTH_UP + tree::MAX_CHILDREN;

const _: () = assert!(DATA_UP + tree::MAX_CHILDREN <= SYNC_SIZE);

/// Bytes that are fetched from a child at a time.
const FETCHED: usize = 8 * BLOCK;

/// An active set, as one of its members sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActiveSet {
    start: usize,
    stride: usize,
    size: usize,
    /// Rank of this PE.
    me: usize,
    psync: usize,
}

impl ActiveSet {
    /// # Panics
    /// If the set has members that do not exist, or this PE is none.
    #[track_caller]
    pub(crate) fn new(
        rt: &Runtime,
        start: usize,
        log_stride: u32,
        size: usize,
        psync: SymAddr,
    ) -> Self {
        let stride = 1usize.checked_shl(log_stride).unwrap_or(usize::MAX);
        let last = size
            .checked_sub(1)
            .and_then(|n| n.checked_mul(stride)?.checked_add(start));
        assert!(
            last.is_some_and(|last| last < rt.n_pes),
            "the active set of {size} PEs from {start} on, 2^{log_stride} apart, is not among the \
             {} PEs of this job",
            rt.n_pes
        );
        let distance = rt.me.wrapping_sub(start);
        assert!(
            rt.me >= start && distance.is_multiple_of(stride) && distance / stride < size,
            "PE {} is not in the active set of {size} PEs from {start} on, 2^{log_stride} apart",
            rt.me
        );
        Self {
            start,
            stride,
            size,
            me: distance / stride,
            psync: psync.offset(),
        }
    }

    /// Number of members.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// What tells the collective that this PE begins from others of the job, where calls are recorded.
    #[cold]
    pub(crate) fn next_number(&self) -> u64 {
        // By start, stride and size: how many this PE has begun.
        static BEGUN: Mutex<BTreeMap<[usize; 3], u32>> = Mutex::new(BTreeMap::new());
        let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = begun
            .entry([self.start, self.stride, self.size])
            .or_default();
        *number += 1;
        let log_stride = self.stride.trailing_zeros();
        set_number(self.start as u32, log_stride, self.size as u32, *number)
    }

    /// What the set is, as others are told of it.
    fn told(&self) -> Team {
        Team {
            kind: TeamKind::Active,
            slot: 0,
            listed: false,
            first: self.start as u32,
            stride: self.stride as i32,
            size: self.size as u32,
        }
    }

    /// Which collective gives this word, as far as that tells it.
    fn call(&self, word: usize) -> Collective {
        match word {
            SYNC_DOWN => Collective::Sync,
            SYNC_UP..LENGTH_UP => Collective::Sync,
            START | TOTAL | LENGTH_UP..DATA_UP => Collective::Collect,
            DATA_DOWN => Collective::Broadcast,
            _ => Collective::Reduce,
        }
    }

    fn pe(&self, rank: usize) -> usize {
        self.start + rank * self.stride
    }

    fn children(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> + use<> {
        tree::children(self.me, self.size)
    }

    /// The parent, and which of its children this PE is.
    fn parent(&self) -> Option<(usize, usize)> {
        tree::parent(self.me).map(|parent| (parent, tree::child_index(self.me)))
    }
}

impl Runtime {
    /// Gives a member a number, after what was written to it before.
    fn give(&self, set: ActiveSet, rank: usize, word: usize, value: u64) {
        // ORDERING(active-set): data for a PE of this node comes before its number; pairs with
        // `taken`. A connection delivers in order.
        fence(Ordering::Release);
        let at = set.psync + 8 * word;
        // SAFETY: a word of the symmetric array.
        unsafe {
            self.put_raw(
                set.pe(rank),
                at,
                (&raw const value).cast(),
                8,
                Completion::OnReturn,
            )
        };
    }

    /// Takes a number that this PE is given.
    fn taken(&self, set: ActiveSet, word: usize) -> u64 {
        let at = set.psync + 8 * word;
        // ORDERING(active-set): the load acquires.
        let what = || Wait::Collective {
            call: set.call(word),
            team: set.told(),
            number: 0,
            at: Place::NOWHERE,
        };
        self.wait_for(what, || self.word(at) != 0);
        let value = self.word(at);
        self.set_word(at, 0);
        value
    }

    /// Writes part of an array of this PE to another member; completed by a quiet.
    fn pass(&self, set: ActiveSet, rank: usize, from: usize, to: usize, len: usize) {
        if len > 0 {
            // SAFETY: ranges of the program's symmetric arrays, which stay until the quiet.
            unsafe { self.put_raw(set.pe(rank), to, self.own(from), len, Completion::AtQuiet) };
        }
    }

    pub(crate) fn set_sync(&self, set: ActiveSet) {
        for (k, _) in set.children() {
            self.taken(set, SYNC_UP + k);
        }
        if let Some((parent, k)) = set.parent() {
            self.give(set, parent, SYNC_UP + k, 1);
            self.taken(set, SYNC_DOWN);
        }
        for (_, child) in set.children().rev() {
            self.give(set, child, SYNC_DOWN, 1);
        }
    }

    pub(crate) fn set_barrier(&self, set: ActiveSet) {
        self.quiet();
        self.set_sync(set);
    }

    /// Down a tree whose root is the broadcast's.
    pub(crate) fn set_broadcast(
        &self,
        set: ActiveSet,
        dest: SymAddr,
        source: SymAddr,
        bytes: usize,
        root: usize,
        write_root: bool,
    ) {
        let (dest, source) = (dest.offset(), source.offset());
        let turned = (set.me + set.size - root) % set.size;
        let from = if turned == 0 {
            source
        } else {
            self.taken(set, DATA_DOWN);
            dest
        };
        for (_, child) in tree::children(turned, set.size).rev() {
            let rank = (child + root) % set.size;
            self.pass(set, rank, from, dest, bytes);
            self.give(set, rank, DATA_DOWN, 1);
        }
        if turned == 0 && write_root {
            // SAFETY: two arrays of this PE.
            unsafe { access::copy(self.own(source), self.own(dest), bytes) };
        }
        self.quiet_raw();
    }

    pub(crate) fn set_fcollect(
        &self,
        set: ActiveSet,
        dest: SymAddr,
        source: SymAddr,
        bytes: usize,
    ) {
        if bytes > 0 {
            let subtree = tree::subtree(set.me, set.size);
            let range = subtree.start * bytes..subtree.end * bytes;
            self.set_concatenate(set, dest, source, bytes, range, set.size * bytes);
        }
    }

    /// First the sums of lengths go up, and down comes where each subtree's blocks begin.
    pub(crate) fn set_collect(&self, set: ActiveSet, dest: SymAddr, source: SymAddr, bytes: usize) {
        let mut below = [0; tree::MAX_CHILDREN];
        for (k, _) in set.children() {
            below[k] = self.taken(set, LENGTH_UP + k) as usize - 1;
        }
        let all = bytes + below.iter().sum::<usize>();
        let (start, total) = match set.parent() {
            None => (0, all),
            Some((parent, k)) => {
                self.give(set, parent, LENGTH_UP + k, all as u64 + 1);
                let [start, total] = [START, TOTAL].map(|word| self.taken(set, word) as usize - 1);
                (start, total)
            }
        };
        let mut next = start + bytes;
        for (k, child) in set.children() {
            self.give(set, child, START, next as u64 + 1);
            self.give(set, child, TOTAL, total as u64 + 1);
            next += below[k];
        }
        check_dest(dest, total);
        if total > 0 {
            self.set_concatenate(set, dest, source, bytes, start..start + all, total);
        }
    }

    /// Blocks go up the tree to their final places, and the whole comes down. `subtree` is where the
    /// blocks of this PE and those below it belong; its own is the first.
    fn set_concatenate(
        &self,
        set: ActiveSet,
        dest: SymAddr,
        source: SymAddr,
        bytes: usize,
        subtree: Range<usize>,
        total: usize,
    ) {
        let dest = dest.offset();
        let at = dest + subtree.start;
        // SAFETY: the block lies inside the array.
        unsafe { access::copy(self.own(source.offset()), self.own(at), bytes) };
        for (k, _) in set.children() {
            self.taken(set, DATA_UP + k);
        }
        if let Some((parent, k)) = set.parent() {
            self.pass(set, parent, at, at, subtree.len());
            self.give(set, parent, DATA_UP + k, 1);
            self.taken(set, DATA_DOWN);
        }
        for (_, child) in set.children().rev() {
            self.pass(set, child, dest, dest, total);
            self.give(set, child, DATA_DOWN, 1);
        }
        self.quiet_raw();
    }

    /// Each member makes in its own destination array what it and those below it have together, where
    /// its parent gets it; the result comes down.
    ///
    /// # Safety
    /// As for `team_reduce`.
    pub(crate) unsafe fn set_reduce(
        &self,
        set: ActiveSet,
        dest: SymAddr,
        source: SymAddr,
        n: usize,
        elem: usize,
        combine: Combine,
    ) {
        let (dest, bytes) = (dest.offset(), n * elem);
        if bytes == 0 {
            return;
        }
        let of = Elements {
            size: elem,
            combine,
        };
        // SAFETY: two arrays of this PE, the same or apart.
        unsafe { access::copy(self.own(source.offset()), self.own(dest), bytes) };
        let per_round = of.in_room(FETCHED).min(n);
        let mut fetched = Block::new(per_round * elem);
        let partial = fetched.as_mut_ptr();
        for (k, child) in set.children() {
            self.taken(set, DATA_UP + k);
            for start in (0..n).step_by(per_round) {
                let count = per_round.min(n - start);
                let at = dest + start * elem;
                // SAFETY: the block has room for the elements, which the child leaves alone until
                // it gets the result.
                unsafe {
                    self.get_raw(
                        set.pe(child),
                        at,
                        partial,
                        count * elem,
                        Completion::OnReturn,
                    );
                    of.add_shared(self.own(at), partial, count);
                }
            }
        }
        if let Some((parent, k)) = set.parent() {
            self.give(set, parent, DATA_UP + k, 1);
            self.taken(set, DATA_DOWN);
        }
        for (_, child) in set.children().rev() {
            self.pass(set, child, dest, dest, bytes);
            self.give(set, child, DATA_DOWN, 1);
        }
        self.quiet_raw();
    }

    pub(crate) fn set_alltoall(
        &self,
        set: ActiveSet,
        dest: SymAddr,
        source: SymAddr,
        blocks: Blocks,
    ) {
        let who = (set.me, set.size);
        self.send_blocks(who, |rank| set.pe(rank), dest, source, blocks);
        self.set_barrier(set);
    }
}

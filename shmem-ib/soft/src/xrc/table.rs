//! The table of a domain: layout, and the protocols on it.
//!
//! ```text
//!  word
//!  0            magic number and version
//!  8            members: 8 words each (a cache line)
//!                 0  taken: 0 or 1
//!                 1  turns: odd while the member accesses memory of others
//!                 2  how many of its regions were ever in use
//!  ...          receive queues: 1 word each
//!                 generation 32 | owner's index + 1, or 0 for free, 32
//!  ...          regions: 32 per member, 8 words each
//!                 0  sequence: odd while the owner writes the others
//!                 1  rkey 32 | rights 32, 0: none
//!                 2  first byte, as the owner numbers it
//!                 3  bytes
//!                 4  first byte, as an offset in the window
//! ```
//! All zeros is a valid empty table, so that a new file needs no initialisation but the magic number,
//! which any of several first members may write.
//!
//! *Reading a region* is a sequence lock: the sequence word is read before and after, and what was read
//! counts only if it was even and the same both times.
//!
//! *Ending a region* has to wait for members which have just found it and are about to use it. A
//! member therefore makes its turns odd, looks, uses, and makes them even; the owner clears the region
//! and then waits until every member whose turns it saw odd has moved on. Between the two steps both
//! sides have a sequentially consistent fence (`ORDERING(turns)`): either the member sees the region
//! cleared, or the owner sees the member's turns odd. Nobody waits for anybody while it accesses, so
//! the wait is as long as one packet takes.
//!
//! The number of a receive queue has 12 bits of generation above 12 bits of index, so that a number
//! which was taken back is not soon the number of something else.

#![forbid(unsafe_code)]

use super::domain::Reach;
use super::sizes::{INDEX_BITS, MEMBERS, REGIONS, SRQS};
use crate::sync::{AtomicU64, Ordering, fence};
use shmem_verbs::{Access, Rkey, SrqNum};

/// Words of a table.
pub(crate) const WORDS: usize = REGION_AT + MEMBERS * REGIONS * LINE;

const MAGIC: u64 = 0x7872_6364_0000_0001; // "xrcd", version 1
const LINE: usize = 8;
const MEMBER_AT: usize = LINE;
const SRQ_AT: usize = MEMBER_AT + MEMBERS * LINE;
const REGION_AT: usize = SRQ_AT + SRQS;
const GENERATIONS: u64 = 1 << (24 - INDEX_BITS);

/// Where a table lies.
pub trait Words: Send + std::fmt::Debug {
    /// The words, [`WORDS`] of them.
    fn words(&self) -> &[AtomicU64];
}

/// A table that only engines of this process share.
#[derive(Clone, Debug)]
pub struct Anonymous(std::sync::Arc<[AtomicU64]>);

impl Default for Anonymous {
    /// An empty one.
    fn default() -> Self {
        Self((0..WORDS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Words for Anonymous {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// One region as it is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Region {
    pub(super) rkey: Rkey,
    pub(super) access: Access,
    pub(super) va: u64,
    pub(super) len: u64,
    pub(super) offset: u64,
}

/// The protocols, on the words of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a>(&'a [AtomicU64]);

impl<'a> Table<'a> {
    /// The table on these words; `None` if they hold something else.
    pub(super) fn on(words: &'a [AtomicU64]) -> Option<Self> {
        let magic = words.first().filter(|_| words.len() >= WORDS)?;
        // Relaxed: nothing else has to be there before it, all zeros is an empty table.
        let found = magic
            .compare_exchange(0, MAGIC, Ordering::Relaxed, Ordering::Relaxed)
            .unwrap_or_else(|found| found);
        (found == 0 || found == MAGIC).then_some(Self(words))
    }

    /// The table on words that [`Table::on`] has accepted.
    pub(super) const fn known(words: &'a [AtomicU64]) -> Self {
        Self(words)
    }

    fn taken(&self, member: usize) -> &AtomicU64 {
        &self.0[MEMBER_AT + member * LINE]
    }

    fn turns(&self, member: usize) -> &AtomicU64 {
        &self.0[MEMBER_AT + member * LINE + 1]
    }

    fn used(&self, member: usize) -> &AtomicU64 {
        &self.0[MEMBER_AT + member * LINE + 2]
    }

    fn srq(&self, index: usize) -> &AtomicU64 {
        &self.0[SRQ_AT + index]
    }

    fn region(&self, member: usize, slot: usize) -> &[AtomicU64] {
        &self.0[REGION_AT + (member * REGIONS + slot) * LINE..][..LINE]
    }

    /// Becomes a member; `None` if the domain is full.
    pub(super) fn join(&self) -> Option<usize> {
        // AcqRel, with the Release in `leave`: what the previous holder of the place did to its
        // lists is done.
        (0..MEMBERS).find(|&member| {
            let free = self.taken(member);
            free.load(Ordering::Relaxed) == 0
                && free
                    .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Stops being a member. It has listed nothing any more.
    pub(super) fn leave(&self, me: usize) {
        self.taken(me).store(0, Ordering::Release);
    }

    /// A number for a receive queue of `me`.
    pub(super) fn add_srq(&self, me: usize) -> Option<SrqNum> {
        // Members begin to search at different places.
        let start = me * (SRQS / MEMBERS);
        (0..SRQS).find_map(|i| {
            let index = (start + i) % SRQS;
            let word = self.srq(index);
            let free = word.load(Ordering::Relaxed);
            if free as u32 != 0 {
                return None;
            }
            let generation = (free >> 32) % (GENERATIONS - 1) + 1;
            let taken = generation << 32 | (me as u64 + 1);
            // Relaxed: the number reaches others by messages, which order it.
            word.compare_exchange(free, taken, Ordering::Relaxed, Ordering::Relaxed)
                .ok()?;
            Some(SrqNum((generation as u32) << INDEX_BITS | index as u32))
        })
    }

    /// Takes a number back.
    pub(super) fn remove_srq(&self, me: usize, srqn: SrqNum) {
        if self.owner(srqn) == Some(me) {
            let generation = u64::from(srqn.0 >> INDEX_BITS);
            self.srq(index_of(srqn))
                .store(generation << 32, Ordering::Relaxed);
        }
    }

    /// Whose receive queue this is.
    pub(super) fn owner(&self, srqn: SrqNum) -> Option<usize> {
        let word = self.srq(index_of(srqn)).load(Ordering::Relaxed);
        let (generation, owner) = (word >> 32, word as u32 as usize);
        (generation == u64::from(srqn.0 >> INDEX_BITS) && (1..=MEMBERS).contains(&owner))
            .then(|| owner - 1)
    }

    /// Lists a region of `me`; only `me` calls it, and not twice at once. `false`: no room.
    pub(super) fn publish(&self, me: usize, region: &Region) -> bool {
        let Some(slot) = (0..REGIONS).find(|&slot| self.key(me, slot) == 0) else {
            return false;
        };
        self.write(me, slot, region);
        let used = self.used(me);
        used.store(
            used.load(Ordering::Relaxed).max(slot as u64 + 1),
            Ordering::Release, // with the Acquire in `resolve`
        );
        true
    }

    /// Clears a region of `me`. It is out of use once [`Table::has_moved_on`] is true for all that
    /// [`Table::accessing`] gives afterwards. `false`: it was not listed.
    pub(super) fn withdraw(&self, me: usize, rkey: Rkey) -> bool {
        let listed = |slot: &usize| self.key(me, *slot) as u32 == rkey.0;
        let Some(slot) = (0..REGIONS).find(listed) else {
            return false;
        };
        let nothing = Region {
            rkey: Rkey(0),
            access: Access::NONE,
            va: 0,
            len: 0,
            offset: 0,
        };
        self.write(me, slot, &nothing);
        fence(Ordering::SeqCst); // ORDERING(turns): after clearing, before looking at turns
        true
    }

    /// Members in the middle of an access, with their turns.
    pub(super) fn accessing(&self) -> impl Iterator<Item = (usize, u64)> {
        (0..MEMBERS).filter_map(|member| {
            // Acquire, with the Release in `exit`: an access that is over is over for us.
            let turns = self.turns(member).load(Ordering::Acquire);
            (turns & 1 == 1).then_some((member, turns))
        })
    }

    /// Whether a member has ended the access that it had begun with these turns.
    pub(super) fn has_moved_on(&self, member: usize, turns: u64) -> bool {
        self.turns(member).load(Ordering::Acquire) != turns
    }

    /// `me` begins to access memory of others.
    pub(super) fn enter(&self, me: usize) {
        let turns = self.turns(me);
        turns.store(turns.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        fence(Ordering::SeqCst); // ORDERING(turns): after announcing, before looking for regions
    }

    /// `me` has ended its accesses.
    pub(super) fn exit(&self, me: usize) {
        let turns = self.turns(me);
        // Release: the accesses are before it.
        turns.store(
            (turns.load(Ordering::Relaxed) | 1).wrapping_add(1),
            Ordering::Release,
        );
    }

    /// Where in the window what a packet wants to touch lies.
    pub(super) fn resolve(&self, srqn: SrqNum, reach: &Reach) -> Option<u64> {
        let owner = self.owner(srqn)?;
        let used = (self.used(owner).load(Ordering::Acquire) as usize).min(REGIONS);
        (0..used).find_map(|slot| {
            if self.key(owner, slot) as u32 != reach.rkey.0 {
                return None;
            }
            let region = self.read(owner, slot)?;
            let at = reach.va.checked_sub(region.va)?;
            let covered = region.rkey == reach.rkey
                && region.access.contains(reach.need)
                && at <= region.len
                && reach.len <= region.len - at;
            covered.then(|| region.offset.checked_add(at)).flatten()
        })
    }

    fn key(&self, member: usize, slot: usize) -> u64 {
        self.region(member, slot)[1].load(Ordering::Relaxed)
    }

    fn write(&self, me: usize, slot: usize, region: &Region) {
        let [sequence, key, va, len, offset, ..] = self.region(me, slot) else {
            return;
        };
        let before = sequence.load(Ordering::Relaxed);
        sequence.store(before | 1, Ordering::Relaxed);
        // ORDERING(region): whoever reads a new field also reads the odd sequence.
        fence(Ordering::Release);
        let rights = u64::from(region.access.bits()) << 32;
        key.store(rights | u64::from(region.rkey.0), Ordering::Relaxed);
        va.store(region.va, Ordering::Relaxed);
        len.store(region.len, Ordering::Relaxed);
        offset.store(region.offset, Ordering::Relaxed);
        // ORDERING(region): whoever reads this even sequence reads all of the fields.
        sequence.store((before | 1).wrapping_add(1), Ordering::Release);
    }

    /// `None` while the owner writes: as if it were written a moment later, or cleared earlier.
    fn read(&self, member: usize, slot: usize) -> Option<Region> {
        let [sequence, key, va, len, offset, ..] = self.region(member, slot) else {
            return None;
        };
        let before = sequence.load(Ordering::Acquire); // ORDERING(region)
        let key = key.load(Ordering::Relaxed);
        let region = Region {
            rkey: Rkey(key as u32),
            access: Access::from_bits_truncate((key >> 32) as u8),
            va: va.load(Ordering::Relaxed),
            len: len.load(Ordering::Relaxed),
            offset: offset.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire); // ORDERING(region): before looking at the sequence again
        let same = before & 1 == 0 && sequence.load(Ordering::Relaxed) == before;
        (same && region.rkey.0 != 0).then_some(region)
    }
}

const fn index_of(srqn: SrqNum) -> usize {
    srqn.0 as usize % SRQS
}

#[cfg(all(test, not(loom)))]
#[path = "tests/table.rs"]
mod tests;

//! The hash tables of the key-value store: the atomics by which its writer shows records to readers.
//!
//! Apart from the records, which [`super::log`] has, so that the models in `tests/loom` compile this
//! against loom's atomics.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Place of a record: where in the log, in units of 8 bytes.
pub(crate) type Place = u32;

/// A slot that was never used. Ends every search.
const FREE: u64 = 0;

/// Place in a slot whose key was removed. Ends no search.
const GONE: Place = Place::MAX;

fn entry(hash: u64, place: Place) -> u64 {
    hash & !0xffff_ffff | u64::from(place)
}

/// The slots that a key may be in, in the order of the search. `slots` is a power of two.
fn probe(slots: usize, hash: u64) -> impl Iterator<Item = usize> {
    (0..slots).map(move |step| (hash as usize).wrapping_add(step) & (slots - 1))
}

/// For readers and the writer: slot and place of the record with this hash for which `is` holds. Looks at
/// each slot at most once.
#[inline]
pub(crate) fn find(
    slots: &[AtomicU64],
    hash: u64,
    mut is: impl FnMut(Place) -> bool,
) -> Option<(usize, Place)> {
    for at in probe(slots.len(), hash) {
        // ORDERING(kvs-slot): pairs with `show`.
        let found = slots[at].load(Ordering::Acquire);
        if found == FREE {
            return None;
        }
        let place = found as Place;
        if found == entry(hash, place) && place != GONE && is(place) {
            return Some((at, place));
        }
    }
    None
}

/// For the writer: the slot for a key that [`find`] has not found, and whether it was never used.
pub(crate) fn vacancy(slots: &[AtomicU64], hash: u64) -> Option<(usize, bool)> {
    probe(slots.len(), hash).find_map(|at| {
        let found = slots[at].load(Ordering::Relaxed);
        (found == FREE || found as Place == GONE).then_some((at, found == FREE))
    })
}

/// For the writer: lets a slot lead to a record, which is complete and, from here on, unchanged.
pub(crate) fn show(slot: &AtomicU64, hash: u64, place: Place) {
    // ORDERING(kvs-slot): makes the record visible to whoever reads the slot.
    slot.store(entry(hash, place), Ordering::Release);
}

/// For the writer: takes a key away. Readers that have found it go on reading its record.
pub(crate) fn hide(slot: &AtomicU64, hash: u64) {
    // Nothing needs to be seen before the slot is.
    slot.store(entry(hash, GONE), Ordering::Relaxed);
}

/// For the writer: fills the empty `new` with what `old` leads to; `hash` tells the hash of a record.
/// Gives the number of slots used.
pub(crate) fn copy(old: &[AtomicU64], new: &[AtomicU64], hash: impl Fn(Place) -> u64) -> usize {
    let mut used = 0;
    for slot in old {
        let found = slot.load(Ordering::Relaxed);
        let place = found as Place;
        if found != FREE && place != GONE {
            let hash = hash(place);
            if let Some((at, _)) = vacancy(new, hash) {
                // Shown by the level, not by this.
                new[at].store(entry(hash, place), Ordering::Relaxed);
                used += 1;
            }
        }
    }
    used
}

/// For the writer: says that readers use another index, which is filled.
pub(crate) fn use_level(level: &AtomicU32, number: u32) {
    // ORDERING(kvs-level): makes the slots of that index, and the records they lead to, visible.
    level.store(number, Ordering::Release);
}

/// For readers: the index in use.
#[inline]
pub(crate) fn level(level: &AtomicU32) -> u32 {
    // ORDERING(kvs-level): pairs with `use_level`.
    level.load(Ordering::Acquire)
}

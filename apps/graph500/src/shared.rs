//! Symmetric memory of this node's PEs as atomics: what neighbours do for each other goes without messages.
//!
//! All accesses are relaxed. What a PE has to find of what another has written lies behind a collective that both have
//! called since, which orders it; and a bit that is claimed needs no order, as who claims it is all that counts.
//!
//! All the `unsafe` of this crate is here.

use shmem::SymSlice;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A number that has an atomic of its size.
pub trait Word: shmem::Datum + Unpin {
    /// That atomic.
    type Atomic: 'static;
}

impl Word for u8 {
    type Atomic = AtomicU8;
}

impl Word for u32 {
    type Atomic = AtomicU32;
}

impl Word for u64 {
    type Atomic = AtomicU64;
}

/// The elements of `array` on `pe`, if that is this PE or one of its node.
///
/// Who uses them after the array was freed finds whatever is there then.
#[must_use]
#[allow(unsafe_code)]
pub fn atomics<T: Word>(array: SymSlice<T>, pe: usize) -> Option<&'static [T::Atomic]> {
    let at = array.ptr(pe)?;
    // SAFETY: a segment stays mapped until the process ends, even after its heap was freed or the job has ended;
    // the array lies inside, aligned for `T`, whose atomic has the same size and takes any bytes. What other PEs and
    // the library do to the same bytes are atomics or copies in assembly, of which the compiler assumes as much as
    // of atomics of other threads.
    Some(unsafe { std::slice::from_raw_parts(at.cast::<T::Atomic>(), array.len()) })
}

/// This PE's own elements; see [`atomics`].
///
/// # Panics
/// Never: a PE reaches its own memory.
#[must_use]
pub fn own<T: Word>(array: SymSlice<T>) -> &'static [T::Atomic] {
    atomics(array, shmem::my_pe()).expect("a PE reaches its own memory")
}

/// Sets bits of a word that other PEs may change meanwhile; gives the word as it was before.
///
/// `alone` says that nobody else does: then it takes no locked instruction.
#[inline(always)]
pub fn set_bits(word: &AtomicU64, bits: u64, alone: bool) -> u64 {
    if alone {
        let before = word.load(Relaxed);
        word.store(before | bits, Relaxed);
        before
    } else {
        word.fetch_or(bits, Relaxed)
    }
}

/// Whether a bitmap has the bit of a vertex.
#[inline(always)]
#[must_use]
pub fn has(bitmap: &[AtomicU64], vertex: u32) -> bool {
    bitmap[vertex as usize / 64].load(Relaxed) >> (vertex % 64) & 1 == 1
}

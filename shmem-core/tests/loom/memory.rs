//! The segments of all PEs: words that are loom's atomics, at addresses where nothing else is.

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use shmem_ib::atomic::{AtomicOp, Width};
use shmem_testkit::models::{fence, ordering};

/// Where the first segment begins, which no process has memory at, and bytes of each.
const BASE: usize = 1 << 40;
const SPAN: usize = 1 << 20;

loom::lazy_static! {
    /// All that models use, by address. What nobody writes is zero, and does not exist.
    static ref WORDS: Mutex<HashMap<usize, Arc<AtomicU64>>> = Mutex::new(HashMap::new());
}

loom::lazy_static! {
    /// How often somebody has looked in vain since anything was stored.
    static ref LOOKS: AtomicUsize = AtomicUsize::new(0);
}
/// There is no end to the orders in which three threads can look in vain by turns: what comes after so many looks is tried
/// in one order, until somebody stores something.
const MOST_LOOKS: usize = 6;

/// A look at a word was in vain: others have to go on.
pub(crate) fn in_vain() {
    if LOOKS.fetch_add(1, Ordering::Relaxed) + 1 == MOST_LOOKS {
        loom::stop_exploring();
    }
    thread::yield_now();
}

fn stores() {
    if LOOKS.swap(0, Ordering::Relaxed) >= MOST_LOOKS {
        loom::explore();
    }
}

/// Makes the words at these offsets in the segments of `n` PEs, before there are threads.
pub(crate) fn make(n: usize, offsets: &[usize]) {
    let all = (0..n).flat_map(|pe| offsets.iter().map(move |&at| address(pe, at).addr()));
    let mut words = WORDS.lock().expect("nobody panics in here");
    words.extend(all.map(|at| (at, Arc::default())));
}

/// The address of a byte of a PE's segment.
pub(crate) fn address(pe: usize, offset: usize) -> *mut u8 {
    ptr::without_provenance_mut(BASE + pe * SPAN + offset)
}

fn is_symmetric(at: *const u8) -> bool {
    (BASE..BASE + 64 * SPAN).contains(&at.addr())
}

fn find(at: *const u8) -> Option<Arc<AtomicU64>> {
    assert!(at.addr().is_multiple_of(8), "models know whole words");
    let words = WORDS.lock().expect("nobody panics in here");
    words.get(&at.addr()).cloned()
}

fn word(at: *const u8) -> Arc<AtomicU64> {
    find(at).unwrap_or_else(|| panic!("no word at {:#x} of a segment", at.addr() % SPAN))
}

/// A word, wherever it is, as a copy reads it.
///
/// # Safety
/// A private one is readable.
unsafe fn read(at: *const u8) -> u64 {
    match is_symmetric(at) {
        true => find(at).map_or(0, |word| word.load(Ordering::Relaxed)),
        // SAFETY: by the caller.
        false => unsafe { at.cast::<u64>().read_unaligned() },
    }
}

/// Copies words, each in one access, in no order.
///
/// # Safety
/// As for the library's; private memory that is named is mapped.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    assert!(len.is_multiple_of(8), "models know whole words");
    for at in (0..len).step_by(8) {
        // SAFETY: by the caller.
        unsafe {
            let value = read(from.wrapping_add(at));
            let to = to.wrapping_add(at);
            match is_symmetric(to) {
                true => {
                    stores();
                    word(to).store(value, Ordering::Relaxed);
                }
                false => to.cast::<u64>().write_unaligned(value),
            }
        }
    }
}

/// The library's load of a word that others write.
///
/// # Safety
/// None; it is unsafe in the library.
pub(crate) unsafe fn load(at: *const u8) -> u64 {
    word(at).load(ordering(Ordering::Acquire))
}

/// What an HCA writes for another node: as the software HCA does.
///
/// # Safety
/// As for [`copy`].
pub(crate) unsafe fn hca_write(from: *const u8, to: *mut u8, len: usize) {
    fence(Ordering::Release);
    // SAFETY: by the caller.
    unsafe { copy(from, to, len) };
}

/// An atomic, as an HCA executes it; processors order more.
pub(crate) fn atomic(at: *mut u8, op: AtomicOp) -> u64 {
    stores();
    let (word, order) = (word(at), ordering(Ordering::AcqRel));
    match op {
        AtomicOp::Fetch => word.load(ordering(Ordering::Acquire)),
        AtomicOp::CompareSwap { compare, new } => {
            let failed = match order {
                Ordering::AcqRel => Ordering::Acquire,
                _ => Ordering::Relaxed,
            };
            word.compare_exchange(compare, new, order, failed)
                .unwrap_or_else(|old| old)
        }
        AtomicOp::Swap(new) => word.swap(new, order),
        AtomicOp::Add(more) => word.fetch_add(more, order),
        AtomicOp::And(bits) => word.fetch_and(bits, order),
        AtomicOp::Or(bits) => word.fetch_or(bits, order),
        AtomicOp::Xor(bits) => word.fetch_xor(bits, order),
    }
}

/// The processor's, of which nobody needs the old value.
pub(crate) fn post(at: *mut u8, op: AtomicOp) {
    match op {
        AtomicOp::Swap(value) => {
            stores();
            word(at).store(value, ordering(Ordering::Release));
        }
        _ => {
            atomic(at, op);
        }
    }
}

//! Raw process memory as the engine sees it: copies and atomics at virtual addresses.
//!
//! # Why words are atomics
//! Peers write flags and counters that local threads poll. A copy routine may store such a
//! word byte by byte; therefore transfers of whole aligned words, up to 64 bytes, are done
//! with one atomic access per word, and nobody sees half of one. Longer transfers are copied as all memory is that others
//! write ([`shmem_verbs::memory`]); their order within one packet is undefined, as it is on hardware.
//!
//! Every write begins with a release fence: who sees any word of it (and then fences or
//! loads with acquire) also sees all writes that were executed before it. Since packets are
//! executed in order, a flag that was written after data is visible after the data.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use super::mr::Memory;
use shmem_verbs::memory::copy;

/// Longest transfer that is done word by word.
const WORDWISE_MAX: usize = 64;

/// The memory of this process.
#[derive(Debug)]
pub struct RawMemory(());

impl RawMemory {
    /// # Safety
    /// The methods of [`Memory`] may be called only with ranges that are mapped, and writable
    /// for the methods that write. The engine calls them only for ranges inside of a live
    /// registration with the right needed, or inside of the window that processes of an XRC domain
    /// share; and what it lends or names as a place ([`Engine::place`](crate::Engine::place)) lies in such ranges,
    /// too. So it is enough that registered memory keeps the promise of `Hca::reg_mr`, and the
    /// window that of `SharedWindow`.
    pub unsafe fn new() -> Self {
        Self(())
    }
}

macro_rules! words {
    ($atomic:ident, $int:ident, $addr:expr, $data:ident, $len:literal) => {
        for (i, word) in $data.chunks_exact($len).enumerate() {
            let mut bytes = [0; $len];
            bytes.copy_from_slice(word);
            let at = pointer($addr).cast::<$int>().wrapping_add(i);
            // SAFETY: mapped and writable (`RawMemory::new`), and aligned: the caller checked.
            let cell = unsafe { $atomic::from_ptr(at) };
            cell.store($int::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    };
}

macro_rules! read_words {
    ($atomic:ident, $int:ident, $addr:expr, $out:ident, $len:literal) => {
        for (i, word) in $out.chunks_exact_mut($len).enumerate() {
            let at = pointer($addr).cast::<$int>().wrapping_add(i);
            // SAFETY: mapped (`RawMemory::new`), and aligned: the caller checked. Only loads:
            // read-only mappings are fine for the sizes used here.
            let cell = unsafe { $atomic::from_ptr(at) };
            word.copy_from_slice(&cell.load(Ordering::Relaxed).to_ne_bytes());
        }
    };
}

fn pointer(addr: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(addr as usize)
}

/// The largest word that both address and length are multiples of.
const fn granule(addr: u64, len: usize) -> u64 {
    let bits = addr | len as u64;
    if len > WORDWISE_MAX {
        0
    } else {
        bits & bits.wrapping_neg()
    }
}

impl Memory for RawMemory {
    fn read(&mut self, addr: u64, out: &mut [u8]) {
        match granule(addr, out.len()) {
            0 => {
                // SAFETY: mapped (`RawMemory::new`). Threads may write the source meanwhile: the bytes are
                // then any mixture, as with every RDMA device.
                unsafe { copy(pointer(addr), out.as_mut_ptr(), out.len()) };
            }
            1 => read_words!(AtomicU8, u8, addr, out, 1),
            2 => read_words!(AtomicU16, u16, addr, out, 2),
            4 => read_words!(AtomicU32, u32, addr, out, 4),
            _ => read_words!(AtomicU64, u64, addr, out, 8),
        }
        // What was read was there before anything that is announced from now on.
        fence(Ordering::Acquire);
    }

    fn write(&mut self, addr: u64, data: &[u8]) {
        fence(Ordering::Release);
        match granule(addr, data.len()) {
            0 => {
                // SAFETY: mapped and writable (`RawMemory::new`).
                unsafe { copy(data.as_ptr(), pointer(addr), data.len()) };
            }
            1 => words!(AtomicU8, u8, addr, data, 1),
            2 => words!(AtomicU16, u16, addr, data, 2),
            4 => words!(AtomicU32, u32, addr, data, 4),
            _ => words!(AtomicU64, u64, addr, data, 8),
        }
    }

    fn fetch_add(&mut self, addr: u64, add: u64) -> u64 {
        // SAFETY: mapped, writable (`RawMemory::new`); the responder checked the alignment.
        let word = unsafe { AtomicU64::from_ptr(pointer(addr).cast()) };
        word.fetch_add(add, Ordering::AcqRel)
    }

    fn compare_swap(&mut self, addr: u64, compare: u64, swap: u64) -> u64 {
        // SAFETY: as in `fetch_add`.
        let word = unsafe { AtomicU64::from_ptr(pointer(addr).cast()) };
        word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire)
            .unwrap_or_else(|old| old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alignment_and_length_copies_exactly() {
        // SAFETY: only `buf` below is accessed, and it is alive.
        let mut memory = unsafe { RawMemory::new() };
        let data: Vec<u8> = (0..4096).map(|i| (i * 7 / 3) as u8 ^ 0x5a).collect();
        let lengths = (0..=150).chain([511, 512, 513, 1023, 1025, 2048, 4096]);
        for offset in 0..16 {
            for len in lengths.clone() {
                let mut buf = vec![0_u64; 520];
                let base = buf.as_mut_ptr().expose_provenance() as u64;
                memory.write(base + offset, &data[..len]);
                let mut back = vec![0; len];
                memory.read(base + offset, &mut back);
                assert_eq!(back, data[..len]);
                let mut all = vec![0; 4160];
                memory.read(base, &mut all);
                let written = offset as usize..offset as usize + len;
                assert!(
                    all.iter()
                        .enumerate()
                        .all(|(i, b)| written.contains(&i) || *b == 0)
                );
            }
        }
    }

    #[test]
    fn atomics_return_the_old_value() {
        // SAFETY: only `word` is accessed.
        let mut memory = unsafe { RawMemory::new() };
        let word = AtomicU64::new(5);
        let addr = word.as_ptr().expose_provenance() as u64;
        assert_eq!(memory.fetch_add(addr, u64::MAX), 5);
        assert_eq!(memory.compare_swap(addr, 3, 9), 4);
        assert_eq!(memory.compare_swap(addr, 4, 9), 4);
        assert_eq!(word.load(Ordering::Relaxed), 9);
    }
}

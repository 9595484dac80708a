//! Symmetric addresses: from this process's pointers to offsets that mean the same on every PE, and
//! back.
//!
//! The heap and the program's static data both lie in the segment, so one number, the offset
//! there, stands for an object on all PEs, and no table of addresses is needed.

use crate::runtime::{Runtime, rt, try_rt};

/// A symmetric address: an offset that leads to the corresponding object in every PE's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sym(usize);

impl Sym {
    /// The address `offset` bytes into the segment.
    #[inline]
    pub const fn new(offset: usize) -> Self {
        Self(offset)
    }

    /// Bytes from the start of the segment.
    #[inline]
    pub const fn offset(self) -> usize {
        self.0
    }

    /// The address `bytes` further on.
    #[inline]
    #[must_use]
    pub fn at(self, bytes: usize) -> Self {
        Self(self.0 + bytes)
    }
}

/// Where this PE's symmetric memory lies in its address space: what [`symmetric`] compares with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranges {
    /// First byte of the heap.
    pub(crate) heap: usize,
    /// Bytes of the heap.
    pub(crate) heap_len: usize,
    /// Offset of the heap in the segment.
    pub(crate) heap_at: usize,
}

impl Ranges {
    /// The symmetric address of `len` bytes at `at`.
    #[inline]
    fn find(&self, at: usize, len: usize) -> Option<Sym> {
        let inside = at.wrapping_sub(self.heap);
        // An empty range may lie at the end.
        if inside <= self.heap_len && len <= self.heap_len - inside {
            return Some(Sym(self.heap_at + inside));
        }
        None
    }
}

/// The symmetric address of this PE's `len` bytes at `at`; `None` if they do not all lie in one
/// symmetric object's range: on the stack, in private memory, in a shared library, or in static
/// data that is not symmetric.
///
/// # Panics
/// Before init.
#[inline]
#[track_caller]
pub fn symmetric(at: *const u8, len: usize) -> Option<Sym> {
    rt().ranges.find(at as usize, len)
}

/// This PE's copy of what lies at `sym`.
///
/// # Panics
/// Before init, or if `sym` lies outside the segment.
#[inline]
#[track_caller]
pub fn local(sym: Sym) -> *mut u8 {
    rt().address(sym)
}

/// Where this PE can load and store `world_pe`'s copy of what lies at `sym`; `None` if that PE is on
/// another node or does not exist.
///
/// # Panics
/// Before init, or if `sym` lies outside the segment.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_ptr`.
#[inline]
#[track_caller]
pub fn ptr(sym: Sym, world_pe: usize) -> Option<*mut u8> {
    rt().reach(sym, world_pe)
}

/// Whether `pe` is a PE of the job that can be reached: any number may be asked for.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_pe_accessible`.
pub fn pe_accessible(pe: usize) -> bool {
    try_rt().is_some_and(|rt| pe < rt.n_pes)
}

/// Whether this PE can access `pe`'s copy of what lies at `at` here with the library's routines.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_addr_accessible`.
pub fn addr_accessible(at: *const u8, pe: usize) -> bool {
    pe_accessible(pe) && symmetric(at, 1).is_some()
}

impl Runtime {
    /// This PE's address of `sym`.
    #[inline]
    #[track_caller]
    fn address(&self, sym: Sym) -> *mut u8 {
        let len = self.node.segment_len();
        assert!(
            sym.0 <= len,
            "symmetric offset {:#x} lies outside the segment of {len:#x} bytes",
            sym.0
        );
        self.own(sym.0)
    }

    /// Address of `sym` on a PE of this node.
    #[inline]
    #[track_caller]
    fn reach(&self, sym: Sym, pe: usize) -> Option<*mut u8> {
        if pe == self.me {
            return Some(self.address(sym));
        }
        let len = self.node.segment_len();
        if self.node_of.get(pe) != Some(&self.my_node) || sym.0 > len {
            return None;
        }
        Some(self.neighbour(self.local_of[pe] as usize, sym.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGES: Ranges = Ranges {
        heap: 0x10_0000,
        heap_len: 0x1000,
        heap_at: 0x40_0000,
    };

    #[test]
    fn whole_ranges_are_symmetric_and_no_byte_more() {
        let find = |at, len| RANGES.find(at, len).map(Sym::offset);
        assert_eq!(find(0x10_0000, 0x1000), Some(0x40_0000));
        assert_eq!(find(0x10_0ff8, 8), Some(0x40_0ff8));
        assert_eq!(find(0x10_1000, 0), Some(0x40_1000));
        for (at, len) in [
            (0x10_0ff9, 8),
            (0x0f_ffff, 1),
            (0x0f_ffff, 0),
            (0x10_0000, 0x1001),
            (0x10_0000, usize::MAX),
            (0x10_1001, 0),
            (0, 1),
            (usize::MAX, 1),
        ] {
            assert_eq!(find(at, len), None, "{len} bytes at {at:#x}");
        }
    }
}

//! Symmetric addresses: from this process's pointers to offsets that mean the same on every PE, and
//! back.
//!
//! The heap and the program's static data both lie in the segment, so one number, the offset
//! there, stands for an object on all PEs, and no table of addresses is needed.

use std::sync::atomic::Ordering;

use crate::runtime::{Runtime, rt, try_rt};
use crate::statics::Statics;

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
    /// The program's static data.
    pub(crate) statics: Statics,
}

impl Ranges {
    /// The symmetric address of `len` bytes at `at`.
    #[inline]
    pub(crate) fn find(&self, at: usize, len: usize) -> Option<Sym> {
        let inside = at.wrapping_sub(self.heap);
        // An empty range may lie at the end.
        if inside <= self.heap_len && len <= self.heap_len - inside {
            return Some(Sym(self.heap_at + inside));
        }
        self.find_static(at, len)
    }

    fn find_static(&self, at: usize, len: usize) -> Option<Sym> {
        let Statics::Shared(stretches) = self.statics else {
            return None;
        };
        stretches.iter().find_map(|s| {
            let inside = at.wrapping_sub(s.start);
            (inside < s.len && len <= s.len - inside).then(|| Sym(s.at + inside))
        })
    }

    /// The program's own address of what lies at `sym`, if that is static data.
    #[inline]
    fn of_static(&self, sym: Sym) -> Option<usize> {
        if sym.0 >= self.heap_at {
            return None;
        }
        let Statics::Shared(stretches) = self.statics else {
            return None;
        };
        stretches.iter().find_map(|s| {
            let inside = sym.0.wrapping_sub(s.at);
            (inside <= s.len).then(|| s.start + inside)
        })
    }
}

/// The symmetric address of this PE's `len` bytes at `at`; `None` if they do not all lie in one
/// symmetric object's range: on the stack, in private memory, in a shared library, or in static
/// data that is not symmetric. Before init nothing is symmetric.
#[inline]
pub fn symmetric(at: *const u8, len: usize) -> Option<Sym> {
    try_rt()?.ranges.find(at as usize, len)
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
    let Some(rt) = try_rt().filter(|rt| pe < rt.n_pes) else {
        return false;
    };
    match rt.ranges.find(at as usize, 1) {
        Some(sym) if sym.0 < rt.ranges.heap_at && rt.node_of[pe] == rt.my_node => {
            rt.shares_statics(rt.local_of[pe] as usize)
        }
        found => found.is_some(),
    }
}

/// Why [`symmetric`] finds no symmetric address for these bytes: for messages. Says what can be done.
///
/// # Panics
/// Before init.
pub fn why_not_symmetric(at: *const u8, len: usize) -> String {
    rt().why_not(at as usize, len)
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
        match self.ranges.of_static(sym) {
            Some(at) => at as *mut u8,
            None => self.own(sym.0),
        }
    }

    /// Whether a PE of this node has symmetric static data, as this PE has it.
    fn shares_statics(&self, local: usize) -> bool {
        let layout = |local| {
            let block = self.node.pe_block(local);
            // Written before the barrier of init.
            block.statics.load(Ordering::Relaxed)
        };
        layout(local) == layout(self.local)
    }

    /// Why the `len` bytes at `at` are not symmetric.
    fn why_not(&self, at: usize, len: usize) -> String {
        let heap = &self.ranges;
        if let Some(first) = heap.find(at, 1)
            && len > 1
        {
            let part = if first.0 < heap.heap_at {
                "static data"
            } else {
                "heap"
            };
            return format!(
                "{len} bytes at {at:#x} begin in the symmetric {part} and reach past its end"
            );
        }
        let private = match heap.statics {
            Statics::Shared(_) => String::new(),
            Statics::Private(why) => {
                format!(", nor is the program's static data symmetric, because {why}")
            }
        };
        format!(
            "address {at:#x} is not symmetric: it does not lie in the symmetric heap (from {:#x} to \
             {:#x}){private}. Symmetric are objects from the heap's routines, and global and static \
             variables of the main program; not those of shared libraries, nor constants, stacks and \
             private memory",
            heap.heap,
            heap.heap + heap.heap_len
        )
    }

    /// Address of `sym` on a PE of this node.
    #[inline]
    #[track_caller]
    pub(crate) fn reach(&self, sym: Sym, pe: usize) -> Option<*mut u8> {
        if pe == self.me {
            return Some(self.address(sym));
        }
        let len = self.node.segment_len();
        if self.node_of.get(pe) != Some(&self.my_node) || sym.0 > len {
            return None;
        }
        let local = self.local_of[pe] as usize;
        if sym.0 < self.ranges.heap_at && !self.shares_statics(local) {
            return None;
        }
        Some(self.neighbour(local, sym.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::statics::{Stretch, Why};

    const RANGES: Ranges = Ranges {
        heap: 0x10_0000,
        heap_len: 0x1000,
        heap_at: 0x40_0000,
        statics: Statics::Private(Why::NotAsked),
    };
    const STRETCHES: &[Stretch] = &[
        Stretch {
            start: 0x7000,
            len: 0x100,
            at: 0x2000,
        },
        Stretch {
            start: 0xa000,
            len: 0x20,
            at: 0x5000,
        },
    ];

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

    #[test]
    fn static_data_is_symmetric_stretch_by_stretch() {
        let ranges = Ranges {
            statics: Statics::Shared(STRETCHES),
            ..RANGES
        };
        let find = |at, len| ranges.find(at, len).map(Sym::offset);
        assert_eq!(find(0x7000, 0x100), Some(0x2000));
        assert_eq!(find(0xa018, 8), Some(0x5018));
        assert_eq!(find(0x10_0000, 8), Some(0x40_0000));
        for (at, len) in [
            (0x7000, 0x101),
            (0x70f9, 8),
            (0x6fff, 1),
            (0x8000, 1),
            (0xa020, 1),
        ] {
            assert_eq!(find(at, len), None, "{len} bytes at {at:#x}");
        }
        assert_eq!(ranges.of_static(Sym(0x2008)), Some(0x7008));
        assert_eq!(ranges.of_static(Sym(0x5000)), Some(0xa000));
        assert_eq!(ranges.of_static(Sym(0x3000)), None);
        assert_eq!(ranges.of_static(Sym(0x40_0000)), None);
        assert_eq!(RANGES.find(0x7000, 1), None);
    }
}

//! From this process's pointers to symmetric addresses, and back, on this PE and on others of the node.

use crate::heap::address::SymAddr;
use crate::runtime::{Runtime, rt, try_rt};
use crate::statics::Statics;

/// The symmetric address of this PE's `len` bytes at `at`; `None` if they do not all lie in one
/// symmetric object's range: on the stack, in private memory, in a shared library, or in static
/// data that is not symmetric. Before init nothing is symmetric.
#[inline]
pub fn symmetric(at: *const u8, len: usize) -> Option<SymAddr> {
    try_rt()?.ranges.find(at as usize, len)
}

/// This PE's copy of what lies at `sym`.
///
/// # Panics
/// Before init, or if `sym` lies outside the segment.
#[inline]
#[track_caller]
pub fn local(sym: SymAddr) -> *mut u8 {
    rt().address(sym)
}

/// Where this PE can load and store `world_pe`'s copy of what lies at `sym`; `None` if that PE is on
/// another node, does not exist, or has other static data there.
///
/// # Panics
/// Before init, or if `sym` lies outside the segment.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_ptr`.
#[inline]
#[track_caller]
#[must_use]
pub fn ptr(sym: SymAddr, world_pe: usize) -> Option<*mut u8> {
    rt().reach(sym, world_pe)
}

/// Whether `pe` is a PE of the job that can be reached: any number may be asked for.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_pe_accessible`.
#[must_use]
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
    let found = rt.ranges.find(at as usize, 1);
    found.is_some_and(|sym| !rt.has_other_statics(pe, sym.offset()))
}

/// Why PE `world_pe`, if it exists, cannot be accessed at `sym`: it has other static data there.
#[inline]
pub fn why_other_statics(sym: SymAddr, world_pe: usize) -> Option<String> {
    let rt = try_rt().filter(|rt| world_pe < rt.n_pes)?;
    let other = rt.has_other_statics(world_pe, sym.offset());
    other.then(|| rt.why_other_statics(world_pe))
}

/// Why [`symmetric`] finds no symmetric address for these bytes: for messages. Says what can be done.
///
/// # Panics
/// Before init.
#[track_caller]
pub fn why_not_symmetric(at: *const u8, len: usize) -> String {
    rt().why_not(at as usize, len)
}

impl Runtime {
    /// This PE's address of `sym`.
    #[inline]
    #[track_caller]
    fn address(&self, sym: SymAddr) -> *mut u8 {
        let len = self.node.segment_len();
        assert!(
            sym.offset() <= len,
            "symmetric offset {:#x} lies outside the segment of {len:#x} bytes",
            sym.offset()
        );
        match self.ranges.of_static(sym) {
            Some(at) => at as *mut u8,
            None => self.own(sym.offset()),
        }
    }

    /// Why the `len` bytes at `at` are not symmetric.
    fn why_not(&self, at: usize, len: usize) -> String {
        let heap = &self.ranges;
        if let Some(first) = heap.find(at, 1)
            && len > 1
        {
            let part = if first.offset() < heap.heap_at {
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
    pub(crate) fn reach(&self, sym: SymAddr, pe: usize) -> Option<*mut u8> {
        if pe == self.me {
            return Some(self.address(sym));
        }
        let len = self.node.segment_len();
        if self.nodes.node_of.get(pe) != Some(&self.nodes.mine) || sym.offset() > len {
            return None;
        }
        if self.has_other_statics(pe, sym.offset()) {
            return None;
        }
        Some(self.neighbour(self.nodes.local_of[pe] as usize, sym.offset()))
    }
}

//! Where things lie in the two memories of a node: pure arithmetic, the same for the NLA that
//! makes them and the PEs that map them.
//!
//! Sizes of pages come from outside: kernels of one architecture differ in them, and so may the nodes of a job.
//! What PEs of different nodes name to each other, offsets in symmetric segments, depends on none: it is aligned to
//! [`AGREED_ALIGN`].

mod heap;
mod tables;

pub use heap::{HeapLayout, Pages};
pub use tables::{GATHER_SLOTS, SlotsLayout, TablesLayout};

/// The largest page that a kernel maps by itself. Static data and heaps begin at multiples of it in a segment.
pub const AGREED_ALIGN: usize = 64 << 10;

/// Bytes of a line of caches. Fixed, so that layouts are the same for all processors; lines of some of AArch64 are longer.
pub const LINE: usize = 64;

/// Smallest unit and alignment of a block of the symmetric heap: a line, so that objects of different PEs' making
/// never share one. The size of a heap is a multiple of it.
pub const HEAP_GRAIN: usize = LINE;

/// Regions that lie inside of one mapping begin at multiples of this, whatever a page is.
pub const REGION: usize = 4096;

/// Rounds up to where a region may begin.
pub const fn region_up(n: usize) -> usize {
    n.next_multiple_of(REGION)
}

/// Bytes at the start of each PE's symmetric segment that the runtime keeps for collectives
/// between nodes. Room for symmetric static data follows, and then the user's heap.
pub const INTERNAL_SIZE: usize = 4 << 20;

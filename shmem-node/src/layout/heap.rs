//! Where things lie in the heap memory.

use super::{AGREED_ALIGN, INTERNAL_SIZE, LINE, REGION, region_up};
use crate::barrier::NodeBarrier;
use crate::kvs::Locks;
use crate::pe_block::PeBlock;
use crate::slot::SlotHeader;
use crate::waiting::Record;

/// Words that some write all the time lie so far from those of others: processors fetch lines in pairs.
const _: () = {
    const APART: usize = 2 * LINE;
    assert!(align_of::<NodeBarrier>().is_multiple_of(APART));
    assert!(align_of::<PeBlock>().is_multiple_of(APART));
    assert!(align_of::<SlotHeader>().is_multiple_of(LINE));
    assert!(align_of::<Record>().is_multiple_of(LINE));
};

/// Symmetric segments begin at multiples of this, in the heap memory and in the address space of every
/// process that maps it: an offset is aligned alike on all PEs, up to this. What lies between segments is
/// never touched, so it takes no memory.
const SEGMENT_ALIGN: usize = 16 << 20;

/// The same on huge pages, which there may be only so many of.
const HUGE_SEGMENT_ALIGN: usize = 2 << 20;

/// Sizes of a node's pages in bytes, powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// The kernel's own.
    pub usual: usize,
    /// Those of the heaps, not smaller.
    pub heap: usize,
}

impl Pages {
    const fn are_huge(self) -> bool {
        self.heap > self.usual
    }
}

/// Offsets in the heap memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapLayout {
    /// `[PeBlock; n_local]`.
    pub pe_blocks: usize,
    /// Symmetric segment of local PE `l` starts at `segments + l * segment_stride`.
    pub segments: usize,
    /// Where the user's heap begins in a segment: behind the runtime's part and the static data.
    pub heap_start: usize,
    /// Bytes of a segment.
    pub segment_len: usize,
    /// Distance between two PEs' segments, a multiple of `align`; an odd one on usual pages.
    pub segment_stride: usize,
    /// What segments are aligned to.
    pub align: usize,
    /// Room in which local PE `l` records what it calls begins at `recordings + l * recording_len`.
    pub recordings: usize,
    /// Its bytes; 0 where nobody records.
    pub recording_len: usize,
    /// Length of the whole memory.
    pub len: usize,
}

impl HeapLayout {
    /// The locks of the key-value store, between the node barrier and the PEs' blocks.
    pub const KVS_LOCKS: usize = REGION;

    /// The layout for `n_local` PEs with room for `statics` bytes of static data and heaps of
    /// `heap_size` bytes, on `pages`, and with `recording_len` bytes for each PE in which to record; `None` if the
    /// sizes overflow.
    pub fn new(
        n_local: usize,
        statics: u64,
        heap_size: u64,
        pages: Pages,
        recording_len: usize,
    ) -> Option<Self> {
        let bytes = |n: u64| usize::try_from(n).ok();
        let align = match pages.are_huge() {
            false => SEGMENT_ALIGN,
            true => pages.heap.max(HUGE_SEGMENT_ALIGN),
        };
        let pe_blocks = region_up(Self::KVS_LOCKS + Locks::len(n_local));
        let segments =
            (pe_blocks + n_local * size_of::<PeBlock>()).checked_next_multiple_of(align)?;
        let heap_start = bytes(statics)?
            .checked_add(INTERNAL_SIZE)?
            .checked_next_multiple_of(AGREED_ALIGN)?;
        let segment_len = heap_start.checked_add(bytes(heap_size)?)?;
        let mut segment_stride = segment_len.checked_next_multiple_of(align)?;
        if !pages.are_huge() {
            // An odd multiple. Processors guess where in a cache a line is from a hash of its address,
            // and objects that lie powers of two apart evict each other: with arrays of such sizes
            // and heaps of such sizes, a put's source and target would.
            segment_stride |= align;
        }
        let recordings = segment_stride.checked_mul(n_local)?.checked_add(segments)?;
        let len = recording_len
            .checked_mul(n_local)?
            .checked_add(recordings)?
            .checked_next_multiple_of(pages.heap)?;
        (len <= 1 << 47).then_some(Self {
            pe_blocks,
            segments,
            heap_start,
            segment_len,
            segment_stride,
            align,
            recordings,
            recording_len,
            len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::PAGE_SIZES;

    const MIB: usize = 1 << 20;

    fn layout(n_local: usize, statics: u64, heap_size: u64, recording_len: usize) -> HeapLayout {
        let layouts = PAGE_SIZES.map(|page| {
            let pages = Pages {
                usual: page,
                heap: page,
            };
            HeapLayout::new(n_local, statics, heap_size, pages, recording_len).unwrap()
        });
        // But for the end, they are alike.
        let [small, ..] = layouts;
        for (page, layout) in PAGE_SIZES.into_iter().zip(layouts) {
            assert_eq!(layout.len, small.len.next_multiple_of(page));
            assert_eq!(
                HeapLayout {
                    len: small.len,
                    ..layout
                },
                small
            );
        }
        small
    }

    #[test]
    fn segments_are_aligned_and_bounded() {
        let h = layout(3, 0, 10_000, 0);
        assert_eq!((h.heap_start, h.segment_len), (4 * MIB, 4 * MIB + 10_000));
        assert_eq!((h.segments, h.segment_stride), (16 * MIB, 16 * MIB));
        assert_eq!((h.align, h.len), (16 * MIB, 64 * MIB));
        assert_eq!((h.recordings, h.recording_len), (h.len, 0));
        let h = layout(3, 0, 10_000, 2 * REGION);
        assert_eq!((h.recordings, h.len), (64 * MIB, 64 * MIB + 6 * REGION));
        let h = layout(1, 8192, 12 * MIB as u64 - 8192, 0);
        let (heap_start, stride) = (4 * MIB + AGREED_ALIGN, 48 * MIB);
        assert_eq!((h.heap_start, h.segment_stride), (heap_start, stride));
        let even = layout(2, 0, 28 * MIB as u64, 0);
        assert_eq!(
            (even.segment_len, even.segment_stride),
            (32 * MIB, 48 * MIB)
        );
        let pages = Pages {
            usual: 4096,
            heap: 4096,
        };
        for (n_local, statics, heap_size) in
            [(1 << 20, 0, 1 << 40), (2, 0, u64::MAX), (2, u64::MAX, 0)]
        {
            assert_eq!(HeapLayout::new(n_local, statics, heap_size, pages, 0), None);
        }
    }

    #[test]
    fn heaps_on_huge_pages_begin_where_others_do() {
        const HUGE: usize = 2 << 20;
        let new = |n_local, statics, heap_size, heap| {
            HeapLayout::new(n_local, statics, heap_size, Pages { usual: 4096, heap }, 0)
        };
        let h = new(3, 0, 10_000, HUGE).unwrap();
        assert_eq!((h.segments, h.segment_stride), (HUGE, 3 * HUGE));
        assert_eq!((h.align, h.len), (HUGE, 10 * HUGE));
        let exact = new(1, 0, HUGE as u64, HUGE).unwrap();
        assert_eq!(exact.len, 4 * HUGE);
        for heap in [HUGE, 32 * MIB, 1 << 30] {
            let h = new(1, 4096, HUGE as u64, heap).unwrap();
            assert_eq!(h.heap_start, layout(1, 4096, HUGE as u64, 0).heap_start);
            assert_eq!((h.align, h.len % heap), (heap, 0));
        }
        assert_eq!(new(1, 0, u64::MAX >> 1, 1 << 63), None);
    }
}

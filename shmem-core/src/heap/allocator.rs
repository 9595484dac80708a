//! The allocator of the symmetric heap: offsets only, no memory is touched.
//!
//! Every PE runs its own copy. Allocation is collective with equal arguments, so the copies make
//! the same decisions and every PE gets the same offset without a message. First fit over the free
//! ranges in order of address: deterministic, and good enough for the few large objects that
//! OpenSHMEM programs allocate.

use std::collections::BTreeMap;

/// Smallest unit and alignment of a block.
pub(crate) const GRAIN: usize = shmem_node::layout::HEAP_GRAIN;

/// Free and used ranges of `0..size`.
#[derive(Debug)]
pub(crate) struct Allocator {
    size: usize,
    /// What alignment counts from, before byte 0.
    base: usize,
    /// Start of each free range -> its length. Never adjacent to each other.
    free: BTreeMap<usize, usize>,
    /// Start of each used block -> its length.
    used: BTreeMap<usize, usize>,
    /// Everything from here on was never handed out, so it is still zero.
    fresh_from: usize,
}

/// A block that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// First byte.
    pub(crate) offset: usize,
    /// Bytes of it that may hold the contents of earlier blocks.
    pub(crate) dirty: usize,
}

impl Allocator {
    /// All of `0..size` is free. Byte 0 lies at `base`, as far as alignment goes; nothing from `dirty` on
    /// was ever written.
    pub(crate) fn new(size: usize, base: usize, dirty: usize) -> Self {
        let size = size / GRAIN * GRAIN;
        let free = if size > 0 {
            BTreeMap::from([(0, size)])
        } else {
            BTreeMap::new()
        };
        Self {
            size,
            base,
            free,
            used: BTreeMap::new(),
            fresh_from: dirty,
        }
    }

    /// Takes a block of `len` bytes at a multiple of `align` (a power of two), or `None` if no free
    /// range is large enough.
    pub(crate) fn allocate(&mut self, len: usize, align: usize) -> Option<Allocation> {
        let align = align.max(GRAIN);
        let len = len.max(1).checked_next_multiple_of(GRAIN)?;
        let (start, range, offset) = self.free.iter().find_map(|(&start, &range)| {
            let offset = (self.base + start).checked_next_multiple_of(align)? - self.base;
            (offset.checked_add(len)? <= start + range).then_some((start, range, offset))
        })?;
        self.free.remove(&start);
        if offset > start {
            self.free.insert(start, offset - start);
        }
        let (end, range_end) = (offset + len, start + range);
        if range_end > end {
            self.free.insert(end, range_end - end);
        }
        self.used.insert(offset, len);
        let dirty = self.fresh_from.saturating_sub(offset).min(len);
        self.fresh_from = self.fresh_from.max(end);
        Some(Allocation { offset, dirty })
    }

    /// Gives back the block at `offset`; false if there is none.
    pub(crate) fn release(&mut self, offset: usize) -> bool {
        let Some(mut len) = self.used.remove(&offset) else {
            return false;
        };
        let mut start = offset;
        if let Some(next) = self.free.remove(&(offset + len)) {
            len += next;
        }
        if let Some((&before, &before_len)) = self.free.range(..offset).next_back()
            && before + before_len == offset
        {
            self.free.remove(&before);
            start = before;
            len += before_len;
        }
        self.free.insert(start, len);
        true
    }

    /// Bytes of the block at `offset`, if there is one.
    pub(crate) fn len_of(&self, offset: usize) -> Option<usize> {
        self.used.get(&offset).copied()
    }

    /// Makes the block at `offset` hold `len` bytes without moving it; false, and nothing has
    /// changed, if there is none or no room behind it.
    pub(crate) fn resize(&mut self, offset: usize, len: usize) -> bool {
        let Some(len) = len.max(1).checked_next_multiple_of(GRAIN) else {
            return false;
        };
        let Some(old) = self.len_of(offset) else {
            return false;
        };
        let end = offset + old;
        let room = self.free.get(&end).copied().unwrap_or(0);
        if len > old + room {
            return false;
        }
        self.free.remove(&end);
        if old + room > len {
            self.free.insert(offset + len, old + room - len);
        }
        self.used.insert(offset, len);
        self.fresh_from = self.fresh_from.max(offset + len);
        true
    }

    /// Everything from here on was never handed out.
    pub(crate) fn fresh_from(&self) -> usize {
        self.fresh_from
    }

    /// Bytes of the heap, of its used blocks, and of its largest free range.
    pub(crate) fn usage(&self) -> (usize, usize, usize) {
        let largest = self.free.values().copied().max().unwrap_or(0);
        (self.size, self.used.values().sum(), largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Not a multiple of every alignment.
    const BASE: usize = 3 * 4096;

    #[test]
    fn reused_memory_is_reported_dirty() {
        let mut a = Allocator::new(1024, 0, 0);
        let first = a.allocate(100, 1).unwrap();
        assert_eq!(
            first,
            Allocation {
                offset: 0,
                dirty: 0
            }
        );
        assert!(a.release(0));
        assert_eq!(
            a.allocate(256, 1).unwrap(),
            Allocation {
                offset: 0,
                dirty: 128
            }
        );
        assert_eq!(
            a.allocate(1, 1).unwrap(),
            Allocation {
                offset: 256,
                dirty: 0
            }
        );
    }

    #[test]
    fn a_full_heap_says_no_and_recovers() {
        let mut a = Allocator::new(256, 0, 0);
        let all = a.allocate(256, 1).unwrap();
        assert_eq!(a.allocate(1, 1), None);
        assert_eq!(a.usage(), (256, 256, 0));
        assert!(!a.release(64));
        assert!(a.release(all.offset));
        assert!(!a.release(all.offset));
        assert_eq!(a.allocate(usize::MAX, 1), None);
    }

    #[test]
    fn blocks_change_their_size_in_place_where_they_can() {
        let mut a = Allocator::new(1024, 0, 0);
        let (first, second) = (a.allocate(100, 1).unwrap(), a.allocate(64, 1).unwrap());
        assert!(!a.resize(first.offset, 200), "the second is in the way");
        assert!(a.resize(second.offset, 200));
        assert_eq!(a.len_of(second.offset), Some(256));
        assert!(a.resize(first.offset, 1));
        assert_eq!(a.usage(), (1024, 320, 640));
        // What was given back is dirty, and so is what the second has given back and may hold.
        let found = a.allocate(64, 1).unwrap();
        assert_eq!((found.offset, found.dirty), (64, 64));
        assert!(a.resize(second.offset, 64));
        let found = a.allocate(512, 1).unwrap();
        assert_eq!((found.offset, found.dirty), (192, 192));
        assert!(!a.resize(5, 1));
        assert!(!a.resize(second.offset, usize::MAX));
        for offset in [first.offset, 64, second.offset, 192] {
            assert!(a.release(offset));
        }
        assert_eq!(a.usage(), (1024, 0, 1024));
        assert_eq!(a.free.len(), 1);
    }

    proptest! {
        /// Against the plainest model: blocks never overlap, stay inside, are aligned, and after
        /// everything is released the heap is whole again.
        #[test]
        fn blocks_are_disjoint_and_come_back(
            ops in prop::collection::vec((0usize..3000, 0u32..9, any::<bool>()), 1..200)
        ) {
            let mut a = Allocator::new(16 << 10, BASE, 0);
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (n, align, free) in ops {
                if free && !live.is_empty() {
                    let (offset, _) = live.swap_remove(n % live.len());
                    prop_assert!(a.release(offset));
                } else if let Some(b) = a.allocate(n, 1 << align) {
                    let len = n.max(1);
                    prop_assert_eq!((BASE + b.offset) % (1 << align), 0);
                    prop_assert!(b.offset + len <= 16 << 10);
                    for &(o, l) in &live {
                        prop_assert!(b.offset + len <= o || o + l <= b.offset);
                    }
                    live.push((b.offset, len));
                }
            }
            for (offset, _) in live {
                prop_assert!(a.release(offset));
            }
            prop_assert_eq!(a.usage(), (16 << 10, 0, 16 << 10));
            prop_assert_eq!(a.free.len(), 1);
        }
    }
}

//! How a PE's segment is cut into the parts that are registered one by one.
//!
//! A registration makes most network devices take the memory of all its pages at once. A heap that
//! is registered in parts costs memory only as far as the program has allocated it. The parts are
//! computed from the segment's layout alone, so all PEs agree on them without a word.
//!
//! The first part is the runtime's own with the program's static data. The heap follows in parts of which each is four times the one
//! before: a few are enough for any size, and what is registered is at most five times what
//! allocations have reached, or the first part of the heap if they have not left it.

#![forbid(unsafe_code)]

use std::ops::Range;

use shmem_ib::connect::message::MAX_SEGMENTS;

/// Most parts: each is a segment of the endpoint.
pub(crate) const MOST: usize = MAX_SEGMENTS;
/// How much larger a part is than the one before.
const FACTOR: usize = 4;
/// Smallest first part of the heap; sizes are multiples of it.
const UNIT: usize = 1 << 20;

/// The parts of a segment. Part `i` is segment `i` of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Where each part ends; the last ends with the segment.
    ends: [usize; MOST],
    count: usize,
}

/// A range of bytes, or a stretch of one, that lies in one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Number of the part.
    pub(crate) part: u8,
    /// First byte, from the start of the part.
    pub(crate) offset: u64,
    /// First byte, from the start of the range.
    pub(crate) at: usize,
    /// In bytes.
    pub(crate) len: usize,
}

impl Parts {
    /// A segment of `len` bytes in one part.
    pub(crate) const fn whole(len: usize) -> Self {
        Self {
            ends: [len; MOST],
            count: 1,
        }
    }

    /// Whether all of the segment is one part, which is registered in init.
    pub(crate) const fn are_one(&self) -> bool {
        self.count == 1
    }

    /// A segment of `len` bytes, of which the heap begins at `start`, in growing parts.
    pub(crate) fn growing(start: usize, len: usize) -> Self {
        let heap = len.saturating_sub(start);
        // 1 + 4 + 16 + 64 + 256 of these are at least the heap.
        let all: usize = (1u32..MOST as u32).map(|i| FACTOR.pow(i - 1)).sum();
        let first = heap.div_ceil(all).next_multiple_of(UNIT);
        let mut parts = Self {
            ends: [len; MOST],
            count: 0,
        };
        let (mut end, mut size) = (start, first);
        for slot in &mut parts.ends {
            *slot = end.min(len);
            parts.count += 1;
            if end >= len {
                break;
            }
            end = end.saturating_add(size);
            size = size.saturating_mul(FACTOR);
        }
        parts
    }

    /// Number of parts.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Where a part lies in the segment.
    pub(crate) const fn range(&self, part: usize) -> Range<usize> {
        let start = if part == 0 { 0 } else { self.ends[part - 1] };
        start..self.ends[part]
    }

    /// The part of the byte at `offset`; of what lies past the end, the last.
    fn of(&self, offset: usize) -> usize {
        let inner = &self.ends[..self.count - 1];
        inner.iter().take_while(|&&end| end <= offset).count()
    }

    /// The parts into which a range reaches.
    pub(crate) fn touched(&self, range: Range<usize>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        self.of(range.start)..self.of(range.end - 1) + 1
    }

    /// Where an aligned word at `offset` lies: a word is always in one part.
    pub(crate) fn word(&self, offset: usize) -> (u8, u64) {
        let part = self.of(offset);
        (part as u8, (offset - self.range(part).start) as u64)
    }

    /// The pieces of a copy of `len` bytes to or from `offset` of a peer's segment. With the own end
    /// of the copy at `local` of the own segment, no piece crosses a border there either: what
    /// lies in one part is registered and needs no registration for the copy.
    pub(crate) fn copies(
        self,
        offset: usize,
        local: Option<usize>,
        len: usize,
    ) -> impl Iterator<Item = Piece> {
        let own = match local {
            Some(_) => self,
            None => Self::whole(usize::MAX),
        };
        let local = local.unwrap_or(0);
        self.pieces(offset, len).flat_map(move |theirs| {
            own.pieces(local + theirs.at, theirs.len)
                .map(move |ours| Piece {
                    part: theirs.part,
                    offset: theirs.offset + ours.at as u64,
                    at: theirs.at + ours.at,
                    len: ours.len,
                })
        })
    }

    /// The pieces of `len` bytes at `offset`; an empty range is one empty piece.
    fn pieces(self, offset: usize, len: usize) -> impl Iterator<Item = Piece> {
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let at = next?;
            let part = self.of(offset + at);
            let range = self.range(part);
            // What is past the end goes with the last part, so that the endpoint refuses it.
            let room = if part + 1 == self.count {
                len - at
            } else {
                range.end - (offset + at)
            };
            let piece = Piece {
                part: part as u8,
                offset: (offset + at - range.start) as u64,
                at,
                len: room.min(len - at),
            };
            next = Some(at + piece.len).filter(|&at| at < len);
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shmem_node::layout::INTERNAL_SIZE;

    const MIB: usize = 1 << 20;

    fn sizes(heap: usize) -> Vec<usize> {
        let parts = Parts::growing(INTERNAL_SIZE, INTERNAL_SIZE + heap);
        (0..parts.count())
            .map(|i| parts.range(i).len() / MIB)
            .collect()
    }

    #[test]
    fn parts_of_some_heaps() {
        assert_eq!(sizes(0), [4]);
        assert_eq!(sizes(MIB), [4, 1]);
        assert_eq!(sizes(3 * MIB), [4, 1, 2]);
        assert_eq!(sizes(256 * MIB), [4, 1, 4, 16, 64, 171]);
        assert_eq!(sizes(1024 * MIB), [4, 4, 16, 64, 256, 684]);
        // Static data belongs to the first part.
        let start = INTERNAL_SIZE + 4096;
        let parts = Parts::growing(start, start + MIB);
        assert_eq!((parts.count(), parts.range(0)), (2, 0..start));
    }

    #[test]
    fn a_range_across_borders_is_split_at_them() {
        let parts = Parts::growing(INTERNAL_SIZE, INTERNAL_SIZE + 256 * MIB);
        let border = INTERNAL_SIZE + MIB;
        let pieces: Vec<_> = parts.pieces(border - 10, 4 * MIB + 20).collect();
        let piece = |part, offset: usize, at, len| Piece {
            part,
            offset: offset as u64,
            at,
            len,
        };
        let want = [
            piece(1, MIB - 10, 0, 10),
            piece(2, 0, 10, 4 * MIB),
            piece(3, 0, 4 * MIB + 10, 10),
        ];
        assert_eq!(pieces, want);
        assert_eq!(parts.touched(border - 10..border + 4 * MIB + 10), 1..4);
        assert_eq!(parts.touched(border..border), 0..0);
        assert_eq!(parts.word(border), (2, 0));
        assert_eq!(
            Parts::whole(100).pieces(10, 20).collect::<Vec<_>>(),
            [piece(0, 10, 0, 20)]
        );
    }

    #[test]
    fn a_copy_is_split_at_the_borders_of_both_ends() {
        let parts = Parts::growing(INTERNAL_SIZE, INTERNAL_SIZE + 256 * MIB);
        let border = INTERNAL_SIZE + MIB;
        let lens = |local| -> Vec<_> {
            let copies = parts.copies(border - 10, local, 100);
            copies.map(|p| (p.part, p.offset, p.at, p.len)).collect()
        };
        let (first, last) = ((1, (MIB - 10) as u64, 0, 10), (2, 0, 10, 90));
        assert_eq!(lens(None), [first, last]);
        assert_eq!(lens(Some(border)), [first, last]);
        let ours = [first, (2, 0, 10, 40), (2, 40, 50, 50)];
        assert_eq!(lens(Some(border - 50)), ours);
        assert_eq!(parts.copies(border, Some(0), 0).count(), 1);
    }

    /// The endpoint refuses it: nothing is lost on the way there.
    #[test]
    fn what_is_past_the_end_stays_with_the_last_part() {
        let len = INTERNAL_SIZE + 2 * MIB;
        let parts = Parts::growing(INTERNAL_SIZE, len);
        let last = parts.pieces(len - 8, 16).last().unwrap();
        let room = parts.range(usize::from(last.part)).len() as u64;
        assert!(last.offset + last.len as u64 > room);
    }

    proptest! {
        #[test]
        fn growing_parts_are_a_partition(
            heap in prop_oneof![0usize..64 * MIB, 0usize..1 << 44], from: usize, len in 1usize..1 << 30, local: usize,
        ) {
            let segment = INTERNAL_SIZE + heap;
            let parts = Parts::growing(INTERNAL_SIZE, segment);
            prop_assert!((1..=MOST).contains(&parts.count()));
            let mut end = 0;
            for i in 0..parts.count() {
                let range = parts.range(i);
                prop_assert_eq!(range.start, end);
                prop_assert!(!range.is_empty());
                prop_assert_eq!(range.start % 4096, 0);
                // What is registered is at most five times what is used, or one part of the heap.
                if i > 1 {
                    prop_assert!(range.end - INTERNAL_SIZE <= 5 * (range.start - INTERNAL_SIZE));
                }
                end = range.end;
            }
            prop_assert_eq!(end, segment);

            // The pieces of a range are the range.
            let from = from % segment;
            let len = len.min(segment - from);
            let mut at = 0;
            for piece in parts.pieces(from, len) {
                let range = parts.range(usize::from(piece.part));
                prop_assert_eq!(piece.at, at);
                prop_assert_eq!(range.start + piece.offset as usize, from + at);
                prop_assert!(piece.len > 0 && from + at + piece.len <= range.end);
                prop_assert!(parts.touched(from..from + len).contains(&usize::from(piece.part)));
                at += piece.len;
            }
            prop_assert_eq!(at, len);
            prop_assert_eq!(parts.pieces(from, len).count(), parts.touched(from..from + len).len());
            let (mut at, local) = (0, local % segment);
            let len = len.min(segment - local);
            for piece in parts.copies(from, Some(local), len) {
                prop_assert_eq!(piece.at, at);
                let (theirs, ours) = (from + at, local + at);
                prop_assert_eq!(parts.range(usize::from(piece.part)).start + piece.offset as usize, theirs);
                prop_assert_eq!(parts.touched(theirs..theirs + piece.len).len(), 1);
                prop_assert_eq!(parts.touched(ours..ours + piece.len).len(), 1);
                at += piece.len;
            }
            prop_assert_eq!(at, len);
            let word = from & !7;
            let (part, offset) = parts.word(word);
            prop_assert_eq!(parts.range(usize::from(part)).start + offset as usize, word);
        }
    }
}

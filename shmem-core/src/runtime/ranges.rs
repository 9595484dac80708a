//! Where symmetric memory lies in this process, as ranges of addresses: from a pointer of the program
//! to the offset that means the same on every PE, and back.

use crate::heap::address::SymAddr;
use crate::statics::Statics;

/// Where this PE's symmetric memory lies in its address space.
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
    pub(crate) fn find(&self, at: usize, len: usize) -> Option<SymAddr> {
        let inside = at.wrapping_sub(self.heap);
        // An empty range may lie at the end.
        if inside <= self.heap_len && len <= self.heap_len - inside {
            return Some(SymAddr::new(self.heap_at + inside));
        }
        self.find_static(at, len)
    }

    fn find_static(&self, at: usize, len: usize) -> Option<SymAddr> {
        let Statics::Shared(stretches) = self.statics else {
            return None;
        };
        stretches.iter().find_map(|s| {
            let inside = at.wrapping_sub(s.start);
            (inside < s.len && len <= s.len - inside).then(|| SymAddr::new(s.at + inside))
        })
    }

    /// The program's own address of what lies at `sym`, if that is static data.
    #[inline]
    pub(crate) fn of_static(&self, sym: SymAddr) -> Option<usize> {
        if sym.offset() >= self.heap_at {
            return None;
        }
        let Statics::Shared(stretches) = self.statics else {
            return None;
        };
        stretches.iter().find_map(|s| {
            let inside = sym.offset().wrapping_sub(s.at);
            (inside <= s.len).then(|| s.start + inside)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::statics::Why;
    use crate::statics::stretch::Stretch;

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
        let find = |at, len| RANGES.find(at, len).map(SymAddr::offset);
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
        let find = |at, len| ranges.find(at, len).map(SymAddr::offset);
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
        assert_eq!(ranges.of_static(SymAddr::new(0x2008)), Some(0x7008));
        assert_eq!(ranges.of_static(SymAddr::new(0x5000)), Some(0xa000));
        assert_eq!(ranges.of_static(SymAddr::new(0x3000)), None);
        assert_eq!(ranges.of_static(SymAddr::new(0x40_0000)), None);
        assert_eq!(RANGES.find(0x7000, 1), None);
    }
}

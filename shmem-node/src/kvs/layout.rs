//! Where the key-value store lies in the tables memory: pure arithmetic, the same for the NLA that makes it
//! and the PEs that read it.

use super::Head;
use crate::layout::{REGION, region_up};
use crate::settings::STORE_MAX;

/// Slots of the smallest index of the key-value store: a region of them.
const KVS_FIRST_INDEX: usize = REGION / 8;

/// Bytes of log for which the largest index has a slot: half of what a short key with a short value
/// takes, since indexes are filled by half.
const KVS_LOG_PER_SLOT: usize = 16;

/// Offsets of the key-value store in the tables memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvsLayout {
    /// The head.
    pub head: usize,
    /// `[u64]`: slots of index 0, then twice as many of index 1, and so on.
    pub index: usize,
    /// Number of indexes; 0 where there is no store.
    pub levels: u32,
    /// The log.
    pub log: usize,
    /// Bytes of the log.
    pub log_len: usize,
    /// Where the region ends.
    pub end: usize,
}

impl KvsLayout {
    /// The layout from `head` on for a log of up to `log_len` bytes; 0 stands for no store.
    pub fn new(head: usize, log_len: usize) -> Self {
        let head = region_up(head);
        let log_len = region_up(log_len.min(STORE_MAX));
        let largest = (log_len / KVS_LOG_PER_SLOT)
            .max(KVS_FIRST_INDEX)
            .next_power_of_two();
        let levels = match log_len {
            0 => 0,
            _ => (largest / KVS_FIRST_INDEX).ilog2() + 1,
        };
        let index = head + region_up(size_of::<Head>());
        let log = index + 8 * KVS_FIRST_INDEX * ((1 << levels) - 1);
        Self {
            head,
            index,
            levels,
            log,
            log_len,
            end: log + log_len,
        }
    }

    /// Where index `level` is, and how many slots it has; `None` if there is no such index.
    #[inline]
    pub fn slots(&self, level: u32) -> Option<(usize, usize)> {
        if level >= self.levels {
            return None;
        }
        let before = KVS_FIRST_INDEX * ((1 << level) - 1);
        Some((self.index + 8 * before, KVS_FIRST_INDEX << level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_follow_each_other_and_suffice_for_the_log() {
        for log_len in [1, REGION, 1 << 20, 100 << 20, STORE_MAX, usize::MAX >> 1] {
            let k = KvsLayout::new(3 * REGION + 1, log_len);
            assert!(k.log_len >= log_len.min(STORE_MAX));
            let mut at = k.index;
            for level in 0..k.levels {
                let (start, slots) = k.slots(level).unwrap();
                assert_eq!(start, at);
                assert!(slots.is_power_of_two());
                at += 8 * slots;
            }
            assert_eq!(at, k.log, "{k:?}");
            assert_eq!(k.slots(k.levels), None);
            assert_eq!(k.slots(u32::MAX), None);
            let (_, largest) = k.slots(k.levels - 1).unwrap();
            assert!(largest * KVS_LOG_PER_SLOT >= k.log_len);
        }
        let none = KvsLayout::new(REGION, 0);
        assert_eq!((none.levels, none.log_len), (0, 0));
        assert_eq!(none.slots(0), None);
    }
}

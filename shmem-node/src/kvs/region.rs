//! The store as a process maps it: what reader and writer have in common.

use super::layout::KvsLayout;
use super::log::Log;
use super::{Head, hash, index};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::Mapping;

/// The store in this process' mapping of the tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct Region {
    map: Mapping,
    layout: KvsLayout,
    pub(super) head: &'static Head,
    pub(super) log: Log,
}

impl Region {
    /// `None` where the layout has no store.
    ///
    /// # Safety
    /// `layout` is the one by which the agent made `map`.
    pub(super) unsafe fn new(map: Mapping, layout: KvsLayout) -> Option<Self> {
        (layout.levels > 0).then(|| Self {
            map,
            layout,
            // SAFETY: by the caller; the head consists of atomics, and zero is its initial state.
            head: unsafe { map.get(layout.head) },
            log: Log::new(map, layout.log, layout.log_len),
        })
    }

    pub(super) fn log_len(&self) -> usize {
        self.layout.log_len
    }

    /// The slots of an index; `None` if there is no such index.
    #[inline]
    pub(super) fn slots(&self, level: u32) -> Option<&'static [AtomicU64]> {
        let (at, n) = self.layout.slots(level)?;
        // SAFETY: the layout, which is the agent's, keeps this place for slots; they are atomics.
        Some(unsafe { self.map.slice(at, n) })
    }

    /// Slot and place of a key's record in the index in use.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<(usize, index::Place)> {
        let slots = self.slots(index::level(&self.head.level))?;
        index::find(slots, hash(key), |place| self.log.key(place) == Some(key))
    }

    /// The value of a key, for who has the lock, if there is one.
    #[inline]
    pub(super) fn value(&self, key: &[u8]) -> Option<&'static [u8]> {
        let (_, place) = self.find(key)?;
        self.log.value(place)
    }

    pub(super) fn is_closed(&self) -> bool {
        // ORDERING(kvs-closed): pairs with `close`.
        self.head.closed.load(Ordering::Acquire) != 0
    }

    /// For the writer, which will not write any more.
    pub(super) fn close(&self) {
        // ORDERING(kvs-closed): who was told later that a fence is complete sees it.
        self.head.closed.store(1, Ordering::Release);
    }
}

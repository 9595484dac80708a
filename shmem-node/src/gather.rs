//! Results of allgathers, once per node: written by the NLA, read by the PEs. Those of PMI have their slots,
//! and those of the PEs' addresses others.
//!
//! A PE hands its value to the NLA and goes on; it looks here when it needs another PE's value.
//! Slots are reused, so a result is there until as many later requests have completed as there are slots.

use std::time::Duration;

use crate::layout::SlotsLayout;
use crate::slot::SlotHeader;
use crate::sys::Mapping;

/// All slots.
#[derive(Clone, Copy)]
pub struct Gather {
    map: Mapping,
    layout: SlotsLayout,
    n_pes: usize,
}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather")
            .field("n_pes", &self.n_pes)
            .finish_non_exhaustive()
    }
}

impl Gather {
    pub(crate) fn new(map: Mapping, layout: SlotsLayout, n_pes: usize) -> Self {
        Self { map, layout, n_pes }
    }

    fn header(&self, request: u32) -> &'static SlotHeader {
        let slot = request as usize % self.layout.count;
        let offset = self.layout.headers + slot * size_of::<SlotHeader>();
        // SAFETY: the layout puts an aligned header there; it consists of atomics.
        unsafe { self.map.get(offset) }
    }

    fn values(&self, request: u32) -> usize {
        self.layout.values + request as usize % self.layout.count * self.layout.stride
    }

    /// Stores the result of `request`, one value of `value_len` bytes per PE in order of rank, and
    /// wakes the PEs that wait for it. For the NLA, whose mapping is writable.
    ///
    /// # Panics
    /// If the sizes do not fit the job.
    pub fn publish(&self, request: u32, value_len: usize, values: &[u8]) {
        assert!(values.len() == value_len * self.n_pes);
        self.begin(request, value_len);
        self.write(request, 0, values);
        self.finish(request);
    }

    /// Announces the result of `request`, to be stored in pieces by [`Gather::write`] and then
    /// shown by [`Gather::finish`]. The result that lay in its slot is gone from here on.
    ///
    /// # Panics
    /// If the length is beyond that for which there is room.
    pub fn begin(&self, request: u32, value_len: usize) {
        assert!(value_len <= self.layout.value_max);
        self.header(request).begin(value_len as u32);
        // One call instead of a page fault for every 4 KiB. Without it they would just happen.
        self.map
            .populate(self.values(request), value_len * self.n_pes);
    }

    /// Stores a piece of the announced result of `request`, `offset` bytes from its start.
    ///
    /// # Panics
    /// If it does not lie within the announced length.
    pub fn write(&self, request: u32, offset: usize, piece: &[u8]) {
        let len = self.header(request).value_len() as usize * self.n_pes;
        assert!(
            offset
                .checked_add(piece.len())
                .is_some_and(|end| end <= len)
        );
        let to = self.map.at(self.values(request) + offset, piece.len());
        // SAFETY: in bounds by `at`; only this process writes here, and a PE reads a slot only
        // after the store in `finish`.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len()) };
    }

    /// Shows the announced result of `request`, all of which was stored, and wakes the PEs that
    /// wait for it.
    pub fn finish(&self, request: u32) {
        self.header(request).finish(request);
    }

    /// Whether the result of `request` has arrived.
    pub fn is_done(&self, request: u32) -> bool {
        self.header(request).is_done(request)
    }

    /// Sleeps until the result of `request` is there or `max` has passed; says which.
    pub fn wait(&self, request: u32, max: Duration) -> bool {
        self.header(request).wait(request, max)
    }

    /// The value of PE `rank` in the result of `request`, if that is there. Take what is needed
    /// out of it at once: the bytes change when the slot is reused.
    pub fn value(&self, request: u32, rank: usize) -> Option<&'static [u8]> {
        if !self.is_done(request) || rank >= self.n_pes {
            return None;
        }
        let len = self.header(request).value_len() as usize;
        let at = self.map.at(self.values(request) + rank * len, len);
        // SAFETY: in bounds by `at`. The NLA wrote these bytes before `done` and does not touch
        // them again until the slot is reused, which this module's contract announces.
        Some(unsafe { std::slice::from_raw_parts(at, len) })
    }
}

//! The records of the key-value store, one after the other.
//!
//! A record is a word of three lengths (key, value, room for the value; 16 bits each), the key, and
//! the value, padded to 8 bytes. Places count units of 8 bytes, of which the first is not used.

use super::index::Place;
use super::{MAX_KEY, MAX_VALUE};
use crate::sys::Mapping;

/// Bytes of a place.
pub(super) const UNIT: usize = 8;

/// Bytes of the lengths before each key.
const LENGTHS: usize = 8;

/// The log as this process maps it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    map: Mapping,
    /// Where it begins in the mapping; a multiple of [`UNIT`].
    start: usize,
    len: usize,
}

/// What the lengths of a record say, once they are known to stay inside the log.
#[derive(Debug, Clone, Copy)]
struct Extent {
    key: usize,
    value: usize,
    room: usize,
    /// Offset of the key in the log.
    at: usize,
}

impl Log {
    /// The log of `len` bytes from `start` of `map`.
    pub(super) fn new(map: Mapping, start: usize, len: usize) -> Self {
        map.at(start, len);
        Self { map, start, len }
    }

    /// Bytes that a record takes.
    pub(super) fn record_len(key: usize, value: usize) -> usize {
        LENGTHS + (key + value).next_multiple_of(UNIT)
    }

    fn extent(&self, place: Place) -> Option<Extent> {
        let offset = place as usize * UNIT;
        if offset == 0 || offset + LENGTHS > self.len {
            return None;
        }
        let at = self.map.at(self.start + offset, LENGTHS);
        // SAFETY: in bounds by `at`; aligned, since mapping, start and place are. The module's
        // contract keeps the writer away while, or ever since, a reader can get here.
        let lengths = unsafe { at.cast::<u64>().read() };
        let length = |shift: u32| usize::from((lengths >> shift) as u16);
        let extent = Extent {
            key: length(0),
            value: length(16),
            room: length(32),
            at: offset + LENGTHS,
        };
        let fits = extent.key <= MAX_KEY
            && extent.value <= extent.room.min(MAX_VALUE)
            && extent.at + extent.key + extent.room <= self.len;
        fits.then_some(extent)
    }

    fn bytes(&self, offset: usize, len: usize) -> &'static [u8] {
        let at = self.map.at(self.start + offset, len);
        // SAFETY: in bounds by `at`, never unmapped, and written before or under the lock, as
        // `extent` says. With a lock callers drop the slice before they release it.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    /// Key of the record at `place`; `None` if there cannot be one.
    #[inline]
    pub(super) fn key(&self, place: Place) -> Option<&'static [u8]> {
        let extent = self.extent(place)?;
        Some(self.bytes(extent.at, extent.key))
    }

    /// Value of the record at `place`; `None` if there cannot be one.
    #[inline]
    pub(super) fn value(&self, place: Place) -> Option<&'static [u8]> {
        let extent = self.extent(place)?;
        Some(self.bytes(extent.at + extent.key, extent.value))
    }

    /// For the writer: makes a record at `offset`, where nothing was before; gives its place, or
    /// `None` if the log ends too soon.
    pub(super) fn append(&self, offset: usize, key: &[u8], value: &[u8]) -> Option<Place> {
        let len = Self::record_len(key.len(), value.len());
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let place = Place::try_from(offset / UNIT).ok()?;
        let room = len - LENGTHS - key.len();
        self.write(offset, key.len(), value, room);
        self.copy(offset + LENGTHS, key);
        Some(place)
    }

    /// For the writer, under the lock: puts another value in a record; false if it has no room for
    /// it.
    pub(super) fn overwrite(&self, place: Place, value: &[u8]) -> bool {
        match self.extent(place) {
            Some(extent) if value.len() <= extent.room => {
                self.write(extent.at - LENGTHS, extent.key, value, extent.room);
                true
            }
            _ => false,
        }
    }

    /// Lengths and value of the record at `offset`.
    fn write(&self, offset: usize, key_len: usize, value: &[u8], room: usize) {
        let lengths = key_len as u64 | (value.len() as u64) << 16 | (room as u64) << 32;
        self.copy(offset, &lengths.to_ne_bytes());
        self.copy(offset + LENGTHS + key_len, value);
    }

    fn copy(&self, offset: usize, bytes: &[u8]) {
        let to = self.map.at(self.start + offset, bytes.len());
        // SAFETY: in bounds by `at`; this is the only process that writes here, and no slot leads
        // here yet or the lock is held.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

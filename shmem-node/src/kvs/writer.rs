//! The writing side, in the launch agent.

use std::time::Duration;

use super::index;
use super::layout::KvsLayout;
use super::locks::Locks;
use super::log::{Log, UNIT};
use super::region::Region;
use super::{MAX_KEY, MAX_VALUE, PATIENCE, StoreError, hash};
use crate::settings::StoreKind;
use crate::sys::Mapping;

/// The node's key-value store, for its one writer.
#[derive(Debug)]
pub struct Writer {
    /// `None` where gets are messages.
    region: Option<Region>,
    locks: Option<Locks>,
    /// How long to wait for them.
    pub(super) patience: Duration,
    /// Whether readers are kept out just now.
    held: bool,
    /// Where the log ends.
    end: usize,
    /// Slots of the index in use that are not free.
    used: usize,
    keys: usize,
}

impl Writer {
    /// The store in `tables`, which is empty and has no other writer.
    ///
    /// # Safety
    /// `layout` and `locks` are those of the memories; `tables` is writable.
    pub(crate) unsafe fn new(
        tables: Mapping,
        layout: KvsLayout,
        kind: StoreKind,
        locks: Option<Locks>,
    ) -> Self {
        // SAFETY: by the caller.
        let region = unsafe { Region::new(tables, layout) };
        Self {
            region: region.filter(|_| kind != StoreKind::Message),
            locks,
            patience: PATIENCE,
            held: false,
            end: UNIT,
            used: 0,
            keys: 0,
        }
    }

    /// Keys in the store.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// Bytes of the log in use, those of replaced records included.
    pub fn bytes(&self) -> usize {
        self.end - UNIT
    }

    /// Announces several insertions: with a lock it is then taken once for all of them, by
    /// [`Writer::end`] given back. Without this, each insertion takes it.
    ///
    /// # Errors
    /// [`StoreError::Closed`] if a reader does not leave, and from then on.
    pub fn begin(&mut self) -> Result<(), StoreError> {
        let region = self.region.as_ref().ok_or(StoreError::None)?;
        if self.held {
            return Ok(());
        }
        if region.is_closed() {
            return Err(StoreError::Closed);
        }
        let patience = self.patience;
        if self.locks.is_some_and(|locks| !locks.exclude(patience)) {
            region.close();
            return Err(StoreError::Closed);
        }
        self.held = true;
        Ok(())
    }

    /// Lets readers in after [`Writer::begin`].
    pub fn end(&mut self) {
        if std::mem::take(&mut self.held)
            && let Some(locks) = self.locks
        {
            locks.admit();
        }
    }

    /// Gives `key` this value, for all readers from here on.
    ///
    /// # Errors
    /// Why it is not there; readers do not find the key then, whatever its value was before.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        if key.is_empty() || key.len() > MAX_KEY || value.len() > MAX_VALUE {
            return Err(StoreError::Length {
                key: key.len(),
                value: value.len(),
            });
        }
        self.alone(|writer, region| writer.put(region, key, value))
    }

    /// Takes `key` out of the store; says whether it was there.
    ///
    /// # Errors
    /// As for [`Writer::begin`].
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.alone(|writer, region| Ok(writer.hide(region, key)))
    }

    /// The value of `key`, as readers see it; where the store is closed, as they would.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.region.as_ref()?.value(key)
    }

    /// Does something while readers are out.
    fn alone<R>(
        &mut self,
        change: impl FnOnce(&mut Self, Region) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let alone = !self.held;
        self.begin()?;
        let changed = match self.region {
            Some(region) => change(self, region),
            None => Err(StoreError::None),
        };
        if alone {
            self.end();
        }
        changed
    }

    fn put(&mut self, region: Region, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let hash = hash(key);
        let found = region.find(key);
        if let Some((_, place)) = found
            && (region.log.value(place) == Some(value)
                || self.locks.is_some() && region.log.overwrite(place, value))
        {
            return Ok(());
        }
        let slots = match found {
            Some(_) => region.slots(index::level(&region.head.level)),
            None => self.room_for_one(&region),
        };
        let record = slots.zip(region.log.append(self.end, key, value));
        let Some((slots, place)) = record else {
            self.hide(region, key);
            return Err(StoreError::Full {
                size: region.log_len(),
                used: self.bytes(),
                keys: self.keys,
            });
        };
        let at = match found {
            Some((at, _)) => at,
            None => {
                let Some((at, fresh)) = index::vacancy(slots, hash) else {
                    unreachable!("an index is never more than half full");
                };
                self.used += usize::from(fresh);
                self.keys += 1;
                at
            }
        };
        index::show(&slots[at], hash, place);
        self.end += Log::record_len(key.len(), value.len());
        Ok(())
    }

    /// The index in use, after growth if another key would fill more than half of it; `None` if it
    /// is the largest.
    fn room_for_one(&mut self, region: &Region) -> Option<&'static [crate::sync::AtomicU64]> {
        let level = index::level(&region.head.level);
        let slots = region.slots(level)?;
        if 2 * (self.used + 1) <= slots.len() {
            return Some(slots);
        }
        let larger = region.slots(level + 1)?;
        let hash = |place| region.log.key(place).map_or(0, hash);
        self.used = index::copy(slots, larger, hash);
        index::use_level(&region.head.level, level + 1);
        Some(larger)
    }

    fn hide(&mut self, region: Region, key: &[u8]) -> bool {
        let found = region.find(key);
        if let Some((at, _)) = found
            && let Some(slots) = region.slots(index::level(&region.head.level))
        {
            index::hide(&slots[at], hash(key));
            self.keys -= 1;
        }
        found.is_some()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

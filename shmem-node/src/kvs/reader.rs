//! The reading side, in a PE.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::layout::KvsLayout;
use super::locks::{Held, Locks};
use super::region::Region;
use super::{MAX_VALUE, PATIENCE, Store};
use crate::settings::StoreKind;
use crate::sys::Mapping;

/// The node's key-value store, for reading. Any thread may use it at any time.
///
/// What a completed fence has made visible is found from then on, unless the store had no room for
/// it or serves no reader at all: then, as for a key that nobody has put, the answer is `None`, and
/// the agent knows. A value that is put again and fenced again replaces the one before; a get during
/// that fence finds either.
#[derive(Debug)]
pub struct Reader {
    region: Option<Region>,
    locks: Option<Locks>,
    /// Position of the PE on its node.
    local: usize,
    /// How long to wait for a lock.
    pub(super) patience: Duration,
    /// Whether a lock was not to be had: it is not waited for twice.
    given_up: AtomicBool,
}

impl Reader {
    /// The store in `tables`, for the PE whose position on its node is `local`.
    ///
    /// # Safety
    /// `layout` and `locks` are those by which the agent made the memories.
    pub(crate) unsafe fn new(
        tables: Mapping,
        layout: KvsLayout,
        kind: StoreKind,
        locks: Option<Locks>,
        local: usize,
    ) -> Self {
        // SAFETY: by the caller.
        let region = unsafe { Region::new(tables, layout) };
        Self {
            region: region.filter(|_| kind != StoreKind::Message),
            locks,
            local,
            patience: PATIENCE,
            given_up: AtomicBool::new(false),
        }
    }

    /// Calls `f` with the value of `key`, where it lies; `None` if the store does not have the key or
    /// cannot be read. With a lock it is held meanwhile, so `f` should not do more than take what it
    /// needs.
    #[inline]
    pub fn read<R>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let region = self.region.as_ref()?;
        let _held = match self.locks {
            None => return region.value(key).map(f),
            Some(locks) => self.enter(locks, region)?,
        };
        region.value(key).map(f)
    }

    #[cold]
    fn enter(&self, locks: Locks, region: &Region) -> Option<Held> {
        if self.given_up.load(Ordering::Relaxed) {
            return None;
        }
        let held = locks.enter(self.local, self.patience);
        if held.is_none() {
            self.given_up.store(true, Ordering::Relaxed);
        }
        // The agent writes no more, and fences that complete from now on are not here.
        held.filter(|_| !region.is_closed())
    }

    /// The value of `key`, copied; `None` as for [`Reader::read`].
    pub fn get_vec(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.read(key, <[u8]>::to_vec)
    }
}

impl Store for Reader {
    #[inline]
    fn get(&self, key: &[u8], value: &mut [u8; MAX_VALUE]) -> Option<usize> {
        self.read(key, |found| {
            value[..found.len()].copy_from_slice(found);
            found.len()
        })
    }
}

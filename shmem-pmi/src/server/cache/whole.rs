//! The cache of an agent that holds all pairs: a fence brings them, and no get leaves the node.

use std::fmt;
use std::sync::Arc;

use super::store::{MapStore, NodeStore, StoreFull};
use crate::server::shared::Shared;
use crate::wire::tree::Pairs;

/// The pairs that an agent holds, and what it does about those on their way. What is here by default
/// is what there is to do where a fence brings all pairs to all agents: nothing.
pub(crate) trait Cache: fmt::Debug + Send {
    /// Bytes of memory for pairs, visible ones and others.
    fn bytes(&self) -> usize;

    /// The visible value of a key, if it is here.
    fn get(&mut self, key: &[u8]) -> Option<&[u8]>;

    /// Makes a pair visible here.
    fn insert(&mut self, key: &[u8], value: &[u8]);

    /// Makes the pairs of a fence visible.
    fn insert_all(&mut self, pairs: Pairs<'_>) {
        for (key, value) in pairs.iter() {
            self.insert(key, value);
        }
    }

    /// Whether a key that is not here is nowhere.
    fn is_complete(&self) -> bool {
        true
    }

    /// A PE of this node puts a pair, which a fence from operation `from` on makes visible. Gives it,
    /// encoded, if it goes up now instead of with the fence.
    fn put(&mut self, from: u64, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let _ = (from, key, value);
        None
    }

    /// Whether a PE's puts go up with its fence.
    fn fence_brings_puts(&self) -> bool {
        true
    }

    /// Encoded pairs pass on their way up, ahead of a fence from operation `from` on.
    fn puts_pass(&mut self, from: u64, pairs: Shared) {
        let _ = (from, pairs);
    }

    /// What all below bring to operation `request` goes up.
    fn goes_up(&mut self, request: u64, message: &Arc<Vec<u8>>) {
        let _ = (request, message);
    }

    /// Fence `request` succeeded, here at the root, and brought pairs. Where they are not sent to all
    /// agents: makes them visible, and gives the keys that had another value, encoded with empty
    /// values.
    fn settle(&mut self, request: u64, pairs: Pairs<'_>) -> Option<Vec<u8>> {
        let _ = (request, pairs);
        None
    }

    /// Fence `request` succeeded, and `changed` are the keys whose value is another one now.
    fn settled(&mut self, request: u64, changed: Pairs<'_>) {
        let _ = (request, changed);
    }

    /// Operation `request` failed.
    fn failed(&mut self, request: u64) {
        let _ = request;
    }
}

/// All pairs that the agent was given.
#[derive(Debug)]
pub(crate) struct Whole {
    store: Box<dyn NodeStore>,
    /// What the store had no room for.
    overflow: MapStore,
}

impl Whole {
    pub(crate) fn new(store: Box<dyn NodeStore>) -> Self {
        Self {
            store,
            overflow: MapStore::default(),
        }
    }

    /// Takes a key out, if it is there.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.store.remove(key);
        self.overflow.remove(key);
    }
}

impl Cache for Whole {
    fn bytes(&self) -> usize {
        self.store.bytes() + self.overflow.bytes()
    }

    fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        self.store.get(key).or_else(|| self.overflow.get(key))
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) {
        match self.store.insert(key, value) {
            Ok(()) => self.overflow.remove(key),
            // Its own memory takes everything.
            Err(StoreFull) => self.overflow.insert(key, value).unwrap_or_default(),
        }
    }

    fn insert_all(&mut self, pairs: Pairs<'_>) {
        self.store.begin(pairs.count() as usize);
        for (key, value) in pairs.iter() {
            self.insert(key, value);
        }
        self.store.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Small(MapStore, usize);

    impl NodeStore for Small {
        fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreFull> {
            self.0.remove(key);
            if key.len() + value.len() > self.1 {
                return Err(StoreFull);
            }
            self.1 -= key.len() + value.len();
            self.0.insert(key, value)
        }

        fn get(&self, key: &[u8]) -> Option<&[u8]> {
            self.0.get(key)
        }

        fn remove(&mut self, key: &[u8]) {
            self.0.remove(key);
        }

        fn bytes(&self) -> usize {
            self.0.bytes()
        }
    }

    #[test]
    fn what_a_store_has_no_room_for_is_kept() {
        let store = Small(MapStore::default(), 6);
        let mut cache = Whole::new(Box::new(store));
        cache.insert(b"a", b"1");
        cache.insert(b"b", b"22");
        cache.insert(b"a", b"333");
        assert_eq!(cache.get(b"a"), Some(&b"333"[..]));
        assert_eq!(cache.get(b"b"), Some(&b"22"[..]));
        cache.remove(b"a");
        assert_eq!(cache.get(b"a"), None);
    }
}

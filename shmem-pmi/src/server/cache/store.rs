//! Where an agent keeps the pairs of the key-value space: the seam between the protocol and the
//! memory that holds them.

use std::collections::HashMap;
use std::fmt;

/// What a pair costs beside its bytes in a table of boxed keys and values.
const ENTRY: usize = 2 * size_of::<Box<[u8]>>() + 1;

/// The pairs that an agent holds. Keys have 1 to [`crate::wire::MAX_KEY`] bytes, values up to
/// [`crate::wire::MAX_VALUE`].
///
/// An implementation may let others read: the launcher's is memory that the PEs of the node share.
/// The server inserts the pairs of a fence before it tells anybody that the fence is complete.
pub trait NodeStore: fmt::Debug + Send {
    /// Adds a pair, or gives a key a new value.
    ///
    /// # Errors
    ///
    /// There is no room. The key must then not be found any more, with no value; the server keeps
    /// the pair elsewhere and answers for it.
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreFull>;

    /// The value of a key.
    fn get(&self, key: &[u8]) -> Option<&[u8]>;

    /// Takes a key out, if it is there.
    fn remove(&mut self, key: &[u8]);

    /// Bytes of memory in use: keys, values and what it takes to find them.
    fn bytes(&self) -> usize;

    /// Announces that many insertions, which [`NodeStore::end`] follows: what a store does to keep
    /// readers and the writer apart it can then do once. A hint.
    fn begin(&mut self, pairs: usize) {
        let _ = pairs;
    }

    /// Ends what [`NodeStore::begin`] began.
    fn end(&mut self) {}
}

/// A [`NodeStore`] has no room for a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node's store is full")]
pub struct StoreFull;

/// A [`NodeStore`] in the agent's own memory. It is never full.
#[derive(Debug, Default)]
pub struct MapStore {
    pairs: HashMap<Box<[u8]>, Box<[u8]>>,
    bytes: usize,
}

impl NodeStore for MapStore {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreFull> {
        self.bytes += value.len();
        match self.pairs.get_mut(key) {
            Some(old) => {
                self.bytes -= old.len();
                *old = value.into();
            }
            None => {
                self.bytes += key.len() + ENTRY;
                self.pairs.insert(key.into(), value.into());
            }
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.pairs.get(key).map(|value| &value[..])
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(value) = self.pairs.remove(key) {
            self.bytes -= key.len() + value.len() + ENTRY;
        }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn begin(&mut self, pairs: usize) {
        self.pairs.reserve(pairs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_what_is_there() {
        let mut store = MapStore::default();
        store.insert(b"a", b"1234").unwrap();
        assert_eq!(store.bytes(), 5 + ENTRY);
        store.insert(b"a", b"12").unwrap();
        store.insert(b"bc", b"").unwrap();
        assert_eq!(store.bytes(), 5 + 2 * ENTRY);
        assert_eq!(store.get(b"bc"), Some(&b""[..]));
        store.remove(b"a");
        store.remove(b"a");
        store.remove(b"bc");
        assert_eq!((store.bytes(), store.get(b"a")), (0, None));
    }
}

//! A cache of bounded memory that lets go of what was used longest ago.

use std::collections::HashMap;
use std::sync::Arc;

/// The end of the list of entries.
const NONE: u32 = u32::MAX;

/// What an entry costs beside its bytes: itself, its place in the table, and the counts before the
/// shared key.
const ENTRY: usize = size_of::<Entry>() + size_of::<(Arc<[u8]>, u32)>() + 1 + 16;

/// Pairs in the order of their last use, in a doubly linked list through a vector.
#[derive(Debug)]
pub(super) struct Lru {
    index: HashMap<Arc<[u8]>, u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    bytes: usize,
    limit: usize,
}

#[derive(Debug)]
struct Entry {
    key: Arc<[u8]>,
    value: Box<[u8]>,
    newer: u32,
    older: u32,
}

impl Lru {
    /// A cache of at most `limit` bytes, entries included.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            index: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            bytes: 0,
            limit,
        }
    }

    /// Bytes of keys, values and entries.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The value of a key, which is now the one used last.
    pub(super) fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        let at = *self.index.get(key)?;
        self.unlink(at);
        self.link(at);
        Some(&self.entries[at as usize].value)
    }

    /// Adds or replaces a pair. A pair that is larger than the whole cache is not kept.
    pub(super) fn insert(&mut self, key: &[u8], value: &[u8]) {
        self.remove(key);
        let needed = key.len() + value.len() + ENTRY;
        if needed > self.limit {
            return;
        }
        while self.bytes + needed > self.limit {
            let oldest = Arc::clone(&self.entries[self.oldest as usize].key);
            self.remove(&oldest);
        }
        let entry = Entry {
            key: key.into(),
            value: value.into(),
            newer: NONE,
            older: NONE,
        };
        let key = Arc::clone(&entry.key);
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.index.insert(key, at);
        self.bytes += needed;
        self.link(at);
    }

    /// Takes a key out, if it is there.
    pub(super) fn remove(&mut self, key: &[u8]) {
        let Some(at) = self.index.remove(key) else {
            return;
        };
        self.unlink(at);
        let value = std::mem::take(&mut self.entries[at as usize].value);
        self.entries[at as usize].key = Arc::default();
        self.bytes -= key.len() + value.len() + ENTRY;
        self.free.push(at);
    }

    /// Makes an entry outside the list its newest.
    fn link(&mut self, at: u32) {
        let older = std::mem::replace(&mut self.newest, at);
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older) = (NONE, older);
        match self.entries.get_mut(older as usize) {
            Some(next) => next.newer = at,
            None => self.oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut lru = Lru::new(3 * (ENTRY + 2));
        for key in [b"a", b"b", b"c"] {
            lru.insert(key, b"1");
        }
        assert_eq!(lru.get(b"a"), Some(&b"1"[..]));
        lru.insert(b"d", b"1");
        assert_eq!(lru.get(b"b"), None);
        assert!(lru.get(b"a").is_some() && lru.get(b"c").is_some() && lru.get(b"d").is_some());
        // What does not fit at all must not leave the old value behind.
        lru.insert(b"a", &[0; 1000]);
        assert_eq!(lru.get(b"a"), None);
    }

    proptest! {
        /// Against a list that does the same slowly.
        #[test]
        fn it_is_an_lru(ops in prop::collection::vec((any::<bool>(), 0u8..20, 0usize..40), 0..300)) {
            let limit = 5 * (ENTRY + 20);
            let mut lru = Lru::new(limit);
            let mut model: Vec<(u8, Vec<u8>)> = Vec::new();
            let cost = |pair: &(u8, Vec<u8>)| 1 + pair.1.len() + ENTRY;
            for (insert, key, len) in ops {
                let at = model.iter().position(|(k, _)| *k == key);
                if insert {
                    lru.insert(&[key], &vec![key; len]);
                    if let Some(at) = at {
                        model.remove(at);
                    }
                    model.push((key, vec![key; len]));
                    while model.iter().map(cost).sum::<usize>() > limit {
                        model.remove(0);
                    }
                } else {
                    let found = lru.get(&[key]).map(<[u8]>::to_vec);
                    prop_assert_eq!(found, at.map(|at| model[at].1.clone()));
                    if let Some(at) = at {
                        let pair = model.remove(at);
                        model.push(pair);
                    }
                }
                prop_assert_eq!(lru.bytes(), model.iter().map(cost).sum::<usize>());
                prop_assert!(lru.entries.len() <= 25);
            }
        }
    }
}

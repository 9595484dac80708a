//! What an agent remembers of the key-value space: the bulletin-board caches of chapter 3 of the
//! ScELA thesis (2009).
//!
//! The root always has every pair. What the others have, and how pairs get to the root, is the
//! [`CachePolicy`]; what PEs see is the same under all of them: a put is visible everywhere after
//! the fence that follows it, and not before.
//!
//! # Why no stale value is served
//!
//! Links keep order, and a value is stored at an agent only as it comes down from the parent or as
//! it passes on its way up. Where not all agents are sent all pairs, the root names in the result of
//! a fence those keys whose value has changed, and each agent forgets them before anybody learns that
//! the fence is complete. An answer with the old value was sent before that result and has come
//! before it; a question that is asked after it finds the new value on the way or at the root.

mod lru;
mod store;

use std::fmt;
use std::str::FromStr;

use super::Shared;
use crate::wire::tree::{Pairs, append_pair};
use lru::Lru;
pub use store::{MapStore, NodeStore, StoreFull};

/// How the pairs of the key-value space travel between agents, and which of them an agent keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CachePolicy {
    /// Hierarchical cache, simple: each put goes up to the root at once, in a message of its own,
    /// and stays in the caches on its way; a get that misses goes up to the first agent that has
    /// the key, and the answer stays in the caches on its way down.
    Hcs,
    /// With message aggregation: an agent sends the puts of all PEs below it up in the one message
    /// of the fence. Gets as under [`CachePolicy::Hcs`].
    Hcma,
    /// With aggregation and broadcast: the root sends the pairs of a fence to all agents. No get
    /// ever leaves its node; each node holds all pairs.
    #[default]
    Hcmab,
    /// As [`CachePolicy::Hcmab`], in at most `bytes` of memory at every agent but the root: what was
    /// used longest ago is forgotten, and a get of it goes up. The root forgets nothing.
    HcmabLru {
        /// Memory for pairs in bytes, their bookkeeping included.
        bytes: usize,
    },
}

impl CachePolicy {
    /// Its name in the settings.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hcs => "hcs",
            Self::Hcma => "hcma",
            Self::Hcmab => "hcmab",
            Self::HcmabLru { .. } => "hcmab-lru",
        }
    }

    /// Whether the pairs of a fence are sent to all agents.
    pub(super) fn broadcasts(&self) -> bool {
        matches!(self, Self::Hcmab | Self::HcmabLru { .. })
    }
}

impl fmt::Display for CachePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::HcmabLru { bytes } => write!(f, ":{bytes}"),
            _ => Ok(()),
        }
    }
}

impl FromStr for CachePolicy {
    type Err = String;

    /// Reads what [`CachePolicy`] displays as, for example `hcs` or `hcmab-lru:65536`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "hcs" => Ok(Self::Hcs),
            None if text == "hcma" => Ok(Self::Hcma),
            None if text == "hcmab" => Ok(Self::Hcmab),
            Some(("hcmab-lru", bytes)) => {
                let bytes = bytes.parse().map_err(|e| format!("`{bytes}`: {e}"))?;
                Ok(Self::HcmabLru { bytes })
            }
            _ => Err(format!(
                "`{text}` is none of hcs, hcma, hcmab, hcmab-lru:BYTES"
            )),
        }
    }
}

/// The pairs that an agent holds.
#[derive(Debug)]
enum Held {
    /// Whatever it was given.
    All(Box<dyn NodeStore>),
    /// What was used last.
    Recent(Lru),
}

/// Pairs that passed on their way up, which some fence will make visible.
#[derive(Debug)]
struct Staged {
    /// The first operation that can be that fence.
    from: u64,
    pairs: Shared,
}

/// The cache of one agent.
#[derive(Debug)]
pub(super) struct Cache {
    policy: CachePolicy,
    /// Whether a key that is not here is nowhere.
    complete: bool,
    held: Held,
    /// What the store had no room for.
    overflow: MapStore,
    staged: Vec<Staged>,
}

impl Cache {
    pub(super) fn new(policy: CachePolicy, is_root: bool, store: Box<dyn NodeStore>) -> Self {
        let held = match policy {
            CachePolicy::HcmabLru { bytes } if !is_root => Held::Recent(Lru::new(bytes)),
            _ => Held::All(store),
        };
        Self {
            complete: is_root || policy == CachePolicy::Hcmab,
            policy,
            held,
            overflow: MapStore::default(),
            staged: Vec::new(),
        }
    }

    pub(super) fn policy(&self) -> CachePolicy {
        self.policy
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Bytes of memory for pairs, visible ones and others.
    pub(super) fn bytes(&self) -> usize {
        let held = match &self.held {
            Held::All(store) => store.bytes(),
            Held::Recent(lru) => lru.bytes(),
        };
        let staged = self.staged.iter().map(|s| s.pairs.len()).sum::<usize>();
        held + self.overflow.bytes() + staged
    }

    /// The visible value of a key, if it is here.
    pub(super) fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        match &mut self.held {
            Held::All(store) => store.get(key).or_else(|| self.overflow.get(key)),
            Held::Recent(lru) => lru.get(key),
        }
    }

    /// Makes a pair visible here.
    pub(super) fn insert(&mut self, key: &[u8], value: &[u8]) {
        match &mut self.held {
            Held::All(store) => match store.insert(key, value) {
                Ok(()) => self.overflow.remove(key),
                // Its own memory takes everything.
                Err(StoreFull) => self.overflow.insert(key, value).unwrap_or_default(),
            },
            Held::Recent(lru) => lru.insert(key, value),
        }
    }

    /// Makes the pairs of a fence visible.
    pub(super) fn insert_all(&mut self, pairs: Pairs<'_>) {
        if let Held::All(store) = &mut self.held {
            store.begin(pairs.count() as usize);
        }
        for (key, value) in pairs.iter() {
            self.insert(key, value);
        }
        if let Held::All(store) = &mut self.held {
            store.end();
        }
    }

    fn remove(&mut self, key: &[u8]) {
        match &mut self.held {
            Held::All(store) => store.remove(key),
            Held::Recent(lru) => lru.remove(key),
        }
        self.overflow.remove(key);
    }

    /// Keeps encoded pairs that passed on their way up until a fence with number `from` or more
    /// succeeds.
    pub(super) fn stage(&mut self, from: u64, pairs: Shared) {
        self.staged.push(Staged { from, pairs });
    }

    /// What waits for fence `request`, in the order in which it passed.
    fn take_staged(&mut self, request: u64) -> Vec<Staged> {
        self.staged
            .extract_if(.., |staged| staged.from <= request)
            .collect()
    }

    /// Fence `request` succeeded, here at the root: makes its pairs visible, those that came with it
    /// and those that came before. Gives the keys that had another value, encoded with empty
    /// values, and their number.
    pub(super) fn settle(&mut self, request: u64, pairs: Pairs<'_>) -> (Vec<u8>, u32) {
        let (mut changed, mut count) = (Vec::new(), 0);
        let mut settle = |cache: &mut Self, pairs: Pairs<'_>| {
            for (key, value) in pairs.iter() {
                if cache.get(key).is_some_and(|old| old != value) {
                    append_pair(&mut changed, key, b"");
                    count += 1;
                }
                cache.insert(key, value);
            }
        };
        for staged in self.take_staged(request) {
            settle(self, Pairs::checked(&staged.pairs));
        }
        settle(self, pairs);
        (changed, count)
    }

    /// Fence `request` succeeded, and `changed` are the keys whose value is another one now: makes
    /// visible what passed here, and forgets those.
    pub(super) fn settled(&mut self, request: u64, changed: Pairs<'_>) {
        for staged in self.take_staged(request) {
            self.insert_all(Pairs::checked(&staged.pairs));
        }
        for (key, _) in changed.iter() {
            self.remove(key);
        }
    }

    /// Operation `request` failed: what was to become visible with exactly it never will, here as
    /// at the root.
    pub(super) fn failed(&mut self, request: u64) {
        if self.policy == CachePolicy::Hcma {
            self.staged.retain(|staged| staged.from != request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn policies_have_names() {
        for policy in [
            CachePolicy::Hcs,
            CachePolicy::Hcma,
            CachePolicy::Hcmab,
            CachePolicy::HcmabLru { bytes: 77 },
        ] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for text in ["", "hcmab-lru", "hcmab-lru:", "hcs:1", "lru"] {
            assert!(text.parse::<CachePolicy>().is_err(), "{text}");
        }
    }

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
        let mut cache = Cache::new(CachePolicy::Hcmab, true, Box::new(store));
        cache.insert(b"a", b"1");
        cache.insert(b"b", b"22");
        cache.insert(b"a", b"333");
        assert_eq!(cache.get(b"a"), Some(&b"333"[..]));
        assert_eq!(cache.get(b"b"), Some(&b"22"[..]));
        cache.remove(b"a");
        assert_eq!(cache.get(b"a"), None);
    }

    fn pairs(list: &[(&str, &str)]) -> (Vec<u8>, u32) {
        let mut bytes = Vec::new();
        for (key, value) in list {
            append_pair(&mut bytes, key.as_bytes(), value.as_bytes());
        }
        (bytes, list.len() as u32)
    }

    #[test]
    fn the_root_names_the_keys_that_changed() {
        let mut root = Cache::new(CachePolicy::Hcs, true, Box::<MapStore>::default());
        let stage = |root: &mut Cache, from, list: &[(&str, &str)]| {
            root.stage(from, Shared::from(Arc::new(pairs(list).0)));
        };
        stage(&mut root, 0, &[("a", "1")]);
        stage(&mut root, 1, &[("late", "1")]);
        stage(&mut root, 0, &[("b", "1"), ("c", "1")]);
        assert_eq!(root.get(b"a"), None);
        let none = Pairs::checked(&[]);
        assert_eq!(root.settle(0, none), pairs(&[]));
        assert_eq!(root.get(b"a"), Some(&b"1"[..]));
        assert_eq!(root.get(b"late"), None, "put after the PE had joined");
        stage(&mut root, 1, &[("a", "2"), ("b", "1"), ("d", "1")]);
        assert_eq!(root.settle(2, none), pairs(&[("a", "")]));
        assert_eq!(root.get(b"late"), Some(&b"1"[..]));
    }
}

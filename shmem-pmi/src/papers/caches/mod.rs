//! Caches of agents that do not hold all pairs: the bulletin-board caches of chapter 3 of the ScELA
//! thesis (2009).
//!
//! # Why no stale value is served
//!
//! Links keep order, and a value is stored at an agent only as it comes down from the parent or as
//! it passes on its way up. Where not all agents are sent all pairs, the root names in the result of
//! a fence those keys whose value has changed, and each agent forgets them before anybody learns that
//! the fence is complete. An answer with the old value was sent before that result and has come
//! before it; a question that is asked after it finds the new value on the way or at the root.

mod lru;

use std::sync::Arc;

use crate::server::Shared;
use crate::server::cache::whole::{Cache, Whole};
use crate::wire::tree::{Body, FENCE_PAIRS, Message, Pairs, append_pair};
use lru::Lru;

/// Pairs that passed on their way up, which some fence will make visible.
#[derive(Debug)]
struct Staged {
    /// The first operation that can be that fence.
    from: u64,
    pairs: Shared,
}

/// A cache that keeps what passes, up or down; the root has all. HCS and HCMA.
#[derive(Debug)]
pub(crate) struct Hierarchical {
    held: Whole,
    is_root: bool,
    /// Whether each put goes up at once, in a message of its own, and not with the fence.
    eager: bool,
    staged: Vec<Staged>,
}

impl Hierarchical {
    /// Hierarchical cache, simple.
    pub(crate) fn eager(held: Whole, is_root: bool) -> Self {
        Self {
            held,
            is_root,
            eager: true,
            staged: Vec::new(),
        }
    }

    /// With message aggregation.
    pub(crate) fn aggregating(held: Whole, is_root: bool) -> Self {
        Self {
            eager: false,
            ..Self::eager(held, is_root)
        }
    }

    /// What waits for fence `request`, in the order in which it passed.
    fn take_staged(&mut self, request: u64) -> Vec<Staged> {
        self.staged
            .extract_if(.., |staged| staged.from <= request)
            .collect()
    }
}

impl Cache for Hierarchical {
    fn bytes(&self) -> usize {
        let staged = self.staged.iter().map(|s| s.pairs.len()).sum::<usize>();
        self.held.bytes() + staged
    }

    fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        self.held.get(key)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) {
        self.held.insert(key, value);
    }

    fn insert_all(&mut self, pairs: Pairs<'_>) {
        self.held.insert_all(pairs);
    }

    fn is_complete(&self) -> bool {
        self.is_root
    }

    fn put(&mut self, from: u64, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        if !self.eager {
            return None;
        }
        let mut pair = Vec::new();
        append_pair(&mut pair, key, value);
        self.puts_pass(from, Shared::from(Arc::new(pair.clone())));
        Some(pair)
    }

    fn fence_brings_puts(&self) -> bool {
        !self.eager
    }

    fn puts_pass(&mut self, from: u64, pairs: Shared) {
        self.staged.push(Staged { from, pairs });
    }

    fn goes_up(&mut self, request: u64, message: &Arc<Vec<u8>>) {
        if !self.eager
            && let Ok(Body::Fence(pairs)) = Message::decode(message).map(|m| m.body)
            && pairs.count() > 0
        {
            let pairs = Shared::new(Arc::clone(message), FENCE_PAIRS..message.len());
            self.puts_pass(request, pairs);
        }
    }

    /// Ends an operation, whose pairs are those that come with its end and those that came before.
    fn settle(&mut self, request: u64, pairs: Pairs<'_>) -> Option<Vec<u8>> {
        let mut changed = Vec::new();
        let before = self.take_staged(request);
        let before = before.iter().map(|staged| Pairs::checked(&staged.pairs));
        for (key, value) in before.chain([pairs]).flat_map(|pairs| pairs.iter()) {
            if self.get(key).is_some_and(|old| old != value) {
                append_pair(&mut changed, key, b"");
            }
            self.insert(key, value);
        }
        Some(changed)
    }

    /// Makes visible what passed here, and forgets the others' changes.
    fn settled(&mut self, request: u64, changed: Pairs<'_>) {
        for staged in self.take_staged(request) {
            self.insert_all(Pairs::checked(&staged.pairs));
        }
        for (key, _) in changed.iter() {
            self.held.remove(key);
        }
    }

    /// What was to become visible with exactly it never will, here as at the root.
    fn failed(&mut self, request: u64) {
        if !self.eager {
            self.staged.retain(|staged| staged.from != request);
        }
    }
}

/// A cache of bounded memory below a root that has all: HCMAB-LRU.
#[derive(Debug)]
pub(crate) struct Recent(Lru);

impl Recent {
    /// At most `bytes`, bookkeeping included.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Lru::new(bytes))
    }
}

impl Cache for Recent {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        self.0.get(key)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(key, value);
    }

    fn is_complete(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::MapStore;

    fn pairs(list: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (key, value) in list {
            append_pair(&mut bytes, key.as_bytes(), value.as_bytes());
        }
        bytes
    }

    #[test]
    fn the_root_names_the_keys_that_changed() {
        let mut root = Hierarchical::eager(Whole::new(Box::<MapStore>::default()), true);
        let stage = |root: &mut Hierarchical, from, list: &[(&str, &str)]| {
            root.puts_pass(from, Shared::from(Arc::new(pairs(list))));
        };
        stage(&mut root, 0, &[("a", "1")]);
        stage(&mut root, 1, &[("late", "1")]);
        stage(&mut root, 0, &[("b", "1"), ("c", "1")]);
        assert_eq!(root.get(b"a"), None);
        let none = Pairs::checked(&[]);
        assert_eq!(root.settle(0, none), Some(pairs(&[])));
        assert_eq!(root.get(b"a"), Some(&b"1"[..]));
        assert_eq!(root.get(b"late"), None, "put after the PE had joined");
        stage(&mut root, 1, &[("a", "2"), ("b", "1"), ("d", "1")]);
        assert_eq!(root.settle(2, none), Some(pairs(&[("a", "")])));
        assert_eq!(root.get(b"late"), Some(&b"1"[..]));
    }
}

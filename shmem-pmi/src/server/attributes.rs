//! The attributes of a node, which its PEs put for each other without a fence.

use std::collections::HashMap;

use super::Waiter;

/// The attributes, and the PEs that wait for attributes which no PE has put.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    values: HashMap<Box<[u8]>, Box<[u8]>>,
    waiters: HashMap<Box<[u8]>, Vec<Waiter>>,
}

impl Attributes {
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(|value| &**value)
    }

    /// Sets an attribute. Returns the PEs that wait for it: each needs a reply.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Vec<Waiter> {
        self.values.insert(key.into(), value.into());
        self.waiters.remove(key).unwrap_or_default()
    }

    pub(super) fn await_put(&mut self, key: &[u8], waiter: Waiter) {
        self.waiters.entry(key.into()).or_default().push(waiter);
    }

    /// Removes the PE from those that wait.
    pub(super) fn forget(&mut self, local: usize) {
        self.waiters.retain(|_, waiters| {
            waiters.retain(|waiter| waiter.local != local);
            !waiters.is_empty()
        });
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty()
    }
}

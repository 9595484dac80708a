//! Asynchronous events of the engine.

#![forbid(unsafe_code)]

use shmem_verbs::AsyncEvent;

use super::engine::Engine;
use super::mr::Memory;

impl<M: Memory> Engine<M> {
    /// Takes the oldest asynchronous event.
    pub fn poll_async(&mut self) -> Option<AsyncEvent> {
        self.events.pop()
    }

    /// Whether there is an asynchronous event to take.
    pub fn has_async(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn raise(&mut self, event: AsyncEvent) {
        self.counters.events_lost += u64::from(self.events.push(event));
    }
}

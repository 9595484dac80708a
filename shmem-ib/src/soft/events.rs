//! Asynchronous events, and who gets them.

#![forbid(unsafe_code)]

use super::engine::Engine;
use super::mr::Memory;
use crate::verbs::AsyncEvent;

impl<M: Memory> Engine<M> {
    /// Takes the oldest asynchronous event.
    pub fn poll_async(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    /// Whether there is an asynchronous event to take.
    pub fn has_async(&self) -> bool {
        !self.events.is_empty()
    }
}

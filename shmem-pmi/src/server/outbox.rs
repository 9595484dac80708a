//! What the node server gives its driver to do, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Output;
use super::passing::Passing;

/// Outputs, and those that wait until a result has passed.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    events: VecDeque<Output>,
    /// The result that is coming down.
    passing: Option<Passing>,
    /// What must not come between the pieces of that result on the links to the children.
    held_back: Vec<Output>,
}

impl Outbox {
    pub(super) fn push(&mut self, output: Output) {
        self.events.push_back(output);
    }

    pub(super) fn extend(&mut self, outputs: Vec<Output>) {
        self.events.extend(outputs);
    }

    /// A whole message for a child does not come between the pieces of another.
    pub(super) fn push_to_child(&mut self, child: usize, bytes: Arc<Vec<u8>>) {
        let output = Output::ToChild { child, bytes };
        match self.passing.is_some() {
            true => self.held_back.push(output),
            false => self.push(output),
        }
    }

    /// From now on no other message comes between the pieces of this result.
    pub(super) fn begin_passing(&mut self, passing: Passing) {
        self.passing = Some(passing);
    }

    pub(super) fn passing(&mut self) -> Option<&mut Passing> {
        self.passing.as_mut()
    }

    /// All pieces are in the outbox.
    pub(super) fn end_passing(&mut self) {
        self.passing = None;
        self.events.extend(self.held_back.drain(..));
    }

    pub(super) fn pop(&mut self) -> Option<Output> {
        self.events.pop_front()
    }

    /// Whether there is no output, and no result is on its way through.
    pub(super) fn is_idle(&self) -> bool {
        self.events.is_empty() && self.passing.is_none()
    }
}

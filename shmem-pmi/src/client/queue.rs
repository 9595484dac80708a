//! The calls that have been made and what came of them.

use std::collections::{HashMap, VecDeque};

use super::call::{Call, Name};
use super::{Event, Refusal, RequestId, Ticket};

/// A request that has been sent or is held back, and what its reply means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) command: Name,
    /// For collective operations and waits.
    pub(super) request: Option<RequestId>,
    /// A plain fence under an `ifence`: its completion is told to those who wait.
    pub(super) emulated: bool,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// One at a time: what must not be sent yet.
    pub(super) held: VecDeque<(Call, Pending)>,
    /// Sent, without reply.
    pub(super) pending: VecDeque<Pending>,
    pub(super) events: VecDeque<(Ticket, Event)>,
    /// One at a time: calls of `wait` for a fence that is under way.
    waits: Vec<(Ticket, RequestId)>,
    /// One at a time: fences that failed.
    failed: HashMap<RequestId, Refusal>,
}

impl Queue {
    pub(super) fn outstanding(&self) -> usize {
        self.pending.len() + self.held.len() + self.waits.len()
    }

    /// The outcome of the pending call at `index`.
    pub(super) fn settle(&mut self, index: usize, outcome: Event) {
        let Some(pending) = self.pending.remove(index) else {
            return;
        };
        if !pending.emulated {
            self.events.push_back((pending.ticket, outcome));
            return;
        }
        if let (Some(request), Event::Error(refusal)) = (pending.request, outcome) {
            self.failed.insert(request, refusal);
        }
        let waits = std::mem::take(&mut self.waits);
        for (ticket, request) in waits {
            if pending.request == Some(request) {
                self.tell_wait(ticket, request);
            } else {
                self.waits.push((ticket, request));
            }
        }
    }

    /// One at a time: tells `ticket` when `request` is over.
    pub(super) fn wait(&mut self, ticket: Ticket, request: RequestId) {
        let held = self.held.iter().map(|(_, pending)| pending);
        let mut under_way = self.pending.iter().chain(held);
        if under_way.any(|pending| pending.request == Some(request)) {
            self.waits.push((ticket, request));
        } else {
            self.tell_wait(ticket, request);
        }
    }

    fn tell_wait(&mut self, ticket: Ticket, request: RequestId) {
        let event = match self.failed.get(&request) {
            Some(refusal) => Event::Error(refusal.clone()),
            None => Event::RequestDone(request),
        };
        self.events.push_back((ticket, event));
    }
}

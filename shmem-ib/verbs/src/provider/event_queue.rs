//! Asynchronous events: what happens to an object outside of any work request.
//!
//! Nobody has to take them, so they are bounded. [`AsyncEvent::CommEst`] comes once per connection
//! and is only a hint: few are kept. Of the others one object gives one or two, and the bound is
//! above what a program that looks now and then can meet; what exceeds it is counted in
//! [`Counters::events_lost`](crate::Counters::events_lost).

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use crate::AsyncEvent;

/// Beyond so many waiting events no hint is added.
const HINTS: usize = 64;
/// Most events that wait.
const MAX_EVENTS: usize = 1 << 16;

/// Events that nobody has taken.
#[derive(Debug, Default)]
pub struct EventQueue(VecDeque<AsyncEvent>);

impl EventQueue {
    /// Appends an event; returns whether it was lost.
    pub fn push(&mut self, event: AsyncEvent) -> bool {
        let hint = matches!(event, AsyncEvent::CommEst(_));
        let bound = if hint { HINTS } else { MAX_EVENTS };
        if self.0.len() >= bound {
            return !hint;
        }
        self.0.push_back(event);
        false
    }

    /// Drops the events of a destroyed object.
    pub fn forget(&mut self, of_this: impl Fn(&AsyncEvent) -> bool) {
        self.0.retain(|e| !of_this(e));
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<AsyncEvent> {
        self.0.pop_front()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cq, Qpn};

    #[test]
    fn hints_are_few_and_the_rest_is_bounded() {
        let mut events = EventQueue::default();
        for i in 0..1000 {
            assert!(!events.push(AsyncEvent::CommEst(Qpn(i))));
        }
        assert_eq!(events.0.len(), HINTS);
        let lost = (0..MAX_EVENTS).filter(|_| events.push(AsyncEvent::SqDrained(Qpn(1))));
        assert_eq!(lost.count(), HINTS);
        assert_eq!(events.0.len(), MAX_EVENTS);
    }

    #[test]
    fn events_of_the_destroyed_vanish() {
        let mut events = EventQueue::default();
        events.push(AsyncEvent::QpFatal(Qpn(1)));
        events.push(AsyncEvent::CqErr(Cq(1)));
        events.push(AsyncEvent::QpFatal(Qpn(2)));
        events.forget(|e| e.qp() == Some(Qpn(1)));
        assert_eq!(
            events.0,
            [AsyncEvent::CqErr(Cq(1)), AsyncEvent::QpFatal(Qpn(2))]
        );
    }
}

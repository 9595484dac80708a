//! Virtual time: what is going to happen, in the order of time, and of making where times are equal. Models of jobs
//! share it, so that the same inputs give the same outputs.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// An event and its time in nanoseconds.
#[derive(Debug)]
struct Due<E> {
    at: f64,
    number: u64,
    event: E,
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = self.at.total_cmp(&other.at);
        by_time.then(self.number.cmp(&other.number))
    }
}

/// Events to come.
#[derive(Debug)]
pub struct Agenda<E> {
    due: BinaryHeap<Reverse<Due<E>>>,
    made: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self {
            due: BinaryHeap::new(),
            made: 0,
        }
    }
}

impl<E> Agenda<E> {
    /// The event happens at that time, in nanoseconds.
    pub fn add(&mut self, at: f64, event: E) {
        self.made += 1;
        let number = self.made;
        self.due.push(Reverse(Due { at, number, event }));
    }
}

/// The next event and its time, each time.
impl<E> Iterator for Agenda<E> {
    type Item = (f64, E);

    fn next(&mut self) -> Option<(f64, E)> {
        let Reverse(due) = self.due.pop()?;
        Some((due.at, due.event))
    }
}

#[cfg(test)]
mod tests {
    use super::Agenda;

    #[test]
    fn events_come_in_the_order_of_time_and_of_making() {
        let mut agenda = Agenda::default();
        for (at, event) in [(2.0, 'c'), (1.0, 'a'), (2.0, 'd'), (1.0, 'b')] {
            agenda.add(at, event);
        }
        let all: Vec<_> = agenda.collect();
        assert_eq!(all, [(1.0, 'a'), (1.0, 'b'), (2.0, 'c'), (2.0, 'd')]);
    }
}

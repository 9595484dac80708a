//! Places of which a PE of the node has told a backtrace, so that the others need not.

use std::sync::atomic::{AtomicU64, Ordering};

/// Behind the other words in the first region of the heap memory. Zeroed memory notes none.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Traces([AtomicU64; 8]);

impl Traces {
    /// Notes a place, which is a hash of it. As many as there is room for are enough.
    pub fn add(&self, place: u64) {
        for word in &self.0 {
            let taken = word.compare_exchange(0, place, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() || taken == Err(place) {
                return;
            }
        }
    }

    /// Whether no backtrace of that place is needed: it was noted, or too many others were.
    pub fn has(&self, place: u64) -> bool {
        let full = || self.0.iter().all(|w| w.load(Ordering::Relaxed) != 0);
        let noted = |w: &AtomicU64| w.load(Ordering::Relaxed) == place;
        self.0.iter().any(noted) || full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_noted_once_and_only_some() {
        let traces = Traces::default();
        assert!(!traces.has(5));
        traces.add(5);
        traces.add(5);
        assert!(traces.has(5) && !traces.has(6));
        (10..17).for_each(|place| traces.add(place));
        assert!(traces.has(16) && traces.has(6), "enough were told");
        traces.add(6);
        assert!(traces.has(5));
    }
}

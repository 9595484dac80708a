//! How long packets may be cut on their way after a peer was silent.
//!
//! A peer that is stopped looks like a link that drops long packets: nothing comes back. So cutting is tried for a while.
//! Where it is needed again after that, the while doubles, because each end of it costs some lost packets.

/// How long packets may be cut, at first and at most.
const FIRST_NS: u64 = 60_000_000_000;
const LAST_NS: u64 = 3_600_000_000_000;

/// Whether packets may be cut now. Times are nanoseconds of any clock.
#[derive(Debug, Default)]
pub(super) struct Cutting {
    until: Option<u64>,
    /// How long they may, the last time.
    span: u64,
}

impl Cutting {
    /// A peer is silent. Returns whether cutting begins: it goes on already, or not.
    pub(super) fn begins(&mut self, now: u64) -> bool {
        if self.until.is_some() {
            return false;
        }
        self.span = (2 * self.span).clamp(FIRST_NS, LAST_NS);
        self.until = Some(now.saturating_add(self.span));
        true
    }

    /// Returns whether cutting ends.
    pub(super) fn ends(&mut self, now: u64) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_ends_and_lasts_longer_each_time() {
        let mut cutting = Cutting::default();
        assert!(!cutting.ends(u64::MAX), "nothing to end");
        let (mut now, mut spans) = (5, Vec::new());
        for _ in 0..8 {
            assert!(cutting.begins(now));
            assert!(!cutting.begins(now + 1), "once");
            let from = now;
            now = cutting.until.unwrap();
            assert!(!cutting.ends(now - 1));
            assert!(cutting.ends(now));
            assert!(!cutting.ends(now), "once");
            spans.push((now - from) / 1_000_000_000);
        }
        assert_eq!(spans, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
    }
}

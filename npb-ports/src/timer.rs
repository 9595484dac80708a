//! The clock of the timed region.

use std::time::Instant;

/// Wall-clock time since [`Timer::start`]. It is monotonic.
#[derive(Clone, Copy, Debug)]
pub struct Timer(Instant);

impl Timer {
    /// Starts a measurement. All PEs should have met in a barrier just before.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Seconds since the start.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Millions of operations a second, or 0 for a time too short to measure, where the quotient would
/// not be a number that a report can show.
#[must_use]
pub fn mops(operations: f64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        operations / seconds / 1e6
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_forward() {
        let timer = Timer::start();
        let first = timer.seconds();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let second = timer.seconds();
        assert!(first >= 0.0 && second - first >= 0.002);
    }

    #[test]
    fn rate_of_no_time_is_zero() {
        assert_eq!(mops(4e6, 2.0), 2.0);
        assert_eq!(mops(4e6, 0.0), 0.0);
    }
}

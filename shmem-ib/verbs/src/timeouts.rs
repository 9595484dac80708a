//! The codes by which queue pairs are told times, and the times that they stand for.

use std::time::Duration;

/// The local ACK timeout of a code from 1 to 31: 4.096 us times two to the power of the code.
#[must_use]
pub const fn ack_timeout(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 0x1f))
}

/// The code of the shortest local ACK timeout that is no shorter than this; of the longest (2.4 hours), where
/// none is.
#[must_use]
pub fn ack_timeout_code(at_least: Duration) -> u8 {
    (1..31)
        .find(|code| ack_timeout(*code) >= at_least)
        .unwrap_or(31)
}

/// How long an RNR NAK with this code asks to wait, in nanoseconds (code 0 is the longest, 655.36 ms).
#[must_use]
pub const fn rnr_delay_ns(code: u8) -> u64 {
    const HUNDREDTHS_MS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    HUNDREDTHS_MS[(code & 0x1f) as usize] as u64 * 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_for_no_less_than_was_asked_for() {
        assert_eq!(ack_timeout(14), Duration::from_nanos(67_108_864));
        for code in 1..=31 {
            assert_eq!(ack_timeout_code(ack_timeout(code)), code);
            let more = ack_timeout(code) + Duration::from_nanos(1);
            assert_eq!(ack_timeout_code(more), (code + 1).min(31));
        }
        assert_eq!(ack_timeout_code(Duration::ZERO), 1);
        assert_eq!(ack_timeout_code(Duration::MAX), 31);
    }
}

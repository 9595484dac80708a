//! Counters of connection management, for reports and for tests.

#![forbid(unsafe_code)]

/// Durations below 2^10 ns share the first bucket.
const FIRST_OCTAVE: u32 = 10;
/// Durations from 2^37 ns, over two minutes, share the last one.
const LAST_OCTAVE: u32 = 37;
/// Buckets of one octave: quantiles are at most an eighth too large.
const PER_OCTAVE: usize = 8;
const BUCKETS: usize = (LAST_OCTAVE - FIRST_OCTAVE) as usize * PER_OCTAVE + 2;

/// The distribution of a series of durations in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Their sum.
    pub total: u64,
    /// The smallest; 0 if there is none.
    pub min: u64,
    /// The largest.
    pub max: u64,
    buckets: [u32; BUCKETS],
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            count: 0,
            total: 0,
            min: 0,
            max: 0,
            buckets: [0; BUCKETS],
        }
    }
}

impl std::fmt::Debug for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latency")
            .field("count", &self.count)
            .field("min", &self.min)
            .field("mean", &self.mean())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max)
            .finish()
    }
}

impl Latency {
    /// Adds one measurement.
    pub fn record(&mut self, nanos: u64) {
        self.min = if self.count == 0 {
            nanos
        } else {
            self.min.min(nanos)
        };
        self.max = self.max.max(nanos);
        self.total = self.total.saturating_add(nanos);
        self.count += 1;
        let bucket = &mut self.buckets[bucket_of(nanos)];
        *bucket = bucket.saturating_add(1);
    }

    /// Adds all measurements of another series.
    pub fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = self.max.max(other.max);
        self.total = self.total.saturating_add(other.total);
        self.count += other.count;
        for (mine, its) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*its);
        }
    }

    /// The arithmetic mean; 0 if nothing was measured.
    #[must_use]
    pub const fn mean(&self) -> u64 {
        match self.total.checked_div(self.count) {
            Some(mean) => mean,
            None => 0,
        }
    }

    /// A duration that the fraction `q` (0 to 1) of all measurements does not exceed: at least
    /// the exact quantile, and at most an eighth above it, or 1024 ns if it is below. 0 if
    /// nothing was measured.
    #[must_use]
    pub fn quantile(&self, q: f64) -> u64 {
        let total: u64 = self.buckets.iter().map(|n| u64::from(*n)).sum();
        let wanted = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += u64::from(*n);
            if seen >= wanted {
                return upper_end(i).clamp(self.min, self.max);
            }
        }
        self.max
    }
}

fn bucket_of(nanos: u64) -> usize {
    if nanos < 1 << FIRST_OCTAVE {
        return 0;
    }
    if nanos >= 1 << LAST_OCTAVE {
        return BUCKETS - 1;
    }
    let octave = nanos.ilog2();
    let part = (nanos >> (octave - 3)) as usize & (PER_OCTAVE - 1);
    1 + (octave - FIRST_OCTAVE) as usize * PER_OCTAVE + part
}

/// The largest duration that belongs to a bucket.
const fn upper_end(bucket: usize) -> u64 {
    if bucket == 0 {
        return (1 << FIRST_OCTAVE) - 1;
    }
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let octave = FIRST_OCTAVE as usize + (bucket - 1) / PER_OCTAVE;
    let part = (bucket - 1) % PER_OCTAVE;
    ((PER_OCTAVE + part + 1) as u64) * (1 << (octave - 3)) - 1
}

/// What the connection manager has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ConnectStats {
    /// Connections that the local program asked for.
    pub started: u64,
    /// Connections made because a peer asked, while the local program did not.
    pub accepted: u64,
    /// Connections that became usable for local operations.
    pub opened: u64,
    /// Wanted connections that failed.
    pub failed: u64,
    /// Both sides asked before either heard the other.
    pub simultaneous: u64,
    /// Open connections that ended because the peer replaced its side.
    pub replaced: u64,
    /// OFFERs sent, with those repeated.
    pub offers_sent: u64,
    /// WAITs sent.
    pub waits_sent: u64,
    /// BYEs sent, with those repeated.
    pub byes_sent: u64,
    /// BYEs sent again because the peer's own, or the DRAIN of its XRC initiator, did not come in time.
    pub byes_repeated: u64,
    /// BYEs received and authentic.
    pub byes_received: u64,
    /// Peers whose BYE had not come when the linger time was over.
    pub byes_missed: u64,
    /// OFFERs sent again because no answer came in time.
    pub retransmissions: u64,
    /// OFFERs received and authentic.
    pub offers_received: u64,
    /// WAITs received and authentic.
    pub waits_received: u64,
    /// Messages that told nothing new.
    pub duplicates: u64,
    /// Messages about an earlier queue pair.
    pub stale: u64,
    /// Datagrams with a wrong MAC.
    pub bad_mac: u64,
    /// Messages of another job.
    pub wrong_job: u64,
    /// Messages for another PE, or from a PE that this job does not have.
    pub wrong_pe: u64,
    /// Datagrams that are no messages.
    pub malformed: u64,
    /// When the first connection became usable, in nanoseconds of the driver's clock, which counts the
    /// time in which the process was stopped; 0: none.
    pub first_opened: u64,
    /// When the last one did.
    pub last_opened: u64,
    /// From the local program's request to the usable connection.
    pub first_contact: Latency,
    /// Connections that this side began to close to make room.
    pub evictions: u64,
    /// Connections that the peer began to close to make room for it.
    pub evictions_by_peer: u64,
    /// Own connection attempts that gave their queue pair to an older request.
    pub yields: u64,
    /// Requests of peers that had to wait for a queue pair of ours.
    pub requests_queued: u64,
    /// Connections that opened anew after an earlier one was closed to make room.
    pub reconnects: u64,
    /// DRAINs sent, with those repeated.
    pub drains_sent: u64,
    /// DRAINs received and authentic.
    pub drains_received: u64,
    /// DRAINs that were answered with WAIT first, since operations were under way.
    pub drains_deferred: u64,
    /// Drains given up, since the peer gave no sign of life.
    pub drains_abandoned: u64,
    /// From the decision to close a connection, or the peer's DRAIN, to the end of its queue pair.
    pub drain_time: Latency,
    /// Changed segments told to peers, with those repeated.
    pub segments_sent: u64,
    /// Changed segments of peers that were understood.
    pub segments_received: u64,
    /// Of the XRC transport.
    pub xrc: XrcStats,
}

/// What is counted of XRC connections only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct XrcStats {
    /// Peers that became reachable over a connection made with themselves.
    pub direct: u64,
    /// Peers that became reachable over a connection made with another PE of their node.
    pub indirect: u64,
    /// Initiator QPs made.
    pub initiators: u64,
    /// Target QPs made for initiators of others.
    pub targets: u64,
    /// ASKs sent, with those repeated.
    pub asks_sent: u64,
    /// Connections given up because the direct peer left before us.
    pub moved: u64,
}

impl ConnectStats {
    /// It is `reading` on the driver's clock, and before the present event so many connections had opened.
    pub(crate) const fn note_time(&mut self, opened_before: u64, reading: u64) {
        if self.opened == opened_before {
            return;
        }
        self.last_opened = reading;
        if self.first_opened == 0 {
            self.first_opened = reading;
        }
    }

    /// Datagrams that were dropped without looking at what they ask for.
    #[must_use]
    pub const fn rejected(&self) -> u64 {
        self.bad_mac + self.wrong_job + self.wrong_pe + self.malformed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_keeps_the_extremes() {
        let mut latency = Latency::default();
        assert_eq!(latency.mean(), 0);
        for nanos in [30, 10, 20] {
            latency.record(nanos);
        }
        assert_eq!(
            (latency.min, latency.mean(), latency.max, latency.count),
            (10, 20, 30, 3)
        );
    }

    #[test]
    fn buckets_are_ordered_without_gaps() {
        for bucket in 0..BUCKETS - 1 {
            let end = upper_end(bucket);
            assert_eq!((bucket_of(end), bucket_of(end + 1)), (bucket, bucket + 1));
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_close_to_the_exact_ones() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(0.5), 0);
        // 1 us to 10 ms, in an order that is not sorted.
        for i in 0..10_000u64 {
            latency.record((i * 7919 % 10_000 + 1) * 1000);
        }
        for (q, exact) in [
            (0.0, 1),
            (0.5, 5_000),
            (0.9, 9_000),
            (0.99, 9_900),
            (1.0, 10_000),
        ] {
            let (got, exact) = (latency.quantile(q), exact * 1000);
            assert!((exact..=exact + exact / 8).contains(&got), "{q}: {got}");
        }
        let mut sum = latency;
        sum.add(&Latency::default());
        sum.add(&latency);
        assert_eq!(sum.quantile(0.5), latency.quantile(0.5));
        assert_eq!((sum.count, sum.min, sum.max), (20_000, 1000, 10_000_000));
    }
}

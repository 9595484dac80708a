//! Counters of connection management, for reports and for tests.

#![forbid(unsafe_code)]

/// Smallest, mean and largest of a series of durations in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Their sum.
    pub total: u64,
    /// The smallest; 0 if there is none.
    pub min: u64,
    /// The largest.
    pub max: u64,
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
    }

    /// The arithmetic mean; 0 if nothing was measured.
    #[must_use]
    pub const fn mean(&self) -> u64 {
        match self.total.checked_div(self.count) {
            Some(mean) => mean,
            None => 0,
        }
    }
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
    /// New incarnations of peers.
    pub peer_restarts: u64,
    /// OFFERs sent, with those repeated.
    pub offers_sent: u64,
    /// WAITs sent.
    pub waits_sent: u64,
    /// BYEs sent, with those repeated.
    pub byes_sent: u64,
    /// BYEs sent again because the peer's own did not come in time.
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
    /// Messages of an earlier incarnation or an earlier queue pair.
    pub stale: u64,
    /// Datagrams with a wrong MAC.
    pub bad_mac: u64,
    /// Messages of another job.
    pub wrong_job: u64,
    /// Messages for another PE, or from a PE that this job does not have.
    pub wrong_pe: u64,
    /// Datagrams that are no messages.
    pub malformed: u64,
    /// When the first connection became usable, in nanoseconds of the endpoint's clock; 0: none.
    pub first_opened: u64,
    /// When the last one did.
    pub last_opened: u64,
    /// From the local program's request to the usable connection.
    pub first_contact: Latency,
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
    /// Target QPs made for initiators.
    pub targets: u64,
    /// OPENs sent, with those repeated.
    pub opens_sent: u64,
    /// ACCEPTs sent, with those repeated.
    pub accepts_sent: u64,
    /// ASKs sent, with those repeated.
    pub asks_sent: u64,
    /// INFOs sent.
    pub infos_sent: u64,
    /// Connections given up because the direct peer left before us.
    pub moved: u64,
}

impl ConnectStats {
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
}

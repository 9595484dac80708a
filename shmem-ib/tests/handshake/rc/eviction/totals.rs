//! What happened in all runs together.

use shmem_ib::connect::manager::Manager;

use super::{MS, World};

/// Sums over all runs, to see that what should be simulated was.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(super) runs: u64,
    pub(super) ops: u64,
    /// Operations that failed, since their target had crashed.
    pub(super) failed: u64,
    pub(super) opened: u64,
    pub(super) evictions: u64,
    pub(super) evictions_by_peer: u64,
    pub(super) yields: u64,
    pub(super) queued: u64,
    pub(super) reconnects: u64,
    pub(super) deferred: u64,
    pub(super) drains: u64,
    pub(super) crashes: u64,
    pub(super) stops: u64,
    pub(super) cut: u64,
    pub(super) lost: u64,
    /// First contacts that failed, since the peer had died.
    pub(super) failed_contacts: u64,
    pub(super) segment_updates: u64,
    /// The longest time until all programs had ended.
    pub(super) longest_ms: u64,
}

impl Totals {
    pub(crate) fn assert_that_everything_happened(&self) {
        for (what, count) in [
            ("failed operation", self.failed),
            ("eviction", self.evictions),
            ("eviction by the peer", self.evictions_by_peer),
            ("yield", self.yields),
            ("queued request", self.queued),
            ("reconnection", self.reconnects),
            ("deferred drain", self.deferred),
            ("crash", self.crashes),
            ("stop", self.stops),
            ("cut connection", self.cut),
            ("loss", self.lost),
            ("failed contact", self.failed_contacts),
            ("segment update", self.segment_updates),
        ] {
            assert!(
                count > 0 || self.runs < 1000,
                "no {what}: the simulation is too kind"
            );
        }
    }

    pub(crate) fn assert_that_it_took_at_most_ms(&self, most: u64) {
        assert!(self.longest_ms <= most, "{} ms", self.longest_ms);
    }

    pub(super) fn count(&mut self, manager: &Manager) {
        let s = manager.stats();
        self.opened += s.opened;
        self.evictions += s.evictions;
        self.evictions_by_peer += s.evictions_by_peer;
        self.yields += s.yields;
        self.queued += s.requests_queued;
        self.reconnects += s.reconnects;
        self.deferred += s.drains_deferred;
        self.drains += s.drains_sent;
        self.segment_updates += s.segments_received;
    }
}

impl World {
    pub(super) fn add_to(mut self, totals: &mut Totals) {
        for pe in &self.pes {
            if let Some(manager) = &pe.manager {
                self.totals.count(manager);
            }
        }
        let t = self.totals;
        totals.runs += t.runs;
        totals.ops += self.ops.len() as u64;
        totals.failed += t.failed;
        totals.opened += t.opened;
        totals.evictions += t.evictions;
        totals.evictions_by_peer += t.evictions_by_peer;
        totals.yields += t.yields;
        totals.queued += t.queued;
        totals.reconnects += t.reconnects;
        totals.deferred += t.deferred;
        totals.drains += t.drains;
        totals.crashes += t.crashes;
        totals.stops += t.stops;
        totals.cut += t.cut;
        totals.lost += t.lost;
        totals.failed_contacts += t.failed_contacts;
        totals.segment_updates += t.segment_updates;
        totals.longest_ms = totals.longest_ms.max(self.last_end / MS);
    }
}

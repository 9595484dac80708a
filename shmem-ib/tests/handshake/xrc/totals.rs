//! What happened in all runs of the simulation together.

use shmem_ib::connect::manager::Manager;

/// Sums over all runs, to see that the faults really happened.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) runs: u64,
    pub(crate) pes: u64,
    pub(crate) direct: u64,
    pub(crate) indirect: u64,
    pub(crate) targets: u64,
    pub(crate) moved: u64,
    pub(crate) retransmissions: u64,
    pub(crate) waits: u64,
    pub(crate) duplicates: u64,
    pub(crate) stale: u64,
    pub(crate) rejected: u64,
    pub(crate) byes_repeated: u64,
    pub(crate) byes_missed: u64,
    pub(crate) crashes: u64,
    pub(crate) early_leavers: u64,
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) operations: u64,
    pub(crate) operations_lost: u64,
    pub(crate) opened_towards_the_dead: u64,
    pub(crate) abandoned: u64,
    pub(crate) max_first_contact_ms: u64,
}

impl Totals {
    pub(crate) fn assert_that_everything_happened(&self) {
        for (what, count) in [
            ("direct peers", self.direct),
            ("indirect peers", self.indirect),
            ("moved connections", self.moved),
            ("retransmissions", self.retransmissions),
            ("waits", self.waits),
            ("duplicates", self.duplicates),
            ("stale messages", self.stale),
            ("rejected messages", self.rejected),
            ("repeated BYEs", self.byes_repeated),
            ("crashes", self.crashes),
            ("early leavers", self.early_leavers),
            ("losses", self.lost),
            ("repetitions", self.repeated),
            ("operations", self.operations),
        ] {
            assert!(
                count > 0 || self.runs < 1000,
                "no {what}: the simulation is too kind"
            );
        }
    }

    pub(crate) fn count(&mut self, manager: &Manager) {
        let s = manager.stats();
        self.direct += s.xrc.direct;
        self.indirect += s.xrc.indirect;
        self.targets += s.xrc.targets;
        self.moved += s.xrc.moved;
        self.retransmissions += s.retransmissions;
        self.waits += s.waits_sent;
        self.duplicates += s.duplicates;
        self.stale += s.stale;
        self.rejected += s.rejected();
        self.byes_repeated += s.byes_repeated;
        self.byes_missed += s.byes_missed;
    }

    /// Adds one run.
    pub(crate) fn add(&mut self, run: &Self) {
        self.runs += run.runs;
        self.pes += run.pes;
        self.direct += run.direct;
        self.indirect += run.indirect;
        self.targets += run.targets;
        self.moved += run.moved;
        self.retransmissions += run.retransmissions;
        self.waits += run.waits;
        self.duplicates += run.duplicates;
        self.stale += run.stale;
        self.rejected += run.rejected;
        self.byes_repeated += run.byes_repeated;
        self.byes_missed += run.byes_missed;
        self.crashes += run.crashes;
        self.early_leavers += run.early_leavers;
        self.lost += run.lost;
        self.repeated += run.repeated;
        self.operations += run.operations;
        self.operations_lost += run.operations_lost;
        self.opened_towards_the_dead += run.opened_towards_the_dead;
        self.abandoned += run.abandoned;
    }
}

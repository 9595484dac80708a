//! Who comes last to collectives, and what that costs the others.

use std::collections::HashMap;

use super::{Facts, told};

/// A collective whose members came within so many nanoseconds is even: no two processes do anything at the
/// same time.
const EVEN: u64 = 10_000;
/// PEs that are told.
const TOLD: usize = 10;

told! {
    /// A PE that came last.
    struct Straggler {
        pe: u32,
        /// To how many uneven collectives.
        last: u64,
        /// How long the others waited for it there, all together.
        cost: u64,
        /// The routine in which that was most.
        routine: &'static str,
    }
}

told! {
    /// The collectives of a job.
    struct Stragglers {
        /// Of which it is known who came last.
        collectives: u64,
        /// Those to which the last came noticeably later than the first.
        uneven: u64,
        /// What counts as that.
        even_ns: u64,
        /// How long members waited for the last in those, all together.
        cost: u64,
        /// The PEs that cost most, and how many PEs came last to some.
        worst: Vec<Straggler>,
        different: u64,
    }
}

pub(super) fn stragglers(facts: &Facts<'_>) -> Stragglers {
    let recordings = facts.job.recordings;
    /// How often a PE came last, its cost, and that by routine.
    #[derive(Default)]
    struct Of {
        last: u64,
        cost: u64,
        by: HashMap<&'static str, u64>,
    }
    let mut pes: HashMap<u32, Of> = HashMap::new();
    let mut all = Stragglers {
        collectives: facts.met.len() as u64,
        uneven: 0,
        even_ns: EVEN,
        cost: 0,
        worst: Vec::new(),
        different: 0,
    };
    for met in &facts.met {
        if met.spread(recordings) <= EVEN {
            continue;
        }
        let waited = met.members.iter().map(|&m| met.waited(m, recordings));
        let cost = waited.fold(0, u64::saturating_add);
        all.uneven += 1;
        all.cost = all.cost.saturating_add(cost);
        let of = pes.entry(met.last().pe(recordings)).or_default();
        of.last += 1;
        of.cost = of.cost.saturating_add(cost);
        let by = of
            .by
            .entry(met.last().of(recordings).routine.text())
            .or_default();
        *by = by.saturating_add(cost);
    }
    all.different = pes.len() as u64;
    all.worst = pes
        .into_iter()
        .map(|(pe, of)| Straggler {
            pe,
            last: of.last,
            cost: of.cost,
            routine: of
                .by
                .into_iter()
                .map(|(name, ns)| (ns, name))
                .max()
                .map_or("", |by| by.1),
        })
        .collect();
    all.worst
        .sort_by_key(|of| (std::cmp::Reverse(of.cost), of.pe));
    all.worst.truncate(TOLD);
    all
}

//! Where the time of the start went: the launcher's phases, and what PEs did in init.

use shmem_node::recording::Routine;
use shmem_node::stats::Stat;

use super::{Job, told};
use crate::report::phases;

told! {
    /// A phase of the job.
    struct Phase {
        name: &'static str,
        from: u64,
        to: u64,
    }
}

told! {
    /// A step of init, over the PEs that came to its end.
    struct Step {
        name: &'static str,
        min: u64,
        mean: u64,
        max: u64,
        /// The PE that took longest.
        slowest: u32,
    }
}

told! {
    /// The start.
    struct Start {
        phases: Vec<Phase>,
        steps: Vec<Step>,
    }
}

const STEPS: [(Routine, Stat); 6] = [
    (Routine::InitMap, Stat::MapWall),
    (Routine::InitEndpoint, Stat::EndpointWall),
    (Routine::InitGather, Stat::GatherWall),
    (Routine::InitRegister, Stat::RegisterWall),
    (Routine::InitConnect, Stat::ConnectWall),
    (Routine::InitBarrier, Stat::BarrierWall),
];

pub(super) fn start(job: &Job<'_>) -> Start {
    let phases = phases(job.launcher, job.reduced);
    let steps = STEPS.iter().filter_map(|&(routine, stat)| {
        let pes = job.recordings.iter();
        let pes = pes.filter(|of| of.stats.get(Stat::InitDoneAt) != 0);
        let took = pes.map(|of| (of.stats.get(stat), of.rank));
        // Of those that took equally long the first.
        let &(max, slowest) = &took.clone().max_by_key(|&(ns, pe)| (ns, u32::MAX - pe))?;
        let sum: u128 = took.clone().map(|(ns, _)| u128::from(ns)).sum();
        Some(Step {
            name: routine.text(),
            min: took.clone().map(|(ns, _)| ns).min()?,
            mean: (sum / took.count() as u128) as u64,
            max,
            slowest,
        })
    });
    Start {
        phases: phases
            .into_iter()
            .map(|(name, from, to)| Phase { name, from, to })
            .collect(),
        steps: steps.collect(),
    }
}

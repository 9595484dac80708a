//! What a job's page tells, computed: plain values that the page draws and that programs may read there.
//!
//! Each part is a pure function of the [`Job`]. Times are nanoseconds, moments those since `shmrun` began. What grows
//! with the square of the PEs, or with their calls, is folded here, so that the page of thousands of PEs
//! stays small.

mod advice;
mod connections;
mod fold;
mod hot;
mod matrix;
mod network;
mod places;
mod routines;
mod start;
mod stragglers;
mod waits;

use shmem_node::recording::{Group, Recording, Routine};
use shmem_node::stats::Stat;

use super::Job;
use super::matching::{self, Ended, Met};

/// Defines a type whose fields are written as JSON by their names.
macro_rules! told {
    ($(#[$about:meta])* struct $name:ident { $($(#[$what:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq)]
        pub(in crate::seeing) struct $name {
            $($(#[$what])* pub(in crate::seeing) $field: $type,)*
        }

        impl From<$name> for ::shmem_node::json::Json {
            fn from(of: $name) -> Self {
                Self::Object(vec![$((stringify!($field), of.$field.into()),)*])
            }
        }
    };
}
use told;

told! {
    /// The job as a whole.
    struct Head {
        /// The program, as typed.
        program: String,
        /// PEs.
        pes: u32,
        /// Nodes.
        nodes: u32,
        /// How PEs were started.
        spawn: String,
        /// Exit status of the job.
        status: u8,
        /// How PEs ended: which, and ranks, in words.
        ends: Vec<String>,
        /// From the beginning of `shmrun` to the end of all.
        wall: u64,
        /// From the beginning of `shmrun` until all PEs had returned from init.
        start_up: Option<u64>,
        /// PEs that recorded something.
        recorded: u32,
        /// Time that these PEs lived, from init to finalize, all together.
        lived: u64,
        /// Of it, in waits and collectives.
        waited: u64,
        /// Calls that they made.
        calls: u64,
        /// One-sided operations.
        operations: u64,
        /// Bytes of these.
        bytes: u64,
        /// Calls of which no times were recorded.
        lost: u64,
    }
}

told! {
    /// All that a page tells.
    struct Analysis {
        head: Head,
        advice: Vec<String>,
        start: start::Start,
        places: places::Places,
        matrix: matrix::Matrix,
        others: hot::Others,
        routines: Vec<routines::Row>,
        connections: Option<connections::Connections>,
        waits: Vec<waits::LongWait>,
        stragglers: stragglers::Stragglers,
        network: Vec<network::Figure>,
    }
}

/// Analyses a job.
pub(super) fn analyse(job: &Job<'_>) -> Analysis {
    let ended = matching::ended_waits(job.recordings);
    let met = matching::collectives(job.recordings);
    let facts = Facts {
        job,
        lives: job.recordings.iter().map(|of| life(job, of)).collect(),
        ended,
        met,
    };
    let head = head(&facts);
    let start = start::start(job);
    let routines = routines::routines(&facts);
    let stragglers = stragglers::stragglers(&facts);
    let others = hot::others(job.recordings);
    let advice = advice::advice(&facts, &head, &start, &others, &routines, &stragglers);
    Analysis {
        advice,
        start,
        places: places::places(&facts),
        matrix: matrix::matrix(job.recordings, job.launcher.n_pes),
        others,
        routines,
        connections: connections::connections(job),
        waits: waits::longest(&facts),
        stragglers,
        network: network::figures(job.recordings),
        head,
    }
}

/// What several parts ask for.
struct Facts<'a> {
    job: &'a Job<'a>,
    /// How long each PE lived.
    lives: Vec<u64>,
    /// By what waits were ended, in the order of the waits.
    ended: Vec<Ended>,
    /// Collectives.
    met: Vec<Met>,
}

impl Facts<'_> {
    fn lived(&self) -> u64 {
        self.lives.iter().fold(0, |all, &ns| all.saturating_add(ns))
    }
}

/// How long a PE lived: from the beginning of init to the end of finalize, or of its last call, or of the job if it
/// did not come to finalize.
fn life(job: &Job<'_>, of: &Recording) -> u64 {
    let init = of.stats.get(Stat::InitDoneAt);
    let began = init.saturating_sub(of.stats.get(Stat::InitWall));
    let first = of.events.iter().map(|call| call.begin).min();
    let last = of.events.iter().map(|call| call.end).max();
    let began = Some(began).filter(|_| init != 0).into_iter().chain(first);
    let left = match of.stats.get(Stat::FinalizeDoneAt) {
        0 => job.launcher.exited,
        left => left,
    };
    match began.min() {
        Some(began) => last.unwrap_or(0).max(left).saturating_sub(began),
        None => 0,
    }
}

/// How long a PE was in waits and collectives.
fn waited(of: &Recording) -> u64 {
    let waits = |routine: Routine| routine.waits() || routine.group() == Group::Collective;
    let totals = of.totals.iter().filter(|total| waits(total.routine));
    totals.fold(0, |all, total| all.saturating_add(total.ns))
}

fn head(facts: &Facts<'_>) -> Head {
    let job = facts.job;
    let (l, recordings) = (job.launcher, job.recordings);
    let since = |moment: u64| moment.saturating_sub(job.base());
    let totals = || recordings.iter().flat_map(|of| &of.totals);
    let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add);
    let groups = job.reduced.processes.ends.groups().into_iter();
    let ends = groups.map(|(end, count, ranks)| {
        let pe = if count == 1 { "PE" } else { "PEs" };
        format!("{}: {pe} {ranks}", crate::report::end_name(end))
    });
    let one_sided = || totals().filter(|total| total.routine.is_one_sided());
    let calls = || totals().filter(|total| total.routine.group() != Group::Network);
    Head {
        program: l.program.clone(),
        pes: l.n_pes,
        nodes: l.n_nodes,
        spawn: crate::report::spawned(l, job.reduced),
        status: l.status,
        ends: ends.collect(),
        wall: since(l.done.max(l.exited)),
        start_up: job.reduced.stat(Stat::InitDoneAt).map(|at| since(at.max)),
        recorded: recordings.iter().filter(|of| !of.totals.is_empty()).count() as u32,
        lived: facts.lived(),
        waited: sum(&mut recordings.iter().map(waited)),
        calls: sum(&mut calls().map(|total| total.calls)),
        operations: sum(&mut one_sided().map(|total| total.calls)),
        bytes: sum(&mut one_sided().map(|total| total.bytes)),
        lost: sum(&mut recordings.iter().map(|of| of.lost)),
    }
}

#[cfg(test)]
mod tests;

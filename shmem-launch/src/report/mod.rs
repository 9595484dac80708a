//! `--report`: where the time of a start went, and what the PEs counted.
//!
//! Every PE writes its figures into its node's memory. At the end an agent reads those of its node
//! and *reduces* them (minimum, maximum, sum); on the way up the tree the reductions of subtrees are
//! merged, so the launcher receives one record however large the job is. Moments are on the
//! monotonic clock of the machine; what comes from another host is brought to the receiver's clock when
//! it is merged.

mod ends;
mod json;
mod text;

pub(crate) use ends::name as end_name;
pub use ends::{Ended, Ends, Processes, Used};
pub use json::to_json;
pub use text::to_text;
pub(crate) use text::value;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};
use shmem_node::stats::{MOMENTS as MOMENTS_OF_PES, PeStats, STAT_COUNT, Stat};
use shmem_node::template::Lost;

/// Minimum, maximum and sum of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregate {
    /// Smallest value; `u64::MAX` over nothing.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// Sum, saturating.
    pub sum: u64,
}

impl Default for Aggregate {
    fn default() -> Self {
        Self {
            min: u64::MAX,
            max: 0,
            sum: 0,
        }
    }
}

impl Aggregate {
    /// Adds one value.
    pub fn add(&mut self, value: u64) {
        self.merge(&Self {
            min: value,
            max: value,
            sum: value,
        });
    }

    /// Adds `shift`, modulo 2^64, to the moments that it was made of; 0 is none. Their sum means
    /// nothing.
    fn shift(&mut self, shift: u64) {
        for at in [&mut self.min, &mut self.max] {
            if *at != 0 && *at != u64::MAX {
                *at = at.wrapping_add(shift);
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// A moment in the life of every agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Moment {
    /// It received its `Launch`.
    Launched,
    /// Segment, process group and template were there.
    Prepared,
    /// The template answered for the first time.
    FirstPe,
    /// All PEs of the node were started.
    LastPe,
    /// All PEs of the node had ended.
    Ended,
}

/// Number of moments.
pub const MOMENTS: usize = Moment::Ended as usize + 1;

/// The figures of a node, or of a subtree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reduced {
    /// Agents that contributed.
    pub agents: u64,
    /// PEs that contributed: those that called init.
    pub pes: u64,
    /// When the agent sent it, on its machine's clock.
    pub sent: u64,
    /// Each agent's moments in nanoseconds of the monotonic clock.
    pub moments: [Aggregate; MOMENTS],
    /// Why templates executed PEs instead of forking them, if any did.
    pub lost: Lost,
    /// CPU time of each agent in nanoseconds.
    pub agent_cpu: Aggregate,
    /// The PEs' processes.
    pub processes: Processes,
    /// The PEs' figures, in the order of [`STATS`](shmem_node::stats::STATS).
    pub stats: Vec<Aggregate>,
}

impl Reduced {
    /// Adds a PE's record; one of a program that never called init does not count.
    pub fn add_pe(&mut self, stats: &PeStats) {
        if stats.get(Stat::InitDoneAt) == 0 {
            return;
        }
        self.pes += 1;
        self.stats.resize(STAT_COUNT, Aggregate::default());
        for (aggregate, &value) in self.stats.iter_mut().zip(&stats.0) {
            aggregate.add(value);
        }
    }

    /// Adds the figures of another node or subtree.
    pub fn merge(&mut self, other: &Self) {
        self.agents += other.agents;
        self.pes += other.pes;
        for (a, b) in self.moments.iter_mut().zip(&other.moments) {
            a.merge(b);
        }
        self.lost = self.lost.and(other.lost);
        self.agent_cpu.merge(&other.agent_cpu);
        self.processes.merge(&other.processes);
        if self.stats.len() < other.stats.len() {
            self.stats.resize(other.stats.len(), Aggregate::default());
        }
        for (a, b) in self.stats.iter_mut().zip(&other.stats) {
            a.merge(b);
        }
    }

    /// Adds `shift`, modulo 2^64, to all moments: brings them to the clock of another machine.
    pub fn shift(&mut self, shift: u64) {
        for moments in &mut self.moments {
            moments.shift(shift);
        }
        for (stat, figures) in self.stats.iter_mut().enumerate() {
            if is_moment(stat) {
                figures.shift(shift);
            }
        }
    }

    /// The reduction of one PE figure, if any PE contributed.
    pub fn stat(&self, stat: Stat) -> Option<Aggregate> {
        self.stats
            .get(stat as usize)
            .copied()
            .filter(|_| self.pes > 0)
    }
}

/// What the launcher itself knows. Moments are nanoseconds of the monotonic clock; 0 if the job
/// did not come so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launcher {
    /// The program, as typed.
    pub program: String,
    /// PEs of the job.
    pub n_pes: u32,
    /// Nodes of the job.
    pub n_nodes: u32,
    /// Degree of the launch tree.
    pub degree: u32,
    /// Hops from node 0 to the farthest agent.
    pub depth: u32,
    /// How PEs were started: `template` or `exec`.
    pub spawn: &'static str,
    /// `shmrun` began.
    pub start: u64,
    /// Plan and checks were done.
    pub planned: u64,
    /// All agents were prepared.
    pub ready: u64,
    /// All PEs were started.
    pub started: u64,
    /// All PEs had ended.
    pub exited: u64,
    /// Nothing was left.
    pub done: u64,
    /// Exit status of the job.
    pub status: u8,
}

/// Whether a report of this name is JSON.
pub(crate) fn is_json(file: &OsStr) -> bool {
    file.as_bytes().ends_with(b".json")
}

/// How PEs were started, and why not from a template where one was there.
pub(crate) fn spawned(l: &Launcher, r: &Reduced) -> String {
    match r.lost.is_nothing() {
        true => l.spawn.to_owned(),
        false => format!(
            "exec (libraries of the program {} before main, which a fork loses)",
            r.lost
        ),
    }
}

/// The phases of a job, each with its beginning and end in nanoseconds since `shmrun` began. They
/// overlap: PEs are in init on one node while others are being started.
pub(crate) fn phases(l: &Launcher, r: &Reduced) -> Vec<(&'static str, u64, u64)> {
    let mut out = Vec::new();
    let mut phase = |name, from: u64, to: u64| {
        if from == 0 || from == u64::MAX {
            return;
        }
        // Clocks of machines drift apart while a job runs: what began there soon after the start may
        // seem to have been before it.
        let from = from.max(l.start);
        if to >= from {
            out.push((name, from - l.start, to - l.start));
        }
    };
    let first = |m: Moment| r.moments[m as usize].min;
    let last = |m: Moment| r.moments[m as usize].max;
    phase("plan and checks", l.start, l.planned);
    phase("agents started", l.planned, last(Moment::Launched));
    phase(
        "nodes prepared",
        first(Moment::Launched),
        last(Moment::Prepared),
    );
    phase("tree up", l.planned, l.ready);
    phase("templates ready", l.ready, last(Moment::FirstPe));
    phase("PEs started", l.ready, l.started);
    if let Some(init) = r.stat(Stat::InitDoneAt) {
        phase("first init done", l.start, init.min);
        phase("last init done", init.min, init.max);
    }
    if let Some(fin) = r.stat(Stat::FinalizeDoneAt)
        && fin.max != 0
    {
        phase("first finalize done", l.start, fin.min);
        phase("last finalize done", fin.min, fin.max);
    }
    phase("PEs ended", l.start, l.exited);
    phase("cleaned up", l.exited, l.done);
    out
}

/// Figures that are moments: shown as phases, not in the table.
fn is_moment(stat: usize) -> bool {
    MOMENTS_OF_PES.iter().any(|&m| m as usize == stat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::codec;
    use proptest::prelude::*;

    fn pe(seed: u64) -> PeStats {
        PeStats(std::array::from_fn(|i| 1 + seed * 100 + i as u64))
    }

    fn node(pes: std::ops::Range<u64>) -> Reduced {
        let mut r = Reduced {
            agents: 1,
            ..Reduced::default()
        };
        r.moments[Moment::Prepared as usize].add(1000 + pes.start);
        r.agent_cpu.add(5);
        for p in pes {
            let ended = Ended {
                rank: p as u32,
                end: crate::exit::End::Code(u8::from(p == 3)),
                used: Used {
                    user_ns: 1000 * p,
                    system_ns: 7,
                    peak: 3 << 20,
                },
            };
            r.processes.add(ended, true);
            r.add_pe(&pe(p));
        }
        r
    }

    #[test]
    fn merging_nodes_equals_adding_all_pes() {
        let mut merged = node(0..3);
        merged.merge(&node(3..4));
        merged.merge(&Reduced::default());
        assert_eq!((merged.agents, merged.pes), (2, 4));
        let all = node(0..4);
        assert_eq!(merged.stats, all.stats);
        assert_eq!(
            merged.stat(Stat::InitWall),
            Some(Aggregate {
                min: 1,
                max: 301,
                sum: 604
            })
        );
        assert_eq!(merged.moments[Moment::Prepared as usize].max, 1003);
    }

    #[test]
    fn nothing_begins_before_the_job() {
        let mut r = Reduced::default();
        r.moments[Moment::Launched as usize].add(90);
        r.moments[Moment::Prepared as usize].add(130);
        let l = Launcher {
            start: 100,
            planned: 101,
            ..Launcher::default()
        };
        let phases = phases(&l, &r);
        let prepared = phases.iter().find(|p| p.0 == "nodes prepared");
        assert_eq!(prepared, Some(&("nodes prepared", 0, 30)));
    }

    #[test]
    fn clocks_of_machines_are_brought_together() {
        let mut r = node(0..3);
        let at = |r: &Reduced| r.stats[Stat::InitDoneAt as usize];
        let (before, wall) = (at(&r), r.stat(Stat::InitWall));
        r.shift(3u64.wrapping_neg());
        assert_eq!((at(&r).min, at(&r).max), (before.min - 3, before.max - 3));
        assert_eq!(r.moments[Moment::Prepared as usize].min, 997);
        assert_eq!(r.moments[Moment::Ended as usize], Aggregate::default());
        assert_eq!(r.stat(Stat::InitWall), wall, "a time, not a moment");
    }

    #[test]
    fn programs_without_init_do_not_count() {
        let mut r = Reduced::default();
        r.add_pe(&PeStats([0; STAT_COUNT]));
        assert_eq!((r.pes, r.stat(Stat::InitWall)), (0, None));
    }

    proptest! {
        #[test]
        fn records_round_trip(n in 0u64..5, cut: usize) {
            let r = node(0..n);
            let mut bytes = Vec::new();
            codec::encode(&r, &mut bytes);
            prop_assert_eq!(codec::decode::<Reduced>(&bytes).unwrap(), r);
            prop_assert!(codec::decode::<Reduced>(&bytes[..cut % bytes.len()]).is_err());
        }

        #[test]
        fn garbage_is_refused_without_panic(bytes: Vec<u8>) {
            let _ = codec::decode::<Reduced>(&bytes);
        }
    }

    pub(super) fn example() -> (Launcher, Reduced) {
        let l = Launcher {
            program: "./he\"llo".into(),
            n_pes: 4,
            n_nodes: 2,
            degree: 2,
            depth: 1,
            spawn: "template",
            start: 1,
            planned: 1_000_001,
            ready: 3_000_001,
            started: 4_000_001,
            exited: 5_000_001,
            done: 6_000_001,
            status: 0,
        };
        let mut r = node(0..2);
        r.merge(&node(2..4));
        (l, r)
    }
}
